"""Small files in a bucket: who is faster, what is shown while the bucket is away, and what a look costs."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from serve_app.api.auth import KeyFile
from serve_app.errors import NotFound, StoreUnavailable, Unauthorized
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.documents_object import ObjectDocuments, open_documents
from serve_app.stores.private_file import PrivateFile

LOOK_S = 0.05


class Bucket(ObjectDocuments):
    """Counts what is read, and stops answering when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, "memory://", LOOK_S)
        self.reads: list[str] = []
        self.away = False
        self.defect: Exception | None = None

    def read(self, name: str, known: Any = None) -> Any:
        self.reads.append(name)
        if self.defect is not None:
            raise self.defect
        if self.away:
            raise StoreUnavailable(f"{name} cannot be read: nobody answers")
        return super().read(name, known)


def soon(true: Any, within_s: float = 5.0) -> None:
    ends = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_request_costs_no_call_to_the_bucket() -> None:
    bucket = Bucket(MemoryStore())
    keys = KeyFile(bucket)
    key = keys.ensure_first()
    began, before = time.monotonic(), len(bucket.reads)
    for _ in range(1_000):
        assert keys.principal(f"Bearer {key}".encode()).role == "operator"
    looks = (time.monotonic() - began) / LOOK_S + 2
    assert len(bucket.reads) - before <= looks


def test_a_key_that_is_revoked_elsewhere_opens_nothing_once_settled() -> None:
    store = MemoryStore()
    one, other = KeyFile(Bucket(store)), KeyFile(Bucket(store))
    key_id, key = one.create(tenant="acme", role="admin")
    time.sleep(Bucket(store).settles_s)
    assert other.principal(f"Bearer {key}".encode()).tenant == "acme"
    one.revoke(key_id, None)
    time.sleep(Bucket(store).settles_s)
    with pytest.raises(Unauthorized):
        other.principal(f"Bearer {key}".encode())
    with pytest.raises(NotFound):
        other.revoke(key_id, None)


def test_two_that_start_a_store_at_once_make_one_key() -> None:
    store = MemoryStore()
    made: list[str | None] = []
    start = threading.Barrier(4)

    def begin() -> None:
        keys = KeyFile(Bucket(store))
        start.wait(timeout=10)
        made.append(keys.ensure_first())

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    [key] = [one for one in made if one is not None]
    files = Bucket(store)
    assert len(KeyFile(files).records(None)) == 1
    kept = files.read("admin.key")
    assert (kept.data or b"").decode().strip() == key


def test_while_the_bucket_is_away_what_was_read_counts_and_the_trouble_is_told() -> None:
    bucket = Bucket(MemoryStore())
    keys = KeyFile(bucket)
    _, key = keys.create(tenant="acme", role="admin")
    bucket.away = True
    soon(lambda: keys.trouble is not None)
    assert keys.principal(f"Bearer {key}".encode()).tenant == "acme"
    with pytest.raises(StoreUnavailable):
        keys.create(tenant="acme", role="admin")
    bucket.away = False
    soon(lambda: keys.trouble is None)
    assert len(keys.records(None)) == 1


def test_a_defect_does_not_end_the_looks() -> None:
    store = MemoryStore()
    bucket, keys = Bucket(store), KeyFile(Bucket(store))
    watching = KeyFile(bucket)
    key_id, key = keys.create(tenant="acme", role="admin")
    soon(lambda: bool(watching.records(None)))
    bucket.defect = RuntimeError("a defect")
    soon(lambda: watching.trouble is not None)
    assert watching.principal(f"Bearer {key}".encode()).tenant == "acme"
    keys.revoke(key_id, None)
    bucket.defect = None
    soon(lambda: not watching.records(None))
    assert watching.trouble is None


def test_a_file_that_never_could_be_read_is_an_error_without_another_call_until_the_bucket_is_back() -> None:
    bucket = Bucket(MemoryStore())
    bucket.away = True
    file = PrivateFile(bucket, "some.json", list[int], list)
    for _ in range(100):
        with pytest.raises(StoreUnavailable):
            file.read()
    assert len(bucket.reads) < 50
    bucket.away = False
    soon(lambda: bucket.watch("some.json").trouble is None)
    assert file.read() == []
    assert file.trouble is None


def test_a_change_that_others_outrun_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    one, other = Bucket(store), Bucket(store)
    tries = 0

    def outrun(held: bytes | None) -> bytes:
        nonlocal tries
        tries += 1
        other.change("some.json", lambda _: b"%d" % tries)
        return b"mine"

    monkeypatch.setattr("serve_app.stores.documents_object.CHANGES_MAX", 3)
    with pytest.raises(StoreUnavailable, match="faster"):
        one.change("some.json", outrun)
    assert tries == 3


def test_a_change_whose_answer_was_lost_is_not_made_twice() -> None:
    """Its own repetition meets it: the object holds what was tried."""
    store = MemoryStore()
    one, other = Bucket(store), Bucket(store)
    calls = 0

    def longer(held: bytes | None) -> bytes:
        nonlocal calls
        calls += 1
        made = (held or b"") + b"x"
        other.change("some.json", lambda _: made)  # as the first try did whose answer was lost
        return made

    made = one.change("some.json", longer)
    assert calls == 1
    assert made is not None
    assert made.data == b"x"


def test_what_is_not_watched_any_more_is_not_looked_at() -> None:
    bucket = Bucket(MemoryStore())
    file = PrivateFile(bucket, "some.json", list[int], list)
    file.read()
    del file
    gc.collect()
    time.sleep(2 * LOOK_S)
    before = len(bucket.reads)
    time.sleep(4 * LOOK_S)
    assert len(bucket.reads) == before


def test_the_thread_ends_with_the_place() -> None:
    bucket = Bucket(MemoryStore())
    bucket.watch("some.json")
    thread = bucket._thread
    assert thread is not None
    del bucket
    gc.collect()
    thread.join(timeout=5)
    assert not thread.is_alive()


def test_one_process_opens_an_address_once_while_somebody_has_it(tmp_path: Path) -> None:
    options = {"region": "us-east-1", "access_key_id": "any", "secret_access_key": "any"}
    first = open_documents("s3://bucket/prefix", options)
    assert open_documents("s3://bucket/prefix", options) is first
    assert open_documents("s3://bucket/other", options) is not first
    assert open_documents("s3://bucket/prefix", options | {"region": "eu-west-1"}) is not first
    assert isinstance(open_documents(str(tmp_path), options), DiskDocuments)
    with pytest.raises(StoreUnavailable):
        open_documents("foo://bucket", options)
