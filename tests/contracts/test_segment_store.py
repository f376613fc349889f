"""What every `SegmentStore` promises: local disk, and obstore on disk, in memory and on an S3 server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

from serve_app.errors import NameTaken, NotFound
from serve_app.ports import SegmentStore
from serve_app.stores.segments_disk import DiskSegments
from serve_app.stores.segments_object import ObjectSegments, open_segments

Opener = Callable[[], SegmentStore]
RACERS = 8


def opener_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> Opener:
    if kind == "disk":
        return lambda: DiskSegments(folder / "made" / "here")
    if kind == "s3":
        options = {
            "endpoint": request.getfixturevalue("s3_endpoint"),
            "region": "us-east-1",
            "access_key_id": "any",
            "secret_access_key": "any",
            "allow_http": "true",
        }
        return lambda: open_segments(f"s3://memory/{folder.name}/shard-0", options)
    objects = MemoryStore() if kind == "memory" else LocalStore(folder)
    return lambda: ObjectSegments(objects, "shard-0/log")


@pytest.fixture(params=["disk", "local_objects", "memory", "s3"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same store each time that it is called, as a process would that starts again."""
    return opener_of(request.param, tmp_path, request)


def test_what_was_created_is_read_back_after_a_reopen(open_store: Opener) -> None:
    store = open_store()
    assert store.names() == []
    for name, data in (("2.seg", b"two"), ("10.seg", b""), ("1.seg", bytes(range(256)))):
        store.create(name, data)
    again = open_store()
    assert again.names() == ["1.seg", "10.seg", "2.seg"]
    assert again.read("2.seg") == b"two"
    assert again.read("10.seg") == b""
    assert again.read("1.seg") == bytes(range(256))


def test_a_name_is_made_once(open_store: Opener) -> None:
    first, second = open_store(), open_store()
    first.create("1.seg", b"first")
    for store in (first, second):
        with pytest.raises(NameTaken):
            store.create("1.seg", b"second")
    assert second.read("1.seg") == b"first"
    assert second.names() == ["1.seg"]


def test_a_large_segment_is_made_once_too(open_store: Opener) -> None:
    """Larger than the size from which object stores like to upload in parts, where no condition holds."""
    store, data = open_store(), b"x" * (6 << 20)
    store.create("1.seg", data)
    with pytest.raises(NameTaken):
        store.create("1.seg", b"y" * len(data))
    assert store.read("1.seg") == data


def test_of_many_writers_at_once_exactly_one_makes_the_name(open_store: Opener) -> None:
    won: list[bytes] = []
    start = threading.Barrier(RACERS)

    def race(data: bytes) -> None:
        store = open_store()
        start.wait(timeout=10)
        try:
            store.create("1.seg", data)
            won.append(data)
        except NameTaken:
            pass

    threads = [threading.Thread(target=race, args=(f"writer {n}".encode(),)) for n in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert [open_store().read("1.seg")] == won


def test_reading_what_is_not_there_is_not_found(open_store: Opener) -> None:
    with pytest.raises(NotFound):
        open_store().read("1.seg")


def test_deleting_is_no_error_for_what_is_not_there(open_store: Opener) -> None:
    store = open_store()
    for number in (1, 2, 3):
        store.create(f"{number}.seg", b"data")
    store.delete(["1.seg", "7.seg", "2.seg"])
    assert open_store().names() == ["3.seg"]
    store.create("1.seg", b"made anew")
    assert store.read("1.seg") == b"made anew"


def test_replace_keeps_the_old_bytes_under_the_other_name(open_store: Opener) -> None:
    store = open_store()
    store.create("1.seg", b"damaged")
    store.replace("1.seg", b"repaired", "1.torn")
    assert (store.read("1.seg"), store.read("1.torn")) == (b"repaired", b"damaged")
    store.replace("1.seg", b"again", "1.torn")
    assert (store.read("1.seg"), store.read("1.torn")) == (b"again", b"repaired")
    assert open_store().names() == ["1.seg", "1.torn"]


def test_replacing_what_is_not_there_is_not_found(open_store: Opener) -> None:
    store = open_store()
    with pytest.raises(NotFound):
        store.replace("1.seg", b"repaired", "1.torn")
    assert store.names() == []
