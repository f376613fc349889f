"""Backups whose manifest is damaged, or whose full one is gone: kept, told, and not built on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_app.backup import catalogue
from serve_app.backup.catalogue import Unreadable
from serve_app.backup.manifest import MANIFEST
from serve_app.backup.restore import choose
from serve_app.errors import NotFound
from serve_app.stores.places import DiskPlace
from tests.api.running import Running
from tests.backup.services import back_up, backed, backups, restore

DAMAGES: list[tuple[bytes, bytes]] = [(b'"format"', b'"formaX"'), (b"{", b"\x80"), (b'"shards": [', b'"shards": [[')]


def damage(folder: Path, backup: str, old: bytes = b'"format"', new: bytes = b'"formaX"') -> None:
    path = folder / backup / MANIFEST
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new, 1))


@pytest.fixture
def chain(start: Callable[..., Running], tmp_path: Path) -> tuple[Running, str, str]:
    """A service with a full backup, and an incremental one that needs it."""
    running = start(backed(tmp_path / "a", tmp_path / "backups"))
    running.append("ann", "s", *[f"turn {n}" for n in range(20)])
    running.fold()
    full = back_up(running)["id"]
    running.append("ann", "s", "one more")
    return running, full, back_up(running, "incremental")["id"]


@pytest.mark.parametrize(("old", "new"), DAMAGES)
def test_nothing_of_a_chain_with_a_damaged_manifest_goes_and_the_next_backup_is_full(
    chain: tuple[Running, str, str], tmp_path: Path, old: bytes, new: bytes
) -> None:
    running, full, incremental = chain
    folder = tmp_path / "backups"
    damage(folder, full, old, new)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    made = back_up(running, "incremental")
    assert (made["kind"], made["base"]) == ("full", None)
    assert set(files) <= set(folder.rglob("*"))
    listed = {one["id"]: one for one in backups(running)}
    assert [listed[one]["state"] for one in (full, incremental, made["id"])] == ["damaged", "finished", "finished"]
    assert listed[full]["expires_at"] == listed[incremental]["expires_at"], "a chain expires as a whole"
    restore(incremental, backed(tmp_path / "b", ""), running.settings)
    again = back_up(running, "incremental")
    assert (again["kind"], again["base"]) == ("incremental", made["id"])


def test_a_receipt_names_a_damaged_backup_too(chain: tuple[Running, str, str], tmp_path: Path) -> None:
    running, full, incremental = chain
    damage(tmp_path / "backups", full)
    later = back_up(running)["id"]
    erasure = running.ok("DELETE", "/v1/users/ann")["erasure_id"]
    holding = [one["id"] for one in running.ok("GET", f"/v1/erasures/{erasure}")["backups"]]
    assert sorted(holding) == sorted([full, incremental, later])


def test_no_incremental_backup_stands_on_a_chain_whose_full_one_is_gone(
    chain: tuple[Running, str, str], tmp_path: Path
) -> None:
    running, full, incremental = chain
    shutil.rmtree(tmp_path / "backups" / full)
    with pytest.raises(NotFound, match=incremental):
        choose(DiskPlace(tmp_path / "backups"), None, None)
    made = back_up(running, "incremental")
    assert (made["kind"], made["base"]) == ("full", None)
    passed_over: list[str] = []
    assert choose(DiskPlace(tmp_path / "backups"), None, None, passed_over.append).begun.id == made["id"]
    assert passed_over == []


def test_what_others_need_is_no_leftover_even_without_its_manifest(
    chain: tuple[Running, str, str], tmp_path: Path
) -> None:
    running, full, incremental = chain
    (tmp_path / "backups" / full / MANIFEST).unlink()
    made = back_up(running)
    assert made["id"] != full
    assert (tmp_path / "backups" / full / "files").exists()
    assert {one["id"] for one in backups(running)} == {full, incremental, made["id"]}


def test_a_damaged_manifest_is_said_where_it_was_asked_for_and_told_where_it_was_not(
    chain: tuple[Running, str, str], tmp_path: Path
) -> None:
    _, full, incremental = chain
    place = DiskPlace(tmp_path / "backups")
    damage(tmp_path / "backups", incremental)
    with pytest.raises(Unreadable, match=f"the manifest of backup {incremental} is damaged"):
        choose(place, incremental, None)
    passed_over: list[str] = []
    assert choose(place, None, None, passed_over.append).begun.id == full
    assert passed_over == [incremental]
    (tmp_path / "backups" / incremental / "begun.json").unlink()
    found = catalogue.look(place, None, {})
    assert [one.id for one in found.damaged] == [incremental], "its id says enough"
