"""Which encoders a service opens, and when it says that the settings are behind the store."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from serve_app.config import MultilingualOptions
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.shards import change_identity, identity_of
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.versions import open_versions
from tests.api.running import hash_settings


def test_a_version_that_has_taken_the_primary_ones_place_is_told_though_the_settings_name_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        logging.getLogger("serve_app.versions"), "disabled", False
    )  # import-linter disables all loggers
    both = {"encoder": EncoderOptions(model="hash-64"), "multilingual": MultilingualOptions(model="hash-32")}
    settings = hash_settings(tmp_path, **both)
    first, second = (one.version for one in open_versions(settings, {}, open_embedder).base)
    identity_of(settings, [first, second])
    with caplog.at_level(logging.WARNING, "serve_app.versions"):
        open_versions(settings, {}, open_embedder)
        assert caplog.records == []
        change_identity(DiskDocuments(tmp_path), base=[second])
        opened = open_versions(settings, {}, open_embedder)
    assert [one.version for one in opened.base] == [second]
    assert [second.name in one.getMessage() for one in caplog.records] == [True]
