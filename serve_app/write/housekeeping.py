"""Maintenance of all shards by one thread: fold, drop folded segments, purge what was erased, close erasures, and the
duties that others bring. A shard that could not be taken over is tried again.

Nothing here is on a request's path. Trouble with a store is kept for `/readyz` and tried again at
the next round; the log holds what could not be folded.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from serve_app.errors import NotFound, StorageTrouble, StoreUnavailable
from serve_app.records import Erasure
from serve_app.stores.log import ShardLog
from serve_app.write.commit import Draft, Operation, ShardWriter
from serve_app.write.erasing import CloseErasure, RenewErasure
from serve_app.write.fold import FOLD_BYTES_MAX, fold
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)


SEGMENTS_A_DROP = 100
"""Segments that one operation of the writer removes: appends wait for some milliseconds, not for all of them."""

FAILURES_NOTICED = 3
"""Rounds of a shard's maintenance that failed one after the other, from which on it counts as stuck."""

DOUBLINGS_MAX = 8
REST_S_MAX = 8.0
"""The longest that a shard's maintenance rests after it failed."""

Part = Callable[[int, Shard], None]
"""Of one shard's maintenance."""

NO_WRITES = "this shard takes no writes here, and so no maintenance"


class FoldOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a shard is looked at, and what is done then.

    Its tail is folded at so many records, segments or bytes of vectors, or at this age of it, whichever comes first;
    erased bytes leave the files, and the `Expirer` removes what has expired, no more often than their periods say.
    """

    records: int = 2_000
    segments: int = 1_000
    bytes: int = FOLD_BYTES_MAX
    age_s: float = 60.0
    round_s: float = 1.0
    purge_every_s: float = 30.0
    expire_every_s: float = 300.0


class DropSegments(Operation):
    """Remove the segments that the table holds; on the writer's thread, which owns the log."""

    owner = ""
    exclusive = False

    def prepare(self, draft: Draft) -> int:
        return draft.shard.log.drop_through(draft.shard.folded_seq, SEGMENTS_A_DROP)


class Duty(Protocol):
    """What is done for each shard from time to time beside folding, on the housekeeper's thread.

    One call does a bounded part, so that no fold waits long. It may raise StorageTrouble: then it is tried again.
    """

    name: str
    every_s: float

    def tend(self, number: int, writer: ShardWriter) -> bool:
        """Do a part; gives whether more is to be done at once."""
        ...


@dataclass
class Upkeep:
    """What the housekeeper remembers of one shard."""

    lock: threading.Lock
    folded_at: float
    purged_at: float = 0.0
    trouble: str | None = None
    rests_until: float = 0.0
    failures: int = 0  # since the last round that went well
    tended_at: dict[str, float] = field(default_factory=dict)


def _nothing(shard: Shard) -> None:
    """There is nothing of an owner but what the shard holds."""


