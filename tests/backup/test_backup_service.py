"""Backups of a running service, and the services that are restored from them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from serve_app.context.layout import ZONES
from tests.api.running import Running, hash_settings, refused
from tests.backup.services import back_up, backed, backups, manifest, restore, state

USERS = [f"user-{n}" for n in range(6)]


def fill(running: Running, first: int = 0, turns: int = 8) -> None:
    for user in USERS:
        running.append(user, "s", *[f"{user} says number {n}" for n in range(first, first + turns)], wait="indexed")
        running.ok("PUT", f"/v1/users/{user}/facts/colour-{first}", json={"value": "blue"})


def test_a_restored_service_answers_as_the_first_did(start: Callable[..., Running], tmp_path: Path) -> None:
    """Part of it folded, part of it in the log; keys, policies and layouts come along, and it takes writes."""
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    key = first.make_key()
    first.ok("PUT", "/v1/admin/policies/ttl", json={"entity_classes": {"orders": 60}})
    first.ok("PUT", "/v1/admin/layouts/even", json={"shares": dict.fromkeys(ZONES, 16)})
    fill(first)
    first.fold()
    fill(first, 8)
    taken = back_up(first)
    before = state(first, USERS, key)
    restore(taken["id"], backed(tmp_path / "b", tmp_path / "elsewhere"), first.settings)
    second = start(backed(tmp_path / "b", tmp_path / "elsewhere"))
    assert state(second, USERS, key) == before
    assert second.ok("GET", "/v1/admin/policies/ttl")["policy"] == {"entity_classes": {"orders": 60}}
    assert second.ok("GET", "/v1/admin/layouts") == first.ok("GET", "/v1/admin/layouts")
    second.append(USERS[0], "s", "one more", key=key)
    assert state(second, USERS[1:], key) == before[1:]
    assert second.ok("GET", "/readyz", key=None)["degraded"] == []


def test_an_incremental_backup_copies_what_is_new_and_restores_by_itself(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    key = first.make_key()
    fill(first)
    first.fold()
    full = back_up(first)
    assert full["own_bytes"] == full["bytes"] > 0
    again = back_up(first, "incremental")
    assert (again["kind"], again["base"]) == ("incremental", full["id"])
    of_tables = [
        file for shard in manifest(first, again["id"]).shards for table in shard.tables for file in table.files
    ]
    assert {file.held_by for file in of_tables} == {full["id"]}, "the tables stand as they stood"
    fill(first, 8)
    first.fold()
    fill(first, 16)
    last = back_up(first, "incremental")
    assert again["own_bytes"] < last["own_bytes"] < last["bytes"]
    assert {file.held_by for file in manifest(first, last["id"]).files} >= {full["id"], last["id"]}
    restore(None, backed(tmp_path / "b", ""), first.settings)
    second = start(backed(tmp_path / "b", ""))
    assert state(second, USERS, key) == state(first, USERS, key)


def test_a_backup_beside_a_stream_of_appends_holds_all_that_was_acknowledged_before_it(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    """And folds, edits and purges go on meanwhile."""
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    key = first.make_key()
    acknowledged: list[str] = []
    stop = threading.Event()

    def stream() -> None:
        while not stop.is_set():
            content = f"turn {len(acknowledged)}"
            first.append(USERS[len(acknowledged) % len(USERS)], "s", content, key=key)
            acknowledged.append(content)
            if len(acknowledged) % 40 == 0:
                first.fold()

    writer = threading.Thread(target=stream)
    writer.start()
    marks: list[tuple[str, int, int]] = []
    try:
        for kind in ("full", "incremental", "incremental"):
            time.sleep(0.3)
            before = len(acknowledged)
            taken = back_up(first, kind)
            marks.append((taken["id"], before, len(acknowledged)))
    finally:
        stop.set()
        writer.join()
    for number, (backup, before, after) in enumerate(marks):
        into = backed(tmp_path / f"restored-{number}", "")
        restore(backup, into, first.settings)
        second = start(into)
        there = {turn["content"] for user in USERS for turn in second.turns(user, "s")}
        assert there >= set(acknowledged[:before])
        assert there <= set(acknowledged[: after + 1])


def test_erasure_receipts_name_the_backups_that_still_hold_the_data(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    fill(first)
    taken = back_up(first)
    erasure = first.ok("DELETE", f"/v1/users/{USERS[0]}")["erasure_id"]
    while (receipt := first.ok("GET", f"/v1/erasures/{erasure}"))["state"] != "done":
        time.sleep(0.02)
    assert receipt["backups"] == [{"id": taken["id"], "expires_at": taken["expires_at"]}]
    later = back_up(first)
    assert [one["id"] for one in first.ok("GET", f"/v1/erasures/{erasure}")["backups"]] == [taken["id"]]
    said = f"{USERS[0]} says".encode()
    assert holding(tmp_path / "backups" / taken["id"], said)
    assert not holding(tmp_path / "backups" / later["id"], said)


def holding(folder: Path, said: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and said in path.read_bytes()]


def test_only_operators_make_backups_and_only_where_the_configuration_says(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    admin = first.make_key(role="admin")
    refused(first.call("POST", "/v1/admin/backups", json={}, key=admin), 403, "forbidden")
    refused(first.call("POST", "/v1/admin/backups", json={}, key=first.make_key()), 403, "forbidden")
    elsewhere = {"uri": str(tmp_path / "elsewhere")}
    refused(first.call("POST", "/v1/admin/backups", json=elsewhere), 422, "invalid_request")
    assert not (tmp_path / "elsewhere").exists()
    taken = back_up(first)
    seen = backups(first, admin)
    assert [one["id"] for one in seen] == [taken["id"]]
    assert set(seen[0]) == {"id", "kind", "state", "begun_at", "finished_at", "expires_at"}
    bare = start(hash_settings(tmp_path / "bare"))
    refused(bare.call("POST", "/v1/admin/backups", json={}), 422, "invalid_request")
    assert backups(bare) == []


def test_backups_at_an_address_of_the_past_are_listed_named_in_receipts_and_expire(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    former, running = tmp_path / "former", start(hash_settings(tmp_path / "a"))
    running.append("ann", "s", "said")
    short = {"uri": str(former), "full_every_s": 3_600, "incremental_every_s": 3_600}
    running.ok("PUT", "/v1/admin/policies/backup", json=short)
    ends = time.monotonic() + 30
    while not (made := [one for one in backups(running) if one["state"] == "finished"]):
        assert time.monotonic() < ends
        time.sleep(0.05)
    running.ok("PUT", "/v1/admin/policies/backup", json={})
    running.run(running.service.stop())
    again = start(hash_settings(tmp_path / "a"))
    assert [one["id"] for one in backups(again)] == [made[0]["id"]]
    erasure = again.ok("DELETE", "/v1/users/ann")["erasure_id"]
    assert [one["id"] for one in again.ok("GET", f"/v1/erasures/{erasure}")["backups"]] == [made[0]["id"]]
    shutil.rmtree(former)
    again.run(again.service.stop())
    third = start(hash_settings(tmp_path / "a"))
    assert backups(third) == []
    assert third.ok("GET", f"/v1/erasures/{erasure}")["backups"] == []
