"""`memstrata bench core` runs, has all its rows and leaves nothing behind. No test knows a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import core, report
from benchmarks.load import GENERATOR_LIMIT, Load, Target, of_the_machine
from benchmarks.report import Figure, Row, key_of
from benchmarks.rivals import FORMATS, Rivals
from benchmarks.suite import Suite
from benchmarks.workload import read_corpus
from serve_app import cli
from serve_app.client.http import Json
from serve_app.errors import InvalidRequest
from tests.api.running import Running
from tests.client.answering import Answering

ROWS = report.rows_of(peers=False, infinity=False)


def cells_of(measured: Json, engine: str) -> dict[str, Any]:
    """All rows are there that need no peers."""
    cells: dict[str, Any] = measured["engines"][engine]["rows"]
    assert set(cells) == {key_of(row) for row in ROWS}
    assert "text search, 16 clients" in report.table(measured)
    return cells


def check_figures(cells: dict[str, Any]) -> None:
    """A machine that others use at the same time may leave a short slice without an answer, and make it void."""
    for row in ROWS:
        cell = cells[key_of(row)]
        assert all(of_the_machine(fault) or fault == report.NO_ANSWERS for fault in cell["void"]), (row.key, cell)
        assert cell["bar"] is None
        if report.NO_ANSWERS not in cell["void"]:
            assert cell["measured"] > 0, row.key
            assert cell["ratio"] > 0 if row.against else cell["ratio"] is None, row.key


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow])])
def test_quick_has_every_row(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["bench", "core", "--quick", "--engine", engine, "--json"])
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    check_figures(cells_of(measured, engine))
    assert status == (1 if report.failures(measured) else 0)
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
    assert set(figures) == set(ROWS) - {report.MEMORY, report.START}
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
        (Figure(9, 10, 0.9, void=("3 errors",)), ["--quick"], 1),
        (Figure(9, 10, 0.9, void=(GENERATOR_LIMIT,)), [], 1),
        (Figure(9, 10, 0.9, void=(GENERATOR_LIMIT,)), ["--quick"], 0),
    ],
    ids=["above its bar", "below, not asked", "below", "void", "quick, errors", "busy machine", "quick, busy machine"],
)
def test_the_exit_status(
    figure: Figure, more: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"data": "d", "turns": 1, "users": 1, "seconds": 1.0, "load": "wrk"}
    told |= {"judged": True, "left_behind": []}
    told |= {"machine": {"cores": 2, "processor": "p"}, "ceilings": {"formats": [], "emulated": [], "rates": {}}}
    rows = report.shown("local", {report.SEARCH_1: figure}, ROWS)
    monkeypatch.setattr(core, "measure", lambda options: {**told, "engines": {"local": {"rows": rows}}})
    assert cli.main(["bench", "core", "--json", *more]) == status
    out = capsys.readouterr().out.splitlines()
    assert json.loads(out[-1])["engines"]["local"]["rows"] == json.loads(json.dumps(rows))
    assert any(line.startswith(key_of(report.SEARCH_1)) for line in out)


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "/nowhere"],
        ["--peers", "/nowhere/python"],
        ["--infinity", "no-such-program-anywhere"],
        ["--url", "http://127.0.0.1:9", "--key", "k"],
    ],
    ids=lambda words: words[0],
)
def test_what_cannot_be_is_said_in_a_line_before_anything_starts(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core, "_start_rivals", nothing_starts)
    assert cli.main(["bench", "core", "--quick", *words]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert words[1] in said[0]


def nothing_starts(*_: object) -> None:
    raise AssertionError("something was started")


def test_a_key_that_is_not_taken_is_said_before_anything_starts(
    service: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core, "_start_rivals", nothing_starts)
    assert cli.main(["bench", "core", "--quick", "--url", service.listen(), "--key", "wrong"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "401" in said[0]


class Unerasable(Suite):
    STEPS = (("whole", (report.LEXICAL,)),)

    def whole(self) -> dict[Row, Figure]:
        return {report.LEXICAL: Figure(1.0)}

    def erase(self) -> None:
        raise InvalidRequest("no")


def test_a_failed_erasure_leaves_the_measurement(
    service: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(core, "_start_rivals", lambda *_: Rivals({}, {}, {}))
    monkeypatch.setattr(core, "Suite", Unerasable)
    words = ["bench", "core", "--quick", "--url", service.listen(), "--key", service.key, "--json"]
    assert cli.main(words) == 1
    out = capsys.readouterr().out.splitlines()
    measured = json.loads(out[-1])
    assert measured["engines"]["service"]["rows"][key_of(report.LEXICAL)]["measured"] == 1.0
    assert [line for line in out if line.startswith("not all was erased")] == measured["left_behind"]


def test_an_interrupt_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(options: core.Options) -> Json:
        raise KeyboardInterrupt

    monkeypatch.setattr(core, "measure", interrupted)
    assert cli.main(["bench", "core", "--quick"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_engine_that_is_not_there_is_exit_2() -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "core", "--engine", "local,steam"])