class Housekeeper:
    def __init__(
        self,
        writers: Sequence[ShardWriter],
        options: FoldOptions,
        duties: Sequence[Duty] = (),
        of_erased: Callable[[Shard], None] = _nothing,
    ) -> None:
        """`of_erased` removes what lies elsewhere of those who were erased in a shard, before that counts as done."""
        self._writers = writers
        self._of_erased = of_erased
        self._options = options
        self._duties = {duty.name: duty for duty in duties}
        self._upkeep = {writer.shard.number: Upkeep(threading.Lock(), time.monotonic()) for writer in writers}
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)
        self._thread.start()

    def nudge(self) -> None:
        """Look at the shards now: an erasure waits, or a tail has grown."""
        self._wake.set()

    def trouble(self) -> dict[int, str]:
        """Shards whose last maintenance failed, with the reason."""
        return {number: upkeep.trouble for number, upkeep in self._upkeep.items() if upkeep.trouble}

    def stuck(self, number: int) -> bool:
        """Whether this shard's maintenance fails again and again, or cannot be done here any more."""
        return self._upkeep[number].failures >= FAILURES_NOTICED

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._thread.join()

    def fold_now(self, number: int) -> int:
        """Fold one shard, make that durable, drop its folded segments; gives the seq up to which the table now is.

        Raises StoreUnavailable for a shard that this writer may not change (any more).
        """
        if not self._writers[number].shard.log.writable:
            raise StoreUnavailable(NO_WRITES)
        with self._upkeep[number].lock:
            folded = fold(self._writers[number].shard)
            self._writers[number].shard.table.sync()
            self._upkeep[number].folded_at = time.monotonic()
        self._drop_segments(number)
        return folded

    def _drop_segments(self, number: int) -> None:
        while self._writers[number].submit(DropSegments()).result()[0] == SEGMENTS_A_DROP:
            continue

    def purge_now(self, number: int) -> None:
        """Fold, then rewrite the table's files without what was erased."""
        shard = self._writers[number].shard
        shard.purge_due = False
        try:
            folded = self.fold_now(number)
            with self._upkeep[number].lock:
                shard.table.purge(folded)
                self._upkeep[number].purged_at = time.monotonic()
        except Exception:
            shard.purge_due = True
            raise
        if not self._cold_purged(number, folded):
            raise StoreUnavailable(shard.cold.trouble or "a backup copies the cold table")

    def _cold_purged(self, number: int, folded: int) -> bool:
        """Whether no removed bytes are left in the cold table. A store that does not answer is asked again later."""
        shard = self._writers[number].shard
        if not shard.cold_purge_due:
            return True
        if shard.cold.hold.held:  # a backup copies its files: they stay until that is done
            return False
        try:
            with self._upkeep[number].lock:
                shard.cold.clean()
                shard.table.note_cold_clean(folded)
        except StorageTrouble:  # shown by the cold table as its trouble; hot and warm go on
            return False
        shard.cold_purge_due = False
        return True

    def perform(self, name: str, number: int) -> None:
        """Do all of one duty for one shard now; what it has let go leaves the files, too.

        Raises NotFound where there is no such duty.
        """
        duty = self._duties.get(name)
        if duty is None:
            raise NotFound(f"there is no maintenance {name!r}")
        if not self._writers[number].shard.log.writable:
            raise StoreUnavailable(NO_WRITES)
        while duty.tend(number, self._writers[number]) and not self._closed:
            self.fold_now(number)
        if self._writers[number].shard.purge_due:
            self.purge_now(number)

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._options.round_s)
            self._wake.clear()
            for writer in self._writers:
                if not self._closed:
                    self._tend(writer.shard.number, writer.shard)

    def _tend(self, number: int, shard: Shard) -> None:
        shard.evict()
        upkeep = self._upkeep[number]
        if shard.log.waiting is not None:
            self._attempt(self._take_over, number, shard)
        if self._writers[number].store_rests or upkeep.rests_until > time.monotonic():
            return  # a store that has too much to do is first spared what nobody waits for
        if not shard.log.writable:  # another writer owns the tables, or the log waits for its repair
            upkeep.trouble, upkeep.failures = NO_WRITES, FAILURES_NOTICED
            return
        duties: list[Part] = [partial(self._tend_duty, duty) for duty in self._duties.values()]
        parts: list[Part] = [self._tend_tables, *duties]
        troubles = [self._attempt(part, number, shard) for part in parts]
        if shard.cold.to_be_asked_again:
            shard.cold.answers()
        upkeep.trouble = next(filter(None, troubles), None)
        upkeep.failures = upkeep.failures + 1 if upkeep.trouble else 0
        upkeep.rests_until = time.monotonic() + self._rest_s(upkeep.failures)

    def _rest_s(self, failures: int) -> float:
        """Before the next round of a shard whose last ones failed: longer each time, and of no two shards the same."""
        if not failures:
            return 0.0
        doubled = self._options.round_s * 2.0 ** min(failures - 1, DOUBLINGS_MAX)
        return min(REST_S_MAX, doubled) * random.uniform(0.5, 1.0)

    def _attempt(self, part: Part, number: int, shard: Shard) -> str | None:
        """Do a part of the maintenance; gives what failed. The other parts are done all the same."""
        try:
            part(number, shard)
        except StorageTrouble as error:
            if self._upkeep[number].trouble is None:
                _log.warning("maintenance of shard %d failed, will be tried again: %s", number, error)
            return str(error)
        except Exception as error:  # noqa: BLE001 - a defect in one shard's maintenance must not end that of the others
            _log.exception("maintenance of shard %d failed", number)
            return f"defect: {type(error).__name__}"
        return None

    def _take_over(self, number: int, shard: Shard) -> None:
        """Any operation has the writer try to take the shard over."""
        self._writers[number].submit(DropSegments()).result()

    def _tend_tables(self, number: int, shard: Shard) -> None:
        if shard.table.hold.held:  # a backup copies its files: nothing of them may go
            self._fold_if_due(number, shard)
            return
        if self._erasing(shard) and self._finish_erasures(number, shard):
            return
        if self._purge_is_due(number, shard):
            self.purge_now(number)
        else:
            self._fold_if_due(number, shard)
        self._cold_purged(number, shard.folded_seq)

    def _tend_duty(self, duty: Duty, number: int, shard: Shard) -> None:
        """A part of it, if it is due; what has more to do comes again at the next round."""
        tended_at, now = self._upkeep[number].tended_at, time.monotonic()
        due = now - tended_at.setdefault(duty.name, now) >= duty.every_s
        if due and not duty.tend(number, self._writers[number]):
            tended_at[duty.name] = time.monotonic()

    def _erasing(self, shard: Shard) -> bool:
        return any(erasure.completed_at is None for erasure in list(shard.erasures.values()))

    def _finish_erasures(self, number: int, shard: Shard) -> bool:
        """Those that were running before the purge are done after it. False where they have to wait."""
        running = [erasure for erasure in list(shard.erasures.values()) if erasure.completed_at is None]
        if shard.purge_due:
            self.purge_now(number)
        if not self._cold_purged(number, shard.folded_seq):
            return False
        if not self._names_dropped(number, running[0]):
            return False
        self._of_erased(self._writers[number].shard)  # now that the writer has told of all of them
        for erasure in running:
            self._writers[number].submit(CloseErasure(erasure)).result()
        return True

    def _names_dropped(self, number: int, running: Erasure) -> bool:
        """Whether the log has let go of the folded segments that say who was erased. Not while a backup copies them."""
        log = self._writers[number].shard.log
        if not isinstance(log, ShardLog) or log.hold.held:
            return False
        self._writers[number].submit(RenewErasure(running)).result()  # the newest segment is never dropped
        self._drop_segments(number)
        return not log.hold.held

    def _purge_is_due(self, number: int, shard: Shard) -> bool:
        return shard.purge_due and time.monotonic() - self._upkeep[number].purged_at > self._options.purge_every_s

    def _fold_if_due(self, number: int, shard: Shard) -> None:
        if self._fold_is_due(number, shard):
            self.fold_now(number)

    def _fold_is_due(self, number: int, shard: Shard) -> bool:
        tail = shard.tail_length()
        if tail == 0:
            self._upkeep[number].folded_at = time.monotonic()
            return False
        aged = time.monotonic() - self._upkeep[number].folded_at > self._options.age_s
        grown = tail >= self._options.records or shard.tail_bytes >= self._options.bytes
        return aged or grown or shard.log.segment_count >= self._options.segments
