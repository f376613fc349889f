"""What becomes of a retrieval beside its answer: its hits are noted, and which tiers gave it is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from serve_app.core import Tier
from serve_app.retrieve.found import Answer
from serve_app.write.hits import Noted


class ReadMeter(Protocol):
    def request(self, ms: Mapping[str, float], tokens: int) -> None:
        """A search or a context took so long by stage; the context has so many tokens."""
        ...

    def tier_read(self, tier: Tier, hit: bool) -> None:
        """A retrieval looked into this tier, and was answered by it or not."""
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
