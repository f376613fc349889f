"""What follows from what queries told: the verdict, by the terms."""

from __future__ import annotations

import random

import msgspec
import pytest

from serve_app.migrate.figures import Counts, Figures, decided, figures
from serve_app.migrate.reach import Listed, Source, Told, told
from serve_app.migrate.record import Terms

K = 10
FULL = tuple(range(K))
MISSED = tuple(range(100, 100 + K))


def one(base: bool = True, target: bool = True, *, alone: tuple[bool, bool] = (True, True), **of: str) -> Told:
    """A query whose only relevant turn each side finds, or does not."""
    sides = [
        Listed(FULL if found else MISSED, FULL if by_itself else MISSED, 0.01, 1_000)
        for found, by_itself in zip((base, target), alone, strict=True)
    ]
    source: Source = "logged" if of.get("source") == "logged" else "golden"
    group = of.get("tenant", "t"), source, of.get("script", "Latin"), "lookup"
    return told(*group, (sides[0], sides[1]), {3}, {3}, K)


def made(found: list[Told], **counts: int) -> tuple[Figures | None, Counts]:
    by_source = {source: sum(one.source == source for one in found) for source in ("golden", "logged", "shadow")}
    counted = Counts(**by_source, **counts)
    return figures(found, counted, (0, 0), K, "nobody", 5, 1.0), counted


def verdict(found: list[Told], **terms: float) -> str:
    return decided(*made(found), Terms(**terms))[0]  # type: ignore[arg-type]


def test_equal_answers_pass_and_differ_in_nothing() -> None:
    found, counts = made([one()] * 20)
    assert found is not None
    row = found.overall
    assert (row.difference, row.low, row.high, row.base) == (0, 0, 0, 1)
    assert decided(found, counts, Terms())[0] == "passed"


@pytest.mark.parametrize(
    ("queries", "lost", "won", "expected"),
    [
        (19, 0, 0, "undecided"),  # too few
        (20, 20, 0, "failed"),
        (20, 6, 0, "failed"),
        (20, 2, 0, "undecided"),  # chance may explain it, but it may be a tenth
        (24, 1, 1, "passed"),
        (1000, 10, 0, "passed"),  # as much as is allowed
        (1000, 13, 2, "failed"),  # more than that, and surely a loss
        (1000, 45, 32, "passed"),  # chance explains it, and a great loss is excluded
        (1000, 0, 50, "passed"),
    ],
)
def test_the_rule(queries: int, lost: int, won: int, expected: str) -> None:
    found = [one(True, False)] * lost + [one(False, True)] * won + [one()] * (queries - lost - won)
    random.Random(1).shuffle(found)
    assert verdict(found, loss=0.01, tenant_loss=0.05, queries_min=20) == expected


def test_a_tenant_that_loses_fails_it_for_all() -> None:
    found = [one(tenant="large")] * 900 + [one(True, at > 7, tenant="small") for at in range(30)]
    figured, counts = made(found)
    assert figured is not None
    assert figured.overall.difference > -0.01
    told_, reasons = decided(figured, counts, Terms())
    assert told_ == "failed"
    assert [reason for reason in reasons if reason.startswith("tenant small:")]
    assert verdict(found, tenant_loss=0.5) == "passed"
    assert verdict(found, queries_min=40) == "passed"  # too few of that tenant to say so


def test_many_equal_tenants_do_not_fail_by_chance() -> None:
    chance = random.Random(7)
    found = [
        one(chance.random() < 0.8, chance.random() < 0.8, tenant=f"t{tenant}")
        for tenant in range(40)
        for _ in range(25)
    ]
    figured, counts = made(found)
    _, reasons = decided(figured, counts, Terms(loss=0.05))
    assert not [reason for reason in reasons if reason.startswith("tenant")]


def test_vectors_that_find_nothing_by_themselves_fail_however_well_words_do() -> None:
    assert verdict([one(alone=(True, at < 4)) for at in range(20)]) == "failed"
    assert verdict([one(alone=(True, at < 14)) for at in range(20)]) == "passed"
    assert verdict([one(alone=(False, False))] * 20) == "passed"  # the old ones find no more


@pytest.mark.parametrize(("source", "expected"), [("golden", "failed"), ("logged", "passed")])
def test_a_judge_may_be_wrong_by_some_hundredths(source: str, expected: str) -> None:
    assert verdict([one(True, at > 29, source=source) for at in range(1_000)]) == expected
    assert verdict([one(True, at > 99, source=source) for at in range(1_000)]) == "failed"


def test_vectors_that_agree_by_chance_alone_fail_with_few_judged_queries() -> None:
    """The new ones reach more than half of what the old ones do, by chance, and find nothing that these find."""
    found = [one(alone=(at < 18, False), source="logged") for at in range(20)]
    by_chance = [unlike._replace(target=unlike.target._replace(alone=0.5), agreement=0.02) for unlike in found]
    assert verdict(by_chance) == "failed"
    assert verdict([unlike._replace(agreement=0.4) for unlike in by_chance]) == "passed"
    better = [unlike._replace(target=unlike.target._replace(alone=0.9)) for unlike in by_chance]
    assert verdict(better) == "passed"  # unlike, and no worse


def test_what_is_judged_does_not_hide_what_is_gold() -> None:
    gold = [one(True, at > 9) for at in range(40)]
    assert verdict(gold + [one(source="logged")] * 2_000) == "failed"


def test_answers_that_lack_something_leave_it_undecided() -> None:
    found = [one()] * 30
    counts = Counts(golden=30, lacking=10)
    figured = figures(found, counts, (0, 10), K, "nobody", 5, 1.0)
    told_, reasons = decided(figured, counts, Terms())
    assert (told_, "10 of 40" in reasons[0]) == ("undecided", True)


def test_nothing_asked() -> None:
    assert decided(None, Counts(), Terms())[0] == decided(None, Counts(), Terms(queries_min=0))[0] == "undecided"


def test_figures_are_json_and_come_back() -> None:
    found, _ = made([one(tenant="a"), one(False, True, tenant="b", script="Han"), one(source="logged")] * 9)
    assert found is not None
    assert msgspec.json.decode(msgspec.json.encode(found), type=Figures) == found
    assert [row.name for row in found.scripts] == ["Han", "Latin"]
    assert (sum(found.changes.counts), found.changes.counts[-1]) == (27, 9)
