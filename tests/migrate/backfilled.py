"""A service with a migration that is to be backfilled, without whatever drives it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from serve_app.migrate.backfill import Backfills
from serve_app.migrate.control import ControlBounds
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.record import Migration, State, Terms
from serve_app.migrate.units import MSGPACK, Claim, Item, Taken, Units
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.stores.packing import turn_text, turn_vectors
from serve_app.write.commit import microseconds
from tests.api.running import Running, hash_settings

MODEL = "hash-32"
USERS = ("ann", "bob", "dan")
"""The last one in another shard."""


def begin(running: Running, model: str = MODEL, terms: Terms | None = None) -> Migration:
    """Whatever is written up to now is to be backfilled."""
    version = open_embedder(EncoderOptions(model=model)).version
    shards = [writer.shard for writer in running.service._writers]
    for shard in shards:
        shard.hold(version)
    file = MigrationFile(running.settings.files, microseconds)
    made = file.add("embedding", terms or Terms())
    fields = {"options": {"model": model}, "version": version, "dual_from": tuple(one.applied_seq for one in shards)}
    return file.change(made.id, made.revision, state="backfill", **fields)


def enter(running: Running, migration: Migration, state: State) -> Migration:
    file = MigrationFile(running.settings.files, microseconds)
    return file.change(migration.id, file.find(migration.id).revision, state=state)


def backfills(running: Running) -> Backfills:
    found = running.service.backfills
    assert found is not None
    return found


class Client:
    """A job by hand, through HTTP."""

    def __init__(self, running: Running, migration: Migration, worker: str = "w") -> None:
        self.running, self.migration, self.worker = running, migration, worker
        self.path = f"/v1/admin/migrations/{migration.id}"
        self.fence = 0

    def claim(self, **more: Any) -> Claim:
        answer = self.running.call("POST", f"{self.path}:claim", json={"worker": self.worker}, **more)
        assert answer.status_code == 200, answer.text
        claim = msgspec.msgpack.decode(answer.content, type=Claim)
        self.fence = claim.fence
        return claim

    def send(self, units: Units, **more: Any) -> Any:
        """The raw answer."""
        body, headers = msgspec.msgpack.encode(units), {"content-type": MSGPACK}
        return self.running.call("PUT", f"{self.path}/units", content=body, headers=headers, **more)

    def put(self, shard: int = 0, *items: Item, **more: Any) -> Taken:
        answer = self.send(Units(self.fence, shard, items, **more))
        assert answer.status_code == 200, answer.text
        return msgspec.msgpack.decode(answer.content, type=Taken)

    def items(self, shard: int) -> list[Item]:
        """The vectors of all turns of a shard, as they are now."""
        embedder = open_embedder(EncoderOptions(**self.migration.options))
        found: list[Item] = []
        of = self.running.service._writers[shard].shard
        for owner in of.owners("", "\U0010ffff"):
            block = of.block(owner)
            for turn in of.turns(owner, list(block.turns)):
                pieces = embedder.chunks(turn_text(turn))
                made = turn_vectors(turn, "contextual", embedder.encode(pieces, tokens=True))
                found.append(Item(owner, made))
        return found


def small(folder: Path, **sections: Any) -> Running:
    running = Running(hash_settings(folder, **sections), control=ControlBounds(poll_s=3_600))
    for user in USERS:
        running.append(user, "s", *[{"id": f"t{at}", "role": "user", "content": f"{user} {at}"} for at in range(10)])
    return running
