"""A cluster in one process: a service for each shard, and gateways that pass on to them what they do not answer.

The way between them is a function call that can be cut: a shard is gone, or answers are lost on their way back. Where
they are `relayed`, writers hand new segments over, too, by a way that can be slow, or dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from serve_app.asgi import Answered, Asked
from serve_app.cluster.answering import answered
from serve_app.config import StoreOptions
from serve_app.core import Owner
from serve_app.errors import ShardElsewhere, StoreUnavailable
from serve_app.memory.hot_shards import HotShardCalls
from serve_app.placement import shard_of
from serve_app.stores.hot_indexes import HotOptions
from serve_app.stores.relay import Segment, SegmentRing
from tests.api.running import Running, hash_settings

SHARDS = 2


class Direct:
    """`Upstream` of one gateway. `gone`: shards that nobody writes; `lose`: whose answers never arrive."""

    def __init__(self, writers: dict[int, Running]) -> None:
        self._writers = writers
        self.gone: set[int] = set()
        self.lose: Callable[[Asked], bool] = lambda asked: False
        self.asked: list[tuple[int, Asked]] = []
        self.within_s: list[float] = []
        self.running = False

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    async def ask(self, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False) -> Answered:
        assert self.running
        self.asked.append((shard, asked))
        self.within_s.append(within_s)
        if shard in self.gone:
            await asyncio.sleep(min(within_s, 0.2))
            raise ShardElsewhere(f"shard {shard} has no writer at the moment")
        writer = self._writers[shard]
        work = asyncio.run_coroutine_threadsafe(answered(writer.service, asked), writer.loop)
        answer = await asyncio.wrap_future(work)
        if self.lose(asked):
            if not repeatable:
                raise StoreUnavailable("the answer was lost")
            return await self.ask(shard, asked, within_s, repeatable=True)
        return answer

    def troubles(self) -> list[str]:
        return [f"shard {shard} is gone" for shard in sorted(self.gone)]

    def figures(self) -> Iterable[tuple[str, str, float]]:
        yield "memstrata_direct_asked", "Requests passed on.", len(self.asked)


class RingWay:
    """`SegmentRelay` of one gateway to all writers."""

    def __init__(self, rings: dict[int, SegmentRing]) -> None:
        self._rings = rings
        self.slow_s = 0.0
        self.dead = False

    def of(self, shard: int) -> RingWay.Shard:
        return RingWay.Shard(self, shard)

    class Shard:
        def __init__(self, way: RingWay, number: int) -> None:
            self._way, self._number = way, number

        def segments(self, after: int, wait_s: float, follower: str = "") -> Sequence[Segment]:
            if self._way.dead:
                raise StoreUnavailable("nobody answers")
            found = self._way._rings[self._number].segments(after, wait_s, follower)
            time.sleep(self._way.slow_s)
            return found


class Clustered:
    """`start` gives one more gateway; all end with `stop`."""

    def __init__(self, folder: Path, shards: int = SHARDS, relayed: bool = False, **sections: Any) -> None:
        self.folder, self.shards, self._sections = folder, shards, sections
        self._relayed = relayed
        self.rings: dict[int, SegmentRing] = {}
        self.ring_ways: list[RingWay] = []
        self.writers: dict[int, Running] = {}
        self.gateways: list[Running] = []
        self.ways: list[Direct] = []
        self.hot_shards: list[Running] = []
        for number in range(shards):
            self.start_writer(number)

    def start_writer(self, number: int) -> Running:
        self.rings[number] = SegmentRing()
        ring = self.rings.__getitem__ if self._relayed else None
        one = self.writers[number] = Running(self._settings(f"shard-{number}"), only=[number], ring=ring)
        return one

    def start(self, hot_shards: HotShardCalls | None = None, **sections: Any) -> Running:
        way, ring_way = Direct(self.writers), RingWay(self.rings)
        settings = self._settings(f"gateway-{len(self.gateways)}", role="gateway", **sections)
        relay = ring_way.of if self._relayed else None
        gateway = Running(settings, upstream=way, relay=relay, hot_shards=hot_shards)
        self.ring_ways.append(ring_way)
        self.gateways.append(gateway)
        self.ways.append(way)
        return gateway

    def start_hot_shard(self, **hot: Any) -> Running:
        one = Running(self._settings(f"hot-{len(self.hot_shards)}", role="replica", hot=HotOptions(**hot)))
        self.hot_shards.append(one)
        return one

    def stop(self) -> None:
        for one in [*self.gateways, *self.hot_shards, *self.writers.values()]:
            one.stop()

    def user_in(self, shard: int) -> str:
        names = (f"user-{n}" for n in range(1000))
        return next(name for name in names if shard_of(Owner("default", name), self.shards) == shard)

    def _settings(self, name: str, **sections: Any) -> Any:
        store = StoreOptions(shards=self.shards, files_uri=str(self.folder / "store"))
        settings = hash_settings(self.folder / name, store=store, **(self._sections | sections))
        self._found(settings)
        Path(settings.data).mkdir(parents=True, exist_ok=True)
        (Path(settings.data) / "admin.key").write_text((self.folder / "store" / "admin.key").read_text())
        return settings

    def _found(self, settings: Any) -> None:
        """As Control does at the very first start."""
        from serve_app.cluster.founding import founded

        founded(settings, lambda said: None)
