"""The gate of a reranker: golden queries are asked under the one in force and under the new one, of the same versions.

Golden queries alone count: any judge of other queries would be one of the two, or their relative. What recall says is
`gate.py`; beside it each side is timed as searches are, with the deadline that they have, and counted where it gave
nothing in time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from serve_app.core import Owner
from serve_app.memory.encoding import Encoders
from serve_app.memory.serving import Served, Serving
from serve_app.migrate.asking import Asking
from serve_app.migrate.figures import DIGITS
from serve_app.migrate.gate import REST_S_MAX, REST_SHARE, Gates
from serve_app.migrate.pairs import Sides
from serve_app.migrate.record import Gate, Migration, State
from serve_app.migrate.report import Table
from serve_app.migrate.sampling import Historical
from serve_app.observe.costs import HOUR_S, PriceOptions
from serve_app.placement import shard_of
from serve_app.write.commit import ShardWriter
from serve_app.write.shard import Shard

TIMED_MAX: Final = 100
"""Queries that are timed, the first of those that are asked."""

FAILING_MORE: Final = 0.05
"""So many more of the new one's searches may go without an opinion of it, of all that were timed."""


class Timed(msgspec.Struct, frozen=True):
    """One reranker over the timed queries. Milliseconds of the second stage alone."""

    names: tuple[str, ...]
    p50: float
    p95: float
    asked: int
    failing: int
    """Searches in which one of its opinions was late, or lacked for another fault."""
    results: dict[str, int]
    """Of each opinion: "ok", "deadline", ..."""
    cost: float
    """Of a thousand searches, by `[prices]`; seconds where there are none."""


class Tally:
    """What became of one side's opinions. See `second.RerankMeter`."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.searches: list[float] = []
        self.failing = 0
        self._seconds = 0.0
        self._ok = True

    def reranked(self, kind: str, result: str, seconds: float) -> None:
        self.results[result] += 1
        self._seconds += seconds
        self._ok = self._ok and result == "ok"

    def searched(self) -> None:
        """A search is over."""
        self.searches.append(self._seconds)
        self.failing += not self._ok
        self._seconds, self._ok = 0.0, True

    def timed(self, names: tuple[str, ...], prices: PriceOptions) -> Timed:
        p50, p95 = (round(1e3 * float(np.quantile(self.searches, share)), DIGITS) for share in (0.5, 0.95))
        thousand_s = 1_000 * float(np.mean(self.searches))
        cost = thousand_s if prices.free else thousand_s * prices.per_hour.get("rerank", 0.0) / HOUR_S
        asked = len(self.searches)
        return Timed(names, p50, p95, asked, self.failing, dict(self.results), round(cost, DIGITS))


class RerankerGates:
    """Blocking: called on a thread that may take minutes. See `switching.Gates`."""

    def __init__(
        self,
        gates: Gates,
        asking: Asking,
        serving: Serving,
        prices: PriceOptions = PriceOptions(),  # noqa: B008 - frozen
        rest_share: float = REST_SHARE,
    ) -> None:
        self._gates = gates
        self._asking = asking
        self._serving = serving
        self._prices = prices
        self._rest_share = rest_share

    def of(self, migration: Migration, state: State, stopped: Callable[[], bool] = lambda: False) -> Gate | None:
        """What both find; None where it was stopped. Raises StoreUnavailable.

        In `canary` of the users of the share, or of all where those have too few golden queries to say anything.
        """
        asked_as = state
        if len(self._gates.queries(migration, state, judged=False)) < migration.terms.queries_min:
            asked_as = "verify"
        routing = self._serving.plan.now.base
        sides = Sides(self._serving.under(routing), self._serving.under(routing, new=True), alone=False)
        gate = self._gates.over(migration, asked_as, sides, stopped, judged=False)
        if gate is None:
            return None
        queries = self._gates.queries(migration, asked_as, judged=False)[:TIMED_MAX]
        timed = self._timed(queries, (sides.base, sides.target), migration.terms.k, stopped)
        return None if stopped() else _with(replace(gate, state=state), timed)

    def _timed(
        self, queries: Iterable[Historical], sides: tuple[Served, Served], k: int, stopped: Callable[[], bool]
    ) -> tuple[Timed, Timed] | None:
        """In turn one side is asked first: who comes second finds more in memory. None where nothing was asked."""
        tallies = Tally(), Tally()
        both = tuple(
            one._replace(second=one.second.apart(None, tally)) for one, tally in zip(sides, tallies, strict=True)
        )
        for place, query in enumerate(queries):
            if stopped():
                return None
            began = time.monotonic()
            then = self._asking.then(query)
            if then is None:
                continue
            for at in (0, 1) if place % 2 else (1, 0):
                self._asking.ask(query, then, both[at], k)
                tallies[at].searched()
            time.sleep(min(REST_S_MAX, self._rest_share * (time.monotonic() - began)))
        if not tallies[0].searches:
            return None
        base, target = (tally.timed(one.second.names, self._prices) for one, tally in zip(sides, tallies, strict=True))
        return base, target


def _with(gate: Gate, timed: tuple[Timed, Timed] | None) -> Gate:
    """A reranker that does not answer in time fails, however good its answers are."""
    if timed is None:
        return gate
    base, target = timed
    both = {"base": msgspec.to_builtins(base), "target": msgspec.to_builtins(target)}
    figures = gate.figures | {"rerank": both, "tables": [msgspec.to_builtins(told_as_table(base, target))]}
    gate = replace(gate, figures=figures)
    if target.failing - base.failing <= FAILING_MORE * target.asked:
        return gate
    why = f"{target.failing} of {target.asked} searches went without an opinion of the new reranker"
    reasons = (why, *gate.reasons) if gate.verdict == "failed" else (why,)
    return replace(gate, verdict="failed", reasons=reasons)


def told_as_table(base: Timed, target: Timed) -> Table:
    """For the report. Pure."""
    rows = [
        ("Milliseconds of the second stage, p50", f"{base.p50:g}", f"{target.p50:g}"),
        ("Milliseconds of the second stage, p95", f"{base.p95:g}", f"{target.p95:g}"),
        ("Searches timed", f"{base.asked}", f"{target.asked}"),
        ("Searches without an opinion", f"{base.failing}", f"{target.failing}"),
        ("Cost of a thousand, by [prices], else seconds", f"{base.cost:g}", f"{target.cost:g}"),
    ]
    names = (" + ".join(one.names) or "none" for one in (base, target))
    return Table("The second stage", ("", "base", "target"), (("Rerankers", *names), *rows))


def open_reranker_gates(
    gates: Gates,
    writers: Sequence[ShardWriter],
    encoders: Encoders,
    serving: Serving,
    clock: Callable[[], int],
    prices: PriceOptions,
) -> RerankerGates:
    """Those of a service."""

    def shard(owner: Owner) -> Shard:
        return writers[shard_of(owner, len(writers))].shard

    return RerankerGates(gates, Asking(shard, encoders, clock), serving, prices)
