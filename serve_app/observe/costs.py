"""What each stage of the work takes, in seconds and tokens, and the compressor's share of the cost of all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Stage = Literal["embed", "compress", "retrieve", "rerank", "pack"]
STAGES: tuple[Stage, ...] = get_args(Stage)

Price = Annotated[float, Meta(ge=0)]

HOUR_S, MILLION = 3_600, 1_000_000


class PriceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an hour of a stage costs and a million of its tokens, in any one currency. Without any, seconds count."""

    per_hour: dict[Stage, Price] = {}
    per_million_tokens: dict[Stage, Price] = {}

    @property
    def free(self) -> bool:
        return not any((*self.per_hour.values(), *self.per_million_tokens.values()))


class Spent(NamedTuple):
    seconds: float = 0.0
    tokens: int = 0


class StageCosts(Collector):
    """Since the start. Called once a request or a summary, from any thread."""

    def __init__(self, prices: PriceOptions) -> None:
        self._prices = prices
        self._lock = threading.Lock()
        self._spent: dict[Stage, Spent] = dict.fromkeys(STAGES, Spent())

    def spent(self, stage: Stage, seconds: float, tokens: int = 0) -> None:
        with self._lock:
            before = self._spent[stage]
            self._spent[stage] = Spent(before.seconds + seconds, before.tokens + tokens)

    def embedded(self, seconds: float, tokens: int) -> None:
        """One pass of an encoder in this process."""
        self.spent("embed", seconds, tokens)

    def request(self, ms: Mapping[str, float], tokens: int) -> None:
        """The stages of a request, by the names that its timings have; `tokens`: of the context."""
        self.spent("retrieve", (ms.get("retrieve", 0.0) + ms.get("search", 0.0)) / 1e3)
        if reranked := ms.get("rerank"):
            self.spent("rerank", reranked / 1e3)
        if packed := ms.get("pack"):
            self.spent("pack", packed / 1e3, tokens)

    def totals(self) -> dict[Stage, Spent]:
        with self._lock:
            return dict(self._spent)

    def share(self, stage: Stage) -> float:
        """Of the cost of all stages; 0 while nothing was spent."""
        costs = {name: self._cost(name, spent) for name, spent in self.totals().items()}
        return costs[stage] / all_costs if (all_costs := sum(costs.values())) else 0.0

    def collect(self) -> Iterable[Metric]:
        totals = self.totals()
        seconds = CounterMetricFamily("memstrata_stage_seconds", "Time that each stage took.", labels=["stage"])
        tokens = CounterMetricFamily("memstrata_stage_tokens", "Tokens that each stage read or gave.", labels=["stage"])
        for stage, spent in totals.items():
            seconds.add_metric([stage], spent.seconds)
            tokens.add_metric([stage], spent.tokens)
        yield seconds
        yield tokens
        told = "The compressor's share of the cost of all stages; by seconds where no prices are set."
        yield GaugeMetricFamily("memstrata_compressor_cost_share", told, value=self.share("compress"))

    def describe(self) -> Iterator[Metric]:
        """Names are taken without a look at the figures."""
        return iter(())

    def _cost(self, stage: Stage, spent: Spent) -> float:
        if self._prices.free:
            return spent.seconds
        by_time = self._prices.per_hour.get(stage, 0.0) * spent.seconds / HOUR_S
        return by_time + self._prices.per_million_tokens.get(stage, 0.0) * spent.tokens / MILLION
