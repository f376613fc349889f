"""Backups and restores that are stopped in the middle, places that fail, and moments in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_app.backup import catalogue
from serve_app.backup.compare import compare
from serve_app.backup.copying import Pace, Stopped
from serve_app.backup.findings import Report
from serve_app.backup.manifest import BEGUN, Manifest
from serve_app.backup.options import BackupOptions
from serve_app.backup.plan import plan
from serve_app.backup.restore import Restorer, choose
from serve_app.backup.store_id import StoreRecord
from serve_app.backup.take import NobodyWrites, Taker
from serve_app.config import Settings
from serve_app.errors import InvalidRequest, NotFound, StoreUnavailable
from serve_app.stores.places import DiskPlace, Place
from serve_app.write.commit import microseconds
from tests.api.running import Running, hash_settings
from tests.backup.services import back_up, backed, backups, finished, restore

USERS = [f"user-{n}" for n in range(6)]


@pytest.fixture
def stopped(start: Callable[..., Running], tmp_path: Path) -> Settings:
    """A store on which no service runs."""
    running = start(backed(tmp_path / "a", tmp_path / "backups"))
    for user in USERS:
        running.append(user, "s", *[f"{user} says {n}" for n in range(10)], wait="indexed")
    running.fold()
    running.append(USERS[0], "s", "after the fold", wait="indexed")
    running.run(running.service.stop())
    return running.settings


class Budget:
    """Stops the copying after so many pieces."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.pace = Pace(None, self._moved)

    def _moved(self, count: int) -> None:
        self.pieces -= 1
        if self.pieces < 0:
            self.pace.stop()


def take(settings: Settings, place: Place, pace: Pace) -> Manifest:
    known = StoreRecord(settings.files).store_id
    planned = plan(catalogue.look(place, known, {}), "full", known, microseconds())
    for leftover in planned.leftovers:
        catalogue.delete(place, leftover)
    return Taker(settings.layout, place, NobodyWrites(), pace, microseconds).take(planned.begun, None)


def restored_equal(settings: Settings, into: Path) -> bool:
    report = Report()
    compare(settings.layout, hash_settings(into).layout, report)
    return report.sound


def test_a_backup_stopped_anywhere_is_taken_up_by_the_next(stopped: Settings, tmp_path: Path) -> None:
    """With one id, and without copying what is whole."""
    place = DiskPlace(tmp_path / "backups", fsync=lambda descriptor: None)
    ids, stops = set(), 0
    for pieces in range(1, 200, 7):
        try:
            manifest = take(stopped, place, Budget(pieces).pace)
            break
        except Stopped:
            stops += 1
            (unfinished,) = catalogue.look(place, None, {}).unfinished
            ids.add(unfinished.id)
            with pytest.raises(NotFound):
                choose(place, None, None)
    assert stops >= 3
    assert ids == {manifest.begun.id}
    Restorer(place, hash_settings(tmp_path / "b").layout, Pace(None)).restore(manifest, None)
    assert restored_equal(stopped, tmp_path / "b")


def test_a_restore_stopped_anywhere_goes_on_and_no_service_starts_before_it_is_done(
    stopped: Settings, tmp_path: Path
) -> None:
    place = DiskPlace(tmp_path / "backups", fsync=lambda descriptor: None)
    manifest = take(stopped, place, Pace(None))
    into = hash_settings(tmp_path / "b")
    stops = 0
    for pieces in range(3, 400, 6):
        try:
            Restorer(place, into.layout, Budget(pieces).pace).restore(manifest, None)
            break
        except Stopped:
            stops += 1
            with pytest.raises(InvalidRequest, match="restore is not finished"):
                Running(into)
            with pytest.raises(InvalidRequest, match="unfinished restore"):
                Restorer(place, into.layout, Pace(None)).restore(manifest, manifest.shards[0].listed_at)
    assert stops >= 3
    assert restored_equal(stopped, tmp_path / "b")
    with pytest.raises(InvalidRequest, match="not empty"):
        Restorer(place, into.layout, Pace(None)).restore(manifest, None)


def test_what_a_killed_backup_has_left_goes_as_a_whole(stopped: Settings, tmp_path: Path) -> None:
    """Half-written files, too, which no list shows."""
    place = DiskPlace(tmp_path / "backups")
    with pytest.raises(Stopped):
        take(stopped, place, Budget(9).pace)
    (unfinished,) = catalogue.look(place, None, {}).unfinished
    (tmp_path / "backups" / unfinished.id / "files" / ".half.1.tmp").write_bytes(b"half")
    catalogue.delete(place, unfinished.id)
    assert list((tmp_path / "backups").iterdir()) == []


def test_damaged_and_missing_files_of_a_backup_are_refused(stopped: Settings, tmp_path: Path) -> None:
    place = DiskPlace(tmp_path / "backups")
    manifest = take(stopped, place, Pace(None))
    victim = tmp_path / "backups" / max(manifest.files, key=lambda file: file.size).place
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    layout = hash_settings(tmp_path / "b").layout
    with pytest.raises(StoreUnavailable, match="is damaged"):
        Restorer(place, layout, Pace(None)).restore(manifest, None)
    victim.unlink()
    with pytest.raises(NotFound, match="is missing"):
        Restorer(place, layout, Pace(None)).restore(manifest, None)
    victim.write_bytes(whole)
    Restorer(place, layout, Pace(None)).restore(manifest, None)
    assert restored_equal(stopped, tmp_path / "b")


