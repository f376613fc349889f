"""Rows of candidates: the same for each whatever the order of the list, NaN where nothing is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.retrieve.features import FEATURES, Asked, of_dense, of_late, rows
from serve_app.retrieve.fuse import ARMS, Evidence, Ranking
from serve_app.retrieve.late import Late

DAY_US = 24 * 3600 * 1_000_000


def turn(seq: int, text: str = "Yes.", role: str = "user", session: str = "s1", at: int = 0) -> Turn:
    return Turn(f"t{seq}", session, role, text, seq, at, at, rev=seq)  # type: ignore[arg-type]


def evidence(n: int, seed: int = 0, *, dense: bool = True) -> Evidence:
    rng = np.random.default_rng(seed)
    return Evidence(
        own=rng.uniform(0, 9, n).astype(np.float32),
        window=rng.uniform(0, 9, n).astype(np.float32),
        previous=np.arange(-1, n - 1),
        following=np.append(np.arange(1, n), -1),
        eligible=np.ones(n, np.bool_),
        dense=rng.uniform(-0.2, 0.8, n).astype(np.float32) if dense else None,
    )


def late_of(n: int, seed: int = 0) -> Late:
    return Late(*np.random.default_rng(seed).uniform(0, 1, (len(Late._fields), n)).astype(np.float32))


def ranking(*ordinals: int) -> Ranking:
    scores = np.linspace(1, 0.2, len(ordinals))
    return Ranking(np.array(ordinals, np.int32), scores, np.zeros((len(ordinals), len(ARMS))))


def column(table: NDArray[np.float32], name: str) -> list[float]:
    return [float(value) for value in table[:, FEATURES.index(name)]]


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(12)), st.booleans(), st.booleans())
def test_the_order_of_the_list_says_nothing_but_its_own_columns(order: list[int], dense: bool, late: bool) -> None:
    turns = [turn(n, f"turn {n}" + "?" * (n % 3 == 0), session=f"s{n // 5}", at=n * DAY_US) for n in range(12)]
    known, asked = evidence(12, dense=dense), Asked("what about turn 3", 12 * DAY_US)
    near = late_of(12) if late else None
    first = ranking(*range(12))
    moved = Ranking(first.ordinals[order], first.scores[order], first.parts)
    straight = rows(known, first, lambda n: turns[n], asked, near)
    other = rows(known, moved, lambda n: turns[n], asked, near)
    same = [place for place, name in enumerate(FEATURES) if name not in ("first_rank", "newer_than", "late_rank")]
    np.testing.assert_allclose(other[:, same], straight[order][:, same], rtol=1e-5, atol=1e-6)


def test_what_is_not_known_is_nan_and_not_guessed() -> None:
    table = rows(evidence(3, dense=False), ranking(0, 1), lambda n: None, Asked("q", 0), None)
    for name in FEATURES:
        if of_late(name) or of_dense(name):
            assert np.isnan(column(table, name)).all(), name
    for name in ("length", "is_user", "is_question", "days_ago", "code", "speaker", "date", "moment", "entity"):
        assert np.isnan(column(table, name)).all(), name
    assert not np.isnan(column(table, "fused")).any()


def test_what_tokens_and_vectors_tell_is_named() -> None:
    """A column that is known without them is none of theirs."""
    known = rows(evidence(3), ranking(0, 1), turn, Asked("q", 0), late_of(3))
    without = rows(evidence(3, dense=False), ranking(0, 1), turn, Asked("q", 0), None)
    lost = ~np.isnan(known).all(axis=0) & np.isnan(without).all(axis=0)
    assert {name for name, gone in zip(FEATURES, lost, strict=True) if gone} == {
        name for name in FEATURES if of_late(name) or of_dense(name)
    }


def test_some_turns_without_vectors_leave_the_others_theirs() -> None:
    known, late = evidence(4), late_of(4)
    known.dense[1] = np.nan  # type: ignore[index]
    late.weighted[1] = np.nan
    table = rows(known, ranking(0, 1, 2), lambda n: turn(n), Asked("q", 0), late)
    assert np.isnan(column(table, "dense")).tolist() == [False, True, False]
    assert np.isnan(column(table, "late_apart")).tolist() == [False, True, False]
    assert np.isnan(column(table, "dense_before")).tolist() == [True, False, True]


def test_plain_facts_of_the_turns() -> None:
    texts = ["Where do we meet?", "At gate 14.", "{}", "好吗？", ""]
    roles = ["user", "assistant", "tool", "user", "user"]
    turns = [turn(n, texts[n], roles[n], at=n * DAY_US) for n in range(5)]
    asked = Asked("where", 5 * DAY_US, said=("好吗？",))
    table = rows(evidence(5), ranking(0, 1, 2, 3, 4), lambda n: turns[n], asked, None)
    assert column(table, "is_question") == [1, 0, 0, 1, 0]
    assert column(table, "after_question") == [0, 1, 0, 0, 1]
    assert column(table, "has_digit") == [0, 1, 0, 0, 0]
    assert column(table, "is_tool") == [0, 0, 1, 0, 0]
    assert column(table, "is_said") == [0, 0, 0, 1, 0]
    assert column(table, "turns_ago")[-1] == 0 < column(table, "turns_ago")[0]
    assert column(table, "days_ago") == pytest.approx(np.log1p([5, 4, 3, 2, 1]), rel=1e-5)


def test_a_session_counts_by_its_best_candidate() -> None:
    turns = [turn(0, session="a"), turn(1, session="b"), turn(2, session="a")]
    table = rows(evidence(3), ranking(2, 1, 0), lambda n: turns[n], Asked("q", 0), None)
    assert column(table, "session_fused") == pytest.approx([0, -0.4, 0])
    assert column(table, "session_share") == pytest.approx([2 / 3, 1 / 3, 2 / 3])


def test_no_candidates_no_rows() -> None:
    assert rows(evidence(3), ranking(), lambda n: None, Asked("q", 0), late_of(3)).shape == (0, len(FEATURES))


def test_the_same_input_gives_the_same_bytes() -> None:
    table = [rows(evidence(9), ranking(3, 1, 8), turn, Asked("q 7", 9), late_of(9)).tobytes() for _ in range(2)]
    assert table[0] == table[1]
