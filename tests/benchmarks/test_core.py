"""`memstrata bench core` runs, has all its rows and leaves nothing behind. No test knows a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import core, report
from benchmarks.report import key_of
from serve_app import cli
from serve_app.client.http import Json
from tests.api.running import Running

OF_PEERS = {*report.SEARCH_OF_PEERS.values(), report.ADD_1, report.ADD_16, report.EMBED_TURNS}
OF_THE_MACHINE = ("ms late", "load generator was the limit")
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


def test_a_running_service_is_left_as_it_was(service: Running) -> None:
    service.append("ada", "s", "Rex digs up tulips")
    sizes = core.Sizes(**{**vars(core.QUICK), "corpus_turns": 60, "open_s": 1.0, "batches": 3})
    options = core.Options(engines=("service",), url=service.listen(), key=service.key, sizes=sizes)
    cells = cells_of(core.measure(options), "service")
    assert cells[key_of(report.SEARCH_16)]["measured"] > 0
    assert cells[key_of(report.START)]["measured"] is None
    shards = service.ok("GET", "/v1/admin/stats")["shards"]
    assert sum(shard["turns_in_memory"] for shard in shards) == 1
    assert service.found("ada", "tulips") == ["Rex digs up tulips"]
