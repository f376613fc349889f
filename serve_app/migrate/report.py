"""What a migration's gates have said, as values that a page shows and a program reads.

A `Report` is general: sections of words, plots and tables. `of_migration` makes one of a migration's record; its gates
may bring tables of their own in `figures["tables"]`. Nothing in it names a user or quotes a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from serve_app.core import SECOND_US
from serve_app.migrate.figures import CHANGE_BINS, Figures, Row, Spread
from serve_app.migrate.record import Gate, Migration, Step

ROWS_SHOWN: Final = 30
"""Of the groups in one plot or table: those that lost most come first."""

NAME_CHARACTERS: Final = 40

BASE, TARGET = "base", "target"
NO_FIGURE: Final = "–"


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """Points of one colour: `name` is "base", "target", or what stands in the legend."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


class Plot(msgspec.Struct, frozen=True, omit_defaults=True):
    """`curves`: y over x, with bands where there are intervals. `differences`: one named row each, its interval and
    lines at `marks`. `histogram`: counts (y) of equal bins that begin at x.
    """

    kind: Literal["curves", "differences", "histogram"]
    title: str
    x: str = ""
    y: str = ""
    series: tuple[Series, ...] = ()
    names: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()
    note: str = ""


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cells as they are shown; those of the first column are names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str
    verdict: str = ""
    text: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """`verdict` and `reasons` stand on top."""

    title: str
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()


def shown(migration: Migration) -> dict[str, Any]:
    """The report as JSON."""
    told: dict[str, Any] = msgspec.to_builtins(
        {
            "id": migration.id,
            "kind": migration.kind,
            "state": migration.state,
            "base": migration.base,
            "target": migration.target,
            "gates": migration.gates,
        }
    )
    return told


def figures_of(gate: Gate) -> Figures | None:
    """The figures of a gate as they were made; None where nothing was compared."""
    return msgspec.convert(gate.figures, Figures) if "overall" in gate.figures else None


def of_migration(migration: Migration) -> Report:
    """The newest gate first."""
    gates = tuple(reversed(migration.gates))
    newest = gates[0] if gates else None
    steps = _steps(migration.steps)
    return Report(
        title=f"Migration {migration.id}",
        verdict=newest.verdict if newest else "",
        reasons=newest.reasons if newest else ("No gate has been asked yet.",),
        facts=_facts(migration),
        sections=(*(_of_gate(gate, gate.reasons if place else ()) for place, gate in enumerate(gates)), *steps),
    )


def _facts(migration: Migration) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, str]] = [("Kind", migration.kind), ("State", migration.state)]
    base = migration.was_names if migration.base is None else migration.base.names
    target = migration.names if migration.target is None else migration.target.names
    facts += [(name, " + ".join(names)) for name, names in (("From", base), ("To", target)) if names]
    facts.append(("Begun", utc(migration.begun_at)))
    if migration.trouble:
        facts.append(("Waits", migration.trouble))
    return tuple(facts)


def _steps(steps: Sequence[Step]) -> tuple[Section, ...]:
    if not steps:
        return ()
    rows = tuple((step.state, utc(step.at), step.why) for step in steps)
    return (Section("States", tables=(Table("", ("state", "entered", "why"), rows),)),)


def _of_gate(gate: Gate, reasons: tuple[str, ...]) -> Section:
    """`reasons`: those that do not stand on top already."""
    title = f"Gate of {gate.state}, {utc(gate.at)}"
    figures = figures_of(gate)
    brought = tuple(msgspec.convert(one, Table) for one in gate.figures.get("tables", ()))
    if figures is None:
        return Section(title, gate.verdict, reasons, tables=(*brought, *_counted(gate.figures)))
    marks = (-float(gate.figures.get("terms", {}).get("loss", 0.0)), 0.0)
    tenant_marks = (-float(gate.figures.get("terms", {}).get("tenant_loss", 0.0)), 0.0)
    return Section(
        title,
        gate.verdict,
        reasons,
        plots=(
            _recall(figures),
            _latency(figures),
            _differences("Difference by tenant", figures.tenants, tenant_marks),
            _differences("Difference by script of the query", figures.scripts, marks),
            _differences(
                "Difference by kind of query and of judgement", (*figures.categories, *figures.sources), marks
            ),
            _histogram("Change of a query's recall", figures.changes, "target minus base", _better(figures.changes)),
            _histogram(f"Overlap@{figures.k} of both lists", figures.overlap, "share of the turns that both found"),
            _histogram("Rank-biased overlap", figures.rbo, "1: the same order"),
            _histogram("Kendall's tau of shared turns", figures.tau, "1: the same order, -1: reversed"),
        ),
        tables=(*brought, _sides(figures), _groups(figures), *_counted(gate.figures)),
    )


def _recall(figures: Figures) -> Plot:
    depths = tuple(float(depth) for depth in range(1, figures.k + 1))
    series = tuple(
        Series(name, depths, side.curve.mean, side.curve.low, side.curve.high)
        for name, side in ((BASE, figures.base), (TARGET, figures.target))
    )
    note = f"{figures.overall.queries} queries; the bands are 95 % intervals of each side by itself."
    return Plot("curves", "Recall by depth", "results looked at", "relevant turns found", series, note=note)


