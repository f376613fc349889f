"""Counters and timings in Prometheus' text format. Labels are bounded: route templates, never paths or ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve_app.breaker import Breaker
from serve_app.observe.costs import PriceOptions, StageCosts
from serve_app.observe.summaries import SummaryFigures

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

COMMIT_SECONDS_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
COMMIT_RECORDS_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048)
LAG_SECONDS_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)


BREAKER_STATES = {"closed": 0, "half_open": 1, "open": 2}


class Gauges(Collector):
    """Figures that are read when they are asked for."""

    def __init__(self, read: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for name, help_text, value in self._read():
            yield GaugeMetricFamily(name, help_text, value=value)


class Breakers(Collector):
    """The circuit breakers of a service, by name."""

    def __init__(self, breakers: Callable[[], Iterable[Breaker]]) -> None:
        self._breakers = breakers

    def collect(self) -> Iterable[Metric]:
        state = GaugeMetricFamily(
            "memstrata_breaker_state", "0 closed, 1 half-open: one call tries, 2 open.", labels=["breaker"]
        )
        opened = CounterMetricFamily("memstrata_breaker_opened", "Times that it opened.", labels=["breaker"])
        for breaker in self._breakers():
            state.add_metric([breaker.name], BREAKER_STATES[breaker.state])
            opened.add_metric([breaker.name], breaker.opened)
        return [state, opened]


class Metrics:
    """The registry of one service. Several may live in one process."""

    def __init__(self, prices: PriceOptions | None = None) -> None:
        self._registry = CollectorRegistry()
        self.costs = StageCosts(prices or PriceOptions())
        self._registry.register(self.costs)
        self.summaries = SummaryFigures(self._registry, self.costs)
        self._requests = Counter(
            "memstrata_http_requests", "Requests answered.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "memstrata_http_request_duration_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ["route"],
            buckets=SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._of_answers: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._refused = Counter(
            "memstrata_http_refused", "Requests turned away at the door.", ["reason"], registry=self._registry
        )

        self._forwarded = Counter(
            "memstrata_forwarded_answers",
            "Requests that a gateway passed on, by what became of them: a status class, or the code of a failure.",
            ["route", "outcome"],
            registry=self._registry,
        )

        self._commit_seconds = Histogram(
            "memstrata_commit_duration_seconds",
            "Time of one group commit until it was durable.",
            buckets=COMMIT_SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._commit_records = Histogram(
            "memstrata_commit_records",
            "Records in one group commit.",
            buckets=COMMIT_RECORDS_BUCKETS,
            registry=self._registry,
        )
        self._lag = Histogram(
            "memstrata_searchable_lag_seconds",
            "Time from a turn's durability until its vectors were in the hot tier.",
            buckets=LAG_SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._sent_away = Counter(
            "memstrata_writes_refused", "Writes turned away at a bound.", ["bound"], registry=self._registry
        )

        self._tier_reads = Counter(
            "memstrata_tier_reads",
            "Retrievals that looked into a tier: hot hits were answered by memory alone, others found something there.",
            ["tier", "result"],
            registry=self._registry,
        )
        self._of_tiers = {
            (tier, hit): self._tier_reads.labels(tier, "hit" if hit else "miss")
            for tier in ("hot", "warm", "cold")
            for hit in (True, False)
        }

        self._degraded = Counter(
            "memstrata_degraded",
            "Answers that were less than they could be: one for each reason that an answer names.",
            ["route", "level", "reason"],
            registry=self._registry,
        )
        self._reranks = Counter(
            "memstrata_reranks",
            "Rerankers asked, by what became of it; all but ok cost their opinion, not the search.",
            ["reranker", "result"],
            registry=self._registry,
        )
        self._rerank_seconds = Histogram(
            "memstrata_rerank_duration_seconds",
            "Time that one reranker took for one search.",
            ["reranker"],
            buckets=SECONDS_BUCKETS,
            registry=self._registry,
        )

    def watch(self, gauges: Collector) -> None:
        self._registry.register(gauges)

    def answered(self, route: str, status: int, seconds: float) -> None:
        found = self._of_answers.get((route, status))
        if found is None:  # looking labels up takes longer than counting; there are as many as routes and statuses
            found = self._requests.labels(route, str(status)), self._seconds.labels(route)
            self._of_answers[route, status] = found
        found[0].inc()
        found[1].observe(seconds)

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def forwarded(self, route: str, outcome: str) -> None:
        self._forwarded.labels(route, outcome).inc()

    def tier_read(self, tier: str, hit: bool) -> None:
        self._of_tiers[tier, hit].inc()

    def request(self, ms: Mapping[str, float], tokens: int) -> None:
        self.costs.request(ms, tokens)

    def reranked(self, kind: str, result: str, seconds: float) -> None:
        self._reranks.labels(kind, result).inc()
        self._rerank_seconds.labels(kind).observe(seconds)

    def degraded(self, route: str, level: str, reason: str) -> None:
        self._degraded.labels(route, level, reason).inc()

    # ---- what the write path tells, see write/meter.py

    def committed(self, records: int, seconds: float) -> None:
        self._commit_records.observe(records)
        self._commit_seconds.observe(seconds)

    def sent_away(self, bound: str) -> None:
        self._sent_away.labels(bound).inc()

    def searchable(self, lag_s: float) -> None:
        self._lag.observe(lag_s)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    @property
    def content_type(self) -> bytes:
        return CONTENT_TYPE_LATEST.encode()
