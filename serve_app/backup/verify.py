"""Whether a store is whole: its logs, its tables, and that both together give every owner one memory.

Reads only, owner by owner, on a stopped store or beside a service. Faults are promises broken; leftovers (files that
no version names, segments that are folded) are what a crash may leave and maintenance removes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.backup.findings import Report
from serve_app.backup.layout import LOG, TABLES, Layout, Shape, log_folder, table_folder
from serve_app.backup.view import LOOKS, OWNED, ShardView, open_shard
from serve_app.core import ROWS_PER_TURN_MAX, EmbeddingVersion, Owner, Turn
from serve_app.errors import MemstrataError, NotFound
from serve_app.placement import shard_of
from serve_app.ports import TOKEN_DIMENSION
from serve_app.records import Record, SessionGone, TurnGone, TurnPut, UserGone, VectorsPut, decode_record
from serve_app.stores.block import Block
from serve_app.stores.lance_files import MANIFESTS, manifest_version, names
from serve_app.stores.log import FENCES_KEPT
from serve_app.stores.packing import PACKED_BYTES
from serve_app.stores.places import Place, read
from serve_app.stores.rows import COLD, StoredOwner
from serve_app.stores.segment import Decoded, decode, number_of
from serve_app.stores.vector_parts import States
from serve_app.stores.vector_table import VectorTable

Told = Callable[[int], None]
"""Told of owners that are done."""

_COLUMNS = ["row", "rev", "kind", "owner", "seq", "tier", "vector_rev"]
_KEYED = OWNED | {"chunk"}


def nothing(count: int) -> None:
    """For who does not want to be told."""


def verify(layout: Layout, report: Report, owners: Told = nothing, expected: Told = nothing) -> None:
    """Look at every shard. Raises InvalidRequest where there is no store, StorageTrouble where nothing answers."""
    shape = layout.shape()
    for number in range(shape.shards):
        report.add(_looked_at(layout, shape, number, owners, expected))
        report.seen("shards")


def _looked_at(layout: Layout, shape: Shape, number: int, owners: Told, expected: Told) -> Report:
    """One shard. Where a running service has replaced the table's files meanwhile it is looked at again."""
    for look in range(LOOKS):
        part = Report()
        try:
            view = open_shard(layout, shape, number)
            _Check(layout, shape, view, part).run(owners, expected)
        except (MemstrataError, msgspec.DecodeError) as error:
            part.fault("unreadable", number, str(error))
            continue
        if part.sound or look == LOOKS - 1 or not view.overtaken():
            break
    return part


