"""What `/metrics` tells of migrations that are going on: their states, and how far the job of a backfill is.

Of one that has ended nothing is shown: its series end. Labels are kinds and states, of which there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class BackfillNow(NamedTuple):
    """One that is neither paused nor over. `turns` is None until the job has counted them."""

    done: int
    turns: int | None
    failed: int
    silent_s: float
    """Since the job was heard, or since there should be one."""


class MigrationNow(NamedTuple):
    kind: str
    state: str
    hindered: bool
    """Whether something keeps it from going on, an operator's word that it waits for included."""
    backfill: BackfillNow | None = None


class MigrationFigures(Collector):
    def __init__(self, read: Callable[[], Iterable[MigrationNow]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        state = GaugeMetricFamily("memstrata_migration_state", "1 for the state it is in.", labels=["kind", "state"])
        hindered = GaugeMetricFamily(
            "memstrata_migration_hindered", "1 where something keeps it from going on.", labels=["kind"]
        )
        done = GaugeMetricFamily("memstrata_backfill_turns_done", "Turns that the job is through with.")
        turns = GaugeMetricFamily("memstrata_backfill_turns", "Turns that it has to look at, once it has counted them.")
        failed = GaugeMetricFamily("memstrata_backfill_turns_failed", "Turns that got no vectors for good.")
        silent = GaugeMetricFamily("memstrata_backfill_silent_seconds", "Time since the job was heard.")
        for one in self._read():
            state.add_metric([one.kind, one.state], 1)
            hindered.add_metric([one.kind], one.hindered)
            if (backfill := one.backfill) is None:
                continue
            done.add_metric([], backfill.done)
            failed.add_metric([], backfill.failed)
            silent.add_metric([], backfill.silent_s)
            if backfill.turns is not None:
                turns.add_metric([], backfill.turns)
        return [state, hindered, done, turns, failed, silent]
