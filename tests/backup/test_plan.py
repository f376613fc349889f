"""What is due, what is taken up again, what expires: pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serve_app.backup.catalogue import Catalogue, Finished
from serve_app.backup.manifest import Begun, Kind
from serve_app.backup.plan import TAKEN_UP_WITHIN_S, due, plan
from serve_app.core import SECOND_US
from serve_app.policies import BackupPolicy

POLICY = BackupPolicy(uri="x", full_every_s=100, incremental_every_s=10, keep_s=250)


def begun(name: str, at_s: int, base: str | None = None) -> Begun:
    kind: Kind = "full" if base is None else "incremental"
    return Begun(name, kind, base, "store", at_s * SECOND_US)


def done(name: str, at_s: int, base: str | None = None, needs: Sequence[str] = ()) -> Finished:
    return Finished(begun(name, at_s, base), (at_s + 1) * SECOND_US, 0, 0, frozenset(needs), (0, 0))


def chains() -> Catalogue:
    """Two: a with two on top of it, and b."""
    return Catalogue(
        (done("a", 0), done("a1", 10, "a", ["a"]), done("a2", 20, "a1", ["a", "a1"]), done("b", 100)),
    )


def test_first_a_full_backup_then_incremental_ones_until_the_next_full_one() -> None:
    assert due(Catalogue(), POLICY, 0) == "full"
    found = Catalogue((done("a", 0),))
    assert [due(found, POLICY, at * SECOND_US) for at in (0, 9, 10, 99, 100)] == [
        None,
        None,
        "incremental",
        "incremental",
        "full",
    ]
    later = Catalogue((done("a", 0), done("a1", 90, "a")))
    assert [due(later, POLICY, at * SECOND_US) for at in (99, 100)] == [None, "full"]


def test_an_incremental_backup_stands_on_the_newest_one_and_is_full_without_any() -> None:
    first = plan(Catalogue(), "incremental", "store", SECOND_US)
    assert (first.begun.kind, first.begun.base, first.base) == ("full", None, None)
    next_one = plan(chains(), "incremental", "store", 105 * SECOND_US)
    assert (next_one.begun.kind, next_one.begun.base) == ("incremental", "b")
    assert plan(chains(), "full", "store", 105 * SECOND_US).begun.base is None


def test_an_unfinished_backup_of_the_same_kind_is_taken_up_and_any_other_is_left_over() -> None:
    found = Catalogue(chains().finished, (begun("old", 1), begun("i", 101, "a"), begun("f", 102)))
    taken = plan(found, "full", "store", 103 * SECOND_US)
    assert (taken.begun.id, taken.leftovers) == ("f", ["old", "i"])
    other = plan(found, "incremental", "store", 103 * SECOND_US)
    assert other.begun.id not in {"old", "i", "f"}
    assert other.leftovers == ["old", "i", "f"]
    late = plan(found, "full", "store", (102 + TAKEN_UP_WITHIN_S) * SECOND_US)
    assert late.leftovers == ["old", "i", "f"]


def expired(found: Catalogue, at_s: int, **more: Any) -> list[str]:
    return found.expired(at_s * SECOND_US, POLICY.keep_s)


def test_a_chain_expires_as_a_whole_after_its_full_backup_and_the_newest_never() -> None:
    found = chains()
    assert expired(found, 250) == []
    assert expired(found, 251) == ["a2", "a1", "a"]
    assert expired(found, 10_000) == ["a2", "a1", "a"]
    assert {found.expires_at(one.begun, 250) for one in found.finished[:3]} == {251 * SECOND_US}


def test_what_a_living_backup_needs_does_not_expire() -> None:
    found = Catalogue((done("a", 0), done("b", 100, needs=["a"]), done("c", 200)))
    assert expired(found, 300) == []
    assert expired(found, 400) == ["b", "a"]


def test_a_damaged_backup_is_no_base_and_expires_with_its_chain() -> None:
    whole = (done("a", 0), done("a1", 10, "a", ["a"]))
    broken = Catalogue(whole[1:], (), (whole[0].begun,))
    first = plan(broken, "incremental", "store", 20 * SECOND_US)
    assert (first.begun.kind, first.leftovers) == ("full", [])
    assert due(broken, POLICY, 11 * SECOND_US) == "full"
    assert expired(broken, 10_000) == [], "there is nothing newer"
    later = Catalogue((*whole[1:], done("b", 100)), (), (whole[0].begun,))
    assert plan(later, "incremental", "store", 110 * SECOND_US).begun.base == "b"
    assert expired(later, 249) == []
    assert expired(later, 250) == ["a1", "a"]
    newest = Catalogue(whole, (), (begun("b", 100),))
    assert plan(newest, "incremental", "store", 110 * SECOND_US).begun.kind == "full"
    assert expired(newest, 350) == ["b"]


def test_what_a_finished_backup_needs_is_never_left_over() -> None:
    found = Catalogue((done("a1", 10, "a", ["a"]),), (begun("a", 0), begun("c", 15)))
    planned = plan(found, "full", "store", 20 * SECOND_US)
    assert (planned.begun.id, planned.leftovers) == ("c", [])
