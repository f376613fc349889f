"""A report as one HTML page that needs nothing else: no script, no other file, light or dark as the reader's system is.

`page` has the plots drawn by a child process (`plots.py`) and blocks for some seconds. Where that fails the page comes
without them, and says so.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec

from serve_app.migrate.record import Migration
from serve_app.migrate.report import Plot, Report, Section, Table, of_migration, shown

DRAW_S: Final = 60.0
"""All plots of a page must be drawn by then."""

PLOTS_MAX: Final = 60
"""Of one page, those of its first sections: the newest gates."""

VERDICTS: Final = {"passed": "✓ passed", "failed": "✗ failed", "undecided": "? undecided"}

_NUMBER: Final = re.compile(r"[-+±–]?[0-9.,]+(?:e[-+]?[0-9]+)?\s*(?:%|ms|s|$)")

Draw = Callable[[Sequence[Plot]], list[str]]

_log = logging.getLogger(__name__)


def page(report: Report, draw: Draw | None = None) -> str:
    """`draw` gives an SVG for each plot; without it a child process does."""
    plots = [plot for section in report.sections for plot in section.plots][:PLOTS_MAX]
    try:
        svgs = (draw or drawn_apart)(plots) if plots else []
        lacking = ""
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        _log.warning("the plots of a report could not be drawn: %s", type(error).__name__)
        svgs, lacking = [], "The plots could not be drawn here; the tables say the same."
    pictures = iter(svgs)
    sections = "\n".join([_section(section, pictures) for section in report.sections])
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(report.title)}</title>\n'
        f"<style>\n{_style()}</style>\n</head>\n<body>\n<main>\n{_head(report)}{_said(lacking)}{sections}\n"
        f"</main>\n</body>\n</html>\n"
    )


class Pages:
    """The report of a migration, for programs and for people. Blocking."""

    def json(self, migration: Migration) -> dict[str, Any]:
        return shown(migration)

    def page(self, migration: Migration) -> str:
        return page(of_migration(migration))


def drawn_apart(plots: Sequence[Plot]) -> list[str]:
    """By a child process. Raises OSError, SubprocessError, MsgspecError."""
    command = [sys.executable, "-m", "serve_app.migrate.plots"]
    drawn = subprocess.run(
        command, input=msgspec.json.encode(plots), stdout=subprocess.PIPE, timeout=DRAW_S, check=True
    )
    return msgspec.json.decode(drawn.stdout, type=list[str])


def _style() -> str:
    return (files("serve_app.migrate") / "page.css").read_text("utf-8")


def _head(report: Report) -> str:
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in report.facts)
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in report.reasons)
    return (
        f"<header>\n<h1>{escape(report.title)} {_badge(report.verdict)}</h1>\n"
        f'<ul class="reasons">{reasons}</ul>\n<dl>{facts}</dl>\n</header>\n'
    )


def _badge(verdict: str) -> str:
    shown = escape(VERDICTS.get(verdict, verdict))
    return f'<span class="verdict {escape(verdict, quote=True)}">{shown}</span>' if verdict else ""


def _said(text: str) -> str:
    return f"<p>{escape(text)}</p>\n" if text else ""


def _section(section: Section, pictures: Iterator[str]) -> str:
    text = "".join(f"<li>{escape(one)}</li>" for one in section.text)
    shown = list(zip(section.plots, pictures, strict=False))
    plots = "\n".join(_plot(plot, svg) for plot, svg in shown)
    tables = "\n".join(map(_table, section.tables))
    return (
        f"<section>\n<h2>{escape(section.title)} {_badge(section.verdict)}</h2>\n"
        + (f"<ul>{text}</ul>\n" if text else "")
        + (f'<div class="plots">\n{plots}\n</div>\n' if shown else "")
        + (f'<div class="tables">\n{tables}\n</div>\n' if section.tables else "")
        + "</section>"
    )


def _plot(plot: Plot, svg: str) -> str:
    title = escape(plot.title)
    drawn = svg.replace("<svg", f'<svg role="img" aria-label="{escape(plot.title, quote=True)}"', 1)
    return f"<figure>\n<figcaption><b>{title}</b> <small>{escape(plot.note)}</small></figcaption>\n{drawn}\n</figure>"


def _table(table: Table) -> str:
    """What looks like a number stands to the right."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{_cells(row)}</tr>\n" for row in table.rows)
    caption = f"<caption>{escape(table.title)} <small>{escape(table.note)}</small></caption>"
    return f"<table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>"


def _cells(row: Sequence[str]) -> str:
    if not row:
        return ""
    rest = "".join(f'<td class="{_kind(cell)}">{escape(cell)}</td>' for cell in row[1:])
    return f'<th scope="row">{escape(row[0])}</th>{rest}'


def _kind(cell: str) -> str:
    return "number" if _NUMBER.match(cell) else "words"