class _Check:
    """One shard."""

    def __init__(self, layout: Layout, shape: Shape, view: ShardView, report: Report) -> None:
        self._layout = layout
        self._shape = shape
        self._view = view
        self._report = report
        self._number = view.number
        self._settled = np.empty(0, np.int64)
        """Turns of the table, not cold ones, that wait for no vectors; in order."""
        self._states = States(self._settled, self._settled)
        """Of its turns that are not cold."""

    def run(self, owners: Told, expected: Told) -> None:
        self._log()
        self._files()
        try:
            self._rows()
            for name, table in self._view.table.tables_beside.items():
                self._rows_beside(name, table)
            found = self._view.owners()
            expected(len(found))
            for owner in found:
                self._owner(owner)
                owners(1)
        except MemstrataError as error:
            self._fault("unreadable", str(error))

    def _fault(self, kind: str, what: str) -> None:
        self._report.fault(kind, self._number, what)

    # ---- the log

    def _log(self) -> None:
        """Every segment's checksums; what the chain of headers says is the replay's to judge."""
        if (damage := self._view.damage) is not None:
            tell = self._report.leftover if damage.mended else self._report.fault
            tell(damage.kind, self._number, f"log: segment {damage.segment} {damage.reason}")
        place, folder = self._layout.place(LOG), log_folder(self._number)
        found: list[tuple[str, Decoded]] = []
        for blob in place.list(folder):
            name = blob.path.rpartition("/")[2]
            if number_of(name) is None:
                self._report.leftover("aside", self._number, f"log: {name} is no segment")
                continue
            try:
                found.append((name, decode(read(place, blob.path))))
            except NotFound:  # folded and dropped since it was listed
                continue
            self._report.seen("segments")
        for name, decoded in found:
            self._segment(name, decoded)
        self._folded_segments(found)

    def _segment(self, name: str, decoded: Decoded) -> None:
        if decoded.fault is not None:
            self._fault("checksum", f"log: segment {name} {decoded.fault}")
        for entry in decoded.entries:
            try:
                seq = decode_record(entry.payload).seq
            except msgspec.DecodeError as error:
                self._fault("record", f"log: segment {name}: the entry at seq {entry.seq} is no record: {error}")
                continue
            if seq != entry.seq:
                self._fault("seq", f"log: segment {name}: the entry at seq {entry.seq} says that it is {seq}")

    def _folded_segments(self, found: list[tuple[str, Decoded]]) -> None:
        """Those below the watermark stay where a crash came between fold and drop; the newest and fences always."""
        headers = [(name, decoded.header) for name, decoded in found if decoded.header is not None]
        fences = [name for name, header in headers if header.fence][-FENCES_KEPT:]
        for name, header in headers[:-1]:
            if header.last_seq <= self._view.folded_seq and name not in fences:
                self._report.leftover("folded", self._number, f"log: segment {name} is in the table")

    # ---- the tables

    def _files(self) -> None:
        for root in self._layout.tables:
            place = self._layout.place(root)
            for folder in self._folders(root):
                with suppress(NotFound):  # replaced since it was listed
                    self._files_of(root, place, folder)

    def _folders(self, root: str) -> list[str]:
        beside = [table_folder(self._number, one.name) for one in self._shape.beside] if root == TABLES else []
        return [table_folder(self._number), *beside]

    def _files_of(self, root: str, place: Place, folder: str) -> None:
        paths = [blob.path.removeprefix(f"{folder}/") for blob in place.list(f"{folder}/")]
        versions = [path for path in paths if manifest_version(path) is not None]
        manifests = [read(place, f"{folder}/{path}") for path in versions]
        for path in paths:
            self._report.seen("files")
            if path.startswith(MANIFESTS) or any(names(manifest, path) for manifest in manifests):
                continue
            self._report.leftover("unnamed", self._number, f"{root}: no version names {path}")

    def _rows(self) -> None:
        """Keys, places and watermark of every row; memory is some bytes a row."""
        keys, turns, chunks, settled = array("q"), array("q"), array("q"), array("q")
        warm, revs = array("q"), array("q")
        for row in self._view.table.columns(_COLUMNS):
            keys.append(row["row"])
            if row["kind"] == "turn":
                turns.append(row["seq"])
                if row["tier"] != COLD:
                    warm.append(row["seq"])
                    revs.append(row["rev"])
                if row["vector_rev"] == row["rev"] and row["tier"] != COLD:
                    settled.append(row["seq"])
            if row["kind"] == "chunk":
                chunks.append(row["seq"])
            self._row(row)
        self._settled = np.sort(np.frombuffer(settled, np.int64))
        self._states = States.of(np.frombuffer(warm, np.int64), np.frombuffer(revs, np.int64))
        self._report.seen("rows", len(keys))
        if (twice := len(keys) - len(np.unique(np.frombuffer(keys, np.int64)))) > 0:
            self._fault("doubled", f"table: {twice} rows have a key that another row has")
        orphans = np.setdiff1d(np.frombuffer(chunks, np.int64), np.frombuffer(turns, np.int64))
        for seq in orphans:
            self._fault("orphan", f"table: vectors of turn {seq}, which is not there")

    def _row(self, row: dict[str, Any]) -> None:
        if row["row"] < 0:
            return
        if row["row"] // ROWS_PER_TURN_MAX != row["seq"]:
            self._fault("key", f"table: row {row['row']} says that it is of seq {row['seq']}")
        if max(row["seq"], row["rev"]) > self._view.folded_seq:
            self._fault("watermark", f"table: row {row['row']} is newer than the watermark {self._view.folded_seq}")
        if row["vector_rev"] > row["rev"]:
            self._fault("orphan", f"table: row {row['row']} has a vector of a state that it never had")
        if row["kind"] in _KEYED and shard_of(Owner.from_key(row["owner"]), self._shape.shards) != self._number:
            self._fault("misplaced", f"table: row {row['row']} is of an owner of another shard")

    def _rows_beside(self, version: str, table: VectorTable) -> None:
        """Each row once, under its key, of a turn that is there in this very state: but for what the next fold takes up
        again, where a crash came between its two commits.
        """
        keys: list[NDArray[np.int64]] = []
        for rows in table.batches(["row", "seq", "rev", "vector_seq", "owner"]):
            key, seq, rev, came = (np.asarray(rows[name]) for name in ("row", "seq", "rev", "vector_seq"))
            keys.append(key)
            for row in key[key // ROWS_PER_TURN_MAX != seq].tolist():
                self._fault("key", f"{version}: row {row} is of another seq than it says")
            folded = came <= self._view.folded_seq
            for one in seq[folded & ~self._states.agree(seq, rev)].tolist():
                self._fault("orphan", f"{version}: a vector of turn {one} in a state that it is not in")
            for owner in set(rows["owner"].to_pylist()):
                if shard_of(Owner.from_key(owner), self._shape.shards) != self._number:
                    self._fault("misplaced", f"{version}: {_shown(owner)} belongs to another shard")
        count = sum(map(len, keys))
        self._report.seen("rows", count)
        if keys and (twice := count - len(np.unique(np.concatenate(keys)))) > 0:
            self._fault("doubled", f"{version}: {twice} rows have a key that another row has")

    # ---- owners

    def _owner(self, owner: str) -> None:
        """Table and tail give one memory, whether a block takes the tail or a plain replay does."""
        if shard_of(Owner.from_key(owner), self._shape.shards) != self._number:
            self._fault("misplaced", f"{_shown(owner)} belongs to another shard")
        try:
            self._memory(owner, self._view.stored(owner))
        except MemstrataError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a damaged store makes the code raise is what was found
            self._fault("unreadable", f"{_shown(owner)}: {type(error).__name__}: {error}")

    def _memory(self, owner: str, stored: StoredOwner) -> None:
        self._index(owner, stored)
        block = self._view.block(owner, stored)
        expected = replayed(stored, self._view.tail(owner))
        if block.turns != expected:
            differing = sorted(set(block.turns) ^ set(expected))[:5] or "contents"
            self._fault("replay", f"{_shown(owner)}: memory and replay differ: {differing}")
        self._vectors(owner, stored, block)
        if sum(len(session.seqs) for session in block.sessions.values()) != block.total_turns:
            self._fault("replay", f"{_shown(owner)}: the sessions do not add up to {block.total_turns} turns")
        cold = self._view.cold_seqs(owner, stored, block)
        for seq in set(cold) - {turn.seq for turn in self._view.cold.read(owner, cold)}:
            self._fault("cold", f"{_shown(owner)}: the cold table lacks turn {seq}")
        self._report.seen("owners")
        self._report.seen("turns", block.total_turns)
        self._report.seen("facts", len(block.facts))
        self._report.seen("summaries", len(block.summaries))

    def _vectors(self, owner: str, stored: StoredOwner, block: Block) -> None:
        """Vectors and tokens under each version: none that should have come are missing, and a replay gives as many."""
        held = {one.turn_seq for vectors in stored.vectors.values() for one in vectors}
        own = np.array([turn.seq for turn in stored.turns], np.int64)
        for seq in own[np.isin(own, self._settled)].tolist():
            if seq not in held:
                self._fault("vectors", f"{_shown(owner)}: turn {seq} waits for no vectors and has none")
        shapes = {seq: block.vectors.shape(seq) for seq in block.vectors.came}
        expected = replayed_vectors(stored, self._view.tail(owner), block.turns, self._shape.held)
        if shapes != expected:
            differing = [seq for seq in sorted({*shapes, *expected}) if shapes.get(seq) != expected.get(seq)]
            self._fault("replay", f"{_shown(owner)}: vectors in memory and by replay differ: turns {differing[:5]}")

    def _index(self, owner: str, stored: StoredOwner) -> None:
        """The columns of a row say what its body says; no vector is of a turn that is not there."""
        bodies = {turn.seq: turn for turn in stored.turns}
        for line in stored.index:
            turn = bodies.get(line.seq)
            if turn is not None and (turn.session, turn.id, turn.created_at) != (
                line.session,
                line.id,
                line.created_at,
            ):
                self._fault("row", f"{_shown(owner)}: the columns of turn {line.seq} contradict its body")
        held = {one.turn_seq for vectors in stored.vectors.values() for one in vectors}
        for seq in held - bodies.keys():
            self._fault("orphan", f"{_shown(owner)}: vectors of turn {seq}, which is not there")


def replayed(stored: StoredOwner, tail: list[Record]) -> dict[int, Turn]:
    """The owner's turns, by nothing but the records in their order."""
    turns = {turn.seq: turn for turn in stored.turns}
    for record in tail:
        match record:
            case TurnPut(turn=turn):
                if turn.rev == turn.seq or turn.seq in turns:
                    turns[turn.seq] = turn
            case TurnGone(turn_seq=turn_seq):
                turns.pop(turn_seq, None)
            case SessionGone(session=session):
                turns = {seq: turn for seq, turn in turns.items() if turn.session != session}
            case UserGone():
                turns = {}
            case _:
                pass
    return turns


def replayed_vectors(
    stored: StoredOwner, tail: list[Record], turns: Mapping[int, Turn], versions: Sequence[EmbeddingVersion]
) -> dict[int, dict[str, tuple[int, int]]]:
    """By turn and version how many vectors there are and of how many tokens, by nothing but rows and records."""
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for version in versions:
        for one in stored.vectors.get(version.name, ()):
            held = found.setdefault(one.turn_seq, {})
            held[version.name] = len(one.parts), len(one.tokens) // TOKEN_DIMENSION
    sizes = {version.name: PACKED_BYTES * version.dimension for version in versions}
    revs = {turn.seq: turn.rev for turn in stored.turns}
    for record in tail:
        if isinstance(record, TurnPut):
            revs[record.turn.seq] = record.turn.rev
            found.pop(record.turn.seq, None)
        if isinstance(record, VectorsPut):
            for seq, made in record.of_turns().items():
                shapes = {
                    name: (len(one.vectors) // sizes[name], len(one.tokens) // TOKEN_DIMENSION)
                    for name, one in made.items()
                    if name in sizes and one.rev == revs.get(seq)
                }
                found |= {seq: found.get(seq, {}) | shapes} if shapes else {}
    return {seq: shapes for seq, shapes in found.items() if seq in turns}


def _shown(owner: str) -> str:
    one = Owner.from_key(owner)
    return f"user {one.user!r} of tenant {one.tenant!r}"
