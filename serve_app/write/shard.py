"""One shard's state in this process: its log, its table, the tail between them, and the blocks in memory.

Promises: a block handed out has taken every record up to `applied_seq` that is its owner's; the
tail holds exactly the records that the table does not; what leaves memory can be loaded again. Versions come and go
(`hold`, `release`) beside reads and writes. Reads of the tables are guarded (`reads`, `cold_reads`), and no lock is
held during one that anybody else needs.
Only the writer (write/commit.py) calls `take`; only the folder (write/fold.py) calls `folded`.
"""

from __future__ import annotations

import bisect
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from serve_app.core import EmbeddingVersion, Turn
from serve_app.errors import StorageTrouble, StoreUnavailable
from serve_app.records import (
    Erasure,
    ErasureDone,
    FactGone,
    Record,
    SessionGone,
    SummaryGone,
    TurnGone,
    TurnPut,
    TurnsMoved,
    UserGone,
    VectorsPut,
    VersionVectors,
)
from serve_app.stores.archive import Archives
from serve_app.stores.block import TURNS_RESIDENT_MAX, Block
from serve_app.stores.cold import ColdTable
from serve_app.stores.followed import FollowedLog
from serve_app.stores.guard import Guard, GuardBounds, Reading
from serve_app.stores.guarded import GuardedColdTable, GuardedTable
from serve_app.stores.hot_indexes import HotIndexes
from serve_app.stores.lance import RecordTable
from serve_app.stores.log import ShardLog
from serve_app.stores.packing import PACKED_BYTES, vector_rows
from serve_app.stores.rows import COLD, Stub
from serve_app.write.awaited import AWAITED_MAX, Awaited, Pending

LOADS_A_CHECK = 16
"""Loads between two looks at the bound of resident turns. The housekeeper looks, too: blocks grow by appends."""

STALE_LOAD_S = 15.0
"""A load that has not ended after so long may never end: another is begun, and whichever ends first counts."""

LOAD_ATTEMPTS = 5
"""A load that a fold overtakes starts again; after so many it waits for its turn between two folds."""

COUNT_ATTEMPTS: Final = 5
"""The same of a look at what is without vectors."""


class Told(NamedTuple):
    """What a table says of its shard beside its owners' rows."""

    erasures: Sequence[Erasure]
    pending: Awaited
    apart: Awaited | None
    purge_due: bool
    cold_purge_due: bool


