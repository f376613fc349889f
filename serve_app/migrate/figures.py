"""The figures of a gate and the verdict that follows from them: frozen values and pure functions.

`Figures` is what a report shows and what is kept of a gate: numbers, names of tenants, scripts and kinds of queries; no
text of a query, no user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec
import numpy as np

from serve_app.migrate.reach import LEVEL, Estimate, Side, Told, estimate, family_level
from serve_app.migrate.record import Terms

Verdict = Literal["passed", "failed", "undecided"]

COLLAPSE: Final = 0.5
"""Vectors of the new version that alone find surely less than this part of what those of the old one find are broken,
however well words make up for it."""

UNRELATED: Final = 0.1
"""Vectors that surely agree less than that with the old ones beyond chance, and find less by themselves, are broken."""

JUDGED_LEVEL: Final = 0.99
"""Of the interval of queries that are judged: an opinion has to be surer than what is known."""

ALONE_LEAST: Final = 0.1
"""Where the old vectors find no more than that by themselves, nothing is concluded from the new ones."""

LACKING_MORE: Final = 0.05
"""So many more of the new side's answers may lack something, of all that were asked."""

GOLDEN, JUDGED = "golden", "judged"
"""Rows of `Figures.sources`: of queries whose answers are known, and of the others."""

DIGITS: Final = 4

OVERLAP_BINS: Final = 10
CHANGE_BINS: Final = 20


class Row(msgspec.Struct, frozen=True):
    """One group of queries: reach (recall@K of what is relevant) of both, and the difference with its interval."""

    name: str
    queries: int
    base: float
    target: float
    difference: float
    low: float
    high: float


class Curve(msgspec.Struct, frozen=True):
    """Recall by depth, with the interval of each, from rank 1 on."""

    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds."""

    p50: float
    p95: float
    quantiles: tuple[float, ...] = ()
    """At each 5 %, from the least to the most."""


class Of(msgspec.Struct, frozen=True):
    """One side over all queries."""

    recall_1: float
    recall_5: float
    recall_k: float
    mrr: float
    curve: Curve
    latency: Latency
    lacking: int
    """Answers that lacked something, such as the vector of the query; they are compared in nothing else."""


class Counts(msgspec.Struct, frozen=True):
    """What became of the queries that were drawn."""

    drawn: int = 0
    golden: int = 0
    """Compared, with gold turns."""
    logged: int = 0
    """Compared, judged."""
    shadow: int = 0
    gone: int = 0
    """Not asked: no turn is left that answered them, or their user has gone."""
    small: int = 0
    """Asked of memories of no more than K turns, of which any version finds all: they tell nothing."""
    lacking: int = 0
    """One of both answers lacked something."""
    unjudged: int = 0
    """Neither side found anything that could be judged."""

    @property
    def compared(self) -> int:
        return self.golden + self.logged + self.shadow


class Spread(msgspec.Struct, frozen=True):
    """A distribution over queries: its mean, and how many lie in each of equal bins from `low` to `high`."""

    mean: float | None
    low: float
    high: float
    counts: tuple[int, ...]


class Figures(msgspec.Struct, frozen=True):
    """All of one gate. Every share is 0 to 1; differences are target minus base."""

    k: int
    judge: str
    counts: Counts
    base: Of
    target: Of
    overall: Row
    alone: Row | None
    """By vectors alone, without words and without a second stage."""
    alone_beyond: float | None
    """What the target's vectors reach less `COLLAPSE` of what the base's do: the upper end of its interval."""
    agreement: float | None
    """How far vectors of both sides find the same by themselves, beyond chance: the upper end of its interval."""
    sources: tuple[Row, ...]
    tenants: tuple[Row, ...]
    scripts: tuple[Row, ...]
    categories: tuple[Row, ...]
    changes: Spread
    overlap: Spread
    rbo: Spread
    tau: Spread
    seconds: float = 0.0
    """That the gate took."""


def figures(
    found: Sequence[Told], counts: Counts, lacking: tuple[int, int], k: int, judge: str, seed: int, seconds: float
) -> Figures | None:
    """None where nothing was compared. `lacking`: answers of base and target that lacked something."""
    if not found:
        return None
    level = family_level(len({one.tenant for one in found}))
    tenants = sorted(_rows(found, lambda one: one.tenant, seed, k, level), key=lambda row: row.difference)
    alone = _alone(found)
    changes = [one.target.recall(k) - one.base.recall(k) for one in found]
    return Figures(
        k=k,
        judge=judge,
        counts=counts,
        base=_of([one.base for one in found], lacking[0], k, seed),
        target=_of([one.target for one in found], lacking[1], k, seed),
        overall=_row("all", found, seed, k),
        alone=_paired("vectors alone", alone, seed, LEVEL) if alone else None,
        alone_beyond=_beyond(alone, seed) if alone else None,
        agreement=_agreed(found, seed),
        sources=(*_judgement(GOLDEN, found, seed, k), *_judgement(JUDGED, found, seed, k)),
        tenants=tuple(tenants),
        scripts=_rows(found, lambda one: one.script, seed, k),
        categories=_rows(found, lambda one: one.category, seed, k),
        changes=_spread(changes, -1.0, 1.0, CHANGE_BINS),
        overlap=_spread([one.overlap for one in found], 0.0, 1.0, OVERLAP_BINS),
        rbo=_spread([one.rbo for one in found], 0.0, 1.0, OVERLAP_BINS),
        tau=_spread([one.tau for one in found if one.tau is not None], -1.0, 1.0, OVERLAP_BINS),
        seconds=round(seconds, 3),
    )


def decided(found: Figures | None, counts: Counts, terms: Terms) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict by the terms, and why, worst first. See docs/gates.md for the rule."""
    compared = counts.compared
    if found is None or compared < terms.queries_min:
        return "undecided", (f"{compared} queries could be compared, fewer than {max(1, terms.queries_min)}",)
    failures = _collapsed(found)
    failures += [why for row in _decisive(found, terms) for why in _lost(row, _allowed(row, terms), found.k)]
    failures += [why for row in _weighed(found.tenants, terms) for why in _lost_by_tenant(row, terms, found.k)]
    if failures:
        return "failed", tuple(failures)
    if doubts := _doubts(found, counts, terms):
        return "undecided", tuple(doubts)
    return "passed", _passed(found, terms)


