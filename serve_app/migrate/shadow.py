"""Searches of a canary that both sides answer: a sampled share, once more, in the background.

Owns a bounded queue and one thread. Promises that no search waits for it or fails by it: what does not fit is dropped
and counted. Both sides are asked anew, one after the other, under the same conditions: the answer that the user got had
another load, and less of it is known. Of what it reads nothing stays but numbers, with names of tenants, scripts and
kinds of queries; queries wait in memory for at most `QUEUE_MAX` searches.
"""

from __future__ import annotations

import logging
import math
import queue
import random
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from serve_app.core import Owner
from serve_app.memory.requests import AsOf
from serve_app.migrate.asking import background
from serve_app.migrate.pairs import Outcome, Result, Sides
from serve_app.migrate.reach import Told
from serve_app.migrate.sampling import Historical
from serve_app.retrieve.question import Question
from serve_app.retrieve.search import BOTH

QUEUE_MAX: Final = 32
"""Searches that wait to be answered by both; further ones are dropped."""

TOLD_MAX: Final = 10_000
"""Of the last so many the numbers are kept."""

REST_SHARE: Final = 1.0
REST_S_MAX: Final = 2.0
"""After each it rests as long as it took, so that searches have the machine."""

CLOSE_S: Final = 15.0

Compared = Callable[[Historical, Sides, int], Outcome]
"""`Pairs.compared`."""

_log = logging.getLogger(__name__)


class ShadowFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts since the canary began in this process. `reads`: those that were compared."""

    reads: int = 0
    drawn: int = 0
    dropped: int = 0
    lacking: int = 0
    small: int = 0
    failed: int = 0
    overlap: float | None = None
    """Mean overlap@K of both sides."""
    latency_ratio: float | None = None
    """Median of target over base."""


NOTHING_READ: Final = ShadowFigures()


class _Watch:
    """What is compared at the moment, and what that has told so far."""

    def __init__(self, migration: str, sides: Sides, share: float, k: int) -> None:
        self.migration = migration
        self.sides = Sides(background(sides.base), background(sides.target), alone=False)
        self.share = share
        self.k = k
        self.told: deque[Told] = deque(maxlen=TOLD_MAX)
        self.drawn = self.dropped = self.failed = 0
        self.results: Counter[Result] = Counter()


class Shadow:
    """Safe for threads. `chance` draws the share."""

    def __init__(self, compared: Compared, chance: Callable[[], float] = random.random) -> None:
        self._compared = compared
        self._chance = chance
        self._lock = threading.Lock()
        self._waiting: queue.Queue[tuple[_Watch, Historical] | None] = queue.Queue(QUEUE_MAX)
        self._ended = threading.Event()
        self._watch: _Watch | None = None
        self._thread: threading.Thread | None = None

    def begin(self, migration: str, sides: Sides, share: float, k: int) -> None:
        """Compare searches from now on; again for the same migration it goes on counting."""
        with self._lock:
            if self._ended.is_set() or (self._watch is not None and self._watch.migration == migration):
                return
            self._watch = _Watch(migration, sides, share, k)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Compare nothing any more; what was counted goes, too."""
        with self._lock:
            self._watch = None

    def searched(self, owner: Owner, question: Question) -> None:
        """A search was answered. On the event loop: waits for nothing."""
        watch = self._watch
        if watch is None or not _comparable(question) or self._chance() >= watch.share:
            return
        query = Historical(owner, question.query, "shadow", AsOf(), None, question.drawn_from)
        watch.drawn += 1
        try:
            self._waiting.put_nowait((watch, query))
        except queue.Full:
            watch.dropped += 1

    def told(self) -> list[Told]:
        watch = self._watch
        return [] if watch is None else list(watch.told)

    @property
    def reads(self) -> int:
        """Searches that were compared since it began."""
        watch = self._watch
        return 0 if watch is None else watch.results["told"]

    def figures(self) -> ShadowFigures:
        watch = self._watch
        if watch is None:
            return NOTHING_READ
        told = list(watch.told)
        ratios = [one.target.seconds / one.base.seconds for one in told if one.base.seconds]
        return ShadowFigures(
            reads=watch.results["told"],
            drawn=watch.drawn,
            dropped=watch.dropped,
            lacking=watch.results["lacking"],
            small=watch.results["small"],
            failed=watch.failed,
            overlap=round(statistics.fmean(one.overlap for one in told), 4) if told else None,
            latency_ratio=round(statistics.median(ratios), 3) if ratios else None,
        )

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        figures = self.figures()
        overlap = math.nan if figures.overlap is None else figures.overlap
        yield "memstrata_shadow_overlap", "Mean overlap@K of searches that both sides answered.", overlap
        yield "memstrata_shadow_reads", "Searches that both sides answered in this canary.", figures.reads
        yield "memstrata_shadow_dropped", "Searches drawn for it that found its queue full.", figures.dropped

    def close(self) -> None:
        """What waits is not compared any more."""
        with self._lock:
            self._watch, thread = None, self._thread
            self._ended.set()
        if thread is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            thread.join(CLOSE_S)

    def _work(self) -> None:
        while not self._ended.is_set():
            one = self._waiting.get()
            if one is not None and one[0] is self._watch:
                began = time.monotonic()
                self._compare(*one)
                self._ended.wait(min(REST_S_MAX, REST_SHARE * (time.monotonic() - began)))

    def _compare(self, watch: _Watch, query: Historical) -> None:
        try:
            outcome = self._compared(query, watch.sides, watch.k)
        except Exception as error:  # noqa: BLE001 - nobody waits for it; it is counted, and the next one is tried
            _log.warning("a search of the canary could not be compared: %s", type(error).__name__)
            watch.failed += 1
            return
        if outcome.told is not None:
            watch.told.append(outcome.told)
        watch.results[outcome.result] += 1


def _comparable(question: Question) -> bool:
    """Whether it is a search of what a user has said, by its words and vectors, and nothing else."""
    return question.rerank and not question.filters.narrow and question.tiers == BOTH
