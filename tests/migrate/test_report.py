"""The report: as JSON and as a page that needs nothing else, with the same figures, and nobody's words."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

import msgspec
import pytest

from serve_app.migrate.figures import Counts, decided
from serve_app.migrate.page import page
from serve_app.migrate.record import Gate, Migration, Step, Terms
from serve_app.migrate.report import Plot, Report, Section, Series, Table, figures_of, of_migration, shown
from tests.migrate.test_figures import made, one
from tests.migrate.two_versions import BASE, TARGET

AT = 1_796_000_000_000_000


def gate(state: str = "verify", lost: int = 0) -> Gate:
    found, counts = made([one(True, at >= lost, tenant=f"t{at % 3}") for at in range(60)])
    verdict, reasons = decided(found, counts, Terms())
    figures = msgspec.to_builtins(found) | {"terms": msgspec.to_builtins(Terms())}
    return Gate(state, verdict, AT, reasons, figures)  # type: ignore[arg-type]


def migration(*gates: Gate) -> Migration:
    steps = (Step("prepare", AT, "asked for"), Step("verify", AT))
    return Migration("m-1", "embedding", "canary", AT, Terms(), steps=steps, gates=gates, base=BASE, target=TARGET)


def no_plots(plots: Sequence[Plot]) -> list[str]:
    return [f"<svg>{place}</svg>" for place in range(len(plots))]


def test_figures_come_back_from_json() -> None:
    first = gate()
    told = msgspec.json.decode(msgspec.json.encode(shown(migration(first))))
    again = msgspec.convert(told["gates"][0], Gate)
    assert figures_of(again) == figures_of(first)
    assert figures_of(Gate("verify", "undecided", AT)) is None
    assert told["base"] == {"primary": "hash_256", "multilingual": "hash_256"}


def test_the_newest_gate_decides_and_all_are_shown() -> None:
    report = of_migration(migration(gate(), gate("canary", lost=30)))
    html = page(report, no_plots)
    assert report.verdict == "failed"
    assert html.index("failed") < html.index("Gate of canary") < html.index("Gate of verify") < html.index("States")
    assert html.count("recall@10 0.500 against 1.000") >= 1
    assert "asked for" in html


def test_a_migration_without_gates() -> None:
    assert "No gate has been asked yet." in page(of_migration(migration()), no_plots)
    undecided = Gate("verify", "undecided", AT, ("too few",), {"counts": msgspec.to_builtins(Counts(drawn=3))})
    html = page(of_migration(migration(undecided)), no_plots)
    assert "too few" in html
    assert "drawn" in html


def test_gates_bring_tables_of_their_own() -> None:
    table = Table("Side by side", ("", "base", "target"), (("retention", "0.98", "0.97"),))
    own = Gate("verify", "passed", AT, (), {"tables": [msgspec.to_builtins(table)]})
    html = page(of_migration(migration(own)), no_plots)
    assert "Side by side" in html
    assert '<th scope="row">retention</th>' in html


def test_a_page_is_whole_and_escapes_what_it_shows() -> None:
    evil = "<script>alert(1)</script>\"'&"
    cells = Table(evil, (evil,), ((evil, evil),), evil)
    plot = Plot("curves", evil, evil, evil, (Series(evil, (1.0, 2.0), (1.0, 0.5)),), note=evil)
    section = Section(evil, evil, (evil,), (plot,), (cells,))
    html = page(Report(evil, evil, (evil,), ((evil, evil),), (section,)))
    assert "<script" not in html
    assert not re.search(r"""(?:src|href)=["'](?!#)""", html)  # a plot refers to its own parts alone
    assert html.count("<svg") == 1


def test_all_kinds_of_plots_are_drawn_in_the_colours_of_the_page() -> None:
    html = page(of_migration(migration(gate(lost=3))))
    assert html.count("<svg") == 9
    assert "#0" + "40404" not in html
    assert {f"var(--{name})" for name in ("base", "target", "muted", "grid")} <= set(re.findall(r"var\(--\w+\)", html))
    assert html.count('id="') == len(set(re.findall(r'id="[^"]*"', html)))


def test_without_plots_the_tables_still_come() -> None:
    def fails(plots: Sequence[Plot]) -> list[str]:
        raise subprocess.TimeoutExpired("plots", 1)

    html = page(of_migration(migration(gate())), fails)
    assert "could not be drawn" in html
    assert "mean reciprocal rank" in html
    assert "<svg" not in html


@pytest.mark.parametrize("module", ["serve_app.service", "serve_app.migrate.page"])
def test_the_service_does_not_carry_the_plotting_library(module: str) -> None:
    code = f"import sys, {module}; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
