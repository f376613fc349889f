"""A store in trouble, under a whole service: reads go on from what is there and say so, writes resume by themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.config import Settings, StoreOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, hash_settings, refused

ONE_SHARD = StoreOptions(shards=1)
TURN = {"role": "user", "content": "x"}
WAIT_S = 30.0


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(settings: Settings, **injected: Any) -> Running:
        started.append(Running(settings, **injected))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


def told(running: Running) -> dict[str, str]:
    return {one["what"]: one["detail"] for one in running.ok("GET", "/readyz", key=None)["degraded"]}


def write(running: Running, content: str, user: str = "u") -> Any:
    body = {"user_id": user, "turns": [{"role": "user", "content": content}]}
    return running.call("POST", "/v1/sessions/s/turns", json=body)


def until_stored(running: Running, content: str, user: str = "u") -> None:
    ends = time.monotonic() + WAIT_S
    while write(running, content, user).status_code != 201:
        assert time.monotonic() < ends
        time.sleep(0.1)


# ---- a disk that is really full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], capture_output=True)


def fill(folder: Path) -> Path:
    """Take every block that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return ballast


def test_a_full_disk_refuses_writes_is_read_even_from_a_start_and_recovers(
    start: Callable[..., Running], small_disk: Path
) -> None:
    settings = hash_settings(small_disk / "data", store=ONE_SHARD, fold=FoldOptions(round_s=0.1))
    running = start(settings)
    running.append("u", "s", "before", wait="indexed")
    key = running.key
    ballast = fill(small_disk)
    for _ in range(2):
        answer = write(running, "during " + 50_000 * "x")
        refused(answer, 507, "storage_full")
        assert int(answer.headers["retry-after"]) >= 1
    refused(running.call("POST", "/v1/admin/keys", json={"role": "app"}), 507, "storage_full")
    assert running.found("u", "before") == ["before"]
    running.run(running.service.stop())
    again = start(settings)
    assert [turn["content"] for turn in again.turns("u", "s")] == ["before"]
    if "not_writable" in told(again):  # a few free bytes of the file system's own may have been enough
        assert again.search("u", "before")["degradation"]["reasons"] == [
            "log: storage_full: this shard takes no writes yet"
        ]
    refused(write(again, "during " + 50_000 * "x"), 507, "storage_full")
    ballast.unlink()
    until_stored(again, "after")
    assert [turn["content"] for turn in again.turns("u", "s")] == ["before", "after"]
    assert "not_writable" not in told(again)
    assert again.call("GET", "/v1/admin/keys", key=key).status_code == 200


# ---- tables that are damaged under a running service


@pytest.fixture
def folded(start: Callable[..., Running], tmp_path: Path) -> Running:
    """Of `u` some turns are in memory and all in the table; `v` is in the table alone."""
    memory = MemoryOptions(turns_resident=4, owner_turns_resident=4)
    fold = FoldOptions(age_s=1e9, purge_every_s=1e9, round_s=0.1)
    running = start(hash_settings(tmp_path, store=ONE_SHARD, memory=memory, fold=fold))
    running.append("v", "s", "v in the table", wait="indexed")
    running.append("u", "s", *[f"turn {n}" for n in range(12)], wait="indexed")
    while "memstrata_summaries_waiting 0.0" not in running.call("GET", "/metrics").text:
        time.sleep(0.02)  # who looks whether a summary is due loads what is not in memory
    running.fold()
    running.ok("GET", "/v1/users/u/facts")
    while running.ok("GET", "/v1/admin/stats")["shards"][0]["owners_in_memory"] > 1:
        time.sleep(0.02)
    return running


def break_tables(running: Running, how: str) -> Callable[[], None]:
    """Gives the way to mend them."""
    table, kept = running.data / "tables" / "shard-0000.lance", running.data / "kept"
    shutil.copytree(table, kept)
    if how == "gone":
        shutil.rmtree(table)
    for path in (table / how).glob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def mend() -> None:
        shutil.rmtree(table, ignore_errors=True)
        os.rename(kept, table)

    return mend


@pytest.mark.parametrize("how", ["gone", "data"])
def test_reads_go_on_from_memory_and_the_log_while_the_tables_cannot_be_read(folded: Running, how: str) -> None:
    mend = break_tables(folded, how)
    found = folded.search("u", "turn", k=50, mode="lexical")
    assert 4 <= len(found["results"]) < 12
    assert "warm: store_unavailable" in found["degradation"]["reasons"]
    assert "tables" in told(folded)
    assert write(folded, "turn 12").status_code == 201, "of an owner in memory: the log takes it"
    unknown = folded.search("v", "anything")
    assert unknown["results"] == []
    assert unknown["degradation"]["reasons"] == ["store: store_unavailable"]
    refused(write(folded, "x", user="v"), 503, "store_unavailable")
    context = folded.context("u", "turn", session_id="s")
    assert "turn 12" in str(context["messages"])
    lost = folded.context("v", "And how much was it?", session_id="s")
    assert lost["degradation"] == {"level": "system_only", "reasons": ["store: left_alone"]}, "named once"
    refused(folded.call("GET", "/v1/sessions/s/turns?user_id=v"), 503, "store_unavailable")
    mend()
    until_stored(folded, "x", user="v")
    assert len(folded.search("u", "turn", k=50, mode="lexical")["results"]) == 13
    folded.fold()
    assert "tables" not in told(folded)
    assert [turn["content"] for turn in folded.turns("u", "s")] == [f"turn {n}" for n in range(13)]


# ---- small files


def test_keys_and_policies_that_cannot_be_read_any_more_count_as_they_were(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start(hash_settings(tmp_path, store=ONE_SHARD))
    running.ok("PUT", "/v1/admin/policies/privacy", json={"level": "strict"})
    running.ok("GET", "/v1/admin/policies/privacy")
    for name in ("keys.json", "policies.json"):
        path = tmp_path / name
        sound = path.read_bytes()
        path.write_bytes(sound[: len(sound) // 2])
        assert running.ok("GET", "/v1/admin/policies/privacy")["policy"] == {"level": "strict"}
        assert name in told(running)["files"]
        change = (
            ("POST", "/v1/admin/keys", {"role": "app"})
            if name == "keys.json"
            else ("PUT", "/v1/admin/policies/privacy", {"level": "off"})
        )
        refused(running.call(change[0], change[1], json=change[2]), 503, "store_unavailable")
        path.write_bytes(sound)
        assert running.ok("GET", "/v1/admin/policies/privacy")["policy"] == {"level": "strict"}
        assert "files" not in told(running)
