"""Vectors for what was written: embeds new turns in batches after they are durable, and has the writer record them.

An append never waits for this. A round takes short turns of all owners alike, and the one after it one
long turn, so that nobody waits for another's backlog (`TurnQueue`). An indexer makes the vectors of the base, or those
that a migration has made apart: neither knows of the other. Each turn is embedded under the versions that its script
and its owner's memory call for, and recorded once it has the vectors of all of them. While a round is embedded the one
before it is committed; a turn that comes alone waits for neither timer nor company. A failing encoder delays vectors
of its own version and nothing else: the turns stay pending, are counted, and are tried again in a lane of their own,
in ever smaller batches, so that one turn, one version or one shard that cannot be served holds up no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from serve_app.core import Turn, TurnForm
from serve_app.errors import MemstrataError, Overloaded
from serve_app.ports import Encodings
from serve_app.records import Record, TurnPut, TurnVectors, VersionVectors
from serve_app.stores.packing import turn_text
from serve_app.write.awaited import Awaited
from serve_app.write.backlog import Waiting
from serve_app.write.commit import Outcome, ShardWriter
from serve_app.write.derived import PutVectors
from serve_app.write.meter import UNMETERED, Bound, Meter
from serve_app.write.rounds import Embedded, Lane, Round
from serve_app.write.shard import Shard
from serve_app.write.turn_queue import QUEUED_MAX, TurnQueue

_log = logging.getLogger(__name__)

CLOSE_WAIT_S = 10.0
"""How long the end of the service waits for the batch in hand."""

PENDING_MAX = 50_000
"""Turns that may wait for their vectors; beyond it appends are to be sent away with Overloaded."""

OWNER_PENDING_MAX = 10_000
"""Turns of one owner that may wait; beyond it the owner's own appends are to be sent away."""

RETRY_AFTER_S = 1.0
"""Pause after a failed round."""


class TurnEncoders(Protocol):
    """What the indexer needs of the encoders, each known by the name of its version."""

    def of_turn(self, text: str, mixed: bool) -> tuple[str, ...]:
        """The versions that a turn is embedded under. `mixed`: its owner's memory has other scripts than Latin."""
        ...

    def form(self, version: str) -> TurnForm: ...

    def chunks(self, version: str, text: str) -> list[str]: ...

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        """With the vectors of the tokens, where the version gives them."""
        ...


class Recording(NamedTuple):
    """Turns of one owner whose vectors are with the writer."""

    lane: Lane
    waiting: list[Waiting]
    outcome: Future[Outcome]


