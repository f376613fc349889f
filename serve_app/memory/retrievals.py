"""What becomes of a retrieval beside its answer: its hits are noted, and which tiers gave it is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from serve_app.core import Degradation, Tier
from serve_app.retrieve.found import Answer
from serve_app.write.hits import Noted

STAGES = frozenset(
    {"expand", "dense", "rerank", "warm", "cold", "store", "recent", "retrieve", "tool exchanges", "layouts"}
)
CAUSES = frozenset(
    {"deadline", "left_alone", "failed", "overloaded", "encoder_failed", "encoder_unavailable", "store_unavailable"}
)
"""What reasons are counted by: of any other text no more than the stage, if that."""


class ReadMeter(Protocol):
    def request(self, ms: Mapping[str, float], tokens: int) -> None:
        """A search or a context took so long by stage; the context has so many tokens."""
        ...

    def tier_read(self, tier: Tier, hit: bool) -> None:
        """A retrieval looked into this tier, and was answered by it or not."""
        ...

    def degraded(self, route: str, level: str, reason: str) -> None:
        """An answer of this level was less than it could be, for one reason."""
        ...


class Retrievals:
    """`noted`: of each shard. Each call costs some microseconds and is made once a retrieval."""

    def __init__(self, noted: Mapping[int, Noted], meter: ReadMeter) -> None:
        self._noted = noted
        self._meter = meter

    def took(self, shard: int, owner: str, answer: Answer, seqs: Iterable[int], now: int) -> None:
        """`seqs`: of the turns that were handed out."""
        self._noted[shard].note(owner, seqs, now)
        self._count(answer)

    def took_time(self, ms: Mapping[str, float], tokens: int = 0) -> None:
        self._meter.request(ms, tokens)

    def gave(self, route: str, degradation: Degradation) -> None:
        """Count what an answer lacks, by reason."""
        for reason in degradation.reasons:
            self._meter.degraded(route, degradation.level, _label(reason))

    def _count(self, answer: Answer) -> None:
        """Hot: answered by memory alone. Warm and cold, where they were asked: something came from there."""
        asked = answer.asked
        if "hot" in asked:
            self._meter.tier_read("hot", "warm" not in asked and not answer.loaded)
        if "warm" in asked or answer.loaded:
            from_tables = {"hot", "warm"} if answer.loaded else {"warm"}
            self._meter.tier_read("warm", any(one.tier in from_tables for one in answer.found))
        if "cold" in asked:
            self._meter.tier_read("cold", any(one.tier == "cold" for one in answer.found))


def _label(reason: str) -> str:
    stage, _, cause = reason.partition(": ")
    if stage not in STAGES:
        return stage if stage in ("as_of", "log", "replica") else "other"
    return f"{stage}: {cause}" if cause in CAUSES else stage
