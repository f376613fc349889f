"""Taking a backup: each shard at one seq, its tables at one version, the log behind that version's watermark.

Per shard, while the writer goes on:

    1. hold       neither table files nor segments are removed from here on; appends and merges go on
    2. version    the newest version of each table, and its watermark, between two folds
    3. log        every segment with entries after the watermark is copied; segments are let go again
    4. files      what that version names is copied; table files are let go again

What an earlier backup of the chain holds already is named and not copied: none of these files ever changes. Done
shard by shard; a backup that was stopped is taken up at the shard where it was. How far migrations are is copied
before the first shard: one that goes on from there finds all that it has done, or more. A migration that changes which
versions the store has meanwhile makes the backup fail: taken up again, it begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import NamedTuple, Protocol

import msgspec

from serve_app.backup.copying import Pace, checksum, copy
from serve_app.backup.layout import (
    LOG,
    MIGRATIONS_FILE,
    SMALL_FILES,
    SMALL_FOLDERS,
    TABLES,
    Layout,
    Shape,
    log_folder,
    table_folder,
    table_name,
)
from serve_app.backup.manifest import (
    BEGUN,
    FILES,
    FORMAT,
    MANIFEST,
    SHARDS,
    Begun,
    First,
    HeldFile,
    HeldSegment,
    HeldShard,
    HeldTable,
    Manifest,
    first_file,
    shard_file,
)
from serve_app.errors import LogDamaged, NotFound, StoreUnavailable
from serve_app.stores.lance_files import manifest_version, names
from serve_app.stores.log import ShardLog
from serve_app.stores.places import Blob, Place, read
from serve_app.stores.segment import Header, decode, number_of
from serve_app.stores.table_reader import TableReader
from serve_app.write.shard import Shard

TABLE_TRIES = 4
"""Versions of a table whose files vanish while they are copied, which a hold prevents, before the backup fails."""

LOG_LOOKS = 4
"""Listings of a log that a running writer makes look broken, before it counts as damaged."""


class Holds(Protocol):
    """Keeps the files of one shard where they are while they are copied."""

    def files(self, shard: int) -> AbstractContextManager[object]: ...

    def segments(self, shard: int) -> AbstractContextManager[object]: ...

    def folds(self, shard: int) -> AbstractContextManager[object]:
        """None is under way inside: the tables of the shard are of one moment."""
        ...


class NobodyWrites:
    """Of a store without a service: nothing is removed anyway."""

    def files(self, shard: int) -> AbstractContextManager[object]:
        return nullcontext()

    segments = folds = files


class ShardHolds:
    """Of a running service: its own maintenance removes nothing that is held."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    @contextmanager
    def files(self, shard: int) -> Iterator[None]:
        one = self._shards[shard]
        with one.table.hold.holding(), one.cold.hold.holding():
            yield

    def segments(self, shard: int) -> AbstractContextManager[object]:
        log = self._shards[shard].log
        assert isinstance(log, ShardLog), "who follows a log takes no backups"
        return log.hold.holding()

    def folds(self, shard: int) -> AbstractContextManager[object]:
        return self._shards[shard].merging


class Found(NamedTuple):
    """A segment of the log as it was read."""

    blob: Blob
    header: Header


class Table(NamedTuple):
    """A version of a table: its files with their paths below the root, and the seq up to which it holds the log.

    0 of what is no shard's own table.
    """

    root: str
    version: int
    folded_seq: int
    blobs: list[Blob]


