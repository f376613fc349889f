"""What operators ask: the state of the shards, what is degraded, maintenance by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar

from serve_app.errors import InvalidRequest, StorageTrouble
from serve_app.memory.refresher import Refresher
from serve_app.memory.requests import ShardStats, Trouble
from serve_app.stores.log import Damage
from serve_app.write.commit import ShardWriter
from serve_app.write.housekeeping import Housekeeper
from serve_app.write.indexer import Indexer

T = TypeVar("T")

PENDING_NOTICED = 1_000
"""Turns without vectors at which `/readyz` speaks of a backlog."""


class Alive(Protocol):
    @property
    def alive(self) -> bool: ...


class Operator:
    def __init__(
        self,
        writers: Sequence[ShardWriter],
        housekeeper: Housekeeper,
        indexer: Indexer,
        refresher: Refresher,
        pool: Executor,
        damages: Sequence[tuple[int, str]],
        warm: Future[Any],
    ) -> None:
        self._writers = writers
        self._housekeeper = housekeeper
        self._indexer = indexer
        self._refresher = refresher
        self._pool = pool
        self._damages = damages
        self._warm = warm

    def nudge(self) -> None:
        """Maintenance has something to do."""
        self._housekeeper.nudge()

    @property
    def ready(self) -> bool:
        """Whether everything that was to be loaded is loaded; what needs no vector is answered before."""
        return self._warm.done() and self._warm.exception() is None

    def troubles(self) -> list[Trouble]:
        """What is degraded at this moment; empty when nothing is."""
        found = [Trouble("log_damaged", text, shard) for shard, text in self._damages]
        found += [
            Trouble("writer_fenced", "another service has taken this shard over; what is read here is stale", number)
            for number, writer in enumerate(self._writers)
            if not (writer.shard.log.writable or _holed(writer.shard.log.damage))
        ]
        if not self._warm.done():
            found.append(Trouble("encoder", "loading; until then searches are lexical or wait"))
        elif (error := self._warm.exception()) is not None:
            found.append(Trouble("encoder", str(error)))
        found += [
            Trouble("cold", trouble, writer.shard.number)
            for writer in self._writers
            if (trouble := writer.shard.cold.trouble) is not None
        ]
        found += [Trouble("maintenance", text, shard) for shard, text in self._housekeeper.trouble().items()]
        if self._indexer.waiting > PENDING_NOTICED:
            found.append(Trouble("vectors_late", f"{self._indexer.waiting} turns wait for their vectors"))
        workers: dict[str, Alive] = {
            "indexer": self._indexer,
            "housekeeper": self._housekeeper,
            "refresher": self._refresher,
        }
        workers |= {f"writer-{writer.shard.number}": writer for writer in self._writers}
        found += [
            Trouble("worker_stopped", f"{name} has stopped") for name, worker in workers.items() if not worker.alive
        ]
        return found

    async def stats(self) -> list[ShardStats]:
        return await self._in_pool(lambda: [self._shard_stats(writer) for writer in self._writers])

    def _shard_stats(self, writer: ShardWriter) -> ShardStats:
        shard = writer.shard
        owners, turns = shard.block_counts()
        try:
            fragments, versions = shard.table.fragments(), shard.table.versions()
        except StorageTrouble:
            fragments, versions = None, None  # the tables do not answer: that is the figure
        return ShardStats(
            shard=shard.number,
            seq=shard.applied_seq,
            folded_seq=shard.folded_seq,
            epoch=shard.log.epoch,
            pending_vectors=len(shard.pending),
            segments=shard.log.segment_count,
            log_bytes=shard.log.bytes,
            tail_records=shard.tail_length(),
            table_fragments=fragments,
            table_versions=versions,
            owners_in_memory=owners,
            turns_in_memory=turns,
            queue=writer.waiting,
            damage=[text for number, text in self._damages if number == shard.number],
        )

    async def maintain(self, action: str, shard: int | None) -> list[dict[str, int]]:
        """Fold (or fold and rewrite) one shard or all of them now."""
        if shard is not None and shard >= len(self._writers):
            raise InvalidRequest(f"shard: there are {len(self._writers)}")
        numbers = range(len(self._writers)) if shard is None else [shard]
        return [await self._in_pool(self._maintain_one, action, number) for number in numbers]

    def _maintain_one(self, action: str, number: int) -> dict[str, int]:
        if action == "compact":
            self._housekeeper.purge_now(number)
        elif action == "fold":
            self._housekeeper.fold_now(number)
        else:
            self._housekeeper.perform(action, number)
        return {"shard": number, "folded_seq": self._writers[number].shard.folded_seq}

    async def _in_pool(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


def _holed(damage: Damage | None) -> bool:
    return damage is not None and damage.kind == "hole"
