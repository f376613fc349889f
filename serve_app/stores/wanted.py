"""The best turns of one owner among a table's rows: the table ranks rows, and some of them are of turns nobody wants.

A row cannot tell whether its turn has expired (`expires_at` is that of the first field that does), and the tables lag
behind what was erased. So more rows are asked for where too many of the best fell away, in a few growing steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from serve_app.core import Turn

ROWS_ASKED_MAX = 16_384
"""Rows that the last step asks for: what is hidden behind more unwanted ones is not found."""

ROWS_GROWTH = 4
"""Each step asks for so many times the rows of the one before: four steps from 100 rows to the bound."""


def _any(turn: Turn) -> bool:
    return True


class Wanted(NamedTuple):
    """Which turns a query of a table is to give."""

    admit: Callable[[Turn], bool] = _any
    least: int = 1
    """Turns to go on for, where the rows of few turns (long ones have many rows) take all places."""
    resident_from: int | None = None
    """Turns of the hot tier from this seq on are left out: memory has them."""
    moved: Sequence[int] = ()
    """Of those the ones that have left memory since, which the table does not know yet: they are not left out."""
    until: int | None = None
    """The last seq there is."""


ANY = Wanted()


def best_turns(
    ask: Callable[[int], Sequence[tuple[int, float]]],
    read: Callable[[Sequence[int]], Sequence[Turn]],
    k: int,
    wanted: Wanted,
) -> list[tuple[Turn, float]]:
    """At most k turns that are wanted, best first, each with the score of its best row.

    `ask(n)` gives the n best rows as (seq, score), `read(seqs)` the turns there are of these.
    """
    scores: dict[int, float] = {}
    turns: dict[int, Turn] = {}
    asked = k
    while True:
        rows = ask(asked)
        new = {seq for seq, _ in rows}.difference(scores)
        for seq, score in rows:
            scores[seq] = max(score, scores.get(seq, score))
        turns |= {turn.seq: turn for turn in read(sorted(new)) if wanted.admit(turn)}
        places = sum(seq in turns for seq, _ in rows)
        enough = places >= k and len(turns) >= min(k, wanted.least)
        if enough or len(rows) < asked or asked >= ROWS_ASKED_MAX:
            break
        asked = min(asked * ROWS_GROWTH, ROWS_ASKED_MAX)
    best = sorted(turns.values(), key=lambda turn: (-scores[turn.seq], turn.seq))[:k]
    return [(turn, scores[turn.seq]) for turn in best]
