"""The whole job against a whole service: killed and run again, with turns that change, and texts that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lancedb
import pytest

from jobs import reembed
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.stores.packing import text_digest, turn_text
from tests.api.running import Running, hash_settings
from tests.jobs.apart import ROOT, JobsApart
from tests.jobs.odd_reembed import BAD
from tests.migrate.backfilled import MODEL, backfills, begin

pytestmark = pytest.mark.ray

WAIT_S = 120


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path / "data"))
    (tmp_path / "settings.toml").write_text('[store]\nshards = 2\n\n[encoder]\nmodel = "hash"\n')
    (tmp_path / "key").write_text(running.key)
    yield running
    running.stop()


def _words(running: Running, url: str, migration: str) -> list[str]:
    here = running.data.parent
    named = {"--url": url, "--data": running.data, "--config": here / "settings.toml", "--migration": migration}
    named["--key-file"] = here / "key"
    return [*(str(part) for pair in named.items() for part in pair), "--json"]


def _started(module: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", module, *words]
    return subprocess.Popen(line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _write(running: Running, users: int, turns: int) -> None:
    for user in range(users):
        said = [{"id": f"t{at}", "role": "user", "content": f"user {user} says {at} of trees"} for at in range(turns)]
        running.append(f"u{user}", "s", *said)


def _states(running: Running) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The rows beside, by owner and turn."""
    running.fold()
    database = lancedb.connect(running.settings.layout.tables["tables"])
    version = open_embedder(EncoderOptions(model=MODEL)).version.name
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for name in database.list_tables().tables:
        if name.endswith(f".{version}"):
            columns = ["owner", "seq", "rev", "digest", "row"]
            for row in database.open_table(name).search().select(columns).limit(10**6).to_list():
                found.setdefault((row["owner"], row["seq"]), []).append(row)
    return found


def _expected(running: Running) -> dict[tuple[str, int], tuple[int, bytes]]:
    """Of every turn there is: its state, and the digest of its text."""
    found: dict[tuple[str, int], tuple[int, bytes]] = {}
    for writer in running.service._writers:
        shard = writer.shard
        for owner in shard.owners("", "\U0010ffff"):
            for turn in shard.turns(owner, list(shard.block(owner).turns)):
                found[owner, turn.seq] = (turn.rev, text_digest(turn_text(turn)))
    return found


@pytest.mark.slow
def test_a_job_that_is_killed_goes_on_where_it_was(running: Running) -> None:
    """And what changed meanwhile stands: an edit, a deletion, an erased user."""
    _write(running, 20, 100)
    migration = begin(running)
    there = backfills(running)
    there._silent_s = 1.0
    words = ["slow", *_words(running, running.listen(), migration.id)]
    first = _started("tests.jobs.odd_reembed", *words)
    end = time.monotonic() + WAIT_S
    while not (done := there.progress(migration).done):
        assert time.monotonic() < end
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert done < 2_000
    running.ok("PATCH", "/v1/turns/t3", params={"user_id": "u1", "session_id": "s"}, json={"content": "edited"})
    running.ok("PATCH", "/v1/turns/t99", params={"user_id": "u19", "session_id": "s"}, json={"content": "edited"})
    running.ok("DELETE", "/v1/turns/t4", params={"user_id": "u19", "session_id": "s"})
    running.ok("DELETE", "/v1/users/u18")
    before = there.progress(migration)
    second = _started("tests.jobs.odd_reembed", *words)
    out, said = second.communicate(timeout=WAIT_S)
    assert second.returncode == 0, said
    result = json.loads(out.splitlines()[-1])
    assert result["written"] < 2_000
    assert before.done + result["written"] + result["stale"] + result["gone"] <= 2_000
    assert there.complete(migration)
    states = _states(running)
    expected = _expected(running)
    edited = {key for key, (rev, _) in expected.items() if rev > migration.dual_from[0] or rev != key[1]}
    assert len(edited) == 2  # these get theirs as they are written
    for key, (rev, digest) in expected.items():
        if key not in edited:
            assert [(row["rev"], row["digest"]) for row in states[key]] == [(rev, digest)], key
    assert not states.keys() - expected.keys()
    assert not any(row["rev"] == expected[key][0] for key in edited for row in states.get(key, []))


def test_texts_that_fail_are_told_and_the_job_goes_on(running: Running, jobs: JobsApart) -> None:
    _write(running, 2, 50)
    running.append("u0", "s", f"this is {BAD}")
    migration = begin(running)
    ran = jobs.run("tests.jobs.odd_reembed", "failing", *_words(running, running.listen(), migration.id))
    assert ran.status == 0, ran.said
    assert (ran.json["written"], ran.json["dead"]) == (100, 1)
    assert ran.json["estimate"]["turns"] == 101
    assert ran.json["estimate"]["llm_calls"] == 0
    assert [one.reason for one in backfills(running).dead(migration)] == ["ValueError"]
    assert BAD not in ran.out + ran.said
    assert jobs.run("jobs.reembed", *_words(running, running.listen(), migration.id)).json["written"] == 0


def test_checkpoints_of_ray_data_are_refused(running: Running, jobs: JobsApart) -> None:
    migration = begin(running)
    ran = jobs.run("tests.jobs.odd_reembed", "checkpointed", *_words(running, running.listen(), migration.id))
    assert ran.status == reembed.FAILED
    assert "checkpoint_config" in ran.said


def test_a_migration_that_is_not_there_or_a_wrong_key_end_it(running: Running, jobs: JobsApart) -> None:
    words = _words(running, running.listen(), "m9")
    assert jobs.run("jobs.reembed", *words).status == reembed.NOT_OURS
    (running.data.parent / "key").write_text(running.make_key(role="app"))
    assert jobs.run("jobs.reembed", *words).status == reembed.FAILED
