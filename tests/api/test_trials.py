"""Migrations of rerankers and compressors over HTTP, by the service's own Control, each to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.compress.compressor import Compressor
from serve_app.memory.compressors import Opened
from serve_app.migrate.record import FOLLOWS
from serve_app.models.summarise import CompressOptions
from tests.api.running import Running
from tests.compress.saying import Scripted, heads, small_talk
from tests.migrate.migrated import QUICK, say, until
from tests.migrate.test_compressed import Wavering
from tests.migrate.trying import fill, small

TERMS = {"k": 5, "loss": 0.05, "canary_s": 0, "canary_reads": 0, "soak_s": 0, "canary_share": 0.5}
ALIKE, WORSE = {"deadline_ms": 300}, {"late": False}
PHASES = list(FOLLOWS["reranker"])


def opened(options: CompressOptions) -> Opened:
    model = options.coarse.model
    steady = Compressor(Scripted(heads, name=model) if model else None)
    compressor = Wavering() if model == "wavering" else steady
    return Opened(options, compressor, compressor)


def by(model: str) -> dict[str, Any]:
    return {"coarse": {"backend": "openai", "url": "http://127.0.0.1:9/v1", "model": model}}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    one = small(tmp_path, opened={"compressor": opened, "control": QUICK})
    one.append("bob", "s", *[turn.content for turn in small_talk(20)])
    yield one
    one.stop()


def begun(running: Running, kind: str, options: dict[str, Any], **terms: Any) -> str:
    body = {"kind": kind, kind: options, "terms": TERMS | terms}
    return str(running.ok("POST", "/v1/admin/migrations", json=body)["id"])


def states(migration: Any) -> list[str]:
    return [one["state"] for one in migration["steps"]]


def in_force(running: Running) -> tuple[Any, Any]:
    service = running.service
    return service.rerankers.options_of(service.rerankers.base), service.compressors.version


def test_a_reranker_that_finds_as_much_is_put_in_force_and_one_that_finds_less_is_not(running: Running) -> None:
    fill(running, "ann", turns=30)
    migration = begun(running, "reranker", ALIKE)
    done = until(running, migration, "done", "rolled_back")
    assert states(done) == PHASES
    assert [(one["state"], one["verdict"]) for one in done["gates"]] == [("verify", "passed"), ("canary", "passed")]
    assert in_force(running)[0].deadline_ms == ALIKE["deadline_ms"]
    again = running.again(control=QUICK, compressor=opened)  # its settings still have the one of before
    try:
        assert in_force(again)[0].deadline_ms == ALIKE["deadline_ms"]
        worse = begun(again, "reranker", WORSE)
        back = until(again, worse, "done", "rolled_back")
        assert states(back) == ["prepare", "verify", "rolling_back", "rolled_back"]
        assert "recall@5" in back["steps"][-1]["why"]
        assert in_force(again)[0].deadline_ms == ALIKE["deadline_ms"]
        assert in_force(again)[0].late
        report = again.ok("GET", f"/v1/admin/migrations/{worse}/report")
        assert report["gates"][0]["verdict"] == "failed"
    finally:
        again.stop()
    running.__init__(again.settings)  # type: ignore[misc] - for the fixture to stop


@pytest.mark.slow
def test_a_compressor_that_keeps_as_much_is_put_in_force_and_one_that_wavers_is_not(running: Running) -> None:
    before = in_force(running)[1]
    migration = begun(running, "compressor", by("steady"))
    done = until(running, migration, "done", "rolled_back")
    assert states(done) == PHASES
    steady = in_force(running)[1]
    assert steady != before
    wavering = begun(running, "compressor", by("wavering"))
    back = until(running, wavering, "done", "rolled_back")
    assert states(back) == ["prepare", "verify", "rolling_back", "rolled_back"]
    assert "two summaries" in back["steps"][-1]["why"]
    assert in_force(running)[1] == steady


@pytest.mark.slow
def test_a_restart_in_canary_takes_both_kinds_up(running: Running) -> None:
    compressor = begun(running, "compressor", by("steady"), canary_s=3_600)
    until(running, compressor, "canary")
    fill(running, "ann", turns=30)
    reranker = begun(running, "reranker", ALIKE, canary_s=3_600)
    until(running, reranker, "canary")
    again = running.again(control=QUICK, compressor=opened)
    try:
        plan = again.service.serving.plan.now
        assert (plan.reranker.share, plan.compressor.share) == (0.5, 0.5)
        say(again, reranker, "rollback")
        until(again, reranker, "rolled_back")
        assert again.service.serving.plan.now.compressor.share == 0.5
        assert in_force(again)[0].deadline_ms != ALIKE["deadline_ms"]
    finally:
        again.stop()
    running.__init__(again.settings)  # type: ignore[misc] - for the fixture to stop
