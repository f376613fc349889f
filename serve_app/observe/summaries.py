"""The measures of the compressor: length, drift, retention, latency, and, by `costs`, its share."""

from __future__ import annotations

from collections import deque

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from serve_app.observe.costs import StageCosts

TOKENS_BUCKETS = (25, 50, 100, 150, 200, 300, 400, 500, 600, 800, 1_000, 1_500, 2_000, 4_000)
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

SAMPLES_KEPT = 100
"""Of drift: the rate is the mean of the newest."""


class SummaryFigures:
    """See `memory.making.SummaryMeter`. Called from the threads that make summaries."""

    def __init__(self, registry: CollectorRegistry, costs: StageCosts) -> None:
        self._costs = costs
        self._tokens = Histogram(
            "memstrata_summary_tokens", "Tokens of a summary.", buckets=TOKENS_BUCKETS, registry=registry
        )
        self._seconds = Histogram(
            "memstrata_compressor_duration_seconds",
            "Time that one summary took, by what made it and what became of it.",
            ["backend", "result"],
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self._drift = Gauge(
            "memstrata_summary_drift_rate",
            "Edit distance of two summaries of one history, 0 to 1: the mean of those that were made twice lately.",
            registry=registry,
        )
        self._drift_samples = Counter(
            "memstrata_summary_drift_samples", "Summaries that were made twice to be compared.", registry=registry
        )
        self._registry = registry
        self._retention: Gauge | None = None  # nothing is told before it is measured
        self._distances: deque[float] = deque(maxlen=SAMPLES_KEPT)

    def summarised(self, backend: str, result: str, seconds: float, read_tokens: int, tokens: int) -> None:
        self._seconds.labels(backend, result).observe(seconds)
        self._costs.spent("compress", seconds, read_tokens + tokens)
        if tokens:
            self._tokens.observe(tokens)

    def drifted(self, distance: float) -> None:
        self._distances.append(distance)
        self._drift.set(sum(self._distances) / len(self._distances))
        self._drift_samples.inc()

    def retained(self, share: float) -> None:
        if self._retention is None:
            self._retention = Gauge(
                "memstrata_constraint_retention",
                "Share of what binds in held-out dialogues that stands in their summaries.",
                registry=self._registry,
            )
        self._retention.set(share)
