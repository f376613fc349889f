"""Services with backups: started, backed up, restored, and what can be read of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serve_app.backup.catalogue import read_manifest
from serve_app.backup.copying import Pace
from serve_app.backup.manifest import Manifest
from serve_app.backup.options import BackupOptions
from serve_app.backup.restore import Restored, Restorer, choose
from serve_app.config import Settings
from serve_app.stores.places import open_place
from tests.api.running import Running, hash_settings

WAIT_S = 30.0


def backed(folder: Path, uri: str | Path, **sections: Any) -> Settings:
    """Settings of a small service that may be backed up to this address."""
    options = BackupOptions(uri=str(uri), bytes_per_second=1 << 40)
    return hash_settings(folder, **({"backup": options} | sections))


def backups(running: Running, key: str = "") -> list[dict[str, Any]]:
    return running.ok("GET", "/v1/admin/backups", key=key)["backups"]


def back_up(running: Running, kind: str = "full") -> dict[str, Any]:
    """Take a backup and wait for it; gives how it is listed."""
    begun = running.ok("POST", "/v1/admin/backups", json={"kind": kind})
    return finished(running, begun["id"])


def finished(running: Running, backup: str) -> dict[str, Any]:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = next((one for one in backups(running) if one["id"] == backup), None)
        if found is not None and found["state"] != "running":
            assert found["state"] == "finished", found
            return found
        time.sleep(0.02)
    raise AssertionError(f"backup {backup} did not finish")


def manifest(running: Running, backup: str) -> Manifest:
    settings = running.settings
    return read_manifest(open_place(settings.backup.uri, settings.backup_connection), backup)


def restore(backup: str | None, into: Settings, source: Settings, at: int | None = None) -> Restored:
    """Also carries the operator's key over, which no backup holds."""
    place = open_place(source.backup.uri, source.backup_connection)
    restored = Restorer(place, into.layout, Pace(None)).restore(choose(place, backup, at), at)
    shutil.copy(Path(source.data) / "admin.key", into.data)
    return restored


def state(running: Running, users: Sequence[str], key: str) -> list[Any]:
    """All that can be read of these users, in a form that does not depend on which service it is read from."""
    found: list[Any] = []
    for user in users:
        turns = running.ok("GET", "/v1/sessions/s/turns", params={"user_id": user, "limit": 1000}, key=key)["turns"]
        body = {"user_id": user, "query": "what now?", "budget_tokens": 2000, "now": "2030-01-01T00:00:00Z"}
        context = running.ok("POST", "/v1/context", json=body, key=key)
        searched = running.ok("POST", "/v1/search", json={"user_id": user, "query": "number 3"}, key=key)["results"]
        facts = running.ok("GET", f"/v1/users/{user}/facts", key=key)["facts"]
        found.append([turns, context["messages"], context["context_id"], searched, facts])
    return found
