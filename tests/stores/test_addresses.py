"""Which addresses of places are refused before anything is done with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.stores.addresses import ADDRESS_CHARACTERS_MAX, checked_address, given_address
from serve_app.stores.places import open_place

WRONG = [
    *("", ".", "~/x", "backups", "\n", "/x\n", "a\0b", "/a\0b", "file:///tmp/%00x", "file://other/x", "file://"),
    *("foo://bar", "s3://", "s3:///prefix", "http://x/y", "memory://x", "s3://[", "/" + ADDRESS_CHARACTERS_MAX * "x"),
]
RIGHT = [
    "/backups",
    "/back ups/é",
    "file:///backups",
    "file:///back%20ups",
    "s3://bucket",
    "s3://bucket/a/b",
    "gs://b/x",
]


@pytest.mark.parametrize("uri", WRONG)
def test_what_cannot_work_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequest):
        checked_address(uri)


@pytest.mark.parametrize("uri", RIGHT)
def test_what_may_work_is_taken_as_it_is(uri: str, tmp_path: Path) -> None:
    assert checked_address(uri, tmp_path) == uri


def test_backups_do_not_go_into_the_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "d")
    for uri in (tmp_path / "d", tmp_path / "d" / "bk", tmp_path / "x" / ".." / "d", tmp_path / "link" / "bk"):
        with pytest.raises(InvalidRequest, match="within the store's own folder"):
            checked_address(str(uri), tmp_path / "d")
    assert checked_address(str(tmp_path / "d2"), tmp_path / "d")


def test_a_relative_path_on_the_command_line_is_one_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert given_address("bk") == str(tmp_path / "bk")
    for text in ("", " ", "a\0b"):
        with pytest.raises(InvalidRequest):
            given_address(text)


@pytest.mark.parametrize("uri", ["a\0b", "file:///tmp/%00x", "file://[", "foo://bar", "s3://["])
def test_one_that_is_set_all_the_same_is_a_place_that_does_not_answer(uri: str) -> None:
    with pytest.raises(StoreUnavailable):
        open_place(uri, {})
