"""What queries of the past say about a change: which of the turns that answer them each side still reaches. Pure.

A query has relevant turns: gold ones, or those that a judge put first among what both sides found (`judge.py`). What
counts is their ranks in either list. Lists are also compared with each other, whatever is relevant: overlap@K,
rank-biased overlap (Webber, Moffat and Zobel 2010) and Kendall's tau of what both hold.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Source = Literal["golden", "logged", "shadow"]

RBO_P: Final = 0.9
"""How far down a list a reader goes on to the next result: the first ten have about six sevenths of the weight."""

RESAMPLES: Final = 4_000
LEVEL: Final = 0.95
"""Of the intervals."""

TAIL_LEAST: Final = 5.0 / RESAMPLES
"""Of a tail of the resampled means that is thinner than that nothing is said."""

CHUNK_DRAWS: Final = 1 << 22
"""Draws at once: bounds the memory of an interval over many queries."""


class Listed(NamedTuple):
    """What one side answered: seqs, best first. `alone`: by vectors alone, None where that was not asked."""

    seqs: tuple[int, ...]
    alone: tuple[int, ...] | None = None
    seconds: float = 0.0
    candidates: int = 0
    """Turns that there were to choose from."""


class Side(NamedTuple):
    """What one side made of one query. `ranks`: of each relevant turn, from 1; 0 for one that is not in the list."""

    ranks: tuple[int, ...]
    alone: float | None
    """The share of the relevant turns that vectors alone find."""
    seconds: float

    def recall(self, k: int) -> float:
        return sum(1 for rank in self.ranks if 0 < rank <= k) / len(self.ranks)

    @property
    def reciprocal(self) -> float:
        """1 / the rank of the first relevant turn."""
        return max((1.0 / rank for rank in self.ranks if rank), default=0.0)


class Told(NamedTuple):
    """What one query told, in numbers; `script` and `category` are of its text."""

    tenant: str
    source: Source
    script: str
    category: str
    base: Side
    target: Side
    overlap: float
    rbo: float
    tau: float | None
    agreement: float | None = None
    """Overlap of what vectors alone find, beyond what two lists drawn blindly share: 0 by chance, 1 for equal ones."""


class Estimate(NamedTuple):
    """A mean with its interval."""

    mean: float
    low: float
    high: float


def told(
    tenant: str,
    source: Source,
    script: str,
    category: str,
    lists: tuple[Listed, Listed],
    relevant: Collection[int],
    relevant_alone: Collection[int],
    k: int,
) -> Told:
    """Of base and target, down to rank `k`. There is at least one relevant turn of each kind."""
    base, target = (_side(one, relevant, relevant_alone, k) for one in lists)
    here, there = (one.seqs[:k] for one in lists)
    alike = overlap(here, there), rbo(here, there), tau(here, there)
    return Told(tenant, source, script, category, base, target, *alike, _agreement(*lists, k))


def _side(listed: Listed, relevant: Collection[int], relevant_alone: Collection[int], k: int) -> Side:
    place = {seq: rank for rank, seq in enumerate(listed.seqs[:k], 1)}
    ranks = tuple(place.get(seq, 0) for seq in sorted(relevant))
    alone = None
    if listed.alone is not None:
        alone = len(set(relevant_alone) & set(listed.alone[:k])) / len(relevant_alone)
    return Side(ranks, alone, listed.seconds)


def _agreement(base: Listed, target: Listed, k: int) -> float | None:
    if base.alone is None or target.alone is None:
        return None
    chance = k / max(base.candidates, target.candidates, k)
    return (overlap(base.alone[:k], target.alone[:k]) - chance) / (1 - chance) if chance < 1 else None


def overlap(here: Sequence[int], there: Sequence[int]) -> float:
    """The share of the longer list that both hold; of two empty ones 1."""
    longer = max(len(here), len(there))
    return len(set(here) & set(there)) / longer if longer else 1.0


def rbo(here: Sequence[int], there: Sequence[int], p: float = RBO_P) -> float:
    """Extrapolated rank-biased overlap: 1 for equal lists, 0 for those that share nothing."""
    depth = max(len(here), len(there))
    if not depth:
        return 1.0
    seen_here: set[int] = set()
    seen_there: set[int] = set()
    total, shared = 0.0, 0
    for at in range(depth):
        seen_here.update(here[at : at + 1])
        seen_there.update(there[at : at + 1])
        shared = len(seen_here & seen_there)
        total += shared / (at + 1) * p**at
    return float((1 - p) * total + shared / depth * p**depth)


def tau(here: Sequence[int], there: Sequence[int]) -> float | None:
    """Kendall's tau of the turns that both hold; None where these are fewer than two."""
    place = {seq: rank for rank, seq in enumerate(there)}
    ranks = [place[seq] for seq in here if seq in place]
    pairs = len(ranks) * (len(ranks) - 1) // 2
    if not pairs:
        return None
    agreeing = sum(1 for at, rank in enumerate(ranks) for later in ranks[at + 1 :] if rank < later)
    return 2 * agreeing / pairs - 1


def estimate(values: Sequence[float], seed: int, level: float = LEVEL) -> Estimate:
    """The mean and its percentile bootstrap interval (Efron 1979), the same each time for the same seed.

    Of paired differences, it is the interval of the difference. NaN where there are no values.
    """
    given = np.asarray(values, np.float64)
    if not len(given):
        return Estimate(math.nan, math.nan, math.nan)
    means = _resampled(given, seed)
    tail = max((1 - level) / 2, TAIL_LEAST)
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(float(given.mean()), float(low), float(high))


def _resampled(values: Floats, seed: int) -> Floats:
    random, n = np.random.default_rng(seed), len(values)
    at_once = max(1, CHUNK_DRAWS // n)
    parts = [
        values[random.integers(0, n, (min(at_once, RESAMPLES - begun), n))].mean(axis=1)
        for begun in range(0, RESAMPLES, at_once)
    ]
    return np.concatenate(parts)


def family_level(comparisons: int) -> float:
    """The level at which each of so many intervals is taken, so that all together hold at `LEVEL` (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(1, comparisons)
