"""What one term adds to the scores of one user's turns: Okapi BM25, worked out apart for each term.

Plain functions on arrays. The impact of a term has the same bits whatever else is looked for, so that it
may be kept until the user's turns change: then a query costs little more than adding up.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Places = NDArray[np.intp]
"""Ordinals as arrays are indexed by, without a conversion each time."""

K1: Final = 0.9
"""BM25: how soon more occurrences of a term stop to count."""

B: Final = 0.4
"""BM25: how much a long text is held against its terms, 0 to 1."""

IMPACT_CELLS_A_TURN: Final = 128
"""Numbers that are kept of what terms add to scores: half a kilobyte a turn when full."""

DENSE_SHARE: Final = 3
"""A term in the windows of one turn in so many is kept with a number for every turn: an index takes twice as much."""


class Links(NamedTuple):
    """For each ordinal the turn before and after it in its session, or -1. Shape (n,) each."""

    previous: Places
    following: Places


class Impact(NamedTuple):
    """What one term adds to the score of each turn, and of each window: to `at` each, or to all where that is None."""

    own: Floats
    own_at: NDArray[np.int64] | None
    window: Floats
    window_at: NDArray[np.int64] | None

    @property
    def cells(self) -> int:
        return len(self.own) + len(self.window)


class Impacts:
    """Impacts of the terms that were looked for last, within a bound. They hold until the turns change."""

    def __init__(self, cells_max: int) -> None:
        self._cells_max = cells_max
        self._cells = 0
        self._of_terms: OrderedDict[str, Impact] = OrderedDict()

    def get(self, term: str) -> Impact | None:
        found = self._of_terms.get(term)
        if found is not None:
            self._of_terms.move_to_end(term)
        return found

    def put(self, term: str, impact: Impact) -> None:
        self._of_terms[term] = impact
        self._cells += impact.cells
        while self._cells > self._cells_max:
            self._cells -= self._of_terms.popitem(last=False)[1].cells


class Frame(NamedTuple):
    """What BM25 needs of the first n turns whatever the query is. Shape (n,) each, but for `alive`."""

    links: Links
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    """The links again, where n stands for an absent neighbour."""
    alive: int
    norms: Floats
    """How much the length of each turn is held against it."""
    window_norms: Floats
    """The same for each turn with its neighbours."""
    impacts: Impacts


class Matches(NamedTuple):
    """The postings of some terms: entry i says that term `rows[i]` stands `counts[i]` times in `ordinals[i]`."""

    held: NDArray[np.int64]
    """How many turns hold each term. Shape (terms,)."""
    rows: NDArray[np.int64]
    ordinals: NDArray[np.int64]
    counts: Floats


def add(scores: Floats, at: NDArray[np.int64] | None, added: Floats) -> None:
    if at is None:
        scores += added
    else:
        scores[at] += added  # no place twice


def sparse(impact: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
    """Without the zeros, where that saves room; a copy."""
    at = np.flatnonzero(impact)
    return (impact.copy(), None) if len(at) * DENSE_SHARE > len(impact) else (impact[at], at)


def own_impacts(found: Matches, frame: Frame) -> Floats:
    """One for each posting."""
    shares = found.counts / (found.counts + frame.norms[found.ordinals])
    return (worth_of(frame.alive, found.held)[found.rows] * shares).astype(np.float32)


def window_impacts(found: Matches, frame: Frame, n: int) -> Floats:
    """What stands in a turn stands in its neighbours' windows, too. Shape (terms, n)."""
    width = n + 1  # one place more, where what would go to an absent neighbour ends up
    base = found.rows * width
    before, after = frame.before[found.ordinals], frame.after[found.ordinals]
    keys = np.concatenate((base + found.ordinals, base + before, base + after))
    counts = np.concatenate((found.counts, found.counts, found.counts))
    cells = np.bincount(keys, counts, len(found.held) * width).reshape(-1, width)[:, :n]
    worth = worth_of(frame.alive, (cells > 0).sum(axis=1))
    return (worth[:, None] * (cells / (cells + frame.window_norms))).astype(np.float32)


def worth_of(alive: int, holding: NDArray[np.int64]) -> NDArray[np.float64]:
    """Okapi BM25 (Robertson and Zaragoza 2009): what each term adds at most, by its always positive rarity."""
    return np.asarray((K1 + 1) * np.log1p((alive - holding + 0.5) / (holding + 0.5)), np.float64)


def norms_of(lengths: Floats, alive: int) -> Floats:
    norms = K1 * (1 - B + B * lengths * (alive / max(float(lengths.sum()), 1.0)))
    return np.asarray(np.maximum(norms, np.float32(1e-6)), np.float32)
