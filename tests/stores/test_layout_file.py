"""Layouts: the built-in one, what was tuned, whose it is, how it was at an earlier revision, and its bounds."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from serve_app import layouts as tuned
from serve_app.errors import InvalidRequest, NotFound, StoreUnavailable
from serve_app.layouts import BUILT_IN, Shares, TunedLayout, When
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.layout_file import LAYOUTS_FILE, LayoutFile


def a_file(folder: Path) -> LayoutFile:
    """Its clock goes on by ten with each look."""
    ticks = itertools.count(100, 10)
    return LayoutFile(DiskDocuments(folder), lambda: next(ticks))


def layout(recent: int, **when: tuple[str, ...]) -> TunedLayout:
    return TunedLayout(Shares(8, 6, 22, 16, recent, 12), When(**when) if when else None)  # type: ignore[arg-type]


def test_default_is_built_in_until_it_is_set_and_again_once_it_is_removed(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    assert (file.newest("acme").revision, file.get("acme", "default").layout) == (0, BUILT_IN)
    file.put("acme", "default", layout(30))
    assert file.get("acme", "default").layout == layout(30)
    assert file.remove("acme", "default") == 2
    assert file.get("acme", "default").layout == BUILT_IN
    with pytest.raises(NotFound):
        file.remove("acme", "default")


def test_what_is_set_counts_for_its_tenant_alone_in_every_process(tmp_path: Path) -> None:
    file, other_process = a_file(tmp_path), a_file(tmp_path)
    assert other_process.newest("acme").revision == 0
    assert file.put("acme", "wide", layout(36)).revision == 1
    assert other_process.get("acme", "wide").layout == layout(36)
    assert other_process.put("acme", "narrow", layout(10)).revision == 2
    assert file.newest("acme").names == ["default", "narrow", "wide"]
    with pytest.raises(NotFound, match="'default'"):
        file.get("other", "wide")


def test_the_same_again_is_no_new_revision(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    assert file.put("acme", "wide", layout(36)).revision == 1
    assert file.put("acme", "wide", layout(36)).revision == 1
    assert file.put("acme", "wide", layout(35)).revision == 2


def test_earlier_states_are_known_by_revision_and_by_time(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    for recent in (30, 31, 32):
        file.put("acme", "wide", layout(recent))  # at 100, 110, 120
    file.remove("acme", "wide")  # at 130
    history = a_file(tmp_path).history("acme")
    assert [history.at_revision(n).named("wide") for n in range(5)] == [None, layout(30), layout(31), layout(32), None]
    assert [history.at(at).revision for at in (99, 100, 119, 120, 10**9)] == [0, 1, 2, 3, 4]


def test_a_clock_that_goes_back_leaves_revisions_in_order(tmp_path: Path) -> None:
    times = iter([100, 50, 200])
    file = LayoutFile(DiskDocuments(tmp_path), lambda: next(times))
    for recent in (30, 31, 32):
        file.put("acme", "wide", layout(recent))
    history = file.history("acme")
    assert [history.at(at).revision for at in (99, 100, 199, 200)] == [0, 2, 2, 3]


def test_the_oldest_revisions_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "REVISIONS_MAX", 3)
    file = a_file(tmp_path)
    for recent in range(10):
        file.put("acme", "wide", layout(recent))
    history = file.history("acme")
    assert (len(history.changes), history.base.revision, history.newest) == (3, 7, 10)
    assert history.at_revision(2).named("wide") == layout(6)
    assert history.at_revision(9).named("wide") == layout(8)


def test_a_tenant_has_a_bounded_number_of_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.stores.layout_file.LAYOUTS_MAX", 2)
    file = a_file(tmp_path)
    file.put("acme", "one", layout(1))
    file.put("acme", "two", layout(2))
    with pytest.raises(InvalidRequest, match="at most 2"):
        file.put("acme", "three", layout(3))
    file.put("acme", "two", layout(3))
    file.put("other", "three", layout(3))


def test_default_is_no_rule(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="another name"):
        a_file(tmp_path).put("acme", "default", layout(1, models=("*",)))


@pytest.mark.parametrize(
    ("shares", "more", "word"),
    [
        ({"facts": None}, {}, "facts"),
        ({"system": 90}, {}, "182"),
        ({"system": -1}, {}, ">= 0"),
        ({"system": 1.5}, {}, "int"),
        ({"colour": 1}, {}, "colour"),
        ({}, {"when": {}}, "nothing"),
        ({}, {"colour": 1}, "colour"),
    ],
)
def test_what_is_no_layout_says_why(shares: dict[str, object], more: dict[str, object], word: str) -> None:
    given = {name: share for name, share in (BUILT_IN.shares.of_zones | shares).items() if share is not None}
    with pytest.raises(msgspec.ValidationError, match=word):
        msgspec.convert({"shares": given} | more, TunedLayout)


def test_the_closest_rule_wins(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    rules: dict[str, dict[str, tuple[str, ...]]] = {
        "any model": {"models": ("*",)},
        "small models": {"models": ("gpt-*", "claude-haiku*")},
        "one model": {"models": ("gpt-mini",)},
        "b paid": {"user_tiers": ("paid", "trial")},
        "a paid": {"user_tiers": ("paid",)},
        "paid lookups": {"user_tiers": ("paid",), "query_types": ("lookup",)},
    }
    for name, when in rules.items():
        file.put("acme", name, layout(1, **when))
    file.put("acme", "by name only", layout(2))
    state = file.newest("acme")
    assert state.looks_at_queries
    assert state.matching(None, None, None) == "default"
    assert state.matching("other", None, None) == "any model"
    assert state.matching("gpt-large", None, None) == "small models"
    assert state.matching("gpt-mini", None, None) == "one model"
    assert state.matching("gpt-mini", "lookup", "paid") == "paid lookups"
    assert state.matching(None, "temporal", "paid") == "a paid"
    assert state.matching(None, None, "trial") == "b paid"
    assert not file.newest("other").looks_at_queries


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / LAYOUTS_FILE).write_text("{")
    with pytest.raises(StoreUnavailable, match=r"layouts\.json"):
        a_file(tmp_path).newest("acme")
