"""What a backfill will cost, told before it begins: turns counted, tokens and seconds by a timed sample."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from jobs.embedding import Worker
from jobs.reading import ShardTable, Unit
from jobs.work import Work
from serve_app.core import EmbeddingVersion
from serve_app.observe.costs import HOUR_S, MILLION, PriceOptions

SAMPLE_PLACES = 8
SAMPLE_TURNS = 16
"""Of each place."""

WARM_UP = "warm up"


class Sample(NamedTuple):
    """What some turns took."""

    turns: int
    tokens: int
    seconds: float
    start_s: float
    """Until the encoder was loaded."""


class Estimate(msgspec.Struct, frozen=True):
    """`seconds` of work in all actors together, if nobody else wants the machine; money in the currency of the prices,
    None without any. No language model is asked for anything.
    """

    turns: int
    cold: int
    tokens: int
    seconds: float
    start_s: float
    money: float | None
    llm_calls: int = 0


def counted(work: Work) -> tuple[int, int]:
    """(turns to be embedded, cold turns)."""
    tables: dict[int, ShardTable] = {}
    warm = cold = 0
    for one in work.stretches:
        table = tables.setdefault(one.shard, ShardTable(work.layout, one.shard))
        of_warm, of_cold = table.count(one.first, one.last)
        warm, cold = warm + of_warm, cold + of_cold
    return warm, cold


def sampled(work: Work) -> tuple[Sample, EmbeddingVersion]:
    """Embed a few turns from places spread over all of the work, and keep nothing."""
    began = time.monotonic()
    embedder = work.open_one(work.options)
    embedder.embed([WARM_UP])
    start_s = time.monotonic() - began
    worker = Worker(embedder)
    turns = tokens = 0
    seconds = 0.0
    for unit in _places(work):
        began = time.monotonic()
        embedded = worker.embed(unit)
        seconds += time.monotonic() - began
        turns, tokens = turns + len(unit.turns), tokens + embedded.tokens
    return Sample(turns, tokens, seconds, start_s), embedder.version


def _places(work: Work) -> list[Unit]:
    step = max(1, -(-len(work.stretches) // SAMPLE_PLACES))
    found: list[Unit] = []
    for one in work.stretches[::step]:
        units = ShardTable(work.layout, one.shard).units(one.first, one.last, work.through[one.shard])
        unit = next((unit for unit in units if unit.turns), None)
        if unit is not None:
            found.append(msgspec.structs.replace(unit, turns=unit.turns[:SAMPLE_TURNS]))
    return found


def estimate(turns: int, cold: int, sample: Sample, prices: PriceOptions) -> Estimate:
    share = turns / sample.turns if sample.turns else 0.0
    tokens, seconds = round(sample.tokens * share), sample.seconds * share
    money = None
    if not prices.free:
        by_time = prices.per_hour.get("embed", 0.0) * seconds / HOUR_S
        money = by_time + prices.per_million_tokens.get("embed", 0.0) * tokens / MILLION
    return Estimate(turns, cold, tokens, round(seconds, 3), round(sample.start_s, 3), money)


def told(found: Estimate, actors: int) -> str:
    """For people."""
    money = "" if found.money is None else f", {found.money:.4g} by the settings' prices"
    cold = f"; {found.cold} cold turns need none" if found.cold else ""
    return (
        f"{found.turns} turns, about {found.tokens} tokens: {found.seconds / actors:.0f} s with {actors} encoder(s)"
        f"{money}, no calls of a language model{cold}"
    )
