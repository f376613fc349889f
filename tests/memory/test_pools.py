"""Where reads run: a pool whose threads all hang keeps its own kind waiting alone, and nobody longer than may be."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from serve_app.core import Owner
from serve_app.errors import StoreLate
from serve_app.memory.pools import Pools, Reads
from serve_app.memory.searching import Size
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import StoredOwner
from tests.write.shards import OneShard

ANN = Owner("acme", "ann")
SMALL, RERANKED, COLD = Size(10, 10), Size(10, 10, reranked=True), Size(10, 10, cold=True)
SHORT_S, LONG_S = 0.05, 20.0


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[OneShard]:
    opened = OneShard(tmp_path)
    opened.say(ANN.key, "s", "the kettle is red")
    yield opened
    opened.close()


@pytest.fixture
def held() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def reads(held: threading.Event) -> Iterator[Reads]:
    with ExitStack() as opened:
        pools = Pools.opened(1, 1, opened)
        opened.callback(held.set)
        yield Reads(pools, SHORT_S)


def thread_of(reads: Reads, shard: OneShard, size: Size) -> str:
    async def asked() -> str:
        by = time.monotonic() + LONG_S
        return await reads.read(shard.shard, ANN, size, by, by, lambda: threading.current_thread().name)

    return asyncio.run(asked())


def test_a_read_runs_where_it_keeps_nobody_waiting(reads: Reads, shard: OneShard) -> None:
    assert thread_of(reads, shard, SMALL) == threading.current_thread().name
    assert thread_of(reads, shard, RERANKED).startswith("read")
    assert thread_of(reads, shard, COLD).startswith("store")
    shard.restart()
    assert thread_of(reads, shard, SMALL).startswith("store"), "the user is not in memory"


def test_a_read_that_hangs_is_not_waited_for_and_one_behind_it_is_never_begun(
    reads: Reads, shard: OneShard, held: threading.Event
) -> None:
    begun: list[int] = []

    async def asked() -> None:
        for _ in range(2):
            by = time.monotonic() + SHORT_S
            with pytest.raises(TimeoutError):
                await reads.read(shard.shard, ANN, RERANKED, by, by, lambda: begun.append(1) or held.wait())
        assert await reads.smaller(lambda: 7) == 7
        assert await reads.of_stores(lambda: 8) == 8

    asyncio.run(asked())
    held.set()
    assert thread_of(reads, shard, RERANKED).startswith("read")
    assert begun == [1]


class Slow:
    """A table whose loads wait until they may go on."""

    def __init__(self, table: RecordTable, held: threading.Event) -> None:
        self._table, self._held = table, held
        self.loads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def load(self, owner: str, resident_max: int) -> StoredOwner:
        self.loads += 1
        self._held.wait()
        return self._table.load(owner, resident_max)


def test_a_load_that_hangs_is_shared_and_not_waited_for_longer_than_may_be(
    tmp_path: Path, reads: Reads, held: threading.Event
) -> None:
    shard = OneShard(tmp_path, table=lambda table: Slow(table, held))
    held.set()
    shard.say(ANN.key, "s", "the kettle is red")
    shard.fold()
    shard.restart()
    held.clear()

    async def load() -> None:
        await asyncio.gather(*[reads.loaded(shard.shard, ANN.key) for _ in range(5)])

    with pytest.raises(StoreLate):
        asyncio.run(load())
    held.set()
    asyncio.run(load())
    assert shard.table.loads == 1
    assert shard.shard.block(ANN.key).total_turns == 1
    shard.close()