def _latency(figures: Figures) -> Plot:
    sides = ((BASE, figures.base.latency), (TARGET, figures.target.latency))
    series = tuple(
        Series(name, tuple(100 * at / (len(one.quantiles) - 1) for at in range(len(one.quantiles))), one.quantiles)
        for name, one in sides
    )
    note = "In the background, both sides in turn, each vector computed anew."
    return Plot("curves", "Latency", "% of queries that took no longer", "ms", series, note=note)


def _differences(title: str, rows: Sequence[Row], marks: tuple[float, ...]) -> Plot:
    ordered = sorted(rows, key=lambda row: row.difference)[:ROWS_SHOWN]
    points = Series(
        "difference",
        tuple(row.difference for row in ordered),
        tuple(float(at) for at in range(len(ordered))),
        tuple(row.low for row in ordered),
        tuple(row.high for row in ordered),
    )
    names = tuple(f"{_short(row.name)} ({row.queries})" for row in ordered)
    return Plot("differences", title, "target minus base", "", (points,), names, marks, _left_out(len(rows)))


def _better(changes: Spread) -> str:
    """The bins are as many below 0 as above, and the first one above holds what has not changed."""
    worse, same, *better = sum(changes.counts[: CHANGE_BINS // 2]), *changes.counts[CHANGE_BINS // 2 :]
    return f"; {worse} worse, {same} the same, {sum(better)} better"


def _histogram(title: str, spread: Spread, x: str, more: str = "") -> Plot:
    width = (spread.high - spread.low) / len(spread.counts)
    begins = tuple(spread.low + width * at for at in range(len(spread.counts)))
    counts = tuple(float(count) for count in spread.counts)
    note = "" if spread.mean is None else f"mean {spread.mean:.3f}{more}"
    return Plot("histogram", title, x, "queries", (Series("queries", (*begins, spread.high), counts),), note=note)


def _sides(figures: Figures) -> Table:
    rows = []
    base, target = figures.base, figures.target
    for name, here, there in (
        ("recall@1", base.recall_1, target.recall_1),
        (f"recall@{min(5, figures.k)}", base.recall_5, target.recall_5),
        (f"recall@{figures.k}", base.recall_k, target.recall_k),
        ("mean reciprocal rank", base.mrr, target.mrr),
    ):
        rows.append((name, f"{here:.3f}", f"{there:.3f}", f"{there - here:+.3f}"))
    if (alone := figures.alone) is not None:
        name = f"recall@{figures.k}, vectors alone"
        rows.append((name, f"{alone.base:.3f}", f"{alone.target:.3f}", f"{alone.difference:+.3f}"))
    for name, here, there in (
        ("p50, ms", base.latency.p50, target.latency.p50),
        ("p95, ms", base.latency.p95, target.latency.p95),
    ):
        rows.append((name, f"{here:.1f}", f"{there:.1f}", f"{there - here:+.1f}"))
    rows.append(("answers that lacked something", str(base.lacking), str(target.lacking), ""))
    return Table(
        "Both sides", ("", BASE, TARGET, "difference"), tuple(rows), f"Judge of what is not gold: {figures.judge}."
    )


def _groups(figures: Figures) -> Table:
    groups = [
        ("all", (figures.overall,)),
        ("judgement", figures.sources),
        ("script", figures.scripts),
        ("kind", figures.categories),
        ("tenant", figures.tenants[:ROWS_SHOWN]),
    ]
    rows = tuple(_group(kind, row) for kind, of_kind in groups for row in of_kind)
    columns = ("group", "queries", BASE, TARGET, "difference", "from", "to")
    return Table(f"Recall@{figures.k} by group", columns, rows, _left_out(len(figures.tenants)))


def _group(kind: str, row: Row) -> tuple[str, ...]:
    name = kind if kind == "all" else f"{kind} {_short(row.name)}"
    shares = f"{row.base:.3f}", f"{row.target:.3f}", f"{row.difference:+.3f}", f"{row.low:+.3f}", f"{row.high:+.3f}"
    return name, str(row.queries), *shares


def _counted(figures: Mapping[str, Any]) -> tuple[Table, ...]:
    tables = []
    for key, title in (("counts", "Queries"), ("shadow", "Shadow reads"), ("terms", "Terms")):
        if key in figures:
            rows = tuple((name.replace("_", " "), _cell(value)) for name, value in figures[key].items())
            tables.append(Table(title, ("", ""), rows))
    return tuple(tables)


def _cell(value: Any) -> str:
    return NO_FIGURE if value is None else "yes" if value is True else "no" if value is False else f"{value:g}"


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"


def _left_out(rows: int) -> str:
    return f"{rows - ROWS_SHOWN} more, which lost less, are not shown." if rows > ROWS_SHOWN else ""


def utc(microseconds: int) -> str:
    """To the second."""
    return datetime.fromtimestamp(microseconds // SECOND_US, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
