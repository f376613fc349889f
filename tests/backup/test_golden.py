"""Golden queries are backed up with the store, and a restored store holds none of them beyond their turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.api.running import Running
from tests.backup.services import back_up, backed, manifest, restore
from tests.write.shards import wait_until


def golden(running: Running, turn: str, user: str = "u", **more: Any) -> str:
    gold = [{"session_id": "s", "turn_id": turn}]
    body = {"user_id": user, "query": f"what of {turn}?", "gold": gold, **more}
    return str(running.ok("POST", "/v1/golden", json=body)["id"])


def said(running: Running, *ids: str, user: str = "u") -> None:
    running.append(user, "s", *[{"id": one, "role": "user", "content": f"said {one}"} for one in ids])


def held(running: Running) -> list[str]:
    return [one["id"] for one in running.ok("GET", "/v1/golden")["golden"]]


def test_a_restored_store_has_its_golden_queries(start: Callable[..., Running], tmp_path: Path) -> None:
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    said(first, "1", "2")
    ids = [golden(first, "1"), golden(first, "2", note="by hand")]
    taken = back_up(first)
    assert sum(file.path.startswith("golden/") for file in manifest(first, taken["id"]).small) == 1
    restore(taken["id"], backed(tmp_path / "b", ""), first.settings)
    second = start(backed(tmp_path / "b", ""))
    assert held(second) == ids
    second.ok("DELETE", "/v1/golden", params={"id": ids[0]})
    assert held(second) == ids[1:]


def test_who_was_erased_while_a_backup_was_made_is_in_no_file_of_what_it_restores(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    """The files of golden queries are copied after the log: a backup may have them and the log without the erasure, and
    the other way round. Either way the start makes it good.
    """
    first = start(backed(tmp_path / "a", tmp_path / "backups"))
    said(first, "1")
    said(first, "1", user="leaves")
    stays, goes = golden(first, "1"), golden(first, "1", user="leaves")
    (file,) = (Path(first.settings.data) / "golden").glob("*.json")
    before = file.read_bytes()
    first.ok("DELETE", "/v1/users/leaves")
    wait_until(lambda: goes not in file.read_text())
    taken = back_up(first)
    restore(taken["id"], backed(tmp_path / "b", ""), first.settings)
    restored = tmp_path / "b" / "golden" / file.name
    restored.write_bytes(before)
    second = start(backed(tmp_path / "b", ""))
    assert held(second) == [stays]
    wait_until(lambda: goes not in restored.read_text())
