"""What summaries are worth, measured beside the work: how far a summary drifts when it is made a second time, and how
much of what binds survives in held-out dialogues.

One thread at a slow pace. Samples that do not fit are left out.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from serve_app.compress.retention import measured
from serve_app.core import Summary, Turn
from serve_app.drift import distance
from serve_app.errors import SummariserFailed
from serve_app.memory.making import Compresses, SummaryMeter
from serve_app.ports import Tokenizer
from serve_app.records import Record, ends_a_text

_log = logging.getLogger(__name__)

SAMPLE_EVERY = 20
"""Of so many summaries one is made a second time; the first of all is."""

SAMPLES_MAX = 4
"""That wait. Each holds the turns of a session."""

RESTS_PER_WORK = 19
"""Time that the thread rests for the time it computed: a twentieth of a core."""

RETENTION_AFTER_S = 30.0
"""So long after the start the held-out dialogues are summed up: a service that starts has other things to do."""

RETENTION_EVERY_S = 24 * 3600
"""And then so often: models behind an address may change."""

CLOSE_S = 1.0


class Afresh(Protocol):
    """A compressor that can be had with nothing remembered."""

    @property
    def version(self) -> str: ...

    def afresh(self) -> Compresses: ...


class Sample(NamedTuple):
    """A summary and what it was made from."""

    summary: Summary
    turns: Sequence[Turn]


class SummaryMeasures:
    def __init__(
        self,
        compressor: Afresh,
        tokenizer: Tokenizer,
        meter: SummaryMeter,
        deadline_s: float,
        first_after_s: float = RETENTION_AFTER_S,
    ) -> None:
        self._compressor = compressor
        self._tokenizer = tokenizer
        self._meter = meter
        self._deadline_s = deadline_s
        self._first_after_s = first_after_s
        self._made = 0
        self._samples: queue.Queue[Sample | None] = queue.Queue(SAMPLES_MAX)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="summary-measures", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def made(self, summary: Summary, turns: Sequence[Turn]) -> None:
        """Perhaps a sample. One that a backend did not help with says nothing about drift, nor one by another
        compressor than the one that is measured.
        """
        if summary.version != self._compressor.version:
            return
        self._made += 1
        if self._made % SAMPLE_EVERY == 1 and not summary.reasons:
            with contextlib.suppress(queue.Full):
                self._samples.put_nowait(Sample(summary, turns))

    def committed(self, records: Sequence[Record]) -> None:
        """Let go of the samples that wait where somebody's words are to be nowhere any more."""
        if any(map(ends_a_text, records)):
            with contextlib.suppress(queue.Empty):
                while True:
                    self._samples.get_nowait()

    def close(self) -> None:
        """Soon, even while a model works."""
        self._closed.set()
        with contextlib.suppress(queue.Full):
            self._samples.put_nowait(None)  # wakes the thread
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic() + self._first_after_s
        while not self._closed.is_set():
            try:
                if time.monotonic() >= due:
                    due = time.monotonic() + RETENTION_EVERY_S
                    self._measure_retention()
                self._measure_drift()
            except SummariserFailed as error:
                _log.info("a measure of summaries is left out: %s", error)

    def _measure_retention(self) -> None:
        kept = bound = 0
        began = time.thread_time()
        for one in measured(self._compressor.afresh(), self._tokenizer, self._deadline_s):
            kept, bound = kept + one.kept, bound + one.all
            if self._rested(began):
                return
            began = time.thread_time()
        self._meter.retained(kept / bound)

    def _measure_drift(self) -> None:
        """Of the next sample, if one comes soon."""
        try:
            sample = self._samples.get(timeout=1.0)
        except queue.Empty:
            return
        if sample is None:
            return
        began = time.thread_time()
        again = self._compressor.afresh().compress(
            _copied(sample.turns), sample.summary.target_tokens, self._tokenizer, self._deadline_s
        )
        if not again.reasons:
            self._meter.drifted(distance(sample.summary.text, again.text))
        del sample, again
        self._rested(began)

    def _rested(self, began: float) -> bool:
        """Whether it is to end."""
        return self._closed.wait((time.thread_time() - began) * RESTS_PER_WORK)


def _copied(turns: Iterable[Turn]) -> list[Turn]:
    """As they would be read from the tables: nothing is remembered of these objects."""
    return [msgspec.msgpack.decode(msgspec.msgpack.encode(turn), type=Turn) for turn in turns]
