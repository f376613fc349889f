"""Plots of a report as SVG, drawn by matplotlib in a process of its own: `python -m serve_app.migrate.plots`.

Reads a list of `Plot` as JSON from standard input and writes a list of SVG texts to standard output, so that a service
never carries the plotting library in its memory. Colours are CSS variables of the page: light and dark are its own.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from serve_app.migrate.report import BASE, TARGET, Plot, Series

INK, MUTED, GRID, BASE_COLOUR, TARGET_COLOUR, BAD = "#010101", "#020202", "#030303", "#040404", "#050505", "#060606"
VARIABLES: Final[Mapping[str, str]] = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    BASE_COLOUR: "var(--base)",
    TARGET_COLOUR: "var(--target)",
    BAD: "var(--bad)",
}
"""What stands for each colour in the page."""

COLOURS: Final[Mapping[str, str]] = {BASE: BASE_COLOUR, TARGET: TARGET_COLOUR}

WIDTH, HEIGHT = 4.4, 2.7
"""Inches of 72 points, which a page shows as wide as it likes."""

ROW_HEIGHT: Final = 0.26
TICKS_MAX: Final = 5

STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
}

_GROUP_ID: Final = re.compile(r'<g id="[^"]*"')


def drawn(plots: Sequence[Plot]) -> list[str]:
    return [_svg(plot, place) for place, plot in enumerate(plots)]


def _svg(plot: Plot, place: int) -> str:
    height = max(HEIGHT / 2, ROW_HEIGHT * len(plot.names) + 0.9) if plot.kind == "differences" else HEIGHT
    with mpl.rc_context({**STYLE, "svg.hashsalt": f"plot-{place}"}):
        figure = Figure((WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        DRAWN[plot.kind](axes, plot)
        axes.xaxis.set_major_locator(MaxNLocator(TICKS_MAX))
        axes.set_xlabel(plot.x)
        axes.set_ylabel(plot.y)
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(written.getvalue())


def _inline(svg: str) -> str:
    """Without what a page has once, and in its colours."""
    svg = _GROUP_ID.sub("<g", svg[svg.index("<svg") :])
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg


def _curves(axes: Axes, plot: Plot) -> None:
    for one in plot.series:
        colour = COLOURS.get(one.name, INK)
        if one.low:
            axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.15, linewidth=0)
        dashed = "--" if one.name == TARGET else "-"
        axes.plot(one.x, one.y, dashed, color=colour, linewidth=1.8, label=one.name)
    axes.set_ylim(bottom=0)
    if all(max(one.high or one.y, default=0) <= 1 for one in plot.series):
        axes.set_ylim(0, 1.02)
    axes.legend(loc="lower right" if plot.series and plot.series[0].low else "upper left")


def _differences(axes: Axes, plot: Plot) -> None:
    points = plot.series[0]
    at = np.arange(len(plot.names))[::-1]
    for mark in plot.marks:
        axes.axvline(mark, color=BAD if mark < 0 else MUTED, linewidth=1, linestyle="--" if mark < 0 else "-")
    allowed = min(plot.marks, default=0.0)
    for x, low, high, y in zip(points.x, points.low, points.high, at, strict=True):
        lost = x < allowed and high < 0
        axes.plot([low, high], [y, y], color=BAD if lost else INK, linewidth=1.4)
        axes.plot([x], [y], "o", color=BAD if lost else INK, markersize=4.5)
    axes.set_yticks(at, plot.names)
    axes.set_ylim(-0.7, len(plot.names) - 0.3)
    axes.grid(visible=False, axis="y")
    widest = max([0.05, *(abs(one) for one in (*points.low, *points.high))])
    axes.set_xlim(-1.08 * widest, 1.08 * widest)


def _histogram(axes: Axes, plot: Plot) -> None:
    counts: Series = plot.series[0]
    edges = np.array(counts.x)
    axes.bar(edges[:-1], counts.y, np.diff(edges), align="edge", color=MUTED, edgecolor=GRID, linewidth=0.6)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(edges[0], edges[-1])


DRAWN: Final[Mapping[str, Callable[[Axes, Plot], None]]] = {
    "curves": _curves,
    "differences": _differences,
    "histogram": _histogram,
}


def main() -> None:
    asked: Any = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Plot])
    sys.stdout.buffer.write(msgspec.json.encode(drawn(asked)))


if __name__ == "__main__":
    main()
