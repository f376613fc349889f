"""The gate of a migration: queries of the past are asked under what serves and under what is to serve.

Owns which queries are asked and how fast; what they tell is `figures.py`. Promises that a gate asks the same queries
however often it is begun anew on the same store, that searches keep at least half of a core from it, and that nothing
but numbers is left of what it has read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from serve_app.core import Owner
from serve_app.memory.encoding import Encoders
from serve_app.memory.logged import SearchLog
from serve_app.memory.serving import Serving
from serve_app.migrate.asking import Asking, background
from serve_app.migrate.figures import Counts, Figures, decided, figures
from serve_app.migrate.judge import Judge, Model
from serve_app.migrate.pairs import Outcome, Pairs, Sides
from serve_app.migrate.reach import Told
from serve_app.migrate.record import Gate, Migration, State, Terms
from serve_app.migrate.sampling import Historical, chosen, fair, of_golden, of_logged, parts, seed_of
from serve_app.migrate.shadow import NOTHING_READ, Shadow, ShadowFigures
from serve_app.placement import shard_of
from serve_app.routing import drawn
from serve_app.stores.golden_file import GoldenFiles
from serve_app.write.commit import ShardWriter
from serve_app.write.shard import Shard

REST_SHARE: Final = 1.0
"""After each query a gate rests so many times as long as it took."""

REST_S_MAX: Final = 2.0


def _never() -> bool:
    return False


class Gates:
    """Of one service. Blocking: called on a thread that may take minutes."""

    def __init__(
        self,
        pairs: Pairs,
        golden: GoldenFiles,
        searches: SearchLog,
        serving: Serving,
        shadow: Shadow,
        clock: Callable[[], int],
        rest_share: float = REST_SHARE,
    ) -> None:
        self._pairs = pairs
        self._golden = golden
        self._searches = searches
        self._serving = serving
        self.shadow = shadow
        self._clock = clock
        self._rest_share = rest_share
        self._last: Figures | None = None
        self.progress: tuple[int, int] = (0, 0)
        """How many of how many queries the gate that runs, or ran last, has asked."""

    def of(self, migration: Migration, state: State, stopped: Callable[[], bool] = _never) -> Gate | None:
        """What both sides find; None where it was stopped before the end. Raises StoreUnavailable.

        In `canary`: of the users who are served by the target, and of the searches that were answered by both.
        """
        return self.over(migration, state, sides_of(migration, self._serving), stopped)

    def over(
        self,
        migration: Migration,
        state: State,
        sides: Sides,
        stopped: Callable[[], bool] = _never,
        *,
        judged: bool = True,
    ) -> Gate | None:
        """The same of any two sides; not `judged`: of golden queries alone."""
        terms, began = migration.terms, time.monotonic()
        quiet = Sides(background(sides.base), background(sides.target), sides.alone)
        outcomes = self._outcomes(self.queries(migration, state, judged=judged), quiet, terms.k, stopped)
        if outcomes is None:
            return None
        found = [one.told for one in outcomes if one.told is not None]
        shadow = NOTHING_READ
        if state == "canary" and judged:
            shadow, found = self.shadow.figures(), [*found, *self.shadow.told()]
        counts = _counts(outcomes, found)
        lacked = sum(one.lacked[0] for one in outcomes), sum(one.lacked[1] for one in outcomes)
        judge, seconds = self._pairs.judge.name, time.monotonic() - began
        made = figures(found, counts, lacked, terms.k, judge, seed_of(migration.id), seconds)
        self._last = made or self._last
        return _gate(state, self._clock(), made, counts, shadow, terms)

    def _outcomes(
        self, queries: Sequence[Historical], sides: Sides, k: int, stopped: Callable[[], bool]
    ) -> list[Outcome] | None:
        outcomes: list[Outcome] = []
        for at, query in enumerate(queries):
            self.progress = at, len(queries)
            if stopped():
                return None
            began = time.monotonic()
            outcomes.append(self._pairs.compared(query, sides, k))
            time.sleep(min(REST_S_MAX, self._rest_share * (time.monotonic() - began)))
        self.progress = len(queries), len(queries)
        return outcomes

    def watch(self, migration: Migration, sides: Sides | None = None) -> None:
        """Have a share of the searches answered by both sides from now on; a second call changes nothing."""
        terms = migration.terms
        self.shadow.begin(migration.id, sides or sides_of(migration, self._serving), terms.shadow_share, terms.k)

    def unwatch(self) -> None:
        self.shadow.end()

    @property
    def reads(self) -> int:
        """Searches that both have answered since `watch`, in this process."""
        return self.shadow.reads

    def close(self) -> None:
        self.shadow.close()

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """See `observe.metrics.Gauges`."""
        base, target = (None, None) if self._last is None else (self._last.base, self._last.target)
        nothing = float("nan")
        of_base = nothing if base is None else base.recall_k
        of_target = nothing if target is None else target.recall_k
        yield "memstrata_gate_recall_base", "Recall@K of what serves, in the last gate.", of_base
        yield "memstrata_gate_recall_target", "Recall@K of what is to serve, in the last gate.", of_target
        yield from self.shadow.gauges()

    def queries(self, migration: Migration, state: State, *, judged: bool = True) -> list[Historical]:
        """What a gate asks, sorted by owner: each one's memory is loaded once."""
        among: Callable[[Owner], bool] = lambda owner: True  # noqa: E731
        if state == "canary":
            share = migration.terms.canary_share
            among = lambda owner: drawn(migration.id, owner.key) < share  # noqa: E731
        logged = {
            tenant: {name: one for name, one in kept.items() if among(one.owner)}
            for tenant, kept in (self._searches.consented() if judged else {}).items()
        }
        counts = {tenant: len(self._golden_of(tenant, among)) for tenant in self._golden.tenants()}
        logged_counts = {tenant: len(kept) for tenant, kept in logged.items()}
        of_golden_, of_log = parts(sum(counts.values()), sum(logged_counts.values()), migration.terms.queries)
        seed = migration.id
        queries: list[Historical] = []
        for tenant, share_of in fair(counts, of_golden_, seed).items():
            queries += chosen(self._golden_of(tenant, among).items(), share_of, seed)
        for tenant, share_of in fair(logged_counts, of_log, seed).items():
            of_tenant = ((name, of_logged(one)) for name, one in logged[tenant].items())
            queries += chosen(of_tenant, share_of, seed)
        return sorted(queries, key=lambda query: query.owner.key)

    def _golden_of(self, tenant: str, among: Callable[[Owner], bool]) -> Mapping[str, Historical]:
        """By id."""
        queries = ((one.id, of_golden(tenant, one)) for one in self._golden.of(tenant).queries)
        return {name: query for name, query in queries if among(query.owner)}


