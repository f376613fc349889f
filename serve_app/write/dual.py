"""Dual write: while a migration runs, what is written gets the vectors of the version to come as well.

An indexer of its own makes them, from the seq on that the migration has noted for each shard: whether the new encoder
is slow, fails or hangs, the vectors of the base come as ever. Idle while nothing migrates. Promises that none is
forgotten: what was written while nothing ran is found in the tables and the tail when it begins again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

from serve_app.core import TurnForm
from serve_app.ports import Encodings
from serve_app.records import Record
from serve_app.routing import Routing
from serve_app.write.awaited import AWAITED_MAX
from serve_app.write.commit import ShardWriter
from serve_app.write.indexer import RETRY_AFTER_S, Indexer, TurnEncoders
from serve_app.write.shard import Shard
from serve_app.write.turn_queue import QUEUED_MAX


class TargetAlone:
    """The encoders, of which a turn wants what the target has it embedded under and the base does not."""

    def __init__(self, encoders: TurnEncoders, base: Routing, target: Routing) -> None:
        self._encoders, self._base, self._target = encoders, base, target

    def of_turn(self, text: str, mixed: bool) -> tuple[str, ...]:
        base = self._base.of_turn(text, mixed)
        return tuple(name for name in self._target.of_turn(text, mixed) if name not in base)

    def form(self, version: str) -> TurnForm:
        return self._encoders.form(version)

    def chunks(self, version: str, text: str) -> list[str]:
        return self._encoders.chunks(version, text)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._encoders.passages(version, texts)


class DualWrite:
    """`begin`, `end` and `hand_over` are called by one thread, whatever else by any. `most`: of turns that wait in its
    queue; `noted`: of those that each shard knows of.
    """

    def __init__(
        self,
        encoders: TurnEncoders,
        retry_after_s: float = RETRY_AFTER_S,
        *,
        most: int = QUEUED_MAX,
        noted: int = AWAITED_MAX,
    ) -> None:
        self._encoders = encoders
        self._retry_after_s = retry_after_s
        self._most, self._noted = most, noted
        self._writers: Sequence[ShardWriter] = ()
        self._version: str | None = None
        self._indexer: Indexer | None = None
        self._failed_before = 0
        self._closing = threading.Lock()
        self._closed = False

    def begin(
        self, writers: Sequence[ShardWriter], base: Routing, target: Routing, version: str, after: Sequence[int]
    ) -> None:
        """Make vectors of this version of all that was written in each shard after the seq given for it.

        Again it changes nothing. Raises StorageTrouble.
        """
        if self._version == version:
            return
        self.end()
        self._writers = writers
        for writer, seq in zip(writers, after, strict=True):
            writer.shard.begin_apart(version, seq, self._noted)
        indexer = Indexer(TargetAlone(self._encoders, base, target), self._retry_after_s, beside=True, most=self._most)
        with self._closing:
            if self._closed:
                return
            self._version, self._indexer = version, indexer
            indexer.start(writers)

    def end(self) -> None:
        """Make no more of them, and await none."""
        self._stop()
        for writer in self._writers:
            writer.shard.end_apart()
        self._version = None

    def hand_over(self, indexer: Indexer) -> None:
        """The base is what the target was: its indexer makes what is still to come."""
        self._stop()
        for writer in self._writers:
            writer.shard.switch_over()
        self._version = None
        indexer.look_again()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        if (indexer := self._indexer) is not None:
            indexer.committed(shard, records)

    @property
    def waiting(self) -> int:
        """Turns whose vectors are still to come; 0 only where there is none."""
        sets = [awaited for writer in self._writers if (awaited := writer.shard.apart) is not None]
        return sum(len(one) + one.more for one in sets)

    @property
    def oldest_age_s(self) -> float:
        return 0.0 if (indexer := self._indexer) is None else indexer.oldest_age_s

    @property
    def failures(self) -> int:
        """Rounds that failed since the start of the service."""
        return self._failed_before + (0 if (indexer := self._indexer) is None else indexer.failures)

    @property
    def alive(self) -> bool:
        """Whether what should run does."""
        return (indexer := self._indexer) is None or indexer.alive

    def close(self) -> None:
        """End after the batch in hand; what waits is taken up by the next start."""
        with self._closing:
            self._closed = True
        self._stop()

    def _stop(self) -> None:
        with self._closing:
            indexer, self._indexer = self._indexer, None
            if indexer is not None:
                self._failed_before += indexer.failures
        if indexer is not None:
            indexer.close()