class Taker:
    """Takes one backup. `planned` is told of bytes that are going to be copied, before they are."""

    def __init__(
        self,
        layout: Layout,
        target: Place,
        holds: Holds,
        pace: Pace,
        clock: Callable[[], int],
        planned: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._layout = layout
        self._target = target
        self._holds = holds
        self._pace = pace
        self._clock = clock
        self._planned = planned

    def take(self, begun: Begun, base: Manifest | None, done: Callable[[int], None] = lambda number: None) -> Manifest:
        """The finished backup. Raises StorageTrouble, LogDamaged, Stopped: then what is whole of it stays."""
        shape = self._layout.shape()
        self._put_json(f"{begun.id}/{BEGUN}", begun)
        kept = {blob.path for blob in self._target.list(f"{begun.id}/{SHARDS}")}
        first = self._first(begun.id, shape, kept)
        if first is None:
            kept, first = set(), self._begin(begun.id, shape)
        shards = []
        for number in range(shape.shards):
            shards.append(self._shard(begun, base, number, kept))
            done(number + 1)
        small = tuple(self._small_files(begun.id, first))
        if self._layout.shape() != shape:
            raise StoreUnavailable("a migration changed the store's versions while it was copied; back it up again")
        manifest = Manifest(FORMAT, begun, self._clock(), shape, small, tuple(shards))
        self._put_json(f"{begun.id}/{MANIFEST}", manifest)
        return manifest

    def _first(self, backup: str, shape: Shape, kept: set[str]) -> First | None:
        """As this backup began; None where it did not, or where the store is another since."""
        path = first_file(backup)
        first = msgspec.json.decode(read(self._target, path), type=First) if path in kept else None
        return first if first is not None and first.shape == shape else None

    def _begin(self, backup: str, shape: Shape) -> First:
        first = First(shape, self._small_file(backup, MIGRATIONS_FILE))
        self._put_json(first_file(backup), first)
        return first

    def _shard(self, begun: Begun, base: Manifest | None, number: int, kept: set[str]) -> HeldShard:
        """As it was copied before this backup was taken up again, or copied now."""
        path = shard_file(begun.id, number)
        if path in kept:
            return msgspec.json.decode(read(self._target, path), type=HeldShard)
        held = self._copied_patiently(begun.id, base.shards[number] if base else None, number)
        self._put_json(path, held)
        return held

    def _copied_patiently(self, backup: str, base: HeldShard | None, number: int) -> HeldShard:
        tries = 0
        while True:
            tries += 1
            try:
                return self._copied_shard(backup, base, number)
            except NotFound:  # files went all the same; the next version is whole again
                if tries == TABLE_TRIES:
                    raise

    def _copied_shard(self, backup: str, base: HeldShard | None, number: int) -> HeldShard:
        with self._holds.files(number):
            with self._holds.segments(number):
                with self._holds.folds(number):
                    tables = list(self._newest_tables(number))
                folded_seq = tables[0].folded_seq
                found, folded_at = self._log_after(number, folded_seq)
                listed_at = self._clock()
                segments = self._copied_segments(backup, base, found)
            held = tuple(self._copied_table(backup, base, table) for table in tables)
        seq = max(folded_seq, found[-1].header.last_seq if found else 0)
        return HeldShard(number, folded_seq, seq, min(folded_at or listed_at, listed_at), listed_at, held, segments)

    # ---- tables

    def _newest_tables(self, number: int) -> Iterable[Table]:
        """Warm first: what moves from there to another root meanwhile is in both then, as after a crash."""
        shape = self._layout.shape()
        try:
            own = self._layout.reader(shape, number)
        except NotFound:
            raise StoreUnavailable(f"the table of shard {number} is not there") from None
        yield self._table(TABLES, own.version(), own.folded_seq(), table_folder(number))
        for version, table in own.tables_beside.items():
            yield self._table(TABLES, table.version(), 0, table_folder(number, version))
        for root, uri in self._layout.tables.items():
            with suppress(NotFound):
                if root != TABLES:
                    reader = TableReader(uri, table_name(number), (), self._layout.options_of(root))
                    yield self._table(root, reader.version(), 0, table_folder(number))

    def _table(self, root: str, version: int, folded_seq: int, folder: str) -> Table:
        return Table(root, version, folded_seq, self._files_of(root, folder, version))

    def _files_of(self, root: str, folder: str, version: int) -> list[Blob]:
        """What the version names, its manifest last. Raises NotFound where it has been replaced."""
        place = self._layout.place(root)
        blobs = {blob.path.removeprefix(f"{folder}/"): blob for blob in place.list(f"{folder}/")}
        own = next((blob for path, blob in blobs.items() if manifest_version(path) == version), None)
        if own is None:
            raise NotFound(f"version {version} of {folder} is gone")
        manifest = read(place, own.path)
        return [blob for path, blob in blobs.items() if names(manifest, path)] + [own]

    def _copied_table(self, backup: str, base: HeldShard | None, table: Table) -> HeldTable:
        known = {file.path: file for file in base.files} if base else {}
        fresh = [blob for blob in table.blobs if not _same(known.get(f"{table.root}/{blob.path}"), blob)]
        self._planned(sum(blob.size for blob in fresh))
        there = {blob.path: blob.size for blob in self._target.list(f"{backup}/{FILES}/{table.root}")}
        source = self._layout.place(table.root)
        copied = {blob.path: self._copied(backup, source, table.root, blob, there) for blob in fresh}
        files = [copied.get(blob.path) or known[f"{table.root}/{blob.path}"] for blob in table.blobs]
        return HeldTable(table.root, table.version, tuple(files))

    def _copied(self, backup: str, source: Place, root: str, blob: Blob, there: Mapping[str, int]) -> HeldFile:
        """One that was copied whole before is read again rather than written again."""
        path = f"{root}/{blob.path}"
        to = f"{backup}/{FILES}/{path}"
        if there.get(to) == blob.size:
            return HeldFile(path, *checksum(self._target, to, self._pace), backup)
        return HeldFile(path, *copy(source, blob.path, self._target, to, self._pace), backup)

    # ---- the log

    def _log_after(self, number: int, folded_seq: int) -> tuple[list[Found], int | None]:
        """The segments with seqs after the watermark, and the first moment whose state they and the tables give.

        A listing beside a running writer may miss a segment and show the next one, so a broken chain is looked at
        again. Raises LogDamaged.
        """
        broken = ""
        for _ in range(LOG_LOOKS):
            found, folded_at = self._read_log(number, folded_seq)
            broken = _broken(found, folded_seq)
            if not broken:
                return found, folded_at
        raise LogDamaged(f"shard {number}: {broken}; see memstrata repair")

    def _read_log(self, number: int, folded_seq: int) -> tuple[list[Found], int | None]:
        """Newest first, down to the segment that holds the watermark; given oldest first.

        Beside them a moment at which the shard stood at the watermark or after it: that segment's own, or that of the
        oldest one after it.
        """
        place, folder = self._layout.place(LOG), f"{log_folder(number)}/"
        blobs = [blob for blob in place.list(folder) if number_of(blob.path.removeprefix(folder)) is not None]
        found: list[Found] = []
        since: int | None = None
        for blob in reversed(blobs):
            decoded = decode(read(place, blob.path))
            if decoded.header is None or (decoded.fault and decoded.header.last_seq > folded_seq):
                raise LogDamaged(f"shard {number}: segment {blob.path} {decoded.fault}; see memstrata repair")
            if decoded.header.last_seq < folded_seq:
                break
            since = blob.at
            if decoded.header.last_seq > folded_seq:
                found.append(Found(blob, decoded.header))
            if decoded.header.prev_last_seq < folded_seq:
                break
        return found[::-1], since

    def _copied_segments(self, backup: str, base: HeldShard | None, found: list[Found]) -> tuple[HeldSegment, ...]:
        known = {one.file.path: one for one in base.segments} if base else {}
        source = self._layout.place(LOG)
        held: list[HeldSegment] = []
        for blob, header in found:
            path = f"{LOG}/{blob.path}"
            old = known.get(path)
            if old is not None and _same(old.file, blob) and old.at == blob.at:
                held.append(old)
                continue
            self._planned(blob.size)
            to = f"{backup}/{FILES}/{path}"
            file = HeldFile(path, *copy(source, blob.path, self._target, to, self._pace), backup)
            held.append(HeldSegment(file, header.prev_last_seq, header.last_seq, blob.at))
        return tuple(held)

    # ---- the rest

    def _small_files(self, backup: str, first: First) -> Iterable[HeldFile]:
        listed = [blob.path for folder in SMALL_FOLDERS for blob in self._layout.home.list(folder)]
        names = [*SMALL_FILES, *(path for path in listed if path.endswith(".json"))]
        found = [self._small_file(backup, name) for name in names if name != MIGRATIONS_FILE]
        return filter(None, [first.migrations, *found])

    def _small_file(self, backup: str, name: str) -> HeldFile | None:
        """None where nobody has made a key, set a policy, or migrated anything."""
        home = self._layout.home
        with suppress(NotFound):
            return HeldFile(name, *copy(home, name, self._target, f"{backup}/{FILES}/{name}", self._pace), backup)
        return None

    def _put_json(self, path: str, value: msgspec.Struct) -> None:
        self._target.put(path, [msgspec.json.format(msgspec.json.encode(value))])


def _same(held: HeldFile | None, blob: Blob) -> bool:
    return held is not None and held.size == blob.size


def _broken(found: list[Found], folded_seq: int) -> str:
    """Where seqs after the watermark are missing; empty for a whole chain."""
    reached = folded_seq
    for blob, header in found:
        if header.prev_last_seq > reached:
            return f"entries are missing before segment {blob.path}"
        reached = header.last_seq
    return ""
