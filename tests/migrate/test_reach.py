"""Ranks, overlaps and intervals: by hand where hands reckon them, by properties elsewhere."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.migrate.reach import Listed, Told, estimate, family_level, overlap, rbo, tau, told

lists = st.lists(st.integers(0, 30), unique=True, max_size=12).map(tuple)


Seqs = tuple[int, ...]


def both(base: Seqs, target: Seqs, relevant: set[int], k: int = 5, alone: tuple[Seqs, Seqs] | None = None) -> Told:
    by_vectors = alone or (None, None)
    sides = Listed(base, by_vectors[0]), Listed(target, by_vectors[1])
    return told("t", "golden", "Latin", "lookup", sides, relevant, relevant, k)


def test_by_hand() -> None:
    one = both((1, 2, 3, 4, 5), (2, 1, 9, 8, 3), {1, 3, 7}, alone=((1, 9), (7, 1, 3)))
    assert (one.base.ranks, one.target.ranks) == ((1, 3, 0), (2, 5, 0))
    assert [one.base.recall(k) for k in (1, 2, 3, 5)] == [1 / 3, 1 / 3, 2 / 3, 2 / 3]
    assert [one.target.recall(k) for k in (1, 2, 3, 5)] == [0, 1 / 3, 1 / 3, 2 / 3]
    assert (one.base.reciprocal, one.target.reciprocal) == (1.0, 0.5)
    assert (one.base.alone, one.target.alone) == (1 / 3, 1.0)
    assert one.overlap == 3 / 5
    assert one.tau == pytest.approx(1 / 3)  # of 1-2, 1-3, 2-3 one pair is the other way round


def test_agreement_is_counted_beyond_chance() -> None:
    def agreement(base: Seqs, target: Seqs, candidates: int) -> float | None:
        sides = Listed((1,), base, 0.0, candidates), Listed((1,), target, 0.0, candidates)
        return told("t", "golden", "Latin", "lookup", sides, {1}, {1}, 2).agreement

    assert agreement((1, 2), (2, 1), 20) == 1.0
    assert agreement((1, 2), (1, 3), 4) == 0.0  # two of four share one by chance
    assert agreement((1, 2), (3, 4), 20) == pytest.approx(-1 / 9)
    assert agreement((1, 2), (1, 2), 2) is None


def test_what_lies_below_k_is_not_found() -> None:
    one = both((9, 8, 1), (1, 9, 8), {1}, k=2)
    assert (one.base.recall(2), one.target.recall(2), one.base.reciprocal) == (0, 1, 0)
    assert one.base.alone is None


def test_rank_biased_overlap_by_hand() -> None:
    assert rbo((1, 2), (2, 1), p=0.5) == pytest.approx(0.5 * (0 / 1 + 2 / 2 * 0.5) + 2 / 2 * 0.25)
    assert rbo((1, 2), (3, 4)) == 0.0


@given(lists)
def test_equal_lists_are_one(seqs: tuple[int, ...]) -> None:
    assert overlap(seqs, seqs) == 1.0
    assert rbo(seqs, seqs) == pytest.approx(1.0)
    assert tau(seqs, seqs) == (1.0 if len(seqs) > 1 else None)


@given(lists, lists)
def test_measures_are_symmetric_and_bounded(here: tuple[int, ...], there: tuple[int, ...]) -> None:
    assert overlap(here, there) == overlap(there, here)
    assert rbo(here, there) == pytest.approx(rbo(there, here))
    assert 0 <= rbo(here, there) <= 1 + 1e-9
    assert tau(here, there) == tau(there, here)
    assert tau(here, there) is None or -1 <= tau(here, there) <= 1  # type: ignore[operator]


@given(st.permutations(range(8)))
def test_another_order_is_the_same_set(order: list[int]) -> None:
    one = both(tuple(range(8)), tuple(order), {1, 5}, k=8)
    assert one.base.recall(8) == one.target.recall(8) == one.overlap == 1.0


def test_an_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = [0.0] * 50 + [1.0] * 50
    one = estimate(values, seed=3)
    assert one == estimate(values, seed=3)
    assert one.mean == 0.5
    assert one.low == pytest.approx(0.4, abs=0.03)
    assert one.high == pytest.approx(0.6, abs=0.03)
    wider = estimate(values, 3, family_level(20))
    assert wider.low < one.low < one.high < wider.high


def test_an_interval_of_little() -> None:
    assert estimate([-1.0] * 3, 1) == (-1.0, -1.0, -1.0)
    assert all(math.isnan(one) for one in estimate([], 1))
