"""Threads by what they may wait for, so that what hangs holds up its own kind and nobody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from serve_app.core import Owner
from serve_app.errors import StoreLate
from serve_app.memory.searching import Size, short
from serve_app.stores.block import Block
from serve_app.stores.guard import patient_until
from serve_app.write.shard import Shard

T = TypeVar("T")

SMALLER_THREADS = 2
"""Each takes some milliseconds of reading memory and packing."""

SUMMARY_THREADS = 2
"""Summaries that callers wait for; each may wait for models."""


class Pools(NamedTuple):
    """Bounded pools of threads."""

    memory: Executor
    """Reads memory and computes."""
    stores: Executor
    """May wait for a table, within its guard's bounds."""
    smaller: Executor
    """Answers from memory, in place of those that came too late elsewhere."""
    summaries: Executor
    """Waits for models that summarise."""

    @classmethod
    def opened(cls, threads: int, store_threads: int, opened: ExitStack) -> Pools:
        sizes = {"read": threads, "store": store_threads, "smaller": SMALLER_THREADS, "summary": SUMMARY_THREADS}
        pools = [ThreadPoolExecutor(size, thread_name_prefix=name) for name, size in sizes.items()]
        for pool in pools:
            opened.callback(pool.shutdown)
        return cls(*pools)


class Reads:
    """Where each read runs, and how long it is waited for."""

    def __init__(self, pools: Pools, store_wait_s: float) -> None:
        """`store_wait_s`: for what is in the tables alone, where no smaller answer would do."""
        self._pools = pools
        self._store_wait_s = store_wait_s

    async def read(
        self,
        shard: Shard,
        owner: Owner,
        size: Size,
        stores_by: float,
        by: float,
        function: Callable[..., T],
        *asked: Any,
    ) -> T:
        """Run a read: at once where it is surely short and waits for nobody, else in a pool.

        Tables are waited for until `stores_by`. Raises TimeoutError where the whole has not come `by` then.
        """
        block = shard.at_hand(owner.key)
        if block is not None and size.small and short(block) and block.lock.acquire(blocking=False):
            try:
                return function(*asked)
            finally:
                block.lock.release()
        pool = self._pools.stores if block is None or size.cold else self._pools.memory
        return await _outcome(by, pool.submit(_patiently, stores_by, function, *asked))

    async def smaller(self, function: Callable[..., T], *asked: Any) -> T:
        """In place of a read that came too late: what waits for nothing."""
        return await _ran(self._pools.smaller, function, *asked)

    async def asked(self, shard: Shard, owner: Owner, function: Callable[..., T], *asked: Any) -> T:
        """A read that is given whole or not at all. Raises StorageTrouble."""
        if shard.at_hand(owner.key) is None:
            return await self.of_stores(function, *asked)
        return await _ran(self._pools.memory, _patiently, self._until(), function, *asked)

    async def of_stores(self, function: Callable[..., T], *asked: Any) -> T:
        """The same of what is in the tables. Raises StorageTrouble."""
        return await _ran(self._pools.stores, _patiently, self._until(), function, *asked)

    async def summary(self, function: Callable[..., T], *asked: Any) -> T:
        """A summary that a caller waits for."""
        return await _ran(self._pools.summaries, function, *asked)

    async def loaded(self, shard: Shard, owner: str) -> None:
        """Have the owner's block here, so that the shard's writer, and with it all others, need not wait for a table.

        Raises StorageTrouble.
        """
        found = shard.block_or_load(owner)
        if isinstance(found, Block):
            return
        try:
            await _outcome(self._until(), found.future)
        except TimeoutError as error:
            shard.reads.guard.give_up(found, self._store_wait_s)
            raise StoreLate("the tables do not answer in time") from error

    def _until(self) -> float:
        return time.monotonic() + self._store_wait_s


def _patiently(until: float, function: Callable[..., T], *asked: Any) -> T:
    """Call it; no table is waited for longer than that."""
    with patient_until(until):
        return function(*asked)


async def _ran(pool: Executor, function: Callable[..., T], *asked: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, function, *asked)


async def _outcome(until: float, work: Future[T]) -> T:
    """What comes by then (on the monotonic clock), else TimeoutError: work that was not begun is not done any more."""
    return await asyncio.wait_for(asyncio.wrap_future(work), until - time.monotonic())
