"""The hot shards as reads of a gateway see them: what one says of a user's vectors, if it says it in time.

Promises that a read never fails by them and never waits longer than `wait_s`: one that is late, gone or full, or that
answers nonsense, leaves the query as it was, and the vectors of this process judge it. What an answer is good for is
decided where the vectors are (`stores/hot_vectors.py`): it counts where it is of the very same ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Literal, Protocol

import numpy as np

from serve_app.breaker import Breaker
from serve_app.errors import MemstrataError, Overloaded
from serve_app.ports import EncodedQuery, HotProducts, Vectors
from serve_app.stores.hot_indexes import HotOptions

__all__ = ["HotShardCalls", "HotShards"]

ASKED_MAX = 256
"""Questions of a gateway to all hot shards that are under way; beyond it a read asks none."""

FAULTS_MAX = 3
"""A hot shard that gave nothing so often in a row is left alone for a while; then one read tries it."""

TOLD_S = 60.0
"""A fault is told for so long, unless the hot shard answers before."""

Outcome = Literal["given", "absent", "late", "failed", "crowded", "left_alone"]
OUTCOMES: dict[Outcome, str] = {
    "given": "Reads to which a hot shard gave its products.",
    "absent": "Reads whose user a hot shard did not have in memory yet.",
    "late": "Reads to which a hot shard did not answer in time.",
    "failed": "Reads to which a hot shard answered with an error, or not at all.",
    "crowded": "Reads that asked no hot shard, since too much waits for it.",
    "left_alone": "Reads that asked no hot shard, since it failed again and again.",
}

TELLS: dict[Outcome, str] = {"late": "it did not answer in time", "failed": "it gives nothing"}


class HotShardCalls(Protocol):
    """The way to hot shards, by their numbers."""

    async def products(self, number: int, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        """None where the owner is not in memory there yet. Raises MemstrataError. Who asks bounds the time."""
        ...


class HotShards:
    """Used on one event loop."""

    def __init__(self, calls: HotShardCalls, options: HotOptions, rest_s: float) -> None:
        self._calls, self._options, self._rest_s = calls, options, rest_s
        self._breakers: dict[int, Breaker] = {}
        self._counts: Counter[Outcome] = Counter()
        self._under_way = 0
        self._faults: dict[int, tuple[float, str]] = {}
        """By number, when a hot shard failed last, and how."""

    async def given(self, shard: int, owner: str, encoded: EncodedQuery, ends: float) -> EncodedQuery:
        """The query with what the hot shard of this shard says of the owner, if that comes by `ends` (monotonic)."""
        number = self._options.holder(shard)
        if number is None:
            return encoded
        breaker = self._breaker(number)
        if self._under_way >= ASKED_MAX:
            self._counts["crowded"] += 1
            return encoded
        if not breaker.admit():
            self._counts["left_alone"] += 1
            return encoded
        within_s = min(self._options.wait_s, ends - time.monotonic())
        try:
            outcome, found = await self._asked(number, shard, owner, encoded, within_s)
        except asyncio.CancelledError:
            breaker.released()
            raise
        self._note(number, breaker, outcome, in_full=within_s >= self._options.wait_s)
        return encoded if found is None else encoded._replace(products=found)

    def troubles(self) -> list[str]:
        now = time.monotonic()
        faults = [(number, how) for number, (at, how) in sorted(self._faults.items()) if now - at < TOLD_S]
        return [f"hot shard {number}: {how}; its users are searched on the CPU here" for number, how in faults]

    def figures(self) -> Iterable[tuple[str, str, float]]:
        for outcome, said in OUTCOMES.items():
            yield f"memstrata_hot_shard_{outcome}", said, self._counts[outcome]

    async def _asked(
        self, number: int, shard: int, owner: str, encoded: EncodedQuery, within_s: float
    ) -> tuple[Outcome, HotProducts | None]:
        self._under_way += 1
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                found = await self._calls.products(number, shard, owner, encoded.version, encoded.vector)
        except TimeoutError:
            return "late", None
        except Overloaded:
            return "crowded", None
        except MemstrataError:
            return "failed", None
        finally:
            self._under_way -= 1
        if found is None:
            return "absent", None
        return ("given", found) if _sound(found) else ("failed", None)

    def _note(self, number: int, breaker: Breaker, outcome: Outcome, in_full: bool) -> None:
        """What an outcome says of the hot shard; one that had less than its time to answer is not late."""
        self._counts[outcome] += 1
        if outcome in ("given", "absent"):
            breaker.succeeded()
            self._faults.pop(number, None)
        elif outcome == "crowded" or (outcome == "late" and not in_full):
            breaker.released()
        else:
            breaker.failed()
            self._faults[number] = time.monotonic(), TELLS[outcome]

    def _breaker(self, number: int) -> Breaker:
        found = self._breakers.get(number)
        return found or self._breakers.setdefault(number, Breaker(f"hot-shard-{number}", FAULTS_MAX, self._rest_s))


def _sound(found: HotProducts) -> bool:
    """Whether these are rows, each once and in order, with a number for each."""
    rows, scores = found.rows, found.scores
    return (
        rows.ndim == scores.ndim == 1
        and rows.shape == scores.shape
        and rows.dtype == np.int64
        and scores.dtype == np.float32
        and bool(np.all(rows[1:] > rows[:-1]))
        and bool(np.isfinite(scores).all())
    )
