"""Summaries of turns that a caller sends along: redacted like a write, summarised, and nothing of it stored.

Summaries are made in threads of their own. What takes long is computed in a process of its own as well: threads that
compute share the interpreter with every request there is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from serve_app.compress.compressor import Compressed, input_hash
from serve_app.core import SECOND_US, Summary, Turn
from serve_app.errors import Overloaded, SummariserFailed
from serve_app.memory.making import UNMETERED, Compresses, SummaryMeter, summary_of, told
from serve_app.memory.reading import living
from serve_app.memory.redacting import Redacting, characters
from serve_app.policies import Policies, TtlPolicy
from serve_app.ports import Tokenizer
from serve_app.write.operations import NewTurn

THREADS = 2

LONG_CHARACTERS = 16 << 10
"""Turns of more text than this take long: up to here some tens of milliseconds."""

LONG_THREADS = 1
"""The process takes one order at a time."""

WAITING_MAX = 64
"""Calls that wait or are worked on; beyond it the answer is 429."""

WAIT_S = 120.0
"""After so long without an answer a call gets 429: others came first, or the machine is too slow for it."""

MODELS_S = 30.0
"""How long the models may take for one call; after it what needs none answers."""


class Made(NamedTuple):
    """`covers` is False where every turn had expired."""

    summary: Summary
    covers: bool


class Makes(NamedTuple):
    """Who sums up what a tenant sends: what takes long, and what does not."""

    short: Compresses
    long: Compresses


class Place(NamedTuple):
    """Where summaries of one kind are made, and how long one may take there."""

    pool: ThreadPoolExecutor
    within_s: float


class Compressing:
    """Waits on the event loop, redacts and computes in its own threads."""

    def __init__(
        self,
        makes: Callable[[str], Makes],
        tokenizers: Callable[[str | None], Tokenizer],
        policies: Policies,
        clock: Callable[[], int],
        ttl_s: int,
        meter: SummaryMeter = UNMETERED,
    ) -> None:
        """`makes`: by tenant. `tokenizers` gives one by its name, or the default one."""
        self._makes = makes
        self._tokenizers = tokenizers
        self._policies = policies
        self._clock = clock
        self._ttl_us = ttl_s * SECOND_US
        self._meter = meter
        self._short = Place(ThreadPoolExecutor(THREADS, "compress"), MODELS_S)
        self._long = Place(ThreadPoolExecutor(LONG_THREADS, "long"), WAIT_S)
        self._redacting = Redacting(policies, self._short.pool)
        self._waiting = 0

    async def of(
        self, tenant: str, turns: Sequence[NewTurn], target_tokens: int, now: int | None, tokenizer: str | None
    ) -> Made:
        """Raises InvalidRequest for a tokenizer or an entity class that is not here, Overloaded, StoreUnavailable."""
        until = time.monotonic() + WAIT_S
        chosen = self._tokenizers(tokenizer)
        clock = self._clock()
        instant, expiry = clock if now is None else now, clock if now is None else max(now, clock)
        with_lives = self._with_lives(tenant, turns)
        if self._waiting >= WAITING_MAX:
            raise Overloaded("too many summaries are being made")
        self._waiting += 1
        try:
            clean = await self._redacting.turns(tenant, with_lives)
            return await self._in_pool(self._makes(tenant), clean.turns, target_tokens, chosen, instant, expiry, until)
        finally:
            self._waiting -= 1

    def _with_lives(self, tenant: str, turns: Sequence[NewTurn]) -> Sequence[NewTurn]:
        if not any(turn.classed for turn in turns):
            return turns
        policy = self._policies.of(tenant, TtlPolicy)
        return [turn.with_lives(policy.life_of) for turn in turns]

    async def _in_pool(
        self,
        makes: Makes,
        turns: Sequence[NewTurn],
        target: int,
        tokenizer: Tokenizer,
        instant: int,
        expiry: int,
        until: float,
    ) -> Made:
        """What takes long waits for its like alone, where somebody else makes it."""
        apart = makes.long is not makes.short and sum(map(characters, turns)) > LONG_CHARACTERS
        place, compressor = (self._long, makes.long) if apart else (self._short, makes.short)
        return await asyncio.get_running_loop().run_in_executor(
            place.pool, self._made, place.within_s, compressor, turns, target, tokenizer, instant, expiry, until
        )

    def _made(
        self,
        within_s: float,
        compressor: Compresses,
        turns: Sequence[NewTurn],
        target: int,
        tokenizer: Tokenizer,
        instant: int,
        expiry: int,
        until: float,
    ) -> Made:
        passing = [turn.passing(turn.id or str(number), number, instant) for number, turn in enumerate(turns)]
        alive = living(passing, expiry)
        ends = [turn.first_expiry for turn in alive if turn.first_expiry is not None]
        made = self._compressed(within_s, compressor, alive, target, tokenizer, until)
        expires_at = min([instant + self._ttl_us, *ends])
        return Made(summary_of(made, "", compressor.version, instant, expires_at), covers=bool(alive))

    def _compressed(
        self,
        within_s: float,
        compressor: Compresses,
        alive: Sequence[Turn],
        target: int,
        tokenizer: Tokenizer,
        until: float,
    ) -> Compressed:
        """Of what still lives all may be quoted: the answer expires with the first of it."""
        if not alive:
            return Compressed("", 0, 0, 0, input_hash(()))
        quotable = [msgspec.structs.replace(turn, expires_at=None, fields_expire=()) for turn in alive]
        started = time.perf_counter()
        made = _in_time(within_s, compressor, quotable, target, tokenizer, until)
        told(self._meter, compressor.backend, quotable, made, time.perf_counter() - started)
        return made

    def close(self) -> None:
        """What still waits is not begun."""
        for place in (self._short, self._long):
            place.pool.shutdown(cancel_futures=True)


def _in_time(
    within_s: float, compressor: Compresses, turns: Sequence[Turn], target: int, tokenizer: Tokenizer, until: float
) -> Compressed:
    """Raises Overloaded."""
    within_s = min(until - time.monotonic(), within_s)
    if within_s <= 0:
        raise Overloaded(f"no summary could be made in {WAIT_S:g} seconds: others came first")
    try:
        return compressor.compress(turns, target, tokenizer, within_s)
    except SummariserFailed as error:
        raise Overloaded(f"no summary could be made: {error}") from error
