"""The service's side of a backfill: who may write, what is done, what became of it.

A job claims the migration and gets a fence; what comes with an older one is refused. A range of a shard counts as done
once its vectors are durable, and is noted in a file of its own, `migrations/<id>.json`, so that neither a job nor a
service that is killed has it done again. `complete` asks the tables at the end whether they lack anything all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from serve_app.errors import Claimed, Conflict, FencedOff, InvalidRequest
from serve_app.migrate.intervals import Intervals, added, missing, size, without
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.record import Migration
from serve_app.migrate.units import Claim, Dead, ShardLeft, Taken, Units
from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile
from serve_app.write.backfill import BackfillItem, Written, put_backfill
from serve_app.write.commit import ShardWriter

FOLDER: Final = "migrations"

SILENT_S: Final = 10.0
"""After which a job that has said nothing counts as dead, and another may take over."""

DEAD_MAX: Final = 10_000
"""Turns that may fail for good; with more something is wrong with the encoder, and the job is refused."""

DEAD_ALLOWED: Final = 1
"""Whatever share of a small store that is."""

LACKING_A_LOOK: Final = 1_000

ROUNDS_MAX: Final = 5
"""How often ranges that seemed done are done again for what the tables lack; what they lack then is given up."""

RATE_WINDOW_S: Final = 60.0
"""Over which the rate of the last while is told."""

LACKED: Final = "its vectors never arrived"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The file of one backfill."""

    fence: int = 0
    worker: str = ""
    done: tuple[Intervals, ...] = ()
    """Of each shard."""
    written: int = 0
    stale: int = 0
    gone: int = 0
    cold: int = 0
    dead: tuple[Dead, ...] = ()
    left: int | None = None
    """Turns that were left when the job counted them, `counted` ago in turns."""
    counted: int = 0
    """Turns that were through when they were counted."""
    rounds: int = 0

    @property
    def through(self) -> int:
        """Turns that need nothing more."""
        return self.written + self.stale + self.gone + len(self.dead)


class BackfillShown(NamedTuple):
    """How far a backfill is. `total`, `rate` (turns a second) and `eta_s` are None while nobody knows."""

    done: int
    total: int | None
    written: int
    stale: int
    gone: int
    cold: int
    dead: int
    rate: float | None
    eta_s: float | None
    worker: str
    heard_s: float | None
    """Seconds since the job was heard; None where none was since the service began."""


