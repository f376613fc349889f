"""Vectors for what was written: embeds new turns in batches after they are durable, and has the writer record them.

An append never waits for this. A round takes short turns of all owners alike, and the one after it one
long turn, so that nobody waits for another's backlog. While a round is embedded the one before it is
committed; a turn that comes alone waits for neither timer nor company. A failing embedder delays vectors
and nothing else: the turns stay pending, are counted, and are tried again, behind the others and in ever
smaller batches, so that one turn or one shard that cannot be served holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, Turn
from serve_app.errors import MemstrataError, Overloaded
from serve_app.ports import Encodings
from serve_app.records import Record, TurnPut, TurnVectors
from serve_app.stores.packing import pack_vectors, turn_text
from serve_app.write.backlog import Backlog, Waiting
from serve_app.write.commit import Outcome, ShardWriter
from serve_app.write.derived import PutVectors
from serve_app.write.meter import UNMETERED, Bound, Meter
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


class TurnEncoders(Protocol):
    """What the indexer needs of the encoders."""

    @property
    def versions(self) -> tuple[EmbeddingVersion, ...]: ...

    def chunks(self, version: str, text: str) -> list[str]: ...

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]: ...


@dataclass(eq=False)
class Round:
    """Turns that are being embedded together: each with its text's pieces, whose vectors come in the same order."""

    backlog: Backlog
    turns: list[tuple[Waiting, Turn]]
    pieces: list[list[str]]
    encodings: Future[Encodings]


class Recording(NamedTuple):
    """Turns of one owner whose vectors are with the writer."""

    backlog: Backlog
    waiting: list[Waiting]
    outcome: Future[Outcome]


