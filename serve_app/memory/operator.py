"""What operators ask: the state of the shards, what is degraded, maintenance by hand."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Protocol, TypeVar

from serve_app.backup.manifest import Begun, Kind
from serve_app.backup.runner import BackupRunner, Shown
from serve_app.breaker import Breaker, State
from serve_app.errors import InvalidRequest, ReadOnlyReplica, StorageTrouble
from serve_app.memory.refresher import Refresher
from serve_app.memory.requests import ShardStats, Trouble
from serve_app.ports import Summariser
from serve_app.stores.guard import patient_until
from serve_app.stores.log import Damage
from serve_app.write.commit import ShardWriter
from serve_app.write.dual import DualWrite
from serve_app.write.housekeeping import Housekeeper
from serve_app.write.indexer import Indexer

T = TypeVar("T")

TABLE_WAIT_S = 0.5
"""For the figures of one table; they are left out where it does not answer."""

PENDING_NOTICED = 1_000
"""Turns without vectors at which `/readyz` speaks of a backlog."""


BREAKER_TELLS: dict[State, str] = {
    "open": "it failed or hung again and again, and is left alone for a moment",
    "half_open": "it failed or hung again and again; the next who needs it tries it",
}


class Alive(Protocol):
    @property
    def alive(self) -> bool: ...


class File(Protocol):
    @property
    def trouble(self) -> str | None:
        """Why it cannot be read at the moment."""
        ...


class Operator(ABC):
    """What every service tells of itself, whether it writes its shards or follows them."""

    def __init__(self, writers: Sequence[ShardWriter], pool: Executor, warm: Future[Any]) -> None:
        self._writers = writers
        self._pool = pool
        self._warm = warm
        self._files: Sequence[File] = ()
        self._models: Callable[[], Sequence[Summariser]] = tuple
        self._breakers: Callable[[], Sequence[Breaker]] = tuple
        self._migrations: Callable[[], Sequence[Trouble]] = tuple
        self._upstream: Callable[[], Sequence[tuple[str, int | None]]] = tuple
        self._hot_shards: Callable[[], Sequence[str]] = tuple

    def watch(self, *files: File, models: Callable[[], Sequence[Summariser]] = tuple) -> None:
        """Tell of these files and models, too."""
        self._files, self._models = files, models

    def watch_breakers(self, breakers: Callable[[], Sequence[Breaker]]) -> None:
        """Tell of those that are not closed, too."""
        self._breakers = breakers

    def watch_migrations(self, troubles: Callable[[], Sequence[Trouble]]) -> None:
        """Tell of these, too."""
        self._migrations = troubles

    def watch_upstream(self, troubles: Callable[[], Sequence[tuple[str, int | None]]]) -> None:
        """Tell what hinders the way to the writers, and of which shards."""
        self._upstream = troubles

    def watch_hot_shards(self, troubles: Callable[[], Sequence[str]]) -> None:
        """Tell of those that give nothing."""
        self._hot_shards = troubles

    @abstractmethod
    def nudge(self) -> None:
        """Maintenance has something to do."""

    def troubles(self) -> list[Trouble]:
        """What is degraded at this moment; empty when nothing is."""
        found = [*self._shard_troubles(), *self._encoder_troubles()]
        found += [
            Trouble("tables", f"the last read failed: {text}", writer.shard.number)
            for writer in self._writers
            if (text := writer.shard.table.trouble) is not None
        ]
        here = next(iter(self._writers), None)  # all shards of a process have the same
        found += [Trouble("hot", text) for text in (here.shard.hot.troubles() if here is not None else ())]
        found += [Trouble("hot", text) for text in self._hot_shards()]
        found += [
            Trouble("files", f"{file.trouble}; what was read before counts, if anything")
            for file in self._files
            if file.trouble
        ]
        found += [
            Trouble("compressor", f"{model.name}: {model.trouble}; summaries are made without it")
            for model in self._models()
            if model.trouble
        ]
        found += [
            Trouble("breaker", f"{breaker.name}: {BREAKER_TELLS[breaker.state]}")
            for breaker in self._breakers()
            if breaker.state != "closed"
        ]
        found += [Trouble("upstream", text, shard) for text, shard in self._upstream()]
        return [*found, *self._migrations()]

    @abstractmethod
    def _shard_troubles(self) -> list[Trouble]:
        """Of the shards, and of what works on them."""

    @abstractmethod
    async def maintain(self, action: str, shard: int | None) -> list[dict[str, int]]:
        """One action of `MaintenanceIn` on one shard, or on all of them, now."""

    def fold(self, shard: int) -> int:
        """Bring a shard's table up to its log; gives the seq up to which it is. Raises StorageTrouble."""
        raise ReadOnlyReplica("the service that writes the store folds its shards")

    def begin_backup(self, kind: Kind, uri: str | None) -> Begun:
        """Begin a backup; gives what it will be. Raises InvalidRequest, Overloaded while another one runs."""
        raise ReadOnlyReplica("the service that writes the store makes its backups")

    def shown_backups(self) -> Sequence[Shown]:
        """Every backup there is, as far as this service knows."""
        return ()

    def backups_holding(self, completed_at: int | None) -> Sequence[tuple[str, int]]:
        """Backups that hold what an erasure that ended then has removed, with their expiry."""
        return ()

    def stuck(self, shard: int) -> bool:
        """Whether this shard's maintenance, and with it the end of its erasures, fails again and again."""
        return False

    @property
    def ready(self) -> bool:
        """Whether everything that was to be loaded is loaded; what needs no vector is answered before."""
        return self._warm.done() and self._warm.exception() is None

    @property
    def versions(self) -> list[str]:
        """The active embedding versions, the primary one first."""
        return [version.name for version in next(iter(self._writers)).shard.versions]

    async def stats(self) -> list[ShardStats]:
        return await self._in_pool(lambda: [self._shard_stats(writer) for writer in self._writers])

    def _shard_stats(self, writer: ShardWriter) -> ShardStats:
        shard = writer.shard
        owners, turns = shard.block_counts()
        try:
            with patient_until(time.monotonic() + TABLE_WAIT_S):
                fragments, versions = shard.reads.size()
        except StorageTrouble:
            fragments, versions = None, None  # the tables do not answer: that is the figure
        return ShardStats(
            shard=shard.number,
            seq=shard.applied_seq,
            folded_seq=shard.folded_seq,
            epoch=shard.log.epoch,
            pending_vectors=len(shard.pending),
            pending_vectors_target=0 if (apart := shard.apart) is None else len(apart),
            segments=shard.log.segment_count,
            log_bytes=shard.log.bytes,
            tail_records=shard.tail_length(),
            tail_bytes=shard.tail_bytes,
            table_fragments=fragments,
            table_versions=versions,
            owners_in_memory=owners,
            turns_in_memory=turns,
            turns_archived=shard.archived(),
            queue=writer.waiting,
            damage=self._damage_of(shard.number),
            behind_s=self._behind_s(shard.number),
        )

    @abstractmethod
    def _damage_of(self, number: int) -> list[str]: ...

    def _behind_s(self, number: int) -> float | None:
        """How old what is read of this shard may be; None for its writer, who reads the newest."""
        return None

    def _encoder_troubles(self) -> list[Trouble]:
        if not self._warm.done():
            return [Trouble("encoder", "loading; until then searches are lexical or wait")]
        error = self._warm.exception()
        return [] if error is None else [Trouble("encoder", str(error))]

    async def _in_pool(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


class WritingOperator(Operator):
    """Of the service that writes its shards."""

    def __init__(
        self,
        writers: Sequence[ShardWriter],
        housekeeper: Housekeeper,
        indexer: Indexer,
        dual: DualWrite,
        refresher: Refresher,
        pool: Executor,
        damages: Sequence[tuple[int, str]],
        warm: Future[Any],
        backups: BackupRunner | None,
    ) -> None:
        """`backups`: None where other processes write further shards of the store."""
        super().__init__(writers, pool, warm)
        self._backups = backups
        self._housekeeper = housekeeper
        self._indexer = indexer
        self._dual = dual
        self._refresher = refresher
        self._damages = damages

    def nudge(self) -> None:
        self._housekeeper.nudge()

    def fold(self, shard: int) -> int:
        return self._housekeeper.fold_now(shard)

    def begin_backup(self, kind: Kind, uri: str | None) -> Begun:
        return super().begin_backup(kind, uri) if self._backups is None else self._backups.ask(kind, uri)

    def shown_backups(self) -> Sequence[Shown]:
        return super().shown_backups() if self._backups is None else self._backups.shown()

    def backups_holding(self, completed_at: int | None) -> Sequence[tuple[str, int]]:
        if self._backups is None:
            return super().backups_holding(completed_at)
        return self._backups.holding(completed_at)

    def stuck(self, shard: int) -> bool:
        return self._housekeeper.stuck(shard)

    def _shard_troubles(self) -> list[Trouble]:
        found = [Trouble("log_damaged", text, shard) for shard, text in self._damages]
        found += [
            Trouble(
                "writer_fenced",
                "another service has taken this shard over; what is read here is stale",
                writer.shard.number,
            )
            for writer in self._writers
            if not (writer.shard.log.writable or writer.shard.log.waiting or _holed(writer.shard.log.damage))
        ]
        found += [
            Trouble("not_writable", f"{waiting.code}: {waiting}; it is tried again and again", writer.shard.number)
            for writer in self._writers
            if (waiting := writer.shard.log.waiting) is not None
        ]
        found += [
            Trouble("cold", trouble, writer.shard.number)
            for writer in self._writers
            if (trouble := writer.shard.cold.trouble) is not None
        ]
        found += [Trouble("maintenance", text, shard) for shard, text in self._housekeeper.trouble().items()]
        if self._backups is not None and self._backups.trouble is not None:
            found.append(Trouble("backup", self._backups.trouble))
        if self._indexer.waiting > PENDING_NOTICED:
            found.append(Trouble("vectors_late", f"{self._indexer.waiting} turns wait for their vectors"))
        workers: dict[str, Alive] = {
            "indexer": self._indexer,
            "dual_write": self._dual,
            "housekeeper": self._housekeeper,
            "refresher": self._refresher,
        }
        if self._backups is not None:
            workers["backups"] = self._backups
        workers |= {f"writer-{writer.shard.number}": writer for writer in self._writers}
        found += [
            Trouble("worker_stopped", f"{name} has stopped") for name, worker in workers.items() if not worker.alive
        ]
        return found

    def _damage_of(self, number: int) -> list[str]:
        return [text for shard, text in self._damages if shard == number]

    async def maintain(self, action: str, shard: int | None) -> list[dict[str, int]]:
        if shard is not None and shard >= len(self._writers):
            raise InvalidRequest(f"shard: there are {len(self._writers)}")
        numbers = [writer.shard.number for writer in self._writers] if shard is None else [shard]
        return [await self._in_pool(self._maintain_one, action, number) for number in numbers]

    def _maintain_one(self, action: str, number: int) -> dict[str, int]:
        if action == "compact":
            self._housekeeper.purge_now(number)
        elif action == "fold":
            self._housekeeper.fold_now(number)
        else:
            self._housekeeper.perform(action, number)
        return {"shard": number, "folded_seq": self._writers[number].shard.folded_seq}


def _holed(damage: Damage | None) -> bool:
    return damage is not None and damage.kind == "hole"
