"""What every place of small files promises: a folder, a bucket in memory and one on an S3 server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from serve_app.stores.documents import Document, Documents
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.documents_object import ObjectDocuments
from serve_app.stores.segments_object import open_object_store

Opener = Callable[[], Documents]
LOOK_S = 0.05
RACERS, ROUNDS = 4, 5
NAMES = ["keys.json", "golden/00ff.json"]


@pytest.fixture(params=["disk", "memory", "s3"])
def open_place(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same place each time that it is called, as each process does for itself."""
    if request.param == "disk":
        return lambda: DiskDocuments(tmp_path / "made" / "here")
    if request.param == "s3":
        options = {
            "endpoint": request.getfixturevalue("s3_endpoint"),
            "region": "us-east-1",
            "access_key_id": "any",
            "secret_access_key": "any",
            "allow_http": "true",
        }
        uri = f"s3://memory/{tmp_path.name}"
        return lambda: ObjectDocuments(open_object_store(uri, options), uri, LOOK_S)
    objects = MemoryStore()
    return lambda: ObjectDocuments(objects, "memory://", LOOK_S)


def told(found: Document | None) -> bytes | None:
    return None if found is None else found.data


@pytest.mark.parametrize("name", NAMES)
def test_what_was_changed_is_read_back_elsewhere(open_place: Opener, name: str) -> None:
    one, other = open_place(), open_place()
    assert other.read(name) is None
    made = one.change(name, lambda held: b"first" if held is None else None)
    assert told(made) == told(other.read(name)) == b"first"
    again = other.change(name, lambda held: (held or b"") + b", second")
    assert told(again) == told(one.read(name)) == told(open_place().read(name)) == b"first, second"


@pytest.mark.parametrize("name", NAMES)
def test_the_stamp_tells_whether_anything_is_new(open_place: Opener, name: str) -> None:
    one, other = open_place(), open_place()
    made = one.change(name, lambda _: b"first")
    assert made is not None
    assert other.read(name, made.stamp) == Document(made.stamp, None)
    other.change(name, lambda _: b"secnd")
    found = one.read(name, made.stamp)
    assert found is not None
    assert found.data == b"secnd"
    assert found.stamp != made.stamp


@pytest.mark.parametrize("name", NAMES)
def test_a_change_that_makes_nothing_or_raises_changes_nothing(open_place: Opener, name: str) -> None:
    place = open_place()
    assert place.change(name, lambda held: None) is None
    assert place.read(name) is None
    first = place.change(name, lambda held: b"first")
    assert place.change(name, lambda held: None) == first

    def refused(held: bytes | None) -> bytes:
        raise LookupError("no")

    with pytest.raises(LookupError):
        place.change(name, refused)
    assert place.read(name) == first


@pytest.mark.parametrize("name", NAMES)
def test_of_many_that_change_at_once_none_is_lost(open_place: Opener, name: str) -> None:
    start = threading.Barrier(RACERS)

    def race(racer: int) -> None:
        place = open_place()
        start.wait(timeout=10)
        for step in range(ROUNDS):
            place.change(name, lambda held, step=step: (held or b"") + b"%d-%d " % (racer, step))

    threads = [threading.Thread(target=race, args=(racer,)) for racer in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    found = (told(open_place().read(name)) or b"").decode().split()
    assert sorted(found) == sorted(f"{racer}-{step}" for racer in range(RACERS) for step in range(ROUNDS))
    for racer in range(RACERS):
        assert [one for one in found if one.startswith(f"{racer}-")] == [f"{racer}-{step}" for step in range(ROUNDS)]


def test_a_folder_is_listed_and_what_is_deleted_is_gone(open_place: Opener) -> None:
    place = open_place()
    assert list(place.names("golden")) == []
    for name in ("golden/b.json", "golden/a.json", "keys.json"):
        place.change(name, lambda _: b"{}")
    assert list(place.names("golden")) == ["golden/a.json", "golden/b.json"]
    place.clear_leftovers("golden")
    place.delete("golden/a.json")
    place.delete("golden/a.json")
    assert list(open_place().names("golden")) == ["golden/b.json"]
    assert place.read("golden/a.json") is None
    assert told(place.change("golden/a.json", lambda held: b"anew" if held is None else None)) == b"anew"


def test_what_is_watched_shows_an_own_change_at_once_and_anothers_once_settled(open_place: Opener) -> None:
    one, other = open_place(), open_place()
    here, there = one.watch("keys.json"), other.watch("keys.json")
    assert here.newest() is there.newest() is None
    for data in (b"first", b"second"):
        one.change("keys.json", lambda _, data=data: data)
        assert told(here.newest()) == data
        time.sleep(other.settles_s)
        assert told(there.newest()) == data
    other.delete("keys.json")
    time.sleep(one.settles_s)
    assert here.newest() is None


def test_who_knows_what_is_watched_gets_no_bytes(open_place: Opener) -> None:
    place = open_place()
    made = place.change("keys.json", lambda _: b"first")
    watched = open_place().watch("keys.json")
    assert watched.newest() == made
    assert made is not None
    assert watched.newest(made.stamp) == Document(made.stamp, None)
