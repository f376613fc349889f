"""What LanceDB wrote is synced, and only what is new is synced again."""

import os
import time
from pathlib import Path

import pytest

from serve_app.stores.durable import CLOCK_SLACK_NS, SyncedFolder, local_folder, replace_file


def aged(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two old files in two old folders."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text("x")
    for path in [*tmp_path.rglob("*"), tmp_path]:
        aged(path, 600)
    return tmp_path


def test_first_sync_takes_every_file_and_folder(folder: Path) -> None:
    assert SyncedFolder(folder).sync() == 5


def test_next_sync_takes_what_is_new(folder: Path) -> None:
    synced = SyncedFolder(folder)
    (folder / "one" / "newer").write_text("y")
    synced.sync()
    assert synced.sync() <= 2 + len(["one/newer", "one"])
    aged(folder / "one" / "newer", 3 * CLOCK_SLACK_NS / 1e9)
    (folder / "two" / "newest").write_text("z")
    assert 2 <= synced.sync() < 5


def test_folder_of_a_uri() -> None:
    assert local_folder("/data/tables") == Path("/data/tables")
    assert local_folder("file:///data/a%20b") == Path("/data/a b")
    assert local_folder("s3://bucket/tables") is None


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path, fresh = tmp_path / "file", tmp_path / ".file.new"
    replace_file(path, fresh, [b"o", b"ld"])
    assert path.stat().st_mode & 0o777 == 0o600

    def failing(descriptor: int) -> None:
        raise OSError("no fsync")

    with pytest.raises(OSError, match="no fsync"):
        replace_file(path, fresh, [b"new"], failing)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"old"}
