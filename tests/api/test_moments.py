"""Contexts as of a moment before, in and after each state of a migration: each as it was, whatever was written since.

Nothing is written between the changes here: seqs alone do not tell what was made before one from what was after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.running import Running, refused
from tests.migrate.migrated import GOLD, QUICK, TERMS, begin, fill_in, filled, say, started, until

SLOW = {"terms": TERMS | {"auto": False, "queries_min": 1}}
"""Each state waits for a word."""

SAME = ("messages", "context_id", "retrieved", "zones", "degradation")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = started(tmp_path / "data")
    filled(running)
    yield running
    running.stop()


def same(running: Running, asked: dict[str, Any]) -> bool:
    again = running.context("ann", GOLD[2], as_of=asked["as_of"], now=asked["now"])
    assert again["as_of"] == asked["as_of"]
    return [again.get(name) for name in SAME] == [asked.get(name) for name in SAME]


def test_each_is_as_it_was_while_its_version_is_held(running: Running) -> None:
    before = running.context("ann", GOLD[2])
    assert before["as_of"] == before["receipt"]  # nothing has ever migrated
    migration = begin(running, **SLOW)
    until(running, migration, "prepare")
    made = []
    for state in ("dual_write", "backfill", "verify", "canary", "cutover", "soak"):
        say(running, migration, "advance")
        until(running, migration, state)
        if state == "backfill":
            fill_in(running, migration)
        made.append(running.context("ann", GOLD[2], now=before["now"]))
    assert len({one["context_id"] for one in made}) == 2
    assert len({one["receipt"] for one in made[3:]}) == 1
    assert all(same(running, one) for one in (before, *made))
    again = running.again(control=QUICK)
    try:
        assert all(same(again, one) for one in (before, *made))
        again.append("ann", "s", "the astrolabe lies on the shelf", wait="indexed")
        assert all(same(again, one) for one in (before, *made))
        say(again, migration, "rollback")
        until(again, migration, "rolling_back", "rolled_back")
        back = again.context("ann", GOLD[2], now=before["now"])
        assert all(same(again, one) for one in (before, *made[:3], back))
        gone = again.context("ann", GOLD[2], as_of=made[-1]["as_of"], now=made[-1]["now"])
        assert "dense: version_gone" in gone["degradation"]["reasons"]
    finally:
        again.stop()
    running.__init__(again.settings)  # type: ignore[misc] - for the fixture to stop


def test_a_moment_that_names_none_is_refused_and_one_of_a_later_time_is_now(running: Running) -> None:
    asked = running.context("ann", GOLD[2])
    for wrong in ("~", "@~1", "@1~", "@0~x", "@0~-1", "~1"):
        body = {"user_id": "ann", "query": "q", "budget_tokens": 500, "as_of": asked["receipt"] + wrong}
        answer = running.call("POST", "/v1/context", json=body)
        refused(answer, 422, answer.json()["code"])
    later = running.context("ann", GOLD[2], as_of=asked["receipt"] + "@0~999", now=asked["now"])
    assert later["context_id"] == asked["context_id"]