def test_a_service_that_stopped_in_a_backup_takes_it_up(start: Callable[..., Running], tmp_path: Path) -> None:
    settings = backed(tmp_path / "a", tmp_path / "backups")
    slow = backed(tmp_path / "a", "", backup=BackupOptions(str(tmp_path / "backups"), {}, 1 << 16))
    running = start(slow)
    for user in USERS:
        running.append(user, "s", *[f"{user} says {n} " + "word " * 50 for n in range(40)])
    begun = running.ok("POST", "/v1/admin/backups", json={"kind": "full"})["id"]
    ends = time.monotonic() + 30
    while not (tmp_path / "backups" / begun / BEGUN).exists():
        assert time.monotonic() < ends
        time.sleep(0.001)
    running.run(running.service.stop())
    again = start(settings)
    assert [(one["id"], one["state"]) for one in backups(again)] == [(begun, "interrupted")]
    assert again.ok("POST", "/v1/admin/backups", json={"kind": "full"})["id"] == begun
    finished(again, begun)
    restore(begun, hash_settings(tmp_path / "b"), settings)


def test_any_moment_between_the_watermark_and_the_end_can_be_restored(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start(backed(tmp_path / "a", tmp_path / "backups"))
    said: list[tuple[int, str]] = []
    for number in range(8):
        if number == 3:
            running.fold()
        running.append(USERS[0], "s", f"turn {number}", wait="indexed")  # or its vectors came after the moment
        said.append((microseconds(), f"turn {number}"))
        time.sleep(0.02)
    taken = back_up(running)
    for number, (at, _) in enumerate(said):
        into = hash_settings(tmp_path / f"at-{number}")
        if number < 2:
            with pytest.raises(InvalidRequest, match="reaches"):
                restore(taken["id"], into, running.settings, at)
            continue
        restore(None, into, running.settings, at)
        second = start(into)
        assert [turn["content"] for turn in second.turns(USERS[0], "s")] == [text for _, text in said[: number + 1]]
        second.run(second.service.stop())


def test_the_policy_has_the_service_back_itself_up_and_let_old_ones_go(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start(hash_settings(tmp_path / "a"))
    running.append(USERS[0], "s", "hello")
    policy = {"uri": str(tmp_path / "backups"), "full_every_s": 2, "incremental_every_s": 1, "keep_s": 1}
    running.ok("PUT", "/v1/admin/policies/backup", json=policy)
    seen: set[str] = set()
    wait_for(lambda: len(noted(running, seen)) >= 4)
    wait_for(lambda: bool(noted(running, seen) - {one["id"] for one in backups(running)}))
    assert any(one["kind"] == "full" for one in backups(running))
    assert {path.name for path in (tmp_path / "backups").iterdir()} <= noted(running, seen)


def noted(running: Running, seen: set[str]) -> set[str]:
    seen |= {one["id"] for one in backups(running)}
    return seen


def wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 40
    while not reached():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_backup_that_fails_is_told_and_tried_again(start: Callable[..., Running], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    running = start(backed(tmp_path / "a", tmp_path / "file" / "below"))
    begun = running.ok("POST", "/v1/admin/backups", json={"kind": "full"})["id"]
    wait_for(lambda: any(one["what"] == "backup" for one in running.ok("GET", "/readyz", key=None)["degraded"]))
    listed = {one["id"]: one for one in backups(running)}
    assert listed[begun]["state"] == "failed"
    assert listed[begun]["error"]
    (tmp_path / "file").unlink()
    back_up(running)
    assert running.ok("GET", "/readyz", key=None)["degraded"] == []


def test_shards_of_different_moments_promise_none(start: Callable[..., Running], tmp_path: Path) -> None:
    """The second shard is folded after the first one was copied: no moment is in both."""
    running = start(backed(tmp_path / "a", tmp_path / "backups"))
    for user in USERS:
        running.append(user, "s", "early")
    place = DiskPlace(tmp_path / "backups", fsync=lambda descriptor: None)

    def copied(number: int) -> None:
        if number == 1:
            time.sleep(0.01)
            for user in USERS:
                running.append(user, "s", "late")
            running.fold()

    known = StoreRecord(running.settings.files).store_id
    begun = plan(catalogue.look(place, known, {}), "full", known, microseconds()).begun
    taken = Taker(running.settings.layout, place, NobodyWrites(), Pace(None), microseconds).take(begun, None, copied)
    assert taken.reachable is None
    for backup in (None, begun.id):
        with pytest.raises(InvalidRequest, match="its own end alone"):
            choose(place, backup, taken.shards[1].folded_at)
    listed = {one["id"]: one for one in backups(again_of(running, start))}
    assert listed[begun.id]["reachable"] is None
    restore(begun.id, hash_settings(tmp_path / "b"), running.settings)


def again_of(running: Running, start: Callable[..., Running]) -> Running:
    running.run(running.service.stop())
    return start(running.settings)
