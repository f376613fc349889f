"""What a store says of itself: which embedding versions it was made with, and whether the settings fit."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import msgspec
import pytest

from serve_app.backup.layout import Layout
from serve_app.errors import InvalidRequest
from serve_app.models.stub import HashEmbedder
from serve_app.shards import change_identity, identity_of, read_identity
from serve_app.stores.documents_disk import DiskDocuments
from tests.api.running import hash_settings

ONE, TWO, THREE = (HashEmbedder(dimension).version for dimension in (64, 32, 16))


def store_file(folder: Path) -> Path:
    return folder / "store.json"


def test_a_store_keeps_the_versions_that_it_was_made_with_in_their_order(tmp_path: Path) -> None:
    settings = hash_settings(tmp_path)
    made = identity_of(settings, (ONE, TWO))
    assert made.versions == (ONE, TWO)
    assert identity_of(settings, (TWO, ONE)) == made
    assert Layout.of(tmp_path, "", "", {}).shape().versions == (ONE, TWO)


def test_a_store_of_one_version_is_described_as_ever(tmp_path: Path) -> None:
    identity_of(hash_settings(tmp_path), (ONE,))
    described = json.loads(store_file(tmp_path).read_text())
    assert described.keys() == {"format", "shards", "version"}


def test_a_store_of_fewer_versions_goes_on_with_its_own_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("serve_app.shards"), "disabled", False)  # import-linter disables all loggers
    settings = hash_settings(tmp_path)
    made = identity_of(settings, (ONE,))
    with caplog.at_level(logging.INFO, "serve_app.shards"):
        assert identity_of(settings, (ONE, TWO)) == made
    assert [record.message for record in caplog.records] == [
        f"{store_file(tmp_path)}: the store was made without vectors of hash_32, and goes on so"
    ]


def test_a_store_of_a_version_that_the_settings_lack_is_refused(tmp_path: Path) -> None:
    settings = hash_settings(tmp_path)
    identity_of(settings, (ONE, TWO))
    with pytest.raises(InvalidRequest, match="holds vectors of 'hash_32'; the settings ask for 'hash_64', 'hash_16'"):
        identity_of(settings, (ONE, THREE))


def test_versions_come_beside_and_take_over_and_what_the_store_is_stays_readable(tmp_path: Path) -> None:
    made = identity_of(hash_settings(tmp_path), (ONE, TWO))
    files = DiskDocuments(tmp_path)
    prepared = change_identity(files, beside=[THREE])
    assert (prepared.versions, prepared.held, prepared.inline) == ((ONE, TWO), (ONE, TWO, THREE), (ONE, TWO))
    assert change_identity(files, beside=[THREE]) == prepared == read_identity(files)
    retired = change_identity(files, base=[THREE, TWO])
    assert (retired.versions, retired.held, retired.inline) == ((THREE, TWO), (THREE, TWO), (TWO,))
    assert identity_of(hash_settings(tmp_path), (THREE, TWO)) == retired
    shape = Layout.of(tmp_path, "", "", {}).shape()
    assert (shape.held, shape.inline) == (retired.held, retired.inline)
    assert change_identity(files, base=[ONE, TWO], beside=[]) == made


def test_two_versions_of_one_name_are_refused(tmp_path: Path) -> None:
    made = identity_of(hash_settings(tmp_path), (ONE,))
    with pytest.raises(InvalidRequest, match="one name"):
        change_identity(DiskDocuments(tmp_path), beside=[msgspec.structs.replace(ONE, revision="2")])
    assert read_identity(DiskDocuments(tmp_path)) == made
    with pytest.raises(InvalidRequest, match="holds no store"):
        change_identity(DiskDocuments(tmp_path / "none"), beside=[TWO])
    assert read_identity(DiskDocuments(tmp_path / "none")) is None
