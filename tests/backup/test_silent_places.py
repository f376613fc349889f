"""Backups at addresses that do not answer, or never can: other answers do not hang on them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serve_app.backup.options import BackupOptions
from tests.api.running import Running, hash_settings, refused
from tests.backup.services import back_up, backed

NOBODY = "s3://nobody/x"
OPTIONS = {"endpoint": "http://127.0.0.1:9", "region": "us-east-1", "allow_http": "true", "skip_signature": "true"}


def silent(start: Callable[..., Running], folder: Path, uri: str) -> Running:
    """A service whose policy names this address, whoever set it so."""
    data = folder / "data"
    data.mkdir()
    (data / "policies.json").write_text(json.dumps({"service": {"backup": {"uri": uri}}}))
    running = start(hash_settings(data, backup=BackupOptions(options=OPTIONS)))
    running.append("ann", "s", "hello")
    return running


def receipt(running: Running) -> Any:
    erasure = running.ok("DELETE", "/v1/users/ann")["erasure_id"]
    return running.ok("GET", f"/v1/erasures/{erasure}", key=running.make_key(role="admin"))


@pytest.mark.parametrize("uri", ["a\0b", "file:///tmp/%00x", "foo://bar"])
def test_an_address_that_is_none_leaves_receipts_alone(start: Callable[..., Running], tmp_path: Path, uri: str) -> None:
    running = silent(start, tmp_path, uri)
    assert receipt(running)["backups"] is None
    refused(running.call("GET", "/v1/admin/backups"), 503, "store_unavailable")


def test_a_receipt_does_not_know_of_backups_at_a_place_that_never_answered(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    running = silent(start, tmp_path, NOBODY)
    assert receipt(running)["backups"] is None
    begun = time.monotonic()
    for _ in range(20):
        receipt(running)
    assert time.monotonic() - begun < 5, "one that does not answer is not asked again each time"


def test_only_operators_see_where_backups_go(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start(hash_settings(tmp_path / "a"))
    admin = running.make_key(role="admin")
    refused(running.call("GET", "/v1/admin/policies/backup", key=admin), 403, "forbidden")
    assert running.ok("GET", "/v1/admin/policies/backup")["policy"]["uri"] == ""
    assert running.ok("GET", "/v1/admin/policies/ttl", key=admin)
    for uri in ("a\0b", "foo://bar", str(tmp_path / "a" / "bk")):
        refused(running.call("PUT", "/v1/admin/policies/backup", json={"uri": uri}), 422, "invalid_request")


def test_what_is_begun_says_since_when(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start(backed(tmp_path / "a", tmp_path / "backups"))
    first = back_up(running)
    begun = running.ok("POST", "/v1/admin/backups", json={"kind": "incremental"})
    assert begun["begun_at"] > first["begun_at"]
