"""The address of a segment store, and what an object store that does not answer turns into."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from serve_app.errors import StoreUnavailable
from serve_app.stores.segments_disk import DiskSegments
from serve_app.stores.segments_object import ObjectSegments, open_segments

S3 = {"region": "us-east-1", "access_key_id": "any", "secret_access_key": "any", "allow_http": "true"}


def nobody_listens() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def test_a_path_and_a_file_address_are_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my log"
    plain = open_segments(str(folder), {})
    plain.create("1.seg", b"data")
    address = open_segments(folder.as_uri(), {})
    assert type(plain) is type(address) is DiskSegments
    assert address.read("1.seg") == b"data"


def test_a_bucket_address_is_an_object_store() -> None:
    assert isinstance(open_segments("s3://memory/prefix", S3 | {"timeout": "2s"}), ObjectSegments)


def test_two_prefixes_do_not_see_each_other() -> None:
    objects = MemoryStore()
    one, two = ObjectSegments(objects, "shard-1"), ObjectSegments(objects, "shard-10")
    one.create("1.seg", b"one")
    two.create("1.seg", b"two")
    assert (one.names(), one.read("1.seg"), two.read("1.seg")) == (["1.seg"], b"one", b"two")
    assert ObjectSegments(objects).names() == []


@pytest.mark.parametrize("address", ["nonsense://bucket/prefix", "s3://memory/prefix"])
def test_an_address_or_option_that_is_not_known_is_refused(address: str) -> None:
    with pytest.raises(StoreUnavailable):
        open_segments(address, {"nonsense": "1"})


def test_a_store_that_does_not_answer_is_unavailable() -> None:
    store = open_segments("s3://memory/prefix", S3 | {"endpoint": nobody_listens(), "connect_timeout": "1s"})
    with pytest.raises(StoreUnavailable) as caught:
        store.create("1.seg", b"data")
    assert str(caught.value).startswith("1.seg: Generic S3 error")
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        store.names()
