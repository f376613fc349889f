"""A shard as it lies in the store, read from outside: one version of its table, and the log's tail behind it.

Reads only, and beside a running service, too: where that folds and drops segments between the two looks, both are
looked at again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from serve_app.backup.layout import COLD as COLD_ROOT
from serve_app.backup.layout import LOG, Layout, Shape, log_folder, table_name
from serve_app.core import Fact, Summary, Turn
from serve_app.errors import StoreUnavailable
from serve_app.ports import Rows, Vectors
from serve_app.records import Erasure, ErasureDone, Record, TurnPut, TurnsMoved, UserGone, decode_record
from serve_app.stores.block import Block
from serve_app.stores.cold import ColdTable
from serve_app.stores.lance_followed import FollowedColdTable
from serve_app.stores.places import Place, read
from serve_app.stores.replay import Damage, replay
from serve_app.stores.rows import COLD, HOT, StoredOwner
from serve_app.stores.segment import Entry
from serve_app.stores.table_reader import TableReader

LOOKS = 4
"""At table and log together, while a running service keeps changing them, before a hole counts as one."""

ALL_TURNS = 1 << 40
"""So that every turn of an owner is read, not only those that a service would keep in memory."""

OWNED = frozenset({"turn", "fact", "summary"})


class PlaceSegments:
    """A `SegmentStore` that only reads: it shares the folder with a service and touches nothing there."""

    def __init__(self, place: Place, folder: str) -> None:
        self._place = place
        self._folder = folder

    def names(self) -> list[str]:
        blobs = self._place.list(self._folder)
        return [name for blob in blobs if not (name := blob.path.rpartition("/")[2]).startswith(".")]

    def read(self, name: str) -> bytes:
        return read(self._place, f"{self._folder}/{name}")

    def create(self, name: str, data: bytes) -> None:
        raise StoreUnavailable("this log is opened for reading")

    def delete(self, names: Sequence[str]) -> None:
        raise StoreUnavailable("this log is opened for reading")

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        raise StoreUnavailable("this log is opened for reading")


class Content(msgspec.Struct, frozen=True):
    """All that one owner has, whichever part of the store it comes from.

    Vectors: by version how many each turn has, and of how many tokens.
    """

    turns: dict[int, Turn]
    facts: dict[str, list[Fact]]
    summaries: dict[str, list[Summary]]
    vectors: dict[int, dict[str, tuple[int, int]]]


class ShardView:
    """One shard at one moment. `fault` is what replaying the log met, `entries` what it gave."""

    def __init__(
        self,
        number: int,
        shape: Shape,
        table: TableReader,
        cold: ColdTable,
        folded_seq: int,
        entries: Sequence[Entry],
        last_seq: int,
    ) -> None:
        self.number = number
        self.table = table
        self.cold = cold
        self.folded_seq = folded_seq
        self.last_seq = last_seq
        self.records: list[Record] = [decode_record(entry.payload) for entry in entries]
        self.damage: Damage | None = None
        self._shape = shape
        self._of_owner: dict[str, list[Record]] = defaultdict(list)
        for record in self.records:
            self._of_owner[record.owner].append(record)

    def owners(self) -> list[str]:
        """Of the table and of the tail, sorted."""
        found = {row["owner"] for row in self.table.columns(["owner", "kind"]) if row["kind"] in OWNED}
        return sorted(found | {owner for owner in self._of_owner if owner})

    def stored(self, owner: str) -> StoredOwner:
        return self.table.load(owner, ALL_TURNS)

    def tail(self, owner: str) -> list[Record]:
        return self._of_owner.get(owner, [])

    def block(self, owner: str, stored: StoredOwner) -> Block:
        """As a service that starts now would rebuild it, if no turn had left memory but the cold ones."""
        versions = self._shape.held
        block = Block(owner, versions, {one.name: NoVectors() for one in versions}, ALL_TURNS)
        index = tuple(msgspec.structs.replace(line, tier=HOT) for line in stored.index)
        block.restore(msgspec.structs.replace(stored, index=index), self.folded_seq)
        for record in self.tail(owner):
            if not isinstance(record, TurnsMoved):
                block.apply(record)
        return block

    def cold_seqs(self, owner: str, stored: StoredOwner, block: Block) -> list[int]:
        """Turns of the block whose content is in the cold table alone."""
        edited = {record.turn.seq for record in self.tail(owner) if isinstance(record, TurnPut)}
        cold = {line.seq for line in stored.index if line.tier == COLD} - edited
        return sorted(cold.intersection(seq for one in block.sessions.values() for seq in one.seqs))

    def content(self, owner: str) -> Content:
        stored = self.stored(owner)
        block = self.block(owner, stored)
        vectors = {seq: block.vectors.shape(seq) for seq in block.vectors.came}
        cold = {turn.seq: turn for turn in self.cold.read(owner, self.cold_seqs(owner, stored, block))}
        cold |= self._edited_cold(owner, stored, block)
        return Content(block.turns | cold, block.facts, block.summaries, vectors)

    def _edited_cold(self, owner: str, stored: StoredOwner, block: Block) -> dict[int, Turn]:
        """Turns that come back from the cold table with the next fold."""
        cold = {line.seq for line in stored.index if line.tier == COLD}
        edits = [record.turn for record in self.tail(owner) if isinstance(record, TurnPut)]
        return {turn.seq: turn for turn in edits if turn.seq in cold and block.holds(turn)}

    def overtaken(self) -> bool:
        """Whether a service has written a newer version of the table since this one was opened."""
        return self.table.newest() != self.table.version()

    def erasures(self) -> dict[str, Erasure]:
        found = {erasure.id: erasure for erasure in self.table.erasures()}
        later = [record.erasure for record in self.records if isinstance(record, UserGone | ErasureDone)]
        return found | {erasure.id: erasure for erasure in later}


def open_shard(layout: Layout, shape: Shape, number: int) -> ShardView:
    """Raises StorageTrouble, NotFound, DecodeError for an entry that is no record."""
    segments = PlaceSegments(layout.place(LOG), log_folder(number))
    for look in range(LOOKS):
        table = layout.reader(shape, number)
        folded_seq = table.folded_seq()
        found = replay(segments, folded_seq)
        if found.damage is None or found.damage.kind != "hole" or look == LOOKS - 1:
            break
    cold = FollowedColdTable(layout.tables[COLD_ROOT], table_name(number), layout.options_of(COLD_ROOT))
    view = ShardView(number, shape, table, cold, folded_seq, found.entries, found.last_seq)
    view.damage = found.damage
    return view


class NoVectors:
    """A `HotIndex` that keeps nothing: whoever only asks which turns have vectors does not need them."""

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        pass

    def remove(self, owner: str, rows: Rows) -> int:
        return len(rows)

    def search(self, owner: str, query: Vectors, k: int) -> tuple[Rows, Vectors]:
        raise NotImplementedError("there are no vectors here")

    def products(self, owner: str, query: Vectors) -> tuple[Rows, Vectors]:
        raise NotImplementedError("there are no vectors here")

    def drop(self, owner: str) -> None:
        pass

    def count(self, owner: str) -> int:
        return 0
