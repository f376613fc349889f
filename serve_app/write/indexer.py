"""Vectors for what was written: embeds new turns in batches after they are durable, and has the writer record them.

An append never waits for this. A round takes short turns of all owners alike and then one long turn,
so that nobody waits for another's backlog. A failing embedder delays vectors and nothing else: the
turns stay pending, are counted, and are tried again, behind the others and in ever smaller batches,
so that one turn or one shard that cannot be served holds up no other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.errors import MemstrataError
from serve_app.ports import Embedder, Vectors
from serve_app.records import Record, TurnPut, TurnVectors
from serve_app.stores.packing import pack_vectors, turn_text
from serve_app.write.backlog import Backlog, Waiting
from serve_app.write.commit import ShardWriter
from serve_app.write.operations import PutVectors
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

CLOSE_WAIT_S = 10.0
"""How long the end of the service waits for the batch in hand."""

BATCH_TURNS_MAX = 256
"""Short turns that one round embeds: enough to sort by length, few enough that the first are searchable soon."""

SHORT_TEXT_MAX = 8_000
"""Characters of a short turn's text, a dozen pieces for the embedder; a longer one waits among the long."""

PENDING_MAX = 50_000
"""Turns that may wait for their vectors; beyond it appends are to be sent away with Overloaded."""

OWNER_PENDING_MAX = 10_000
"""Turns of one owner that may wait; beyond it the owner's own appends are to be sent away."""

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
        self._short = Backlog()
        self._long = Backlog()
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
                self._short.put(Waiting(writer, pending.owner, seq))  # how long it is shows when it is read
        self._thread.start()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        writer = self._writers[shard.number]
        puts = [one for one in records if isinstance(one, TurnPut)]
        with self._wake:
            for one in puts:
                self._backlog_of(one.turn).put(Waiting(writer, one.owner, one.turn.seq))
            if puts:
                self._wake.notify()

    @property
    def waiting(self) -> int:
        return len(self._short) + len(self._long)

    def full_for(self, owner: str) -> bool:
        """Whether so much waits, of this owner or of all, that the owner should write no more for now."""
        own = self._short.of(owner) + self._long.of(owner)
        return own > OWNER_PENDING_MAX or self.waiting > PENDING_MAX

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """End after the batch in hand; an encoder that hangs is left behind, and its turns are embedded next time."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join(CLOSE_WAIT_S)

    def _backlog_of(self, turn: Turn) -> Backlog:
        return self._short if len(turn.text) <= SHORT_TEXT_MAX else self._long

    def _run(self) -> None:
        while self._any_waits():
            short = self._take(self._short, self._batch_turns)
            if self._served(short, self._short):
                self._batch_turns = min(2 * self._batch_turns, BATCH_TURNS_MAX)
            else:
                self._batch_turns = max(1, len(short) // 2)
            self._served(self._take(self._long, 1), self._long)

    def _any_waits(self) -> bool:
        """Waits for work; False once the indexer is to end."""
        with self._wake:
            self._wake.wait_for(lambda: self.waiting or self._closed)
            return not self._closed

    def _take(self, backlog: Backlog, most: int) -> list[Waiting]:
        with self._wake:
            return [] if self._closed else backlog.take(most)

    def _served(self, batch: Sequence[Waiting], backlog: Backlog) -> bool:
        """Give the turns of a batch their vectors; where that fails they go behind the others, and False comes back."""
        try:
            self._index(batch, backlog)
            return True
        except MemstrataError as error:
            self._put_back(batch, backlog, str(error))
        except Exception as error:  # noqa: BLE001 - whatever an encoder throws: the turns stay pending
            self._put_back(batch, backlog, type(error).__name__)
        return False

    def _put_back(self, batch: Sequence[Waiting], backlog: Backlog, error: str) -> None:
        self.failures += 1
        _log.warning("vectors of %d turns are late, will be tried again: %s", len(batch), error)
        with self._wake:
            for waiting in batch:
                backlog.put(waiting)
            self._wake.wait_for(lambda: self._closed, self._retry_after_s)

    def _index(self, batch: Sequence[Waiting], backlog: Backlog) -> None:
        """Embed the turns of a batch that still want vectors, and record them owner by owner."""
        turns = list(self._rightly_here(batch, backlog))
        pieces = [self._embedder.chunks(turn_text(turn)) for _, turn in turns]
        if not pieces:
            return
        vectors = self._encoder.passages([piece for chunks in pieces for piece in chunks]).result()
        ends = np.cumsum([len(chunks) for chunks in pieces])
        items: dict[tuple[int, str], list[TurnVectors]] = {}
        for (waiting, turn), part in zip(turns, np.split(vectors, ends[:-1]), strict=True):
            items.setdefault((waiting.writer.shard.number, waiting.owner), []).append(_packed(turn, part))
        version = self._embedder.version.name
        outcomes = [
            self._writers[number].submit(PutVectors(owner, version, one)) for (number, owner), one in items.items()
        ]
        for outcome in outcomes:
            outcome.result()

    def _rightly_here(self, batch: Sequence[Waiting], backlog: Backlog) -> Iterable[tuple[Waiting, Turn]]:
        """The turns that still want vectors; long ones that were not known to be long go where they belong."""
        for waiting in batch:
            turn = _wanting(waiting)
            if turn is None:
                continue
            if backlog is self._short and self._backlog_of(turn) is self._long:
                with self._wake:
                    self._long.put(waiting)
            else:
                yield waiting, turn


def _wanting(waiting: Waiting) -> Turn | None:
    """The turn, if its vectors are still to come."""
    shard = waiting.writer.shard
    if waiting.seq not in shard.pending:
        return None
    turn = next(iter(shard.turns(waiting.owner, [waiting.seq])), None)
    return turn if turn is not None and shard.awaits(waiting.seq, waiting.owner, turn.rev) else None


def _packed(turn: Turn, vectors: NDArray[np.float32]) -> TurnVectors:
    return TurnVectors(turn.seq, turn.rev, turn.session, turn.id, pack_vectors(vectors))