class Backfills:
    """`fold` brings a shard's table up to its log. Called from threads that may block."""

    def __init__(
        self,
        migrations: MigrationFile,
        files: Documents,
        writers: Sequence[ShardWriter],
        fold: Callable[[int], object],
        rest_s: Callable[[int], float],
        silent_s: float = SILENT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rest_s`: what `Pace` says for so many bytes of vectors in a tail."""
        self._migrations, self._place, self._writers = migrations, files, writers
        self._fold, self._rest_s, self._silent_s, self._clock = fold, rest_s, silent_s, clock
        self._files: dict[str, PrivateFile[Progress]] = {}
        self._changing = threading.Lock()
        self._heard: dict[str, float] = {}
        self._started = clock()
        self._rates: dict[str, list[tuple[float, int]]] = {}
        self._complete: dict[str, Progress] = {}
        """How far those were that lacked nothing."""

    # ---- what a job asks

    def claim(self, migration_id: str, worker: str) -> Claim:
        """Raises Claimed while another job is alive, Conflict where nothing is to be backfilled, StorageTrouble."""
        migration = self._running(migration_id)
        assert migration.version is not None
        with self._changing:
            self._require_silence(migration_id, worker)
            self._heard[migration_id] = self._clock()
        for writer, through in zip(self._writers, migration.dual_from, strict=True):
            if writer.shard.folded_seq < through:
                self._fold(writer.shard.number)
        with self._changing:
            found = self._of(migration_id)
            done = found.done or tuple(() for _ in migration.dual_from)
            found = replace(found, fence=found.fence + 1, worker=worker, done=done)
            self._write(migration_id, found)
            self._heard[migration_id] = self._clock()
            self._rates.pop(migration_id, None)
        return Claim(found.fence, migration.version, migration.options, self._shards_left(migration), self._rest_of())

    def _require_silence(self, migration_id: str, worker: str) -> None:
        """A job that is known from before the service began may be alive as well."""
        holder = self._of(migration_id).worker
        last = self._heard.get(migration_id, self._started if holder else None)
        if last is not None and holder != worker and self._clock() - last < self._silent_s:
            raise Claimed(f"job {holder or 'that has just come'} works on migration {migration_id}")

    def put(self, migration_id: str, units: Units) -> Taken:
        """Have vectors recorded, and note what is done once they are durable.

        Raises FencedOff, Conflict, InvalidRequest, Overloaded, StorageTrouble: nothing is noted then.
        """
        migration = self._running(migration_id)
        self._require_fence(migration_id, units.fence)
        self._heard[migration_id] = self._clock()
        _require_sound(units, migration.dual_from)
        became = Written()
        if units.items:
            assert migration.version is not None
            items = [BackfillItem(one.owner, one.vectors) for one in units.items]
            became = put_backfill(self._writers[units.shard], migration.version.name, items)
        if units.items or units.done or units.dead or units.left is not None:
            self._note(migration_id, units, became)
        taken = Taken(*became, len(units.dead), self._rest_of())
        return self._finished(migration, taken) if units.finish else taken

    def _finished(self, migration: Migration, taken: Taken) -> Taken:
        return replace(taken, complete=self.complete(migration), shards=self._shards_left(migration))

    def _shards_left(self, migration: Migration) -> tuple[ShardLeft, ...]:
        done = self._of(migration.id).done
        return tuple(ShardLeft(at, through, done[at]) for at, through in enumerate(migration.dual_from))

    def _note(self, migration_id: str, units: Units, became: Written) -> None:
        with self._changing:
            found = self._require_fence(migration_id, units.fence)
            found = replace(
                found,
                written=found.written + became.written,
                stale=found.stale + became.stale,
                gone=found.gone + became.gone,
                cold=found.cold + became.cold + units.cold,
                dead=_more_dead(found.dead, units.dead),
            )
            if units.done is not None:
                done = list(found.done)
                done[units.shard] = added(done[units.shard], units.done)
                found = replace(found, done=tuple(done))
            if units.left is not None:
                found = replace(found, left=units.left, counted=found.through)
            self._write(migration_id, found)
            self._rates.setdefault(migration_id, []).append((self._clock(), found.through))
            self._rates[migration_id] = _recent(self._rates[migration_id], self._clock())

    # ---- what Control asks

    def complete(self, migration: Migration) -> bool:
        """Whether every turn has its vectors, or never will. What the tables lack is to be done again."""
        with self._changing:
            found = self._of(migration.id)
        if self._complete.get(migration.id) == found:
            return True
        self._require_few_dead(migration, found)
        if len(found.done) < len(migration.dual_from) or any(
            missing(done, through) for done, through in zip(found.done, migration.dual_from, strict=True)
        ):
            return False
        lacking = [one for shard in range(len(self._writers)) for one in self._lacking(migration, shard, found)]
        if not lacking:
            self._complete[migration.id] = found
            return True
        with self._changing:
            self._write(migration.id, _to_be_done(self._of(migration.id), lacking))
        return False

    def _require_few_dead(self, migration: Migration, found: Progress) -> None:
        """Raises Conflict where more have failed than the terms allow."""
        most = migration.terms.dead_share * max(found.through, found.counted + (found.left or 0))
        if len(found.dead) > max(DEAD_ALLOWED, most):
            raise Conflict(f"{len(found.dead)} turns cannot be embedded; the terms allow {most:.0f}")

    def _lacking(self, migration: Migration, shard: int, found: Progress) -> Iterator[Dead]:
        """Turns whose vectors the tables lack, though they are to be there."""
        assert migration.version is not None
        through, after = migration.dual_from[shard], -1
        given_up = {(one.seq, one.rev) for one in found.dead if one.shard == shard}
        self._fold(shard)
        while True:
            page = self._writers[shard].shard.table.lacking(migration.version.name, after, LACKING_A_LOOK)
            for _, _, seq, rev in page:
                if rev <= through and (seq, rev) not in given_up:
                    yield Dead(shard, seq, rev, LACKED)
            if len(page) < LACKING_A_LOOK or page[-1][3] > through:
                return
            after = page[-1][3]

    def progress(self, migration: Migration) -> BackfillShown:
        with self._changing:
            found, rates = self._of(migration.id), list(self._rates.get(migration.id, ()))
            heard = self._heard.get(migration.id)
        total = None if found.left is None else found.counted + found.left
        rate = _rate(rates)
        eta_s = None if total is None or not rate else max(0, total - found.through) / rate
        heard_s = None if heard is None else self._clock() - heard
        return BackfillShown(
            found.through,
            total,
            found.written,
            found.stale,
            found.gone,
            found.cold,
            len(found.dead),
            rate,
            eta_s,
            found.worker,
            heard_s,
        )

    def ranges_done(self, migration: Migration) -> int:
        """How many seqs lie in the ranges that are done, whatever they hold: they grow as a job gets on."""
        return sum(map(size, self._of(migration.id).done))

    def dead(self, migration: Migration) -> tuple[Dead, ...]:
        """Turns whose vectors could not be made."""
        return self._of(migration.id).dead

    def discard(self, migration: Migration) -> None:
        """Forget how far it was."""
        with self._changing:
            for known in (self._files, self._heard, self._rates, self._complete):
                known.pop(migration.id, None)
            self._place.delete(_name_of(migration.id))

    # ---- the file

    def _running(self, migration_id: str) -> Migration:
        migration = self._migrations.find(migration_id)
        if migration.state != "backfill" or migration.version is None:
            raise Conflict(f"migration {migration_id} is in state {migration.state}: there is nothing to backfill")
        if migration.paused:
            raise Conflict(f"migration {migration_id} is paused")
        return migration

    def _require_fence(self, migration_id: str, fence: int) -> Progress:
        found = self._of(migration_id)
        if fence != found.fence:
            raise FencedOff(f"fence {fence}: job {found.worker!r} has migration {migration_id} with {found.fence}")
        return found

    def _rest_of(self) -> float:
        return self._rest_s(max(writer.shard.tail_bytes for writer in self._writers))

    def _of(self, migration_id: str) -> Progress:
        return self._file(migration_id).read()

    def _write(self, migration_id: str, progress: Progress) -> None:
        self._file(migration_id).change(lambda _: progress)

    def _file(self, migration_id: str) -> PrivateFile[Progress]:
        file = self._files.get(migration_id)
        if file is None:
            opened = PrivateFile(self._place, _name_of(migration_id), Progress, Progress)
            file = self._files.setdefault(migration_id, opened)
        return file


def _name_of(migration_id: str) -> str:
    """The id is that of a record: no path can hide in it."""
    return f"{FOLDER}/{migration_id}.json"


def _require_sound(units: Units, through: Sequence[int]) -> None:
    """Raises InvalidRequest for what is of no shard, or no range of it."""
    if max((units.shard, *(one.shard for one in units.dead))) >= len(through):
        raise InvalidRequest(f"shard: there are {len(through)}")
    if units.done is not None and not 1 <= units.done[0] <= units.done[1] <= through[units.shard]:
        raise InvalidRequest(f"done: no range of 1 to {through[units.shard]}")


def _more_dead(known: tuple[Dead, ...], more: Sequence[Dead]) -> tuple[Dead, ...]:
    """Raises Conflict beyond DEAD_MAX."""
    if not more:
        return known
    of_seqs = {(one.shard, one.seq): one for one in (*known, *more)}
    if len(of_seqs) > DEAD_MAX:
        raise Conflict(f"more than {DEAD_MAX} turns cannot be embedded: see the first of them")
    return tuple(sorted(of_seqs.values()))


def _to_be_done(found: Progress, lacking: Sequence[Dead]) -> Progress:
    """Their ranges are open again; after ROUNDS_MAX they are given up."""
    if found.rounds >= ROUNDS_MAX:
        return replace(found, dead=_more_dead(found.dead, lacking))
    done = list(found.done)
    for one in lacking:
        done[one.shard] = without(done[one.shard], one.seq)
    return replace(found, done=tuple(done), rounds=found.rounds + 1)


def _recent(rates: list[tuple[float, int]], now: float) -> list[tuple[float, int]]:
    """Those within the window, and one before."""
    old = sum(1 for at, _ in rates if at < now - RATE_WINDOW_S)
    return rates[max(0, old - 1) :]


def _rate(rates: Sequence[tuple[float, int]]) -> float | None:
    if len(rates) < 2 or rates[-1][0] <= rates[0][0]:
        return None
    return (rates[-1][1] - rates[0][1]) / (rates[-1][0] - rates[0][0])
