"""One shard on real stores, opened as the service opens it: write, fold, forget what memory held, start again."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.core import Owner, Receipt, Turn
from serve_app.models.stub import HashEmbedder
from serve_app.ports import SegmentStore
from serve_app.records import Record, TurnVectors, VersionVectors, decode_record
from serve_app.stores.block import TURNS_RESIDENT_MAX, Block
from serve_app.stores.cold import ColdTable
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.hot_indexes import HotIndexes
from serve_app.stores.lance import RecordTable
from serve_app.stores.log import ShardLog
from serve_app.stores.packing import pack_vectors
from serve_app.stores.segments_disk import DiskCalls, DiskSegments
from serve_app.write.commit import Operation, ShardWriter, WriterBounds
from serve_app.write.derived import PutVectors
from serve_app.write.expire import DUE_A_PART, Expirer
from serve_app.write.fold import FOLD_RECORDS_MAX, fold
from serve_app.write.housekeeping import FoldOptions, Housekeeper
from serve_app.write.meter import UNMETERED, Meter
from serve_app.write.operations import AppendTurns, ItemResult, NewTurn
from serve_app.write.shard import Shard

ANN, BOB, CAT = (Owner(tenant, user).key for tenant, user in [("acme", "ann"), ("acme", "bob"), ("zeta", "ann")])
EMBEDDER = HashEmbedder(64)
VERSION = EMBEDDER.version
WAIT_S = 20.0

NEVER = FoldOptions(records=10**9, segments=10**9, age_s=1e9, round_s=1e9, purge_every_s=1e9, expire_every_s=1e9)
"""For a housekeeper that acts when it is told to."""

NO_FSYNC = DiskCalls(fsync=lambda descriptor: None)


class Noting:
    """A meter that keeps what it is told."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.bounds: list[str] = []
        self.lags: list[float] = []

    def committed(self, records: int, seconds: float) -> None:
        assert seconds > 0
        self.commits.append(records)

    def sent_away(self, bound: str) -> None:
        self.bounds.append(bound)

    def searchable(self, lag_s: float) -> None:
        self.lags.append(lag_s)


