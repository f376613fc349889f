"""Topics of a session: where they begin, and that later turns move no boundary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.compress.topics import REST_S, TURNS_MAX, TURNS_MIN, Vector, topic_lengths
from serve_app.core import Turn

LONG = "a sentence that says enough to be about something of its own"
TEA, TRAINS = np.array([1, 0, 0], np.float32), np.array([0, 1, 0], np.float32)


def turn(seq: int, role: str = "user", content: str = LONG, at_s: float = 0, speaker: str | None = None) -> Turn:
    return Turn(f"t{seq}", "a", role, content, seq, 0, int(at_s * 1e6), speaker=speaker)  # type: ignore[arg-type]


def lengths(turns: list[Turn], vectors: list[Vector | None]) -> list[int]:
    return topic_lengths(turns, {one.seq: v for one, v in zip(turns, vectors, strict=True) if v is not None})


def test_another_subject_begins_another_topic() -> None:
    turns = [turn(seq, "user" if seq % 2 else "assistant") for seq in range(1, 13)]
    assert lengths(turns, [TEA] * 6 + [TRAINS] * 6) == [6, 6]
    assert lengths(turns, [TEA] * 12) == [12]


def test_a_long_rest_begins_another_topic_whatever_is_said() -> None:
    turns = [turn(1, at_s=0), turn(2, at_s=60), turn(3, at_s=62 + REST_S), turn(4, at_s=63 + REST_S)]
    assert lengths(turns, [TEA] * 4) == [2, 2]
    assert lengths(turns, [None] * 4) == [2, 2]


def test_a_short_answer_a_tool_and_one_who_goes_on_speaking_begin_none() -> None:
    first = [turn(seq) for seq in range(1, TURNS_MIN + 2)]
    near: list[Vector | None] = [TEA] * len(first)
    for other in (turn(99, content="Yes, please."), turn(99, "tool")):
        assert lengths([*first, other], [*near, TRAINS]) == [len(first) + 1]
    monologue = [turn(seq, "assistant") for seq in range(1, 9)]
    assert lengths(monologue, [TEA] * 6 + [TRAINS] * 2) == [8]
    talk = [turn(seq, "assistant", speaker="AB"[seq > 6]) for seq in range(1, 9)]
    assert lengths(talk, [TEA] * 6 + [TRAINS] * 2) == [6, 2]


def test_a_topic_has_bounds() -> None:
    assert lengths([turn(seq) for seq in range(1, 10)], [TEA] * (TURNS_MIN - 2) + [TRAINS] * (11 - TURNS_MIN)) == [9]
    assert lengths([turn(seq) for seq in range(1, 2 * TURNS_MAX + 2)], [None] * (2 * TURNS_MAX + 1)) == [
        TURNS_MAX,
        TURNS_MAX,
        1,
    ]


def test_without_turns_there_is_no_topic() -> None:
    assert topic_lengths([], {}) == []


seconds = st.one_of(st.integers(0, 120), st.just(REST_S + 1))
spoken = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool"]),
        st.sampled_from([LONG, "ok", "我们下周二去上海看望外婆，顺便去一下博物馆"]),
        seconds,
        st.one_of(st.none(), st.lists(st.integers(-3, 3), min_size=3, max_size=3)),
    ),
    max_size=60,
)


@given(spoken, st.data())
def test_a_later_turn_moves_no_boundary_and_no_topic_depends_on_the_one_before(
    said: list[tuple[str, str, int, list[int] | None]], data: st.DataObject
) -> None:
    turns, vectors, at = [], {}, 0
    for seq, (role, content, pause, vector) in enumerate(said, 1):
        at += pause
        turns.append(turn(seq, role, content, at))
        if vector is not None:
            vectors[seq] = np.array(vector, np.float32)
    whole = topic_lengths(turns, vectors)
    assert sum(whole) == len(turns)
    assert all(whole)
    cut = data.draw(st.integers(0, len(turns)))
    part = topic_lengths(turns[:cut], vectors)
    ends = np.cumsum(whole).tolist()
    assert np.cumsum(part).tolist() == [end for end in ends if end < cut] + ([cut] if cut else [])
    if whole:
        assert topic_lengths(turns[whole[0] :], vectors) == whole[1:]


@pytest.mark.parametrize("noise", [1e-4, -1e-4])
def test_rounding_in_the_encoder_moves_no_boundary(noise: float) -> None:
    turns = [turn(seq, "user" if seq % 2 else "assistant") for seq in range(1, 13)]
    vectors = [TEA + noise] * 6 + [TRAINS - noise] * 6
    assert lengths(turns, [np.asarray(one, np.float32) for one in vectors]) == [6, 6]
