"""Backups in a bucket, and of a store that lies in one; both kinds of places keep one contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serve_app.backup.compare import compare
from serve_app.backup.findings import Report
from serve_app.backup.options import BackupOptions
from serve_app.backup.verify import verify
from serve_app.config import Settings, StoreOptions
from serve_app.errors import NotFound
from serve_app.stores.places import Blob, Place, open_place, read
from tests.api.running import Running, hash_settings
from tests.backup.services import back_up, manifest, restore, state

USERS = ["ann", "ben"]


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: str, connection: dict[str, str]) -> Place:
    uri = str(tmp_path / "place") if request.param == "disk" else f"s3://{bucket}/place"
    return open_place(uri, connection)


def test_what_was_put_is_listed_read_and_deleted(place: Place) -> None:
    assert place.list() == []
    place.put("a/b/two", [b"22"])
    place.put("a/one", [b"1" * 700_000, b"2" * 700_000])
    place.put("a.b", [])
    assert [(blob.path, blob.size) for blob in place.list()] == [("a.b", 0), ("a/b/two", 2), ("a/one", 1_400_000)]
    assert [blob.path for blob in place.list("a")] == ["a/b/two", "a/one"]
    assert all(isinstance(blob, Blob) and blob.at > 1_600_000_000_000_000 for blob in place.list())
    assert read(place, "a/one") == b"1" * 700_000 + b"2" * 700_000
    place.put("a/b/two", [b"replaced"])
    assert read(place, "a/b/two") == b"replaced"
    place.delete(["a/b/two", "not there"])
    assert [blob.path for blob in place.list()] == ["a.b", "a/one"]
    with pytest.raises(NotFound):
        read(place, "a/b/two")
    place.clear("a")
    place.clear("not there")
    assert [blob.path for blob in place.list()] == ["a.b"]


def test_large_files_go_from_place_to_place(place: Place, bucket: str, connection: dict[str, str]) -> None:
    """In parts, from a bucket into a bucket, too."""
    other = open_place(f"s3://{bucket}/other", connection)
    large = bytes(range(256)) * (9 << 12)
    place.put("large", [large])
    other.put("large", place.chunks("large"))
    place.put("back", other.chunks("large"))
    assert read(place, "back") == large


@pytest.mark.parametrize("size", [4, 9 << 20])
def test_a_source_that_fails_leaves_nothing_behind_and_tells_why(place: Place, size: int) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(size)
        raise NotFound("the source went")

    with pytest.raises(NotFound, match="the source went"):
        place.put("a/half", pieces())
    assert place.list() == []


def in_bucket(folder: Path, bucket: str, prefix: str, connection: dict[str, str]) -> Settings:
    log, tables = f"s3://{bucket}/{prefix}/log", f"s3://{bucket}/{prefix}/tables"
    store = StoreOptions(shards=1, log_uri=log, tables_uri=tables, options=connection)
    backup = BackupOptions(f"s3://{bucket}/backups", bytes_per_second=1 << 40)
    return hash_settings(folder, store=store, backup=backup)


def test_a_store_in_a_bucket_is_backed_up_into_another_place_and_restored(
    start: Callable[..., Running], tmp_path: Path, bucket: str, connection: dict[str, str]
) -> None:
    first = start(in_bucket(tmp_path / "a", bucket, "a", connection))
    key = first.make_key()
    for user in USERS:
        first.append(
            user, "s", *[f"{user} says {n}" for n in range(3)], wait="indexed"
        )  # too few for a summary, which would come later
    first.fold()
    full = back_up(first)
    for user in USERS:
        first.append(user, "s", "after the full one", wait="indexed")
        first.ok("PUT", f"/v1/users/{user}/facts/colour", json={"value": "blue"})
    taken = back_up(first, "incremental")
    assert {file.held_by for file in manifest(first, taken["id"]).files} == {full["id"], taken["id"]}
    into_bucket = in_bucket(tmp_path / "b", bucket, "b", connection)
    on_disk = hash_settings(tmp_path / "c", store=StoreOptions(shards=1))
    for into in (into_bucket, on_disk):
        restore(taken["id"], into, first.settings)
        report = Report()
        verify(into.layout, report)
        compare(first.settings.layout, into.layout, report)
        assert report.sound, report.findings
    assert report.counts["turns"] == 8
    second = start(into_bucket)
    assert state(second, USERS, key) == state(first, USERS, key)