class Shard:
    def __init__(
        self,
        number: int,
        log: ShardLog | FollowedLog,
        table: RecordTable,
        versions: Sequence[EmbeddingVersion],
        hot: HotIndexes,
        turns_resident: int,
        owner_turns_resident: int = TURNS_RESIDENT_MAX,
        *,
        cold: ColdTable,
        archives: Archives | None = None,
        guard: GuardBounds | None = None,
    ) -> None:
        """`guard`: the bounds of reads of each of the two tables."""
        self.number = number
        self.log = log
        self.table = table
        self.cold = cold
        self.reads = GuardedTable(table, Guard(f"warm-{number}", guard))
        self.cold_reads = GuardedColdTable(cold, Guard(f"cold-{number}", guard))
        self.versions = tuple(versions)
        self.applied_seq = 0
        self.folded_seq = 0
        self.erasures: dict[str, Erasure] = {}
        self.pending = Awaited()
        """Turns whose vectors by the base are still to come."""
        self.apart: Awaited | None = None
        """Those whose vectors by what the base is to become are; None while it is to become nothing."""
        self.tail_bytes = 0
        """Of the vectors in the tail."""
        self.loads = 0
        self.purge_due = False  # something was edited or erased since the last purge of the table
        self.cold_purge_due = False  # something was removed from the cold table since its last purge
        self.hot = hot
        for version in self.versions:
            hot.hold(version, number)
        self._turns_resident = turns_resident
        self.owner_turns_resident = owner_turns_resident
        self.archives = archives or Archives()
        self._lock = threading.Lock()
        self._changing = threading.Lock()
        """Held, in memory alone, while a block comes or goes: two blocks of one owner would share its vectors."""
        self._loads: dict[str, Reading[Block]] = {}
        self._starts = 0
        self.merging = threading.Lock()
        """Held while a fold changes the table and until the tail is cut."""
        self._blocks: OrderedDict[str, Block] = OrderedDict()
        self._tail: list[Record] = []
        self._tail_of: dict[str, list[Record]] = {}

    # ---- start

    def recover(self, records: Sequence[Record], folded_seq: int) -> None:
        """Take over what the table and the replayed log say. Blocks come later, at their first touch."""
        self._recover(self._told(), records, folded_seq)

    def restart(self, records: Sequence[Record], folded_seq: int) -> None:
        """Forget everything, then `recover`: of what was here nobody knows whether it still stands in the log."""
        told = self._told()
        with self._changing:
            with self._lock:
                self._starts += 1  # what is being loaded is read again: it would mix the old with the new
                left, self._blocks = list(self._blocks.values()), OrderedDict()
                self._tail, self._tail_of, self.tail_bytes = [], {}, 0
                self.applied_seq = 0
            for block in left:
                with block.lock:
                    block.leave()
                    self.archives.drop(block.key)
            self._recover(told, records, folded_seq)

    def _told(self) -> Told:
        """What the table says of the whole shard."""
        table = self.table
        apart = None if self.apart is None else self._lacking(self.apart)
        return Told(table.erasures(), self._lacking(self.pending), apart, table.purge_due(), table.cold_purge_due())

    def _recover(self, told: Told, records: Sequence[Record], folded_seq: int) -> None:
        self.folded_seq = folded_seq
        self.erasures = {erasure.id: erasure for erasure in told.erasures}
        self.pending, self.apart = told.pending, told.apart
        self.purge_due, self.cold_purge_due = told.purge_due, told.cold_purge_due
        self.take(records)
        self.pending.bound()  # only now: among the records are such as settle, too
        if self.apart is not None:
            self.apart.bound()
        self.applied_seq = max(self.applied_seq, folded_seq)

    # ---- versions

    def hold(self, version: EmbeddingVersion) -> None:
        """Take vectors of this version from now on, beside those that are held. Again it changes nothing.

        Raises StorageTrouble.
        """
        with self.merging:
            self.table.hold_beside(version)
        with self._changing:
            if any(one.name == version.name for one in self.versions):
                return
            index = self.hot.hold(version, self.number)
            for block in self._all_of_before():
                with block.lock:
                    block.hold(version, index)
            self.versions = (*self.versions, version)
        self._let_go({one.owner for one in self.tail() if isinstance(one, VectorsPut) and _brings(one, version.name)})

    def release(self, name: str) -> None:
        """Forget the vectors of this version, in memory and in the tables. Again it changes nothing.

        Raises StorageTrouble: then the tables are still to be told.
        """
        with self._changing:
            self.versions = tuple(one for one in self.versions if one.name != name)
            for block in self._all_of_before():
                with block.lock:
                    block.release(name)
            self.hot.release(name, self.number)
        with self.merging:
            self.table.release(name)

    def holds_version(self, name: str) -> bool:
        return any(one.name == name for one in self.versions)

    def _all_of_before(self) -> list[Block]:
        """Those that are here; what is being loaded is read again."""
        with self._lock:
            self._starts += 1
            return list(self._blocks.values())

    # ---- turns without vectors

    def begin_apart(self, version: str, after: int, most: int = AWAITED_MAX) -> None:
        """Await vectors of this version, apart from those of the base, of all that was written after that seq.

        Raises StorageTrouble.
        """
        self._count_anew(Awaited(version, after, most))

    def end_apart(self) -> None:
        """Await nothing apart any more."""
        self.apart = None

    def switch_over(self) -> None:
        """The base has become what vectors were made apart for: what lacks those of either is asked for all of its."""
        apart, self.apart = self.apart, None
        if apart is not None:
            self.pending.note(apart.noted())
            self.pending.more |= apart.more

    def take_up(self, awaited: Awaited) -> list[tuple[int, Pending]]:
        """Note more of what is awaited where there is room again; gives those that were not noted before.

        Raises StorageTrouble.
        """
        if not awaited.roomy:
            return []
        fresh = self._count_anew(awaited)
        return [(seq, pending) for seq, pending in fresh.noted() if not awaited.awaits(seq, pending.owner, pending.rev)]

    def _count_anew(self, like: Awaited) -> Awaited:
        """Put what the table and the tail say is without vectors in the place of what is known of it."""
        for _ in range(COUNT_ATTEMPTS):
            fresh = self._lacking_since(self.folded_seq, like)
            if fresh is not None:
                return fresh
        with self.merging:
            fresh = self._lacking_since(self.folded_seq, like)
        if fresh is None:
            raise StoreUnavailable("the tables change while nobody but this writer should change them")
        return fresh

    def _lacking_since(self, folded_seq: int, like: Awaited) -> Awaited | None:
        """None where a fold has overtaken it. A long tail is gone through before the lock is taken for good.

        The table is asked for more as long as the tail settles most of what it says.
        """
        fresh, ahead = self._lacking(like), []
        while True:
            with self._lock:
                if self.folded_seq != folded_seq:
                    return None
                ahead = list(self._tail)
            fresh.take(ahead)
            if not fresh.roomy:
                break
            self._note_lacking(fresh)
        seen = ahead[-1].seq if ahead else folded_seq
        with self._lock:
            if self.folded_seq > seen:
                return None
            fresh.take(self._tail[bisect.bisect_right(self._tail, seen, key=_seq) :])
            fresh.bound()
            if fresh.beside:
                self.apart = fresh
            else:
                self.pending = fresh
            return fresh

    def _lacking(self, like: Awaited) -> Awaited:
        """What the table says is without vectors. The bound is set when the tail has been taken, too, which settles."""
        fresh = like.anew()
        self._note_lacking(fresh)
        return fresh

    def _note_lacking(self, fresh: Awaited) -> None:
        """The next of them, by the time of their record."""
        after, limit = fresh.read_up_to, fresh.most + 1
        if fresh.version is None:
            found = self.table.without_vectors(limit, after)
        else:
            found = self.table.lacking(fresh.version, after, limit)
        fresh.note((seq, Pending(owner, session, rev)) for owner, session, seq, rev in found)
        fresh.more = len(found) == limit

    # ---- blocks

    def block(self, owner: str) -> Block:
        """The owner's block, loaded from the table and the tail if it is not here. May take milliseconds.

        Raises StorageTrouble, within the patience of this thread.
        """
        found = self.block_or_load(owner)
        return found if isinstance(found, Block) else self.reads.guard.wait(found)

    def block_or_load(self, owner: str) -> Block | Reading[Block]:
        """The owner's block, or else its load, which all who need it share. Waits for nothing.

        Raises StoreUnavailable.
        """
        guard = self.reads.guard
        with self._lock:
            block = self._blocks.get(owner)
            if block is not None:
                self._blocks.move_to_end(owner)
                return block
            load = self._loads.get(owner)
            if load is None or guard.age_s(load) > STALE_LOAD_S:
                load = self._loads[owner] = guard.begin(partial(self._load_once, owner))
            return load

    def block_or_tail(self, owner: str) -> tuple[Block, tuple[str, ...]]:
        """The owner's block; where the tables do not give it, one of what they do not hold yet, and the reason.

        For reads that say what they lack. Nobody else is given such a block.
        """
        try:
            return self.block(owner), ()
        except StorageTrouble as error:
            return self.tail_block(owner), (f"store: {error.reason}",)

    def tail_block(self, owner: str) -> Block:
        """One of what the tables do not hold yet."""
        hot = HotIndexes()
        versions = self.versions
        block = Block(
            owner, versions, {one.name: hot.hold(one, self.number) for one in versions}, self.owner_turns_resident
        )
        for record in self.tail_records_of(owner):
            block.apply(record)
        return block

    def resident(self, owner: str) -> Block | None:
        """The owner's block if it is here, whether it holds all or not."""
        return self._blocks.get(owner)

    def at_hand(self, owner: str) -> Block | None:
        """The owner's block if it is here and holds all that there is: reading it waits for no table."""
        block = self._blocks.get(owner)
        return block if block is not None and block.complete else None

    def blocks(self) -> dict[str, Block]:
        """Those that are here, by owner."""
        with self._lock:
            return dict(self._blocks)

    def archived(self) -> int:
        """Turns in the archives of the owners that are here."""
        return sum(archive.turns for owner, archive in self.archives.held().items() if owner in self._blocks)

    def holds(self, owner: str) -> bool:
        """Whether the owner's block is here."""
        return owner in self._blocks

    def _load_once(self, owner: str) -> Block:
        """On a thread of the guard. Whoever asks from now on finds the block here, or has it loaded anew."""
        try:
            return self._loaded(owner)
        finally:
            with self._lock:
                self._loads.pop(owner, None)

    def _loaded(self, owner: str) -> Block:
        """Beside folds as long as none comes in between, else between two of them."""
        block = next(filter(None, (self._load(owner) for _ in range(LOAD_ATTEMPTS))), None)
        if block is None:
            with self.merging:
                block = self._load(owner, alone=True)
        if block is None:
            raise StoreUnavailable("the tables change while nobody but this writer should change them")
        if self.loads % LOADS_A_CHECK == 0:
            self.evict()
        return block

    def _load(self, owner: str, alone: bool = False) -> Block | None:
        """The owner as the table has it in one version; None where a fold has overtaken it."""
        self.loads += 1
        starts, version = self._starts, self.table.version()
        stored = self.table.load(owner, self.owner_turns_resident)
        if (self.table.folded_seq() != stored.folded_seq) if alone else (version != self.table.version()):
            return None
        with self._changing:
            if starts != self._starts:
                return None
            if (here := self._blocks.get(owner)) is not None:  # a load that was given up has come after all
                return here
            block = Block(owner, self.versions, self.hot, self.owner_turns_resident)
            block.restore(stored, stored.folded_seq)
            return block if self._adopt(owner, block) else None

    def _adopt(self, owner: str, block: Block) -> bool:
        """Bring the block up to date and hand it out from now on; False where a fold overtook it.

        A long tail is applied before the lock is taken for good: appends do not wait for it.
        """
        with self._lock:
            if self.folded_seq > block.applied_seq:
                return False
            ahead = list(self._tail_of.get(owner, ()))
            seen = self._tail[-1].seq if self._tail else self.folded_seq
        for record in ahead:
            block.apply(record)
        with self._lock:
            if self.folded_seq > seen:
                return False
            records = self._tail_of.get(owner, [])
            for record in records[bisect.bisect_right(records, seen, key=_seq) :]:
                block.apply(record)
            self._blocks[owner] = block
            return True

    def turns(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        """The owner's turns with these seqs, oldest first: from memory, else from the tail, else from the tables.

        The cold table is asked last, for cold turns alone: what is about to go there is in the warm one until it is.
        """
        block = self.block(owner)
        with block.lock:
            found = {seq: block.turns[seq] for seq in seqs if seq in block.turns}
        if len(found) < len(seqs):
            found |= self._turns_in_tail(owner, set(seqs) - found.keys())
        if missing := [seq for seq in seqs if seq not in found]:
            found |= {turn.seq: turn for turn in self.reads.turns(owner, missing)}
            if block.moved.cold:
                cold = [seq for seq in missing if seq not in found and block.moved.is_cold(seq)]
                found |= {turn.seq: turn for turn in self.cold_reads.read(owner, cold)}
        return [found[seq] for seq in sorted(found) if block.holds(found[seq])]

    def vector_rows(self, owner: str) -> set[tuple[str, int]]:
        """(version, row) of each of the owner's vectors in the table and the tail, resident or not."""
        with self._lock:
            records = list(self._tail_of.get(owner, ()))
        recent = (made for one in records if isinstance(one, VectorsPut) for made in one.versions)
        return self.reads.vector_rows(owner).union(*(self._rows_of(made) for made in recent))

    def _rows_of(self, made: VersionVectors) -> set[tuple[str, int]]:
        size = next((PACKED_BYTES * one.dimension for one in self.versions if one.name == made.version), None)
        if size is None:
            return set()
        sizes = ((item.turn_seq, len(item.vectors) // size) for item in made.items)
        return {(made.version, int(row)) for seq, parts in sizes for row in vector_rows(seq, parts)}

    def held(self, owner: str, seqs: Sequence[int]) -> dict[int, Turn | Stub]:
        """By seq, the owner's turns with these seqs; of cold ones what the warm table knows of them."""
        block = self.block(owner)
        cold = [seq for seq in seqs if block.moved.is_cold(seq)]
        found: dict[int, Turn | Stub] = dict(self.reads.stubs(owner, cold)) if cold else {}
        return found | {turn.seq: turn for turn in self.turns(owner, [seq for seq in seqs if seq not in found])}

    def leaving(self, owner: str) -> list[int]:
        """Seqs of the owner's turns that are cold and lie in the warm table until the next fold."""
        with self._lock:
            moves = [one for one in self._tail_of.get(owner, ()) if isinstance(one, TurnsMoved) and one.tier == COLD]
        block = self.block(owner)
        return [seq for one in moves for seq in one.turn_seqs if block.moved.is_cold(seq)]

    def unfolded_of(self, owner: str) -> set[int]:
        """Seqs of the owner's turns whose latest state is not in the table yet."""
        with self._lock:
            return {one.turn.seq for one in self._tail_of.get(owner, ()) if isinstance(one, TurnPut)}

    def tail_records_of(self, owner: str) -> tuple[Record, ...]:
        with self._lock:
            return tuple(self._tail_of.get(owner, ()))

    def _turns_in_tail(self, owner: str, seqs: set[int]) -> dict[int, Turn]:
        with self._lock:
            records = list(self._tail_of.get(owner, ()))
        return {one.turn.seq: one.turn for one in records if isinstance(one, TurnPut) and one.turn.seq in seqs}

    def evict(self) -> None:
        """Let the least recently used blocks go until the resident turns are within the bound."""
        with self._changing:
            for block in self._surplus():
                with block.lock:
                    block.leave()
                    self.archives.drop(block.key)

    def _let_go(self, owners: Iterable[str]) -> None:
        """Their blocks are loaded anew when they are asked for."""
        with self._changing:
            with self._lock:
                gone = [block for owner in owners if (block := self._blocks.pop(owner, None)) is not None]
            for block in gone:
                with block.lock:
                    block.leave()
                    self.archives.drop(block.key)

    def _surplus(self) -> list[Block]:
        """Blocks that are no longer handed out; whoever loads one of their owners waits until they have left."""
        with self._lock:
            resident = sum(block.weight for block in self._blocks.values())
            gone: list[Block] = []
            while resident > self._turns_resident and len(self._blocks) > 1:
                gone.append(self._blocks.popitem(last=False)[1])
                resident -= gone[-1].weight
            return gone

    def owners(self, start: str, end: str, limit: int | None = None) -> list[str]:
        """Owners of turns or facts with `start <= key < end`, sorted, the first `limit` of them.

        Reads the table: for maintenance and lists.
        """
        with self._lock:
            recent = {owner for owner in self._tail_of if start <= owner < end}
        candidates = sorted(self.reads.owners(start, end) | recent)
        return list(islice((one for one in candidates if one not in recent or self._holds_anything(one)), limit))

    def _holds_anything(self, owner: str) -> bool:
        block = self.block(owner)
        return bool(block.total_turns or block.facts)

    # ---- changes

    def take(self, records: Sequence[Record]) -> None:
        """Apply durable records, in order of seq."""
        if not records:
            return
        with self._lock:
            touched: list[tuple[Block | None, Record]] = []
            for record in records:
                self._tail.append(record)
                self.tail_bytes += _bytes(record)
                self._tail_of.setdefault(record.owner, []).append(record)
                touched.append((self._blocks.get(record.owner), record))
        for block, record in touched:
            if block is not None:
                with block.lock:
                    block.apply(record)
                    self._note_change(record)
        self.pending.take(records)  # after the blocks: whoever waits for vectors finds them there
        if (apart := self.apart) is not None:
            apart.take(records)
        for record in records:
            self._account(record)
        self.applied_seq = records[-1].seq

    def _note_change(self, record: Record) -> None:
        if isinstance(record, VectorsPut) and record.beside:
            archive = self.archives.of(record.owner)
            if archive is not None:
                archive.came(record)
        elif isinstance(record, TurnPut) and record.turn.rev != record.turn.seq:
            archive = self.archives.of(record.owner)
            if archive is not None:
                archive.revise(record.turn)

    def _account(self, record: Record) -> None:
        """Keep what belongs to the shard and not to one owner: erasures, and what is due in the files."""
        match record:
            case TurnPut(turn=turn):
                self.purge_due |= turn.rev != turn.seq
            case TurnGone() | SessionGone() | FactGone() | SummaryGone():
                self.purge_due = True
            case UserGone(erasure=erasure):
                self.erasures[erasure.id] = erasure
                self.purge_due = True
            case ErasureDone(erasure=erasure):
                self.erasures[erasure.id] = erasure
            case _:
                pass

    # ---- tail and fold

    def tail(self) -> tuple[Record, ...]:
        """The records that are durable in the log and not in the table yet."""
        with self._lock:
            return tuple(self._tail)

    def tail_since(self, folded_seq: int) -> tuple[Record, ...] | None:
        """The tail, if the table was folded up to this seq and is so still."""
        with self._lock:
            return tuple(self._tail) if self.folded_seq == folded_seq else None

    def settled(self, owner: str, folded_seq: int) -> bool:
        """Whether the table, as it stood with the log folded up to `folded_seq`, is all there is of the owner."""
        with self._lock:
            idle = owner not in self._blocks and owner not in self._tail_of
            return idle and self.folded_seq == folded_seq

    def tail_length(self) -> int:
        return len(self._tail)

    def tail_of(self, owner: str) -> int:
        with self._lock:
            return len(self._tail_of.get(owner, ()))

    def folded(self, seq: int) -> None:
        """The table holds everything up to `seq`: forget that part of the tail. Costs as much as goes, not as stays."""
        gone = self._tail[: bisect.bisect_right(self._tail, seq, key=_seq)]  # only here does the tail lose records
        of_owners = Counter(record.owner for record in gone)
        vectors = sum(map(_bytes, gone))
        with self._lock:
            del self._tail[: len(gone)]
            self.tail_bytes -= vectors
            for owner, count in of_owners.items():
                records = self._tail_of[owner]
                del records[:count]
                if not records:
                    del self._tail_of[owner]
            self.folded_seq = seq

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why what is read here may lack something that is durable elsewhere; empty as a rule."""
        return () if self.log.doubt is None else (self.log.doubt,)

    def block_counts(self) -> tuple[int, int]:
        """(owners in memory, turns whose content is resident)."""
        with self._lock:
            return len(self._blocks), sum(len(block.turns) for block in self._blocks.values())


def _seq(record: Record) -> int:
    return record.seq


def _bytes(record: Record) -> int:
    """Of the vectors that it brings."""
    return record.bytes if isinstance(record, VectorsPut) else 0


def _brings(record: VectorsPut, version: str) -> bool:
    return any(made.version == version for made in record.versions)
