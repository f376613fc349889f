"""BM25 of one user's turns against a plain oracle, through appends, removals and earlier states."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.stores.bm25 import K1, B
from serve_app.stores.lexical import QUERY_TERMS_MAX, LexicalIndex

TERMS = [f"t{at}" for at in range(8)]

turns = st.lists(st.tuples(st.lists(st.sampled_from(TERMS), max_size=6), st.integers(0, 2)), min_size=1, max_size=14)
queries = st.lists(st.sampled_from([*TERMS, "unknown"]), max_size=6)


def build(history: list[tuple[list[str], int]]) -> LexicalIndex:
    """An index of turns (terms, session), each following the last of its session."""
    index = LexicalIndex()
    last: dict[int, int] = {}
    for terms, session in history:
        last[session] = index.append(terms, last.get(session, -1))
    return index


def bags(history: list[tuple[list[str], int]], gone: set[int], *, window: bool) -> dict[int, Counter[str]]:
    """What each turn that is left is scored by: its own terms, or with its neighbours' in the session."""
    left = [at for at in range(len(history)) if at not in gone]
    own = {at: Counter(history[at][0]) for at in left}
    if not window:
        return own
    wide = {}
    for at in left:
        session = [other for other in left if history[other][1] == history[at][1]]
        place = session.index(at)
        wide[at] = sum((own[other] for other in session[max(0, place - 1) : place + 2]), Counter())
    return wide


def okapi(bags: dict[int, Counter[str]], query: list[str], size: int) -> list[float]:
    scores = [0.0] * size
    average = sum(bag.total() for bag in bags.values()) / max(len(bags), 1)
    for term in query:
        holding = sum(term in bag for bag in bags.values())
        rarity = math.log(1 + (len(bags) - holding + 0.5) / (holding + 0.5))
        for at, bag in bags.items():
            if count := bag[term]:
                norm = K1 * (1 - B + B * bag.total() / average)
                scores[at] += rarity * (K1 + 1) * count / (count + norm)
    return scores


@given(turns, queries, st.sets(st.integers(0, 13)), st.integers(0, 14))
def test_scores_are_those_of_the_oracle(
    history: list[tuple[list[str], int]], query: list[str], gone: set[int], limit: int
) -> None:
    index = build(history)
    index.remove(*gone)
    for n in (None, limit):
        shown = history[:n]
        own, window = index.scores(query, n)
        assert own.dtype == window.dtype == np.float32
        np.testing.assert_allclose(own, okapi(bags(shown, gone, window=False), query, len(shown)), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            window, okapi(bags(shown, gone, window=True), query, len(shown)), rtol=1e-4, atol=1e-6
        )


@given(turns, queries)
def test_own_score_is_positive_exactly_where_a_term_is_held(
    history: list[tuple[list[str], int]], query: list[str]
) -> None:
    own, _ = build(history).scores(query)
    assert [score > 0 for score in own] == [bool(set(terms) & set(query)) for terms, _ in history]


@given(turns, turns, queries)
def test_an_earlier_state_is_scored_as_it_was(
    before: list[tuple[list[str], int]], after: list[tuple[list[str], int]], query: list[str]
) -> None:
    then, now = build(before), build(before + after)
    for expected, got in zip(then.scores(query), now.scores(query, len(before)), strict=True):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(now.links(len(before)), then.links())


