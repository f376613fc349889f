"""`memstrata migrations …` and a running service: what is begun, shown, guided and reported, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app import cli
from serve_app.client.migrations import told
from tests.api.running import Running
from tests.migrate.migrated import NEW, NEW_NAME, OLD_NAME, TERMS, fill_in, filled, found, started, until

Asked = Callable[..., str]
HOLDS = [f"--term={name}={value}" for name, value in {**TERMS, "soak_s": 3_600}.items()]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = started(tmp_path_factory.mktemp("service") / "data")
    filled(running)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def url(running: Running) -> str:
    return running.listen()


@pytest.fixture
def asked(running: Running, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What a command prints; it must end as `status` says."""
    monkeypatch.delenv("MEMSTRATA_KEY", raising=False)

    def ask(*words: str, status: int = 0) -> str:
        assert cli.main(["migrations", *words, "--url", url, "--data", str(running.data)]) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    return ask


def test_a_migration_is_begun_followed_paused_and_turned_back(running: Running, asked: Asked, tmp_path: Path) -> None:
    assert asked("list") == "no migrations\n"
    begun = json.loads(asked("start", "--model", NEW, "--runner", "none", *HOLDS, "--json").splitlines()[-1])
    assert (begun["kind"], begun["options"], begun["runner"]) == ("embedding", {"model": NEW}, "none")
    assert begun["terms"] | TERMS | {"soak_s": 3_600} == begun["terms"]
    until(running, begun["id"], "backfill")
    assert asked("show", begun["id"]).splitlines()[-1] == "  0 turns, not counted yet, no job yet"
    assert f"  backfill  {NEW_NAME}  (paused)\n" in asked("pause", begun["id"])
    assert "(paused)" not in asked("resume", begun["id"])
    assert "409 migration_running" in asked("start", "--model", "hash-32", status=1)
    fill_in(running, begun["id"])
    until(running, begun["id"], "soak")
    page = tmp_path / "report.html"
    lines = asked("report", begun["id"], "--html", str(page)).splitlines()
    assert lines[0] == f"{begun['id']}  embedding  soak"
    assert [line.partition("  (")[0] for line in lines[1:]] == ["  gate of verify: passed", "  gate of canary: passed"]
    assert "Gate of canary" in page.read_text()
    assert "asked for: rollback" in asked("rollback", begun["id"])
    until(running, begun["id"], "rolled_back")
    assert "  rolled_back  (asked for)\n" in asked("show", begun["id"])
    assert "409 conflict" in asked("rollback", begun["id"], status=1)
    assert list(running.ok("GET", "/v1/admin/stats")["versions"]) == [OLD_NAME]


def test_the_report_tells_times_as_all_routes_do(running: Running) -> None:
    migration = running.ok("GET", "/v1/admin/migrations")["migrations"][0]
    report = running.ok("GET", f"/v1/admin/migrations/{migration['id']}/report")
    assert report["gates"] == migration["gates"]
    assert report["gates"][0]["at"].endswith("Z")


def test_a_section_of_a_file_and_words_beside_it(running: Running, asked: Asked, tmp_path: Path) -> None:
    """The words count where both say something; a compressor has its section of two parts."""
    settings = tmp_path / "next.toml"
    settings.write_text('[encoder]\nmodel = "hash-48"\nturns = "plain"\n[compress.coarse]\nbackend = "extractive"\n')
    words = ["start", "--settings", str(settings), "--model", "hash-80", "--replaces", OLD_NAME, "--runner", "none"]
    begun = json.loads(asked(*words, "--json").splitlines()[-1])
    assert begun["options"] == {"model": "hash-80", "turns": "plain"}
    assert begun["replaces"] == OLD_NAME
    asked("rollback", begun["id"])
    until(running, begun["id"], "rolled_back")
    kept = found(running, begun["id"])
    assert kept.version is not None
    assert kept.version.turns == "plain"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "m99"), "404 not_found"),
        (("start",), "what is it to change to?"),
        (("start", "--settings", "there-is-none.toml"), "there-is-none.toml"),
        (("start", "--model", "hash-32", "--term", "canary_share=2"), "422 invalid_request"),
        (("start", "--of", "reranker", "--set", "ranker=there-is-none.json"), "ranker"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(asked: Asked, words: tuple[str, ...], said: str) -> None:
    error = asked(*words, status=1)
    assert said in error
    assert error.startswith("memstrata: ")
    assert error.count("\n") == 1


BACKFILL: dict[str, Any] = {
    "done": 1_200,
    "total": 3_000,
    "stale": 0,
    "gone": 2,
    "cold": 0,
    "dead": 0,
    "rate": 12.34,
    "eta_s": 145.9,
    "worker": "w",
    "heard_s": 0.2,
}


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (BACKFILL, "1,200 of 3,000 turns, 2 gone, 12.3 a second, 146 s to go, job heard 0 s ago"),
        ({"asked": 40, "of": 73, "reads": 1_000}, "40 of 73 queries asked, 1,000 searches answered by both"),
    ],
)
def test_how_far_it_is_is_told_in_words(progress: dict[str, Any], line: str) -> None:
    migration = {"id": "m1", "kind": "embedding", "state": "backfill", "steps": [], "gates": [], "progress": progress}
    assert told(migration) == f"m1  embedding  backfill\n  {line}"
