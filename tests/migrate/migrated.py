"""A service that migrates from one hash encoder to another, by its own Control; the job is a stand-in by HTTP."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from serve_app.config import Settings
from serve_app.migrate.control import ControlBounds
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.record import Migration, State
from serve_app.models.embed import EncoderOptions
from tests.api.running import Running, hash_settings
from tests.migrate.backfilled import Client

OLD, NEW = "hash-64", "hash-96"
OLD_NAME, NEW_NAME = "hash_64", "hash_96"
QUICK = ControlBounds(poll_s=0.02, grace_s=0.2, again_s=0.1, ask_again_s=0.1)
WAIT_S = 30.0

TERMS = {"canary_s": 0, "canary_reads": 0, "soak_s": 0, "queries_min": 0, "k": 1, "canary_share": 1.0}

GOLD = [f"the {name} lies in drawer {at}" for at, name in enumerate(("anchor", "compass", "lantern", "sextant"))]


def settings(folder: Path, model: str = OLD, **sections: Any) -> Settings:
    return hash_settings(folder, encoder=EncoderOptions(model=model), **sections)


def started(folder: Path, **injected: Any) -> Running:
    return Running(settings(folder), **({"control": QUICK} | injected))


def filled(running: Running, users: tuple[str, ...] = ("ann", "bob", "dan")) -> None:
    """Turns, and golden queries that each encoder answers alike."""
    for user in users:
        turns = [{"id": f"t{at}", "role": "user", "content": text} for at, text in enumerate(GOLD)]
        running.append(user, "s", *turns, wait="indexed")
        for at, text in enumerate(GOLD):
            gold = [{"session_id": "s", "turn_id": f"t{at}"}]
            running.ok("POST", "/v1/golden", json={"user_id": user, "query": text, "gold": gold})


def begin(running: Running, **more: Any) -> str:
    """Of a migration that waits for its job."""
    body = {"encoder": {"model": NEW}, "runner": "none", "terms": TERMS} | more
    return str(running.ok("POST", "/v1/admin/migrations", json=body)["id"])


def shown(running: Running, migration: str) -> Any:
    return running.ok("GET", f"/v1/admin/migrations/{migration}")


def say(running: Running, migration: str, word: str) -> Any:
    return running.ok("POST", f"/v1/admin/migrations/{migration}:{word}")


def until(running: Running, migration: str, *states: State) -> Any:
    end = time.monotonic() + WAIT_S
    while (found := shown(running, migration))["state"] not in states:
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def fill_in(running: Running, migration: str) -> None:
    """What the job does, from the claim to the end."""
    client = Client(running, found(running, migration))
    for left in client.claim().shards:
        client.put(left.shard, *client.items(left.shard), done=(1, left.through))
    assert client.put(finish=True).complete


def found(running: Running, migration: str) -> Migration:
    return MigrationFile(running.settings.files, lambda: 0).find(migration)
