"""backup, restore, verify and repair on the command line: what they do, their exit codes, one JSON object last."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_app import cli
from tests.api.running import Running, hash_settings
from tests.backup.services import backed


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Runs a command with --json; gives its exit code and its object, or what it complained of."""

    def run(*words: object) -> tuple[int, Any]:
        capsys.readouterr()
        status = cli.main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        return status, json.loads(out.splitlines()[-1]) if out else err

    return run


@pytest.fixture
def folder(start: Callable[..., Running], tmp_path: Path) -> Path:
    """Of a store that was stopped, with 20 turns of two users."""
    running = start(hash_settings(tmp_path / "data"))
    for user in ("ann", "ben"):
        for number in range(10):
            running.append(user, "s", f"{user} says {number}")
    running.run(running.service.stop())
    return tmp_path / "data"


def test_a_stopped_store_is_backed_up_restored_and_found_equal(
    said: Callable[..., tuple[int, Any]], folder: Path, tmp_path: Path
) -> None:
    status, made = said("backup", "--data", folder, "--to", tmp_path / "backups")
    assert (status, made["kind"], made["state"]) == (0, "full", "finished")
    status, again = said("backup", "--data", folder, "--to", tmp_path / "backups", "--incremental")
    assert (status, again["kind"], again["base"]) == (0, "incremental", made["id"])
    status, done = said("restore", "--from", tmp_path / "backups", "--data", tmp_path / "new")
    assert (status, done["backup"], done["reachable"]) == (0, again["id"], again["reachable"])
    for against in (tmp_path / "new", tmp_path / "backups"):
        status, checked = said("verify", "--data", folder, "--against", against)
        assert (status, checked["sound"], checked["findings"]) == (0, True, [])
        assert checked["checked"]["turns"] == 20
    assert said("restore", "--from", tmp_path / "backups", "--data", tmp_path / "new")[0] == 1
    early = said("restore", "--from", tmp_path / "backups", "--data", tmp_path / "x", "--at", "2020-01-01T00:00:00Z")
    assert early[0] == 1
    assert "no backup reaches" in early[1]


def test_a_running_service_is_asked_for_its_backup(
    said: Callable[..., tuple[int, Any]], start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start(backed(tmp_path / "data", tmp_path / "backups"))
    running.append("ann", "s", "hello")
    url = running.listen()
    status, made = said("backup", "--data", tmp_path / "data", "--url", url)
    assert (status, made["state"]) == (0, "finished")
    refused = said("backup", "--data", tmp_path / "data", "--url", url, "--to", tmp_path / "elsewhere")
    assert refused[0] == 1
    assert "invalid_request" in refused[1]
    elsewhere = said("backup", "--data", tmp_path / "data", "--url", "http://127.0.0.1:1")
    assert elsewhere[0] == 1
    assert f"{tmp_path / 'data'} is in use: give the address of its service with --url" in elsewhere[1]
    status, checked = said("verify", "--data", tmp_path / "data", "--url", url, "--against", tmp_path / "backups")
    assert (status, checked["findings"]) == (0, [])
    assert said("repair", "--data", tmp_path / "data")[0] == 1, "a service runs on it"


def test_a_damaged_log_is_told_then_mended(said: Callable[..., tuple[int, Any]], folder: Path) -> None:
    log = next(
        path for path in (folder / "log").iterdir() if any(b"ann says 3" in one.read_bytes() for one in path.iterdir())
    )
    victim = next(path for path in sorted(log.iterdir()) if b"ann says 3" in path.read_bytes())
    victim.write_bytes(victim.read_bytes()[:-4] + b"\0\0\0\0")
    status, checked = said("verify", "--data", folder)
    assert (status, checked["sound"]) == (1, False)
    assert {"hole", "checksum"} <= {one["kind"] for one in checked["findings"]}
    status, planned = said("repair", "--data", folder)
    first, *behind = planned["changes"]
    assert (status, planned["repaired"], first["segment"], first["entries_lost"]) == (0, False, victim.name, 1)
    assert {one["reason"] for one in behind} <= {"speaks of turns that are lost"}, "its vectors, if there were any yet"
    assert said("verify", "--data", folder)[0] == 1, "nothing was changed yet"
    status, done = said("repair", "--data", folder, "--yes")
    assert (status, done["repaired"], done["changes"]) == (0, True, planned["changes"])
    kept = {path.name for path in (folder / "damaged").rglob("*.seg")}
    assert kept == {one["segment"] for one in planned["changes"]}
    status, checked = said("repair", "--data", folder)
    assert (status, checked["changes"]) == (0, [])


def test_a_folder_without_a_store_is_refused(said: Callable[..., tuple[int, Any]], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("verify", "repair"):
        assert said(command, "--data", tmp_path / "empty")[0] == 1
    assert said("backup", "--data", tmp_path / "empty", "--to", tmp_path / "b")[0] == 1
    assert said("restore", "--from", tmp_path / "empty", "--data", tmp_path / "new")[0] == 1
    assert not (tmp_path / "new").exists()


def test_a_newer_backup_that_is_damaged_is_told_of(
    said: Callable[..., tuple[int, Any]], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backups = tmp_path / "backups"
    _, full = said("backup", "--data", folder, "--to", backups)
    _, newer = said("backup", "--data", folder, "--to", backups, "--incremental")
    (backups / newer["id"] / "manifest.json").write_bytes(b"{\xff")
    status, error = said("restore", "--from", backups, "--backup", newer["id"], "--data", tmp_path / "new")
    assert (status, "the manifest of backup" in error) == (1, True)
    assert not (tmp_path / "new").exists()
    status = cli.main(["restore", "--from", str(backups), "--data", str(tmp_path / "new"), "--json"])
    out, err = capsys.readouterr()
    done = json.loads(out.splitlines()[-1])
    assert (status, done["backup"], done["passed_over"]) == (0, full["id"], [newer["id"]])
    assert f"backup {newer['id']} is newer, but damaged" in err


@pytest.mark.parametrize("address", ["", "foo://bar", "s3://", "http://x/y"])
def test_addresses_that_cannot_work_are_refused(
    said: Callable[..., tuple[int, Any]], folder: Path, tmp_path: Path, address: str
) -> None:
    for words in (["restore", "--from", address, "--data", tmp_path / "new"], ["backup", "--to", address]):
        status, error = said(*words, *([] if "--data" in words else ["--data", folder]))
        assert (status, "no place for files" in error) == (1, True), error
    assert not (tmp_path / "new").exists()


def test_a_store_is_not_backed_up_into_itself(said: Callable[..., tuple[int, Any]], folder: Path) -> None:
    status, error = said("backup", "--data", folder, "--to", folder / "bk")
    assert (status, "within the store's own folder" in error) == (1, True)


def test_a_relative_address_is_one_from_here(
    said: Callable[..., tuple[int, Any]], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said("backup", "--data", folder, "--to", "backups")[0] == 0
    assert said("restore", "--from", "backups", "--data", tmp_path / "new")[0] == 0


def test_verify_takes_a_backup_only_with_the_place_where_it_is(
    said: Callable[..., tuple[int, Any]], folder: Path
) -> None:
    status, error = said("verify", "--data", folder, "--backup", "x")
    assert (status, "--against" in error) == (1, True)


def test_a_mistyped_folder_is_not_made(said: Callable[..., tuple[int, Any]], tmp_path: Path) -> None:
    status, error = said("repair", "--data", tmp_path / "typo")
    assert (status, "holds no store" in error) == (1, True)
    assert not (tmp_path / "typo").exists()