class Indexer:
    def __init__(
        self,
        encoders: TurnEncoders,
        retry_after_s: float = RETRY_AFTER_S,
        meter: Meter = UNMETERED,
    ) -> None:
        self._retry_after_s = retry_after_s
        self._meter = meter
        self._encoders = encoders
        self._version = encoders.versions[0].name
        self._short = Backlog()
        self._long = Backlog()
        self._wake = threading.Condition()
        self._closed = False
        self._writers: list[ShardWriter] = []
        self.failures = 0
        self._batch_turns = BATCH_TURNS_MAX
        self._long_is_next = False
        self._in_hand: list[Waiting] = []
        self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)

    def start(self, writers: Sequence[ShardWriter]) -> None:
        """Take up what earlier runs left without vectors, then run."""
        self._writers = list(writers)
        for writer in writers:
            for seq, pending in sorted(writer.shard.pending.items()):
                # how long its text is shows when it is read
                self._short.put(Waiting(writer, pending.owner, seq, time.monotonic()))
        self._thread.start()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        writer = self._writers[shard.number]
        puts = [one for one in records if isinstance(one, TurnPut)]
        if not puts:
            return
        now = time.monotonic()
        with self._wake:
            for one in puts:
                self._backlog_of(one.turn).put(Waiting(writer, one.owner, one.turn.seq, now))
            self._wake.notify()

    @property
    def waiting(self) -> int:
        return len(self._short) + len(self._long)

    @property
    def oldest_age_s(self) -> float:
        """How long the turn has waited that has waited longest; 0 where none waits."""
        with self._wake:
            backlogs = [since for since in (self._short.oldest(), self._long.oldest()) if since is not None]
            since = min([*backlogs, *(one.since for one in self._in_hand)], default=None)
        return 0.0 if since is None else time.monotonic() - since

    def full_for(self, owner: str) -> Bound | None:
        """The bound at which so much waits, of this owner or of all, that the owner should write no more for now."""
        if self._short.of(owner) + self._long.of(owner) > OWNER_PENDING_MAX:
            return "owner_pending"
        return "pending" if self.waiting > PENDING_MAX else None

    def admit(self, owner: str) -> None:
        """Raises Overloaded where the owner should write no more for now."""
        bound = self.full_for(owner)
        if bound is not None:
            self._meter.sent_away(bound)
            raise Overloaded("too many turns wait for their vectors")

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
        """The next round is with the encoder before the commit of the last one is waited for."""
        embedding: Round | None = None
        while (embedding := embedding or self._next_round()) is not None:
            recordings = self._recorded(embedding)
            embedding = self._begun()
            self._conclude(recordings)

    def _next_round(self) -> Round | None:
        """Waits for work; None once the indexer is to end."""
        while self._any_waits():
            begun = self._begun()
            if begun is not None:
                return begun
        return None

    def _any_waits(self) -> bool:
        with self._wake:
            self._wake.wait_for(lambda: self.waiting or self._closed)
            return not self._closed

    def _begun(self) -> Round | None:
        """The next round, handed to the encoder; None where nothing waits or nothing of it wants vectors any more."""
        backlog, batch = self._take()
        try:
            turns = list(self._rightly_here(batch, backlog))
            pieces = [self._encoders.chunks(self._version, turn_text(turn)) for _, turn in turns]
            if not turns:
                return None
            encodings = self._encoders.passages(self._version, [piece for chunks in pieces for piece in chunks])
        except Exception as error:  # noqa: BLE001 - a table or an encoder that fails: the turns stay pending
            self._embedding_failed(batch, backlog, error)
            return None
        self._in_hand += (waiting for waiting, _ in turns)
        return Round(backlog, turns, pieces, encodings)

    def _take(self) -> tuple[Backlog, list[Waiting]]:
        """Short turns, then one long turn, and so on."""
        with self._wake:
            long_now = len(self._long) > 0 and (self._long_is_next or not len(self._short))
            self._long_is_next = not long_now
            backlog, most = (self._long, 1) if long_now else (self._short, self._batch_turns)
            return backlog, [] if self._closed else backlog.take(most)

    def _recorded(self, embedded: Round) -> list[Recording]:
        """Wait for a round's vectors and hand them to the writers, owner by owner."""
        waiting = [waiting for waiting, _ in embedded.turns]
        try:
            vectors = embedded.encodings.result().vectors
        except Exception as error:  # noqa: BLE001 - whatever an encoder throws: the turns stay pending
            self._embedding_failed(waiting, embedded.backlog, error)
            return []
        finally:
            with self._wake:
                del self._in_hand[: len(waiting)]
        if embedded.backlog is self._short:
            self._batch_turns = min(2 * self._batch_turns, BATCH_TURNS_MAX)
        ends = np.cumsum([len(chunks) for chunks in embedded.pieces])
        of_owners: dict[tuple[ShardWriter, str], tuple[list[Waiting], list[TurnVectors]]] = {}
        for (one, turn), part in zip(embedded.turns, np.split(vectors, ends[:-1]), strict=True):
            those, items = of_owners.setdefault((one.writer, one.owner), ([], []))
            those.append(one)
            items.append(_packed(turn, part))
        return [
            Recording(embedded.backlog, those, self._submitted(writer, owner, items))
            for (writer, owner), (those, items) in of_owners.items()
        ]

    def _submitted(self, writer: ShardWriter, owner: str, items: Sequence[TurnVectors]) -> Future[Outcome]:
        """The outcome to come; a refusal is an outcome, too."""
        try:
            return writer.submit(PutVectors(owner, self._version, items))
        except MemstrataError as error:
            refused: Future[Outcome] = Future()
            refused.set_exception(error)
            return refused

    def _conclude(self, recordings: Sequence[Recording]) -> None:
        """Wait until the vectors are durable and hot; those that a writer does not take are tried again."""
        failed: BaseException | None = None
        for backlog, those, outcome in recordings:
            error = outcome.exception()
            if error is None:
                self._measure(those)
                continue
            failed = error
            with self._wake:
                for waiting in those:
                    backlog.put(waiting)
        if failed is not None:
            self._pause(sum(len(one.waiting) for one in recordings if one.outcome.exception() is not None), failed)

    def _measure(self, indexed: Sequence[Waiting]) -> None:
        now = time.monotonic()
        for waiting in indexed:
            self._meter.searchable(now - waiting.since)

    def _embedding_failed(self, batch: Sequence[Waiting], backlog: Backlog, error: Exception) -> None:
        """Behind the others with them, and fewer next time: it may be one of them that the encoder fails at."""
        if backlog is self._short:
            self._batch_turns = max(1, len(batch) // 2)
        with self._wake:
            for waiting in batch:
                backlog.put(waiting)
        self._pause(len(batch), error)

    def _pause(self, turns: int, error: BaseException) -> None:
        self.failures += 1
        reason = str(error) if isinstance(error, MemstrataError) else type(error).__name__
        _log.warning("vectors of %d turns are late, will be tried again: %s", turns, reason)
        with self._wake:
            self._wake.wait_for(lambda: self._closed, self._retry_after_s)

    def _rightly_here(self, batch: Sequence[Waiting], backlog: Backlog) -> Iterable[tuple[Waiting, Turn]]:
        """The turns that still want vectors; long ones that were not known to be long go where they belong."""
        seen: set[tuple[ShardWriter, int]] = set()  # a turn that was edited while it waited is in the queue twice
        for waiting in batch:
            turn = None if (waiting.writer, waiting.seq) in seen else _wanting(waiting)
            if turn is None:
                continue
            seen.add((waiting.writer, waiting.seq))
            if backlog is self._short and self._backlog_of(turn) is self._long:
                with self._wake:
                    self._long.put(waiting)
            else:
                yield waiting, turn


def _wanting(waiting: Waiting) -> Turn | None:
    """The turn, if its vectors are still to come and can be recorded: a shard that takes no writes never will again."""
    shard = waiting.writer.shard
    if waiting.seq not in shard.pending or not shard.log.writable:
        return None
    turn = next(iter(shard.turns(waiting.owner, [waiting.seq])), None)
    return turn if turn is not None and shard.awaits(waiting.seq, waiting.owner, turn.rev) else None


def _packed(turn: Turn, vectors: NDArray[np.float32]) -> TurnVectors:
    return TurnVectors(turn.seq, turn.rev, turn.session, turn.id, pack_vectors(vectors))