def assert_same(index: LexicalIndex, expected: LexicalIndex, query: list[str]) -> None:
    for limit in (None, 0, 1, expected.size // 2):
        for got, wanted in zip(index.scores(query, limit), expected.scores(query, limit), strict=True):
            np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(index.coverage(query, limit), expected.coverage(query, limit))
        np.testing.assert_array_equal(index.links(limit), expected.links(limit))
    assert index.bytes == expected.bytes


edits = st.lists(st.tuples(st.integers(0, 13), st.lists(st.sampled_from(TERMS), max_size=6)), max_size=6)


@given(turns, edits, st.sets(st.integers(0, 13)), queries)
def test_an_index_with_replaced_turns_is_one_built_anew(
    history: list[tuple[list[str], int]], changes: list[tuple[int, list[str]]], gone: set[int], query: list[str]
) -> None:
    index, now = build(history), list(history)
    index.remove(*gone)
    for at, terms in changes:
        if at < len(now) and at not in gone:
            index.replace(at, now[at][0], terms)
            now[at] = (terms, now[at][1])
    expected = build(now)
    expected.remove(*gone)
    assert_same(index, expected, query)


@given(turns, st.integers(0, 14), st.sets(st.integers(0, 13)), queries)
def test_the_newer_turns_alone_are_an_index_built_of_them(
    history: list[tuple[list[str], int]], first: int, gone: set[int], query: list[str]
) -> None:
    first = min(first, len(history))
    index = build(history)
    index.remove(*gone)
    expected = build(history[first:])
    expected.remove(*(at - first for at in gone if at >= first))
    kept = index.since(first)
    assert_same(kept, expected, query)
    assert kept.append(["t0"], -1) == len(history) - first


def test_a_turn_that_is_not_there_is_not_replaced() -> None:
    index = build([(["a"], 0), (["b"], 0)])
    index.remove(1)
    for ordinal in (-1, 1, 2):
        with pytest.raises(ValueError, match=f"turn {ordinal}"):
            index.replace(ordinal, ["b"], ["c"])
    assert index.coverage(["c"]).tolist() == [0.0, 0.0]


def test_removal_leaves_no_trace_and_bridges_the_gap() -> None:
    index = LexicalIndex()
    empty = index.bytes
    index.append(["a", "secret"], -1)
    index.append(["secret", "secret"], 0)
    index.append(["b"], 1)
    index.remove(1)
    assert index.scores(["secret"])[1].tolist()[1] == 0
    assert index.links().previous.tolist() == [-1, -1, 0]
    assert index.links().following.tolist() == [2, -1, -1]
    index.remove(0, 2, 1, 99)
    assert index.bytes - empty == 3 * 12, "no term and no posting is left"
    assert index.append(["secret"], -1) == 3, "an ordinal is never given twice"
    assert (index.scores(["secret"])[0] > 0).tolist() == [False, False, False, True]


def test_a_turn_follows_one_that_is_there_and_has_no_follower() -> None:
    index = build([(["a"], 0), (["b"], 0)])
    for previous in (0, 2, -2):
        with pytest.raises(ValueError, match=f"turn {previous}"):
            index.append(["c"], previous)
    index.remove(1)
    with pytest.raises(ValueError, match="turn 1"):
        index.append(["c"], 1)
    assert index.size == 2, "a refused turn leaves the index as it was"
    assert index.append(["c"], 0) == 2


def test_coverage_is_the_share_of_terms_held() -> None:
    index = build([(["a", "b"], 0), (["a", "a"], 0), ([], 0)])
    assert index.coverage(["a", "b", "a"]).tolist() == [1.0, 0.5, 0.0]
    assert index.coverage(["a", "z"]).tolist() == [0.5, 0.5, 0.0]
    assert index.coverage([]).tolist() == index.coverage(["z"]).tolist() == [0.0] * 3
    assert index.coverage(["a"], 1).tolist() == [1.0]


def test_a_very_long_query_is_scored_by_its_rarest_terms() -> None:
    common = [f"c{at}" for at in range(QUERY_TERMS_MAX + 50)]
    index = build([(common, 0), (common, 0), ([*common, "rare"], 0)])
    assert index.scores([*common, "rare"])[0].argmax() == 2


def test_very_many_occurrences_count_as_many() -> None:
    index = build([(["a"] * 70_000 + ["b"], 0), (["a", "c"], 1)])
    own, _ = index.scores(["a"])
    assert own[0] > 0
    assert index.scores(["b"])[0].tolist()[1] == 0


def test_nothing_appended_nothing_found() -> None:
    own, window = LexicalIndex().scores(["a"])
    assert own.shape == window.shape == (0,)