def _decisive(found: Figures, terms: Terms) -> list[Row]:
    """Known and judged queries each by themselves, as far as there are enough; else all together."""
    return _weighed(found.sources, terms) or [found.overall]


def _allowed(row: Row, terms: Terms) -> float:
    """Who judges may be wrong by some hundredths, in favour of either side, however many queries there are."""
    return terms.loss if row.name == GOLDEN else max(terms.loss, terms.tenant_loss)


def _weighed(rows: Iterable[Row], terms: Terms) -> list[Row]:
    """Groups with enough queries to say something of themselves."""
    return [row for row in rows if row.queries >= max(1, terms.queries_min)]


def _lost(row: Row, loss: float, k: int) -> list[str]:
    """A loss that is greater than allowed and that chance does not explain."""
    real = row.difference < -loss and row.high < 0
    return [f"{_told(row, k)}: more than the {loss:.3f} allowed is lost"] if real else []


def _lost_by_tenant(row: Row, terms: Terms, k: int) -> list[str]:
    return [f"tenant {why}" for why in _lost(row, terms.tenant_loss, k)]


def _collapsed(found: Figures) -> list[str]:
    alone = found.alone
    if alone is None or alone.base <= ALONE_LEAST:
        return []
    reached = f"vectors alone reach {alone.target:.3f} under the target and {alone.base:.3f} under the base"
    if found.alone_beyond is not None and found.alone_beyond < 0:
        return [f"{reached} ({alone.queries} queries): surely less than {COLLAPSE:.0%} of it"]
    if found.agreement is not None and found.agreement < UNRELATED and alone.high < 0:
        return [
            f"{reached} ({alone.queries} queries), and agree by chance alone: at most {found.agreement:.3f} beyond it"
        ]
    return []


def _doubts(found: Figures, counts: Counts, terms: Terms) -> list[str]:
    doubts = [
        f"{_told(row, found.k)}: chance may explain the loss, but more than {terms.tenant_loss:.3f} may be lost"
        for row in _decisive(found, terms)
        if row.difference < -_allowed(row, terms) and row.low < -terms.tenant_loss
    ]
    asked = counts.compared + counts.lacking
    if (found.target.lacking - found.base.lacking) > LACKING_MORE * asked:
        doubts.append(f"{found.target.lacking} of {asked} answers of the target lacked something, see the figures")
    return doubts