def sides_of(migration: Migration, serving: Serving) -> Sides:
    """What a migration of embeddings goes from and to. Raises ValueError for one that has not been prepared."""
    if migration.base is None or migration.target is None:
        raise ValueError("a migration without a base and a target has nothing to compare")
    return Sides(serving.under(migration.base), serving.under(migration.target))


def _counts(outcomes: Sequence[Outcome], found: Sequence[Told]) -> Counts:
    results = Counter(one.result for one in outcomes)
    sources = Counter(one.source for one in found)
    return Counts(
        drawn=len(outcomes),
        golden=sources["golden"],
        logged=sources["logged"],
        shadow=sources["shadow"],
        gone=results["gone"],
        small=results["small"],
        lacking=results["lacking"],
        unjudged=results["unjudged"],
    )


def _gate(state: State, at: int, made: Figures | None, counts: Counts, shadow: ShadowFigures, terms: Terms) -> Gate:
    verdict, reasons = decided(made, counts, terms)
    kept = {} if made is None else msgspec.to_builtins(made)
    kept |= {"counts": msgspec.to_builtins(counts), "terms": msgspec.to_builtins(terms)}
    if shadow.reads:
        kept["shadow"] = msgspec.to_builtins(shadow)
    return Gate(state, verdict, at, reasons, kept)


def open_gates(
    writers: Sequence[ShardWriter],
    encoders: Encoders,
    golden: GoldenFiles,
    searches: SearchLog,
    serving: Serving,
    model: Callable[[], Model | None],
    clock: Callable[[], int],
) -> Gates:
    """Those of a service; `model` gives its cross-encoder, which judges where nobody has said what answers."""

    def shard(owner: Owner) -> Shard:
        return writers[shard_of(owner, len(writers))].shard

    pairs = Pairs(Asking(shard, encoders, clock), Judge(model))
    return Gates(pairs, golden, searches, serving, Shadow(pairs.compared), clock)
