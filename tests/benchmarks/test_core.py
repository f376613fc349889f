"""`memstrata bench core` runs, has all its rows and leaves nothing behind. No test knows a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import core, report
from benchmarks.load import Load, Target
from benchmarks.report import Figure, Row, key_of
from benchmarks.rivals import FORMATS, Rivals
from benchmarks.suite import Suite
from benchmarks.workload import read_corpus
from serve_app import cli
from serve_app.client.http import Json
from tests.api.running import Running
from tests.client.answering import Answering

OF_PEERS = {*report.SEARCH_OF_PEERS.values(), report.ADD_1, report.ADD_16, report.EMBED_TURNS}
OF_THE_MACHINE = ("ms late", "load generator was the limit", report.NO_ANSWERS)
"""Reasons for which a row may be void on a machine that others use at the same time."""


def cells_of(measured: Json, engine: str) -> dict[str, Any]:
    """All rows are there, and those that need no peers have a figure."""
    cells: dict[str, Any] = measured["engines"][engine]["rows"]
    assert set(cells) == {key_of(row) for row in report.ROWS}
    assert "text search, 16 clients" in report.table(measured)
    return cells


def check_figures(cells: dict[str, Any]) -> None:
    for row in report.ROWS:
        cell = cells[key_of(row)]
        assert all(fault.endswith(OF_THE_MACHINE) for fault in cell["void"]), (row.key, cell)
        if report.NO_ANSWERS in cell["void"]:
            continue
        if row in report.SEARCH_OF_PEERS.values():
            assert cell["missing"] == report.NOT_MEASURED
        else:
            assert cell["measured"] > 0, row.key
            assert cell["ratio"] is None if row in OF_PEERS or not row.against else cell["ratio"] > 0, row.key


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.ray)])
def test_quick_has_every_row(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["bench", "core", "--quick", "--engine", engine, "--json"])
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    check_figures(cells_of(measured, engine))
    assert status == (1 if report.faults(measured) else 0)
    assert set(measured["ceilings"]["rates"]) >= {key_of(report.SEARCH_1), key_of(report.INGEST)}


def test_what_was_written_is_erased(service: Running, tmp_path: Path) -> None:
    """Every step, against a ceiling that answers anything at once."""
    service.append("ada", "s", "Rex digs up tulips")
    sizes = replace(core.QUICK, slice_s=0.2, knee_s=0.2, open_s=0.5, batches=3, length_appends=2)
    with Answering({"/": [(200, {}, {"rate": 1.0})]}) as ceiling:
        rivals = Rivals(dict.fromkeys(FORMATS, Target(ceiling.url)), {}, {})
        corpus = read_corpus(core.GOLDEN, 60)
        suite = Suite(Target(service.listen(), service.key), corpus, Load(tmp_path), rivals, sizes)
        figures = suite.measure(lambda step: None)
    assert set(figures) == set(report.ROWS) - {report.MEMORY, report.START, *report.SEARCH_OF_PEERS.values()}
    assert turns_in_memory(service) > sizes.long_turns
    suite.erase()
    assert turns_in_memory(service) == 1
    assert service.found("ada", "tulips") == ["Rex digs up tulips"]


class Breaking(Suite):
    STEPS = (("broken", (report.INGEST, report.LENGTH)), ("whole", (report.LEXICAL,)))

    def broken(self) -> dict[Row, Figure]:
        self._client.search({})
        raise AssertionError("the search was not refused")

    def whole(self) -> dict[Row, Figure]:
        return {report.LEXICAL: Figure(1.0)}


def test_a_step_that_fails_makes_its_rows_void_and_no_others(service: Running, tmp_path: Path) -> None:
    corpus, rivals = read_corpus(core.GOLDEN, 10), Rivals({}, {}, {})
    suite = Breaking(Target(service.listen(), service.key), corpus, Load(tmp_path), rivals, core.QUICK)
    figures = suite.measure(lambda step: None)
    assert set(figures) == {report.INGEST, report.LENGTH, report.LEXICAL}
    assert "422" in figures[report.INGEST].void[0]
    assert figures[report.LENGTH].void
    assert not figures[report.LEXICAL].void


def turns_in_memory(service: Running) -> int:
    return sum(shard["turns_in_memory"] for shard in service.ok("GET", "/v1/admin/stats")["shards"])


@pytest.mark.parametrize(
    ("figure", "more", "status"),
    [
        (Figure(9, 10, 0.9), ["--bars"], 0),
        (Figure(1, 10, 0.1), [], 0),
        (Figure(1, 10, 0.1), ["--bars"], 1),
        (Figure(9, 10, 0.9, void=("3 errors",)), [], 1),
    ],
    ids=["above its bar", "below, not asked", "below", "void"],
)
def test_the_exit_status(
    figure: Figure, more: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"data": "d", "turns": 1, "users": 1, "seconds": 1.0, "load": "wrk"}
    told |= {"machine": {"cores": 2, "processor": "p"}, "ceilings": {"formats": [], "emulated": [], "rates": {}}}
    rows = report.shown("local", {report.SEARCH_1: figure})
    monkeypatch.setattr(core, "measure", lambda options: {**told, "engines": {"local": {"rows": rows}}})
    assert cli.main(["bench", "core", "--json", *more]) == status
    out = capsys.readouterr().out.splitlines()
    assert json.loads(out[-1])["engines"]["local"]["rows"] == json.loads(json.dumps(rows))
    assert any(line.startswith(key_of(report.SEARCH_1)) for line in out)


def test_an_engine_that_is_not_there_is_exit_2() -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "core", "--engine", "local,steam"])
