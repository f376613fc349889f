"""Counters and timings in Prometheus' text format. Labels are bounded: route templates, never paths or ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Gauges(Collector):
    """Figures that are read when they are asked for."""

    def __init__(self, read: Callable[[], Iterable[tuple[str, str, float]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        for name, help_text, value in self._read():
            yield GaugeMetricFamily(name, help_text, value=value)


class Metrics:
    """The registry of one service. Several may live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
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
        self._refused = Counter(
            "memstrata_http_refused", "Requests turned away at the door.", ["reason"], registry=self._registry
        )

    def watch(self, gauges: Gauges) -> None:
        self._registry.register(gauges)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    @property
    def content_type(self) -> bytes:
        return CONTENT_TYPE_LATEST.encode()
