"""Turns that wait to be embedded, in four lanes: short ones, long ones, and such of either as have failed before.

Promises that a turn of somebody who wrote little, a short turn beside long ones and a sound turn beside broken ones
wait for few others. Bounded: turns beyond `QUEUED_MAX` are left out, and taken up from what the shard awaits once
half of the room is free, so that none is forgotten. Locked; one thread takes, any puts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from serve_app.core import Turn
from serve_app.records import TurnPut
from serve_app.write.awaited import Awaited, Pending
from serve_app.write.backlog import Waiting
from serve_app.write.commit import ShardWriter
from serve_app.write.rounds import Lane
from serve_app.write.shard import Shard

BATCH_TURNS_MAX: Final = 256
"""Short turns that one round embeds: enough to sort by length, few enough that the first are searchable soon."""

SHORT_TEXT_MAX: Final = 8_000
"""Characters of a short turn's text, a dozen pieces for the embedder; a longer one waits among the long."""

REST_S: Final = 1.0
"""Between two tries to read what a shard had no room to note."""

QUEUED_MAX: Final = 100_000
"""Turns that stand in the lanes, some 20 MB; what the base lets come together, twice over."""


class TurnQueue:
    def __init__(self, awaited: Callable[[Shard], Awaited | None], most: int = QUEUED_MAX) -> None:
        """`awaited`: what of a shard is to be embedded."""
        self._awaited = awaited
        self._most = most
        self._short = Lane(BATCH_TURNS_MAX, late=Lane(BATCH_TURNS_MAX))
        self._long = Lane(1, late=Lane(1))
        self._lanes = (self._short, self._long, self._short.late, self._long.late)
        self._next = deque(self._lanes)  # the one that was served last is the last
        self._wake = threading.Condition()
        self._writers: Sequence[ShardWriter] = ()
        self._left_out: dict[int, int] = {}  # by shard, the rev of the first turn that found no room
        self._in_hand: list[Waiting] = []
        self._rests_until = 0.0  # a shard could not be read anew
        self._closed = False

    # ---- what comes

    def start(self, writers: Sequence[ShardWriter]) -> None:
        """Queue what the shards await."""
        with self._wake:
            self._writers = writers
        self.look_again()

    def look_again(self) -> None:
        """Queue all that the shards await, whether it is queued or not: twice is no harm."""
        with self._wake:
            self._left_out = {writer.shard.number: 0 for writer in self._writers}
            self._wake.notify()
        self._queue_left_out()

    def came(self, shard: Shard, puts: Iterable[TurnPut]) -> None:
        """These turns are durable. Before `start` they are found there."""
        now = time.monotonic()
        with self._wake:
            if not self._writers:
                return
            writer = self._writers[shard.number]
            for one in puts:
                self._put(self.lane_of(one.turn), Waiting(writer, one.owner, one.turn.seq, now), one.turn.rev)
            self._wake.notify()

    def _put(self, lane: Lane, waiting: Waiting, rev: int) -> None:
        """Once one is left out, so are those after it: they follow it when there is room."""
        number = waiting.writer.shard.number
        if number not in self._left_out and self.waiting < self._most:
            lane.backlog.put(waiting)
        else:
            self._left_out.setdefault(number, rev)

    def again(self, lane: Lane, those: Iterable[Waiting]) -> None:
        """These wait in this lane now."""
        with self._wake:
            for waiting in those:
                lane.backlog.put(waiting)

    # ---- how much waits

    @property
    def waiting(self) -> int:
        return sum(len(lane.backlog) for lane in self._lanes)

    def waiting_of(self, owner: str) -> int:
        return sum(lane.backlog.of(owner) for lane in self._lanes)

    @property
    def oldest_age_s(self) -> float:
        """How long the turn has waited that has waited longest; 0 where none waits."""
        with self._wake:
            backlogs = [since for lane in self._lanes if (since := lane.backlog.oldest()) is not None]
            since = min([*backlogs, *(one.since for one in self._in_hand)], default=None)
        return 0.0 if since is None else time.monotonic() - since

    # ---- what is taken

    def lane_of(self, turn: Turn) -> Lane:
        return self._short if len(turn.text) <= SHORT_TEXT_MAX else self._long

    def any_waits(self) -> bool:
        """Waits for work; False once the queue is closed."""
        with self._wake:
            while not self._closed:
                ready = [seconds for lane in self._lanes if (seconds := lane.ready_in()) is not None]
                if self._roomy:
                    ready.append(max(0.0, self._rests_until - time.monotonic()))
                if 0.0 in ready:
                    return True
                self._wake.wait(min(ready, default=None))
            return False

    def take(self) -> tuple[Lane, list[Waiting]]:
        """Of the lanes in turn: short turns, then one long turn, then such as have failed before."""
        with self._wake:
            for lane in self._next:
                if not self._closed and lane.ready_in() == 0.0:
                    self._next.remove(lane)
                    self._next.append(lane)
                    return lane, lane.backlog.take(lane.most)
            return self._short, []

    def in_hand(self, those: Iterable[Waiting]) -> None:
        """These are with the encoders."""
        with self._wake:
            self._in_hand += those

    def out_of_hand(self, count: int) -> None:
        """The first so many of those in hand are no longer."""
        with self._wake:
            del self._in_hand[:count]

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()

    # ---- what was left out

    @property
    def _roomy(self) -> bool:
        """Whether it is time to take up what was left out, here or by a shard that had no room to note it."""
        return self.waiting <= self._most // 2 and (bool(self._left_out) or any(self._unnoted()))

    def _unnoted(self) -> Iterator[tuple[ShardWriter, Awaited]]:
        for writer in self._writers:
            awaited = self._awaited(writer.shard)
            if awaited is not None and awaited.roomy:
                yield writer, awaited

    def take_up(self) -> None:
        """Queue what was left out, if it is time; a shard that cannot be read is left alone for a moment.

        Raises StorageTrouble.
        """
        if not self._roomy or self._rests_until > time.monotonic():
            return
        for writer, awaited in self._unnoted():
            self._rests_until = time.monotonic() + REST_S
            for _, pending in writer.shard.take_up(awaited):
                self._leave_out(writer, pending)
        self._rests_until = 0.0
        self._queue_left_out()

    def _leave_out(self, writer: ShardWriter, pending: Pending) -> None:
        with self._wake:
            number = writer.shard.number
            self._left_out[number] = min(pending.rev, self._left_out.get(number, pending.rev))

    def _queue_left_out(self) -> None:
        """How long a turn's text is shows when it is read."""
        now = time.monotonic()
        with self._wake:
            for writer in self._writers:
                first, awaited = self._left_out.pop(writer.shard.number, None), self._awaited(writer.shard)
                if first is None or awaited is None:
                    continue
                for seq, pending in awaited.noted():
                    if pending.rev >= first:
                        self._put(self._short, Waiting(writer, pending.owner, seq, now), pending.rev)
            self._wake.notify()
