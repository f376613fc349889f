"""A hot shard: a replica of the store whose vectors lie on its device, and that gives the products of one user's.

It follows the logs as a gateway does, and loads a user when first asked for one (`memory/hot_reads.py`). It embeds,
ranks and summarises nothing. The index goes on from the host's copies when its device is lost; but here the device is
what it is for, so Serve is told, and starts another replica.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from serve_app.deployments.place import Place, own_name
from serve_app.errors import DeviceLost, EncoderUnavailable, StoreUnavailable
from serve_app.ports import Embedder, EncodedQuery, Encodings, HotProducts, Vectors

if TYPE_CHECKING:
    from serve_app.config import Settings

__all__ = ["HotShardReplica"]

STORE_S = 60.0
"""What Control has to make the store at the very first start of all, and the writers to make its tables."""

LOOK_S = 0.25


class HotShardReplica:
    """`Service` in role `replica`, as gateways call it."""

    def __init__(self, place: Place) -> None:
        from serve_app.service import Service  # in the replica, not where the application is built

        place.enter()
        settings = _settings(place)
        self._service = Service(settings, queues=NoQueues)
        self._starting = asyncio.get_running_loop().create_task(self._start(settings))

    async def products(self, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        """None where the owner is not in memory yet. Raises StorageTrouble, NotFound, HotShardUnavailable."""
        return await self._service.hot_products(shard, owner, version, query)

    async def alive(self) -> None:
        """A call that stands for all: who makes it learns whether this process answers."""

    async def check_health(self) -> None:
        """One that could not start, or that lost its device, raises why, and Serve starts another."""
        if self._starting.done():
            self._starting.result()
        if lost := self._service.devices_lost:
            raise DeviceLost("; ".join(lost))

    async def __del__(self) -> None:
        await self._service.stop()

    async def _start(self, settings: Settings) -> None:
        from serve_app.cluster.founding import store_there

        await store_there(settings, STORE_S)
        ends = time.monotonic() + STORE_S
        while True:
            try:
                return await self._service.start()
            except StoreUnavailable:  # there are no tables yet
                if time.monotonic() > ends:
                    raise
            await asyncio.sleep(LOOK_S)


def _settings(place: Place) -> Settings:
    """Those of the cluster's file, without its models, and with the vectors inside."""
    from serve_app.memory.reranking import NONE, RerankOptions
    from serve_app.models.summarise import CompressOptions

    settings = place.settings("replica", own_name(place.hot))
    hot = msgspec.structs.replace(settings.hot, placement="inside")
    return msgspec.structs.replace(settings, hot=hot, rerank=RerankOptions(ranker=NONE), compress=CompressOptions())


class NoQueues:
    """`Queues` of a process that embeds nothing."""

    def __init__(self, embedders: Sequence[Embedder]) -> None:
        """Whatever the versions are."""

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        return _refused()

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return _refused()

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return _refused()

    def add(self, embedder: Embedder) -> None:
        """It is not used either."""

    def remove(self, version: str) -> None:
        """There is nothing to end."""

    def close(self) -> None:
        """Nor here."""


def _refused() -> Future[Any]:
    refused: Future[Any] = Future()
    refused.set_exception(EncoderUnavailable("a hot shard embeds nothing"))
    return refused
