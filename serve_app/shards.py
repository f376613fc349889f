"""What a store is, and its shards, opened: by the service that writes them, or by one that follows it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from serve_app.backup.layout import COLD, RESTORE_FILE, STORE_FILE, TABLES, Shape, below, log_folder, table_name
from serve_app.config import Settings
from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest
from serve_app.ports import SegmentStore, WatchedSegments
from serve_app.records import Record, decode_record
from serve_app.stores.archive import Archives
from serve_app.stores.cold import ColdTable
from serve_app.stores.documents import Documents
from serve_app.stores.followed import FollowedLog
from serve_app.stores.guard import GuardBounds
from serve_app.stores.hot_indexes import HotIndexes
from serve_app.stores.lance import RecordTable
from serve_app.stores.lance_followed import FollowedColdTable, FollowedTable
from serve_app.stores.log import Recovery, ShardLog
from serve_app.stores.relay import Relayed, RelayingSegments, SegmentRelay, SegmentRing
from serve_app.stores.replay import HOLE_LOOKS
from serve_app.write.commit import ShardWriter, microseconds
from serve_app.write.follow import Follower
from serve_app.write.meter import Meter
from serve_app.write.shard import Shard
from serve_app.write.shard_writers import ShardWriters

_log = logging.getLogger(__name__)

STORE_FORMAT = 1
SHARDS = 4
"""Of a new store whose settings name no number."""

Committed = Callable[[Shard, list[Record]], None]
OpenSegments = Callable[[str, Mapping[str, str]], SegmentStore]
OpenTable = Callable[[str, str, Sequence[EmbeddingVersion], Mapping[str, str]], RecordTable]
OpenColdTable = Callable[[str, str, Mapping[str, str]], ColdTable]
OpenReader = Callable[[str, Mapping[str, str]], WatchedSegments]
OpenRelay = Callable[[int], SegmentRelay]
"""By the number of the shard."""


class StoreForm(msgspec.Struct, frozen=True):
    """The one part of a store's description that every release can read."""

    format: int


class StoreIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a store was created with and keeps; checked at each start, and changed by migrations alone.

    `version` is the primary embedding version, `others` are those that are active with it, in their order. The vectors
    of those named in `beside` lie in tables of their own: a migration has brought them, or is about to.
    """

    format: int
    shards: int
    version: EmbeddingVersion
    others: tuple[EmbeddingVersion, ...] = ()
    beside: tuple[EmbeddingVersion, ...] = ()

    @property
    def versions(self) -> tuple[EmbeddingVersion, ...]:
        return (self.version, *self.others)

    @property
    def held(self) -> tuple[EmbeddingVersion, ...]:
        """Those that the store has vectors of."""
        return self._shape.held

    @property
    def inline(self) -> tuple[EmbeddingVersion, ...]:
        """Those whose vectors lie in columns of the shards' tables, all of them."""
        return self._shape.inline

    @property
    def _shape(self) -> Shape:
        return Shape(self.shards, self.version, self.others, self.beside)


class Openers(NamedTuple):
    """What opens the stores of a shard; others than the real ones are for tests."""

    segments: OpenSegments
    table: OpenTable = RecordTable
    cold: OpenColdTable = ColdTable
    ring: Callable[[int], SegmentRing] | None = None
    """By the number of the shard, where its newest segments are kept for followers."""


class Stores(NamedTuple):
    """One shard's stores, opened: `recovery` is what the log holds after the table's `folded_seq`."""

    table: RecordTable
    folded_seq: int
    log: ShardLog
    recovery: Recovery


def identity_of(settings: Settings, versions: Sequence[EmbeddingVersion]) -> StoreIdentity:
    """What the store is; a new one takes the settings, whose embedding versions are given, the primary one first.

    A store of fewer versions keeps them. Raises InvalidRequest where the settings do not fit it.
    """
    files, wanted = settings.files, settings.store.shards
    path = below(files.address, STORE_FILE)
    if files.read(RESTORE_FILE) is not None:
        raise InvalidRequest(f"{files.address}: a restore is not finished; run the same memstrata restore again")
    found = read_identity(files)
    if found is not None:
        return _fitting(path, found, wanted, versions)
    if settings.role != "writer" and wanted is None:
        raise InvalidRequest(f"{path} is not there: name the store's number of shards (store.shards)")
    made = StoreIdentity(STORE_FORMAT, wanted or SHARDS, versions[0], tuple(versions[1:]))
    if settings.role != "writer":
        return made
    document = files.change(STORE_FILE, lambda held: _encoded(made) if held is None else None)
    assert document is not None
    return _fitting(path, _decoded(path, document.data or b""), wanted, versions)


def read_identity(files: Documents) -> StoreIdentity | None:
    """What this store is; None where there is none. Raises InvalidRequest where none can tell, StoreUnavailable."""
    found = files.read(STORE_FILE)
    return None if found is None else _decoded(below(files.address, STORE_FILE), found.data or b"")


def _decoded(path: str, said: bytes) -> StoreIdentity:
    try:
        form = msgspec.json.decode(said, type=StoreForm).format
        if form != STORE_FORMAT:
            raise InvalidRequest(f"{path}: store format {form}; this release reads {STORE_FORMAT}")
        return msgspec.json.decode(said, type=StoreIdentity)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{path}: this does not describe a store: {error}") from error


