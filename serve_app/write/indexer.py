"""Vectors for what was written: embeds new turns in batches after they are durable, and has the writer record them.

An append never waits for this. A failing embedder delays vectors and nothing else: the turns stay
pending, are counted, and are tried again, behind the others and in ever smaller batches, so that one
turn or one shard that cannot be served holds up no other.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.errors import MemstrataError
from serve_app.ports import Embedder, Vectors
from serve_app.records import Record, TurnPut, TurnVectors
from serve_app.stores.packing import pack_vectors, turn_text
from serve_app.write.commit import ShardWriter
from serve_app.write.operations import PutVectors
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

CLOSE_WAIT_S = 10.0
"""How long the end of the service waits for the batch in hand."""

BATCH_TURNS_MAX = 256
"""Turns that one round embeds: enough to sort by length, few enough that the first are searchable soon."""

PENDING_MAX = 50_000
"""Turns that may wait for their vectors; beyond it appends are sent away with Overloaded."""

RETRY_AFTER_S = 1.0
"""Pause after a failed round."""


class PassageEncoder(Protocol):
    """What the indexer needs of the encoder service."""

    def passages(self, texts: Sequence[str]) -> Future[Vectors]: ...


class Indexer:
    def __init__(self, encoder: PassageEncoder, embedder: Embedder, retry_after_s: float = RETRY_AFTER_S) -> None:
        self._retry_after_s = retry_after_s
        self._encoder = encoder
        self._embedder = embedder
        self._waiting: deque[tuple[ShardWriter, str, int]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self._writers: list[ShardWriter] = []
        self.failures = 0
        self._batch_turns = BATCH_TURNS_MAX
        self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)

    def start(self, writers: Sequence[ShardWriter]) -> None:
        """Take up what earlier runs left without vectors, then run."""
        self._writers = list(writers)
        for writer in writers:
            for seq, pending in sorted(writer.shard.pending.items()):
                self._waiting.append((writer, pending.owner, seq))
        self._thread.start()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        fresh = [(self._writers[shard.number], one.owner, one.turn.seq) for one in records if isinstance(one, TurnPut)]
        if fresh:
            with self._wake:
                self._waiting.extend(fresh)
                self._wake.notify()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """End after the batch in hand; an encoder that hangs is left behind, and its turns are embedded next time."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(CLOSE_WAIT_S)

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._index(batch)
                self._batch_turns = min(2 * self._batch_turns, BATCH_TURNS_MAX)
            except MemstrataError as error:
                self._put_back(batch, str(error))
            except Exception as error:  # noqa: BLE001 - whatever an encoder throws: the turns stay pending
                self._put_back(batch, type(error).__name__)

    def _next_batch(self) -> list[tuple[ShardWriter, str, int]]:
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return []
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch_turns))]

    def _put_back(self, batch: list[tuple[ShardWriter, str, int]], error: str) -> None:
        self.failures += 1
        self._batch_turns = max(1, len(batch) // 2)
        _log.warning("vectors of %d turns are late, will be tried again: %s", len(batch), error)
        with self._wake:
            self._waiting.extend(batch)
            self._wake.wait_for(lambda: self._closed, self._retry_after_s)

    def _index(self, batch: list[tuple[ShardWriter, str, int]]) -> None:
        """Embed the turns of a batch that still want vectors, and record them owner by owner."""
        turns = [(writer, owner, turn) for writer, owner, seq in batch if (turn := _wanting(writer.shard, owner, seq))]
        pieces = [self._embedder.chunks(turn_text(turn)) for _, _, turn in turns]
        if not pieces:
            return
        vectors = self._encoder.passages([piece for chunks in pieces for piece in chunks]).result()
        ends = np.cumsum([len(chunks) for chunks in pieces])
        items: dict[tuple[int, str], list[TurnVectors]] = {}
        for (writer, owner, turn), part in zip(turns, np.split(vectors, ends[:-1]), strict=True):
            items.setdefault((writer.shard.number, owner), []).append(_packed(turn, part))
        version = self._embedder.version.name
        outcomes = [
            self._writers[number].submit(PutVectors(owner, version, one)) for (number, owner), one in items.items()
        ]
        for outcome in outcomes:
            outcome.result()


def _wanting(shard: Shard, owner: str, seq: int) -> Turn | None:
    """The turn, if its vectors are still to come."""
    if seq not in shard.pending:
        return None
    turn = next(iter(shard.turns(owner, [seq])), None)
    return turn if turn is not None and shard.awaits(seq, owner, turn.rev) else None


def _packed(turn: Turn, vectors: NDArray[np.float32]) -> TurnVectors:
    return TurnVectors(turn.seq, turn.rev, turn.session, turn.id, pack_vectors(vectors))