class Indexer:
    """`beside`: of what is awaited apart, and not of the base; `most`: of turns that wait in its queue."""

    def __init__(
        self,
        encoders: TurnEncoders,
        retry_after_s: float = RETRY_AFTER_S,
        meter: Meter = UNMETERED,
        *,
        beside: bool = False,
        most: int = QUEUED_MAX,
    ) -> None:
        self._retry_after_s = retry_after_s
        self._meter = meter
        self._encoders = encoders
        self._beside = beside
        self._queue = TurnQueue(self._awaited, most)
        self._resting: dict[str, float] = {}  # until when a version that failed is asked for late turns alone
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="indexer-apart" if beside else "indexer", daemon=True)

    def start(self, writers: Sequence[ShardWriter]) -> None:
        """Take up what earlier runs left without vectors, then run."""
        self._queue.start(writers)
        self._thread.start()

    def committed(self, shard: Shard, records: Sequence[Record]) -> None:
        """The writer calls this with each batch that became durable."""
        puts = [one for one in records if isinstance(one, TurnPut)]
        if puts:
            self._queue.came(shard, puts)

    def look_again(self) -> None:
        """The shards await more than was told."""
        self._queue.look_again()

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    @property
    def oldest_age_s(self) -> float:
        """How long the turn has waited that has waited longest; 0 where none waits."""
        return self._queue.oldest_age_s

    def full_for(self, owner: str) -> Bound | None:
        """The bound at which so much waits, of this owner or of all, that the owner should write no more for now."""
        if self._queue.waiting_of(owner) > OWNER_PENDING_MAX:
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
        self._queue.close()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_WAIT_S)

    def _awaited(self, shard: Shard) -> Awaited | None:
        return shard.apart if self._beside else shard.pending

    def _run(self) -> None:
        """The next round is with the encoders before the commit of the last one is waited for."""
        embedding: Round | None = None
        while (embedding := embedding or self._next_round()) is not None:
            recordings = self._recorded(embedding)
            embedding = self._begun()
            self._conclude(recordings)

    def _next_round(self) -> Round | None:
        """Waits for work; None once the indexer is to end."""
        while self._queue.any_waits():
            self._take_up()
            begun = self._begun()
            if begun is not None:
                return begun
        return None

    def _take_up(self) -> None:
        try:
            self._queue.take_up()
        except Exception as error:  # noqa: BLE001 - a table that fails: what was left out stays so
            self._count_failure(0, error)

    def _begun(self) -> Round | None:
        """The next round, handed to the encoders; None where nothing waits or nothing of it wants vectors any more."""
        lane, batch = self._queue.take()
        try:
            found = list(self._rightly_here(batch, lane))
            wanted = [self._encoders.of_turn(turn.text, _mixed(waiting)) for waiting, turn in found]
        except Exception as error:  # noqa: BLE001 - a table that fails: the turns stay pending
            self._try_again(batch, lane, error)
            return None
        self._settle_unwanted(found, wanted)
        asked = list(self._to_be_asked(lane, found, wanted))
        if not asked:
            return None
        of_versions: dict[str, dict[int, Turn]] = {}
        for place, (_, turn, versions) in enumerate(asked):
            for version in versions:
                of_versions.setdefault(version, {})[place] = turn
        self._queue.in_hand(waiting for waiting, _, _ in asked)
        embedded = {version: self._embedded(version, turns) for version, turns in of_versions.items()}
        return Round(lane, [(waiting, turn) for waiting, turn, _ in asked], embedded)

    def _settle_unwanted(self, found: Sequence[tuple[Waiting, Turn]], wanted: Sequence[tuple[str, ...]]) -> None:
        """A turn that no version is to embed awaits nothing."""
        for (waiting, turn), versions in zip(found, wanted, strict=True):
            awaited = self._awaited(waiting.writer.shard)
            if not versions and awaited is not None:
                awaited.settle(turn.seq, turn.rev)

    def _to_be_asked(
        self, lane: Lane, found: Sequence[tuple[Waiting, Turn]], wanted: Sequence[tuple[str, ...]]
    ) -> Iterator[tuple[Waiting, Turn, tuple[str, ...]]]:
        """A version that has just failed is left alone: its turns join those that are late."""
        now = time.monotonic()
        resting = {version for version, until in self._resting.items() if until > now}
        for (waiting, turn), versions in zip(found, wanted, strict=True):
            if not lane.is_late and not resting.isdisjoint(versions):
                self._queue.again(lane.late, [waiting])
            elif versions:
                yield waiting, turn, versions

    def _embedded(self, version: str, turns: dict[int, Turn]) -> Embedded:
        """With the encoder; what it raises at once comes with the vectors, too."""
        try:
            form = self._encoders.form(version)
            pieces = [self._encoders.chunks(version, turn_text(turn, form)) for turn in turns.values()]
            encodings = self._encoders.passages(version, [one for cut in pieces for one in cut])
            return Embedded(turns, pieces, encodings, form)
        except Exception as error:  # noqa: BLE001 - whatever an encoder throws: the turns stay pending
            failed: Future[Encodings] = Future()
            failed.set_exception(error)
            return Embedded(turns, [], failed)

    def _recorded(self, embedded: Round) -> list[Recording]:
        """Wait for a round's vectors and hand them to the writers, owner by owner."""
        made: list[dict[str, TurnVectors]] = [{} for _ in embedded.turns]
        failed: set[int] = set()
        for version, asked in embedded.of_versions.items():
            try:
                for place, vectors in zip(asked.turns, asked.of_each(), strict=True):
                    made[place][version] = vectors
            except Exception as error:  # noqa: BLE001 - whatever an encoder throws: the turns stay pending
                failed.update(asked.turns)
                self._embedding_failed(embedded, version, error)
        self._hand_over(embedded, failed)
        of_owners: dict[tuple[ShardWriter, str], list[tuple[Waiting, dict[str, TurnVectors]]]] = {}
        for place, (waiting, _) in enumerate(embedded.turns):
            if place not in failed:
                of_owners.setdefault((waiting.writer, waiting.owner), []).append((waiting, made[place]))
        return [
            Recording(embedded.lane, [one for one, _ in theirs], self._submitted(*to, [made for _, made in theirs]))
            for to, theirs in of_owners.items()
        ]

    def _hand_over(self, embedded: Round, failed: Set[int]) -> None:
        """The turns of a round are no longer in hand; those that failed wait again."""
        self._queue.out_of_hand(len(embedded.turns))
        self._queue.again(embedded.lane.late, (embedded.turns[place][0] for place in failed))
        if not failed and embedded.lane.is_late:
            embedded.lane.most = min(2 * embedded.lane.most, embedded.lane.most_ever)

    def _submitted(self, writer: ShardWriter, owner: str, made: Sequence[Mapping[str, TurnVectors]]) -> Future[Outcome]:
        """The outcome to come; a refusal is an outcome, too."""
        versions = dict.fromkeys(version for one in made for version in one)
        items = (VersionVectors(version, tuple(one[version] for one in made if version in one)) for version in versions)
        try:
            return writer.submit(PutVectors(owner, tuple(items), self._beside))
        except MemstrataError as error:
            refused: Future[Outcome] = Future()
            refused.set_exception(error)
            return refused

    def _conclude(self, recordings: Sequence[Recording]) -> None:
        """Wait until the vectors are durable and hot; those that a writer does not take are tried again."""
        for lane, those, outcome in recordings:
            error = outcome.exception()
            if error is None:
                self._measure(those)
            else:
                self._try_again(those, lane, error)

    def _measure(self, indexed: Sequence[Waiting]) -> None:
        now = time.monotonic()
        for waiting in indexed:
            self._meter.searchable(now - waiting.since)

    def _embedding_failed(self, embedded: Round, version: str, error: Exception) -> None:
        """Fewer at a time from here on: it may be one of them that the encoder fails at."""
        turns, until = len(embedded.of_versions[version].turns), time.monotonic() + self._retry_after_s
        late = embedded.lane.late
        late.most, late.rests_until = max(1, min(turns, late.most) // 2), until
        if not embedded.lane.is_late:
            self._resting[version] = until
        self._count_failure(turns, error)

    def _try_again(self, those: Sequence[Waiting], lane: Lane, error: BaseException) -> None:
        """After a moment in which nothing of their lane is taken: whatever else waits there is likely to fail, too."""
        self._queue.again(lane.late, those)
        lane.late.rests_until = lane.rests_until = time.monotonic() + self._retry_after_s
        self._count_failure(len(those), error)

    def _count_failure(self, turns: int, error: BaseException) -> None:
        self.failures += 1
        reason = str(error) if isinstance(error, MemstrataError) else type(error).__name__
        _log.warning("vectors of %d turns are late, will be tried again: %s", turns, reason)

    def _rightly_here(self, batch: Sequence[Waiting], lane: Lane) -> Iterable[tuple[Waiting, Turn]]:
        """The turns that still want vectors; long ones that were not known to be long go where they belong."""
        seen: set[tuple[ShardWriter, int]] = set()  # a turn that was edited while it waited is in the queue twice
        for waiting in batch:
            turn = None if (waiting.writer, waiting.seq) in seen else self._wanting(waiting)
            if turn is None:
                continue
            seen.add((waiting.writer, waiting.seq))
            right = self._queue.lane_of(turn).late if lane.is_late else self._queue.lane_of(turn)
            if right.most_ever < lane.most_ever:
                self._queue.again(right, [waiting])
            else:
                yield waiting, turn

    def _wanting(self, waiting: Waiting) -> Turn | None:
        """The turn, if its vectors are still to come and can be recorded: a shard that takes no writes never will
        again.
        """
        shard = waiting.writer.shard
        awaited = self._awaited(shard)
        if awaited is None or waiting.seq not in awaited or not shard.log.writable:
            return None
        turn = next(iter(shard.turns(waiting.owner, [waiting.seq])), None)
        return turn if turn is not None and awaited.awaits(waiting.seq, waiting.owner, turn.rev) else None


def _mixed(waiting: Waiting) -> bool:
    return waiting.writer.shard.block(waiting.owner).mixed
