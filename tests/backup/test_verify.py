"""What `verify` finds, in stores that a service has left or still runs on, and what `compare` takes for the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import pytest

from serve_app.backup.compare import compare
from serve_app.backup.findings import Report
from serve_app.backup.layout import Layout
from serve_app.backup.verify import verify
from serve_app.config import StoreOptions
from tests.api.running import Running, hash_settings

ONE_SHARD = StoreOptions(shards=1)


@pytest.fixture
def store(start: Callable[..., Running], tmp_path: Path) -> Layout:
    """A store that was stopped: half of it folded, one user erased, one turn edited."""
    running = start(hash_settings(tmp_path / "data", store=ONE_SHARD))
    for user in ("ann", "ben", "cat"):
        running.append(user, "s", *[{"role": "user", "content": f"{user} {n}", "id": str(n)} for n in range(6)])
        running.ok("PUT", f"/v1/users/{user}/facts/colour", json={"value": "blue"})
    erasure = running.ok("DELETE", "/v1/users/cat")["erasure_id"]
    ends = time.monotonic() + 60
    while running.ok("GET", f"/v1/erasures/{erasure}")["state"] != "done":  # its end folds all that there is
        assert time.monotonic() < ends
        time.sleep(0.02)
    running.append("ann", "s", "after the fold", wait="indexed")
    running.ok("PATCH", "/v1/turns/2", params={"user_id": "ann", "session_id": "s"}, json={"content": "edited"})
    running.run(running.service.stop())
    return running.settings.layout


def checked(layout: Layout) -> Report:
    report = Report()
    verify(layout, report)
    return report


def kinds(report: Report) -> set[str]:
    return {one.kind for one in report.findings if one.severity == "fault"}


def test_a_store_as_it_was_left_is_whole(store: Layout) -> None:
    before = files(store)
    report = checked(store)
    assert report.sound, report.findings
    assert report.counts["turns"] == 13
    assert report.counts["owners"] >= 2
    assert files(store) == before, "a check changes nothing"


def files(layout: Layout) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(layout.files_uri).rglob("*") if path.is_file()}


def test_a_store_is_checked_beside_its_service(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start(hash_settings(tmp_path / "data"))
    for number in range(5):
        running.append("ann", "s", *[f"{number} {n}" for n in range(10)])
        assert checked(running.settings.layout).sound
        running.ok("POST", "/v1/admin/maintenance", json={"action": "compact" if number % 2 else "fold"})
    report = checked(running.settings.layout)
    assert report.sound
    assert report.counts["turns"] == 50
    running.append("ann", "s", "and it goes on")


def unfolded_segment(layout: Layout) -> Path:
    """The one that holds the turn that was written after the fold; a later one may hold a summary that quotes it."""
    segments = sorted((Path(layout.files_uri) / "log" / "0000").iterdir())
    return next(path for path in segments if b"after the fold" in path.read_bytes())


def test_damage_of_a_segment_is_found(store: Layout) -> None:
    path = unfolded_segment(store)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert "checksum" in kinds(checked(store))


def test_a_missing_segment_is_found(store: Layout) -> None:
    unfolded_segment(store).unlink()
    assert "hole" in kinds(checked(store))


def test_a_damaged_or_missing_file_of_a_table_is_found(store: Layout) -> None:
    data = max((store.folder / "tables").rglob("data/*.lance"), key=lambda path: path.stat().st_size)
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    assert "unreadable" in kinds(checked(store))
    data.unlink()
    assert "unreadable" in kinds(checked(store))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"row": 999 * 4096}, "key"),
        ({"row": 999 * 4096, "seq": 999, "rev": 999}, "watermark"),
        ({"kind": "chunk", "row": 3 * 4096 + 1, "seq": 3}, "orphan"),
        ({"vector_rev": 10**6}, "orphan"),
        ({"session": "another"}, "row"),
    ],
)
def test_rows_that_contradict_the_store_are_found(store: Layout, changes: dict[str, Any], kind: str) -> None:
    """A row of the table is taken out and put back changed; an orphan's own turn does not come back."""
    table = lancedb.connect(store.tables["tables"]).open_table("shard-0000")
    row = table.search().where("seq = 3 AND kind = 'turn'").to_arrow()
    table.delete("seq = 3")
    values = row.to_pylist()[0] | changes
    table.add([values], on_bad_vectors="null")
    assert kind in kinds(checked(store))


def test_a_row_that_is_there_twice_is_found(store: Layout) -> None:
    table = lancedb.connect(store.tables["tables"]).open_table("shard-0000")
    table.add(table.search().where("seq = 3 AND kind = 'turn'").to_arrow(), on_bad_vectors="null")
    assert "doubled" in kinds(checked(store))


def test_what_a_crash_may_leave_is_no_fault(store: Layout) -> None:
    folder = store.folder / "tables" / "shard-0000.lance"
    (folder / "data" / "0123456789.lance").write_bytes(b"half written")
    report = checked(store)
    assert report.sound
    assert [one.kind for one in report.findings if "0123456789" in one.what] == ["unnamed"]


def same(one: Layout, other: Layout) -> Report:
    report = Report()
    compare(one, other, report)
    return report


def test_stores_with_the_same_content_are_the_same_however_it_is_stored(
    start: Callable[..., Running], store: Layout, tmp_path: Path
) -> None:
    shutil.copytree(store.folder, tmp_path / "copy")
    copy = hash_settings(tmp_path / "copy", store=ONE_SHARD)
    assert same(store, copy.layout).sound
    running = start(copy)
    while any(one["pending_vectors"] for one in running.ok("GET", "/v1/admin/stats")["shards"]):
        continue
    running.fold()
    before = start(hash_settings(store.folder, store=ONE_SHARD))
    while any(one["pending_vectors"] for one in before.ok("GET", "/v1/admin/stats")["shards"]):
        continue
    running.run(running.service.stop())
    before.run(before.service.stop())
    differing = same(store, copy.layout)
    assert [one.what for one in differing.findings if "erasures" not in one.what] == []


@pytest.mark.parametrize("what", ["turn", "fact", "edit"])
def test_stores_that_differ_are_told_apart(
    start: Callable[..., Running], store: Layout, tmp_path: Path, what: str
) -> None:
    shutil.copytree(store.folder, tmp_path / "copy")
    running = start(hash_settings(tmp_path / "copy", store=ONE_SHARD))
    if what == "turn":
        running.append("ben", "s", "one more")
    elif what == "fact":
        running.ok("PUT", "/v1/users/ben/facts/colour", json={"value": "red"})
    else:
        running.ok("PATCH", "/v1/turns/2", params={"user_id": "ben", "session_id": "s"}, json={"content": "other"})
    running.run(running.service.stop())
    report = same(store, running.settings.layout)
    assert any("'ben'" in one.what for one in report.findings)
    assert not any("'ann'" in one.what and "turns" in one.what for one in report.findings)
