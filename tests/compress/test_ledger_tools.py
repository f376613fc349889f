"""Tool results in the ledger: the names of their members tell what binds."""

import pytest

from serve_app.compress.ledger import ledger
from serve_app.core import Turn


def active(result, reply):
    turns = [Turn("t0", "s", "tool", result, 10, 0, 0), Turn("t1", "s", "assistant", reply, 11, 1, 1)]
    return [entry.text for entry in ledger(turns) if entry.status == "active" and entry.turn_id == "t0"]


@pytest.mark.parametrize(
    ("result", "part"),
    [
        ("cron: report_daily  last_run=7421s  max_allowed=3600s  owner=bi-team", "max_allowed=3600s"),
        ('{"order":"8826","warranty":"保修截止2026-01-14","status":"delivered"}', "2026-01-14"),
        ('{"lint":"ok","coverage_min":"82%","failed":0}', "82%"),
        ("gateway: request body limit 512KB; blocked verbs: PUT, DELETE", "blocked verbs: PUT, DELETE"),
    ],
)
def test_limits_and_terms_are_entries(result, part):
    assert any(part in text for text in active(result, "OK."))


def test_what_merely_happened_is_none():
    assert active('{"status":"delivered","note":"left at the door"}', "OK.") == []