def change_identity(
    files: Documents,
    *,
    base: Sequence[EmbeddingVersion] | None = None,
    beside: Sequence[EmbeddingVersion] | None = None,
) -> StoreIdentity:
    """Other versions of this store, or others beside: durable when it returns. Again the same.

    What is not given stays. Raises InvalidRequest where two versions have one name, StorageTrouble.
    """
    path = below(files.address, STORE_FILE)

    def changed(held: bytes | None) -> bytes | None:
        if held is None:
            raise InvalidRequest(f"{files.address} holds no store")
        found = _decoded(path, held)
        first, *others = found.versions if base is None else base
        made = msgspec.structs.replace(
            found, version=first, others=tuple(others), beside=found.beside if beside is None else tuple(beside)
        )
        if len({version.name for version in made.held}) < len(made.held):
            raise InvalidRequest(f"{path}: two versions of the store have one name")
        return None if made == found else _encoded(made)

    document = files.change(STORE_FILE, changed)
    assert document is not None
    return _decoded(path, document.data or b"")


def _encoded(identity: StoreIdentity) -> bytes:
    return msgspec.json.format(msgspec.json.encode(identity))


def _fitting(
    path: str, found: StoreIdentity, wanted: int | None, versions: Sequence[EmbeddingVersion]
) -> StoreIdentity:
    if unknown := [version.name for version in found.versions if version not in versions]:
        asked = ", ".join(repr(version.name) for version in versions)
        raise InvalidRequest(f"{path}: the store holds vectors of {unknown[0]!r}; the settings ask for {asked}")
    if missing := [version.name for version in versions if version not in found.versions]:
        _log.info("%s: the store was made without vectors of %s, and goes on so", path, ", ".join(missing))
    if wanted not in (None, found.shards):
        raise InvalidRequest(f"{path}: the store has {found.shards} shards; the settings ask for {wanted}")
    return found


def open_written(
    settings: Settings,
    identity: StoreIdentity,
    openers: Openers,
    committed: Committed,
    clock: Callable[[], int],
    meter: Meter,
    opened: ExitStack,
    only: Collection[int] | None = None,
) -> tuple[ShardWriters, list[tuple[int, str]]]:
    """Take over every shard, or those of these numbers, and start their writers; gives what was found damaged, too."""
    hot = HotIndexes(settings.hot)
    opened.callback(hot.close)
    archives = Archives()
    writers: list[ShardWriter] = []
    damages: list[tuple[int, str]] = []
    for number in range(identity.shards) if only is None else sorted(only):
        table, folded_seq, log, recovery = _stores(settings, number, identity, openers)
        for damage in recovery.damages:
            _log.error("shard %d: %s", number, damage)
            damages.append((number, str(damage)))
        memory = settings.memory
        bounds = memory.turns_resident, memory.owner_turns_resident
        cold = openers.cold(settings.layout.tables[COLD], table_name(number), settings.store.cold_connection)
        guard = GuardBounds(rest_s=memory.rest_s)
        shard = Shard(number, log, table, identity.held, hot, *bounds, cold=cold, archives=archives, guard=guard)
        shard.recover([decode_record(entry.payload) for entry in recovery.entries], folded_seq)
        writers.append(ShardWriter(shard, clock, committed, meter=meter))
        opened.callback(writers[-1].close)
    return ShardWriters(writers, identity.shards), damages


def _stores(settings: Settings, number: int, identity: StoreIdentity, openers: Openers) -> Stores:
    """A shard's table and log. Its last owner may fold, and drop segments, between a look at the one and the
    other: what looks like a hole then is none in the light of the table's new watermark.
    """
    connection = settings.store.connection
    for _ in range(HOLE_LOOKS):
        table = openers.table(settings.layout.tables[TABLES], table_name(number), identity.inline, connection)
        _hold_beside(table, identity)
        segments = openers.segments(f"{settings.layout.log_uri}/{log_folder(number)}", connection)
        if openers.ring is not None:
            segments = RelayingSegments(segments, openers.ring(number))
        folded_seq = table.folded_seq()
        log, recovery = ShardLog.open(segments, folded_seq=folded_seq, writer_id=uuid.uuid4().hex)
        if log.damage is None or log.damage.kind != "hole":
            break
    return Stores(table, folded_seq, log, recovery)


def _hold_beside(table: RecordTable, identity: StoreIdentity) -> None:
    for version in identity.beside:
        table.hold_beside(version)


def open_followed(
    settings: Settings,
    identity: StoreIdentity,
    open_reader: OpenReader,
    meter: Meter,
    opened: ExitStack,
    taken: Callable[[Sequence[Record]], None] = lambda records: None,
    relay: OpenRelay | None = None,
) -> tuple[list[ShardWriter], list[Follower]]:
    """Follow every shard. The writers refuse whatever is asked of them: so says the log that they were given.

    `taken` is told of what has come. `relay` gives the way by which a shard's writer hands over new segments.
    """
    hot = HotIndexes(settings.hot)
    opened.callback(hot.close)
    connection, memory = settings.store.connection, settings.memory
    writers: list[ShardWriter] = []
    followers: list[Follower] = []
    for number in range(identity.shards):
        table = FollowedTable(settings.layout.tables[TABLES], table_name(number), identity.inline, connection)
        _hold_beside(table, identity)
        segments = open_reader(f"{settings.layout.log_uri}/{log_folder(number)}", connection)
        relayed = None if relay is None else Relayed(settings.follow.stale_s)
        log = FollowedLog(segments, settings.follow.stale_s, relayed=relayed)
        bounds = memory.turns_resident, memory.owner_turns_resident
        cold = FollowedColdTable(settings.layout.tables[COLD], table_name(number), settings.store.cold_connection)
        guard = GuardBounds(rest_s=memory.rest_s)
        shard = Shard(number, log, table, identity.held, hot, *bounds, cold=cold, guard=guard)
        followers.append(Follower(shard, log, table, settings.follow, taken, relay and relay(number)))
        opened.callback(followers[-1].close)
        followers[-1].start()
        writers.append(ShardWriter(shard, microseconds, lambda shard, records: None, meter=meter))
        opened.callback(writers[-1].close)
    return writers, followers
