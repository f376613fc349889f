"""Short words for the tests of the shard log: make a store, open a log, write to it, ask what it holds."""

from __future__ import annotations

from obstore.store import MemoryStore

from serve_app.ports import SegmentStore
from serve_app.stores.log import Entry, Recovery, ShardLog
from serve_app.stores.segments_object import ObjectSegments


def memory() -> ObjectSegments:
    return ObjectSegments(MemoryStore())


def filled(segments: dict[str, bytes]) -> ObjectSegments:
    store = memory()
    for name, data in segments.items():
        store.create(name, data)
    return store


def content(store: SegmentStore) -> dict[str, bytes]:
    return {name: store.read(name) for name in store.names()}


def opened(store: SegmentStore, folded_seq: int = 0, writer_id: str = "writer") -> tuple[ShardLog, Recovery]:
    return ShardLog.open(store, folded_seq=folded_seq, writer_id=writer_id)


def group(log: ShardLog, *payloads: bytes) -> list[Entry]:
    return [Entry(log.next_seq + at, payload) for at, payload in enumerate(payloads)]


def add(log: ShardLog, *payloads: bytes) -> list[Entry]:
    entries = group(log, *payloads)
    log.append(entries)
    return entries


def derive(log: ShardLog, *payloads: bytes) -> list[Entry]:
    """Add what can be computed again."""
    entries = group(log, *payloads)
    log.append(entries, derived=True)
    return entries


def held(store: SegmentStore, folded_seq: int = 0) -> tuple[Entry, ...]:
    """What a new owner is given."""
    return opened(store, folded_seq)[1].entries
