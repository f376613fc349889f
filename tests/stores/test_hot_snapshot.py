"""A hot index written to a file and read back: whole, or refused as a whole; and played forward from its marks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serve_app.ports import Vectors
from serve_app.stores.device import HostDevice
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.hot_device import DeviceHotIndex
from serve_app.stores.hot_snapshot import SnapshotUnusable, load, save

DIMENSION, VERSION = 8, "hash@8"
OWNERS = ("acme\x1fann", "acme\x1f山田", "zeta\x1fann")


def vectors_of(n: int, seed: int) -> Vectors:
    return np.random.default_rng(seed).integers(-3, 4, (n, DIMENSION)).astype(np.float32)


def empty() -> DeviceHotIndex:
    return DeviceHotIndex(DIMENSION, HostDevice, 2048)


@pytest.fixture
def filled() -> tuple[DeviceHotIndex, ExactHotIndex]:
    index, oracle = empty(), ExactHotIndex(DIMENSION)
    for number, owner in enumerate(OWNERS):
        for one in (index, oracle):
            one.add(owner, np.arange(100, dtype=np.int64), vectors_of(100, number))
            one.remove(owner, np.arange(number, 50, 3, dtype=np.int64))
    return index, oracle


def same(index: DeviceHotIndex, oracle: ExactHotIndex) -> None:
    for owner in OWNERS:
        query = vectors_of(1, 9)[0]
        ours, exact = index.search(owner, query, 200), oracle.search(owner, query, 200)
        assert [part.tolist() for part in ours] == [part.tolist() for part in exact]


def test_what_was_written_is_read_back(filled: tuple[DeviceHotIndex, ExactHotIndex], tmp_path: Path) -> None:
    index, oracle = filled
    size = save(index, tmp_path / "hot", VERSION, DIMENSION, {0: 17, 3: 4}, index.owners())
    assert size == (tmp_path / "hot").stat().st_size
    again = empty()
    assert load(again, tmp_path / "hot", VERSION, DIMENSION) == {0: 17, 3: 4}
    same(again, oracle)
    assert again.owners() == index.owners()


def test_what_is_played_back_twice_changes_nothing(
    filled: tuple[DeviceHotIndex, ExactHotIndex], tmp_path: Path
) -> None:
    """The marks are from before the writing: a part of what follows them is in the file already."""
    index, oracle = filled

    def later(one: DeviceHotIndex | ExactHotIndex) -> None:
        one.add(OWNERS[0], np.arange(90, 120, dtype=np.int64), vectors_of(30, 7))
        one.remove(OWNERS[1], np.arange(60, 70, dtype=np.int64))
        one.drop(OWNERS[2])
        one.add(OWNERS[2], np.arange(5, dtype=np.int64), vectors_of(5, 8))

    later(index)
    save(index, tmp_path / "hot", VERSION, DIMENSION, {}, OWNERS)
    again = empty()
    load(again, tmp_path / "hot", VERSION, DIMENSION)
    later(again)
    later(oracle)
    same(again, oracle)


@pytest.mark.parametrize("damage", ["torn", "flipped", "other form", "empty", "absent"])
def test_a_damaged_file_is_refused_and_leaves_the_index_empty(
    filled: tuple[DeviceHotIndex, ExactHotIndex], tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "hot"
    save(filled[0], path, VERSION, DIMENSION, {}, OWNERS)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    found = {"torn": whole[:-100], "flipped": bytes(flipped), "other form": b"x" + whole[1:], "empty": b""}
    if damage in found:
        path.write_bytes(found[damage])
    else:
        path.unlink()
    index = empty()
    with pytest.raises(SnapshotUnusable):
        load(index, path, VERSION, DIMENSION)
    assert index.owners() == []


def test_vectors_of_another_version_are_refused(filled: tuple[DeviceHotIndex, ExactHotIndex], tmp_path: Path) -> None:
    save(filled[0], tmp_path / "hot", VERSION, DIMENSION, {}, OWNERS)
    with pytest.raises(SnapshotUnusable, match=VERSION):
        load(empty(), tmp_path / "hot", "hash@16", DIMENSION)


def test_a_write_that_breaks_off_leaves_the_file_before(
    filled: tuple[DeviceHotIndex, ExactHotIndex], tmp_path: Path
) -> None:
    index, oracle = filled
    save(index, tmp_path / "hot", VERSION, DIMENSION, {1: 1}, OWNERS)
    (tmp_path / "hot.new").mkdir()
    with pytest.raises(OSError):
        save(index, tmp_path / "hot", VERSION, DIMENSION, {1: 2}, OWNERS)
    again = empty()
    assert load(again, tmp_path / "hot", VERSION, DIMENSION) == {1: 1}
    same(again, oracle)