class Ticks:
    """A clock that goes on by one second at each look."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


class OneShard:
    """`segments` and `table` may wrap the real ones; what was `committed` is handed on after each batch."""

    def __init__(
        self,
        folder: Path,
        *,
        segments: Callable[[SegmentStore], SegmentStore] = lambda store: store,
        table: Callable[[RecordTable], Any] = lambda table: table,
        cold: Callable[[ColdTable], Any] = lambda table: table,
        committed: Callable[[Shard, list[Record]], None] = lambda shard, records: None,
        turns_resident: int = 200_000,
        owner_turns_resident: int = TURNS_RESIDENT_MAX,
        writer_bounds: WriterBounds | None = None,
        number: int = 0,
        meter: Meter = UNMETERED,
        embedders: Sequence[HashEmbedder] = (EMBEDDER,),
    ) -> None:
        self.folder = folder
        self._segments, self._table, self._cold, self._committed = segments, table, cold, committed
        self._writer_bounds = writer_bounds
        self._number = number
        self._meter = meter
        self.embedders = embedders
        self.versions = tuple(one.version for one in embedders)
        self._bounds = (turns_resident, owner_turns_resident)
        self.clock = Ticks()
        self._keepers: list[Housekeeper] = []
        self.open()

    def open(self, *damages: str) -> None:
        """`damages`: the kinds of those that the log must have."""
        self.hot = HotIndexes()
        self.table = self._table(RecordTable(str(self.folder / "tables"), "shard-0000", self.versions, {}))
        self.cold = self._cold(ColdTable(str(self.folder / "cold"), "shard-0000", {}))
        self.segments = self._segments(DiskSegments(self.folder / "log", NO_FSYNC))
        folded = self.table.folded_seq()
        log, recovery = ShardLog.open(self.segments, folded_seq=folded, writer_id=uuid.uuid4().hex)
        assert tuple(damage.kind for damage in recovery.damages) == damages
        self.shard = Shard(self._number, log, self.table, self.versions, self.hot, *self._bounds, cold=self.cold)
        self.shard.recover([decode_record(entry.payload) for entry in recovery.entries], folded)
        self.writer = ShardWriter(self.shard, self.clock, self._committed, self._writer_bounds, self._meter)

    def close(self) -> None:
        for keeper in self._keepers:
            keeper.close()
        self._keepers.clear()
        self.writer.close()

    def restart(self) -> None:
        """All that memory held is gone, as after a kill: nothing waits in the writer's queue."""
        self.close()
        self.open()

    def housekeeper(self, options: FoldOptions = NEVER, due_a_part: int = DUE_A_PART) -> Housekeeper:
        keeper = Housekeeper([self.writer], options, [Expirer(self.clock, options.expire_every_s, due_a_part)])
        self._keepers.append(keeper)
        return keeper

    # ---- writing

    def do(self, operation: Operation) -> Any:
        return self.writer.submit(operation).result(WAIT_S)[0]

    def receipt(self, operation: Operation) -> Receipt:
        return self.writer.submit(operation).result(WAIT_S)[1]

    def say(self, owner: str, session: str, *contents: str) -> list[ItemResult]:
        results: list[ItemResult] = self.do(AppendTurns(owner, session, [NewTurn("user", text) for text in contents]))
        return results

    def say_as(self, owner: str, session: str, turn_id: str, content: str) -> ItemResult:
        result: ItemResult = self.do(AppendTurns(owner, session, [NewTurn("user", content, id=turn_id)]))[0]
        return result

    def embed(self, owner: str, *turns: Turn, parts: int = 1) -> int:
        """Under every version of the shard."""
        stored: int = self.do(PutVectors(owner, made_of(turns, self.embedders, parts)))
        return stored

    def fold(self, records_max: int = FOLD_RECORDS_MAX) -> int:
        return fold(self.shard, records_max)

    # ---- reading

    def block(self, owner: str) -> Block:
        return self.shard.block(owner)

    def turn(self, owner: str, session: str, turn_id: str) -> Turn | None:
        seq = self.block(owner).find(session, turn_id)
        return None if seq is None else next(iter(self.shard.turns(owner, [seq])), None)

    def contents(self, owner: str, session: str) -> list[str]:
        index = self.block(owner).sessions.get(session)
        return [turn.content for turn in self.shard.turns(owner, index.seqs)] if index else []

    def rebuilt(self, owner: str) -> tuple[Block, dict[str, ExactHotIndex]]:
        """The owner's block from the table and the tail alone, beside the one in memory."""
        hot = {version.name: ExactHotIndex(version.dimension) for version in self.versions}
        block = Block(owner, self.versions, hot, self._bounds[1])
        block.restore(self.table.load(owner, self._bounds[1]), self.table.folded_seq())
        for record in self.shard.tail():
            if record.owner == owner:
                block.apply(record)
        return block, hot

    def files_with(self, text: str) -> list[str]:
        """Every file of the store that holds the text's bytes."""
        found = []
        for folder, _, names in os.walk(self.folder):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):  # maintenance may be at work
                    if text.encode() in path.read_bytes():
                        found.append(str(path.relative_to(self.folder)))
        return found


def vectors_of(turn: Turn, parts: int = 1, embedder: HashEmbedder = EMBEDDER) -> TurnVectors:
    """As the indexer would send them: made of the turn in this very state."""
    made = embedder.encode([turn.content + part * " further" for part in range(parts)], tokens=True)
    assert made.tokens is not None
    tokens = np.concatenate(made.tokens).tobytes()
    return TurnVectors(turn.seq, turn.rev, turn.session, turn.id, pack_vectors(made.vectors), tokens)


def made_of(turns: Sequence[Turn], embedders: Sequence[HashEmbedder], parts: int = 1) -> list[VersionVectors]:
    """What all versions make of some turns. Of each further version a turn has one part less, but one at least."""
    return [
        VersionVectors(one.version.name, tuple(vectors_of(turn, max(1, parts - place), one) for turn in turns))
        for place, one in enumerate(embedders)
    ]


def told(block: Block) -> dict[str, Any]:
    """All that a block remembers."""
    return {
        "turns": block.turns,
        "sessions": {name: (index.ids, index.last_at, index.summarised_seq) for name, index in block.sessions.items()},
        "facts": block.facts,
        "summaries": block.summaries,
        "vectors": {seq: (came, block.vectors.shape(seq)) for seq, came in block.vectors.came.items()},
        "changed": block.changed_seq,
    }


def wait_until(reached: Callable[[], bool]) -> None:
    """Raises AssertionError after WAIT_S."""
    ends = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.002)