def _passed(found: Figures, terms: Terms) -> tuple[str, ...]:
    told = [
        _told(row, found.k)
        + (": chance explains the loss, and hardly more is lost" if row.difference < -_allowed(row, terms) else "")
        for row in _decisive(found, terms)
    ]
    return *told, f"mean reciprocal rank {found.target.mrr:.3f} against {found.base.mrr:.3f}"


def _told(row: Row, k: int) -> str:
    return (
        f"{row.name}: recall@{k} {row.target:.3f} against {row.base:.3f}, difference {row.difference:+.3f}"
        f" (interval from {row.low:+.3f} to {row.high:+.3f}, {row.queries} queries)"
    )


def _rows(
    found: Sequence[Told], group: Callable[[Told], str], seed: int, k: int, level: float = LEVEL
) -> tuple[Row, ...]:
    of_groups: dict[str, list[Told]] = {}
    for one in found:
        of_groups.setdefault(group(one), []).append(one)
    return tuple(_row(name, of_groups[name], seed, k, level) for name in sorted(of_groups))


def _judgement(name: str, found: Sequence[Told], seed: int, k: int) -> tuple[Row, ...]:
    golden = name == GOLDEN
    of_it = [one for one in found if (one.source == "golden") == golden]
    return (_row(name, of_it, seed, k, LEVEL if golden else JUDGED_LEVEL),) if of_it else ()


def _row(name: str, found: Sequence[Told], seed: int, k: int, level: float = LEVEL) -> Row:
    pairs = [(one.base.recall(k), one.target.recall(k)) for one in found]
    return _paired(name, pairs, seed, level)


def _alone(found: Sequence[Told]) -> list[tuple[float, float]]:
    """What vectors alone reach of each query, under base and target."""
    pairs = [(one.base.alone, one.target.alone) for one in found]
    return [(base, target) for base, target in pairs if base is not None and target is not None]


def _beyond(alone: Sequence[tuple[float, float]], seed: int) -> float:
    return _r(estimate([target - COLLAPSE * base for base, target in alone], seed).high)


def _agreed(found: Sequence[Told], seed: int) -> float | None:
    known = [one.agreement for one in found if one.agreement is not None]
    return _r(estimate(known, seed).high) if known else None


def _paired(name: str, pairs: Sequence[tuple[float, float]], seed: int, level: float) -> Row:
    difference = estimate([target - base for base, target in pairs], seed, level)
    base, target = (float(np.mean([pair[at] for pair in pairs])) for at in (0, 1))
    return Row(name, len(pairs), _r(base), _r(target), _r(difference.mean), _r(difference.low), _r(difference.high))


def _of(sides: Sequence[Side], lacking: int, k: int, seed: int) -> Of:
    by_depth = [estimate([one.recall(depth) for one in sides], seed) for depth in range(1, k + 1)]
    recalls = [one.mean for one in by_depth]
    return Of(
        recall_1=_r(recalls[0]),
        recall_5=_r(recalls[min(5, k) - 1]),
        recall_k=_r(recalls[-1]),
        mrr=_r(float(np.mean([one.reciprocal for one in sides]))),
        curve=_curve(by_depth),
        latency=_latency([one.seconds for one in sides]),
        lacking=lacking,
    )


def _curve(by_depth: Sequence[Estimate]) -> Curve:
    return Curve(
        tuple(_r(one.mean) for one in by_depth),
        tuple(_r(one.low) for one in by_depth),
        tuple(_r(one.high) for one in by_depth),
    )


def _latency(seconds: Sequence[float]) -> Latency:
    ms = np.quantile(1e3 * np.asarray(seconds), np.linspace(0, 1, 21))
    return Latency(_r(float(ms[10])), _r(float(ms[19])), tuple(_r(one) for one in ms.tolist()))


def _spread(values: Sequence[float], low: float, high: float, bins: int) -> Spread:
    counts, _ = np.histogram(values, bins, (low, high))
    return Spread(_r(float(np.mean(values))) if values else None, low, high, tuple(counts.tolist()))


def _r(value: float) -> float:
    return round(value, DIGITS)
