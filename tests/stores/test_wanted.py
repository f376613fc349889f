"""The best wanted turns behind rows of others, and how many rows that may take."""

from __future__ import annotations

import pytest

from serve_app.core import Turn
from serve_app.stores.wanted import ANY, ROWS_ASKED_MAX, Wanted, best_turns


class Rows:
    """Rows of turns 1, 2, 3 ..., the best first, `each` of every turn."""

    def __init__(self, turns: int, each: int = 1) -> None:
        self._rows = [(seq, 1 / seq) for seq in range(1, turns + 1) for _ in range(each)]
        self.asked: list[int] = []
        self.read = 0

    def ask(self, limit: int) -> list[tuple[int, float]]:
        self.asked.append(limit)
        return self._rows[:limit]

    def turns(self, seqs: list[int]) -> list[Turn]:
        self.read += len(seqs)
        return [Turn(f"t{seq}", "s", "user", "apple", seq, 1, 1) for seq in seqs]

    def best(self, k: int, wanted: Wanted = ANY) -> list[int]:
        return [turn.seq for turn, _ in best_turns(self.ask, self.turns, k, wanted)]


def after(seq: int, least: int = 1) -> Wanted:
    return Wanted(lambda turn: turn.seq > seq, least)


def test_one_question_is_enough_where_all_are_wanted() -> None:
    rows = Rows(50)
    assert rows.best(3) == [1, 2, 3]
    assert rows.asked == [3]


@pytest.mark.parametrize("unwanted", [1, 10, 99, 1_000])
def test_wanted_turns_are_found_behind_others_and_each_is_read_once(unwanted: int) -> None:
    rows = Rows(unwanted + 20)
    assert rows.best(10, after(unwanted)) == list(range(unwanted + 1, unwanted + 11))
    assert rows.read <= unwanted + 20


def test_a_table_that_has_no_more_is_not_asked_again() -> None:
    rows = Rows(5)
    assert rows.best(10, after(5)) == []
    assert rows.asked == [10]


def test_how_many_rows_are_asked_for_is_bounded() -> None:
    rows = Rows(2 * ROWS_ASKED_MAX)
    assert rows.best(100, after(2 * ROWS_ASKED_MAX)) == []
    assert rows.asked[-1] == ROWS_ASKED_MAX
    assert len(rows.asked) < 6


def test_turns_of_many_rows_leave_room_for_as_many_turns_as_are_wanted() -> None:
    assert Rows(50, each=10).best(20, Wanted(least=8))[:8] == list(range(1, 9))
    rows = Rows(50, each=10)
    assert rows.best(20, Wanted(least=1)) == [1, 2]
    assert rows.asked == [20]
