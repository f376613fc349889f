"""How many reads find their user's block in memory: least-recently-used memory under Zipf's law.

By Che's approximation (Che, Tung, Wang 2002; Fricker, Robert, Roberts 2012): a user is in memory while it was asked
for within a time that is the same for all. Gateways that share users by hash behave like one memory of their sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EXACT_RANKS = 1_000
GROUPS = 4_000
"""Of ranks beyond them, by the logarithm; all of a group come as often as its middle."""

HALVINGS = 80


def hit_part(users: float, held: float, exponent: float) -> float:
    """Of reads, where memory holds `held` of `users`."""
    if held >= users:
        return 1.0
    if held <= 0:
        return 0.0
    rates, counts = _rates(users, exponent)
    low, high = 0.0, 1.0 / float(rates.min()) * 64
    for _ in range(HALVINGS):
        time = (low + high) / 2
        low, high = (low, time) if float(counts @ -np.expm1(-rates * time)) > held else (time, high)
    return float(counts * rates @ -np.expm1(-rates * low))


def _rates(users: float, exponent: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each group of ranks: how often one of it is asked for, as part of all; and how many it has."""
    edges = np.arange(0.5, min(EXACT_RANKS, users) + 0.5)
    if users > EXACT_RANKS:
        edges = np.concatenate([edges, np.geomspace(edges[-1] + 1, users + 0.5, GROUPS)])
    else:
        edges = np.append(edges, users + 0.5)
    counts, ranks = np.diff(edges), np.sqrt(edges[1:] * edges[:-1])
    rates = ranks**-exponent
    return rates / (counts @ rates), counts
