"""A replica follows migrations: what its writer's files say, it holds and serves. It decides nothing.

One thread, that looks at the file of migrations and at the store's description. What the description names is held
before it serves; what it names no more has served nobody for longer than a request may take.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serve_app.core import EmbeddingVersion
from serve_app.errors import MemstrataError
from serve_app.memory.requests import Trouble
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.record import Migrations
from serve_app.migrate.switch import Identity
from serve_app.models.encoders import Encoders
from serve_app.ports import Embedder
from serve_app.routing import Routing
from serve_app.write.shard import Shard

_log = logging.getLogger(__name__)

POLL_S = 1.0

Reopen = Callable[[EmbeddingVersion, Mapping[str, Any]], Embedder]
"""The encoder of a version by its options. Raises EncoderUnavailable, InvalidRequest."""


class PlanFollower:
    def __init__(
        self,
        file: MigrationFile,
        identity: Identity,
        reopen: Reopen,
        encoders: Encoders,
        shards: Sequence[Shard],
        publish: Callable[[Migrations], None],
        poll_s: float = POLL_S,
    ) -> None:
        self._file = file
        self._identity = identity
        self._reopen = reopen
        self._encoders = encoders
        self._shards = shards
        self._publish = publish
        self._poll_s = poll_s
        self._why = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="migrations", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def troubles(self) -> list[Trouble]:
        found = [Trouble("migration", self._why)] if self._why else []
        return found if self._thread.is_alive() else [*found, Trouble("worker_stopped", "migrations has stopped")]

    def look(self) -> None:
        """Once. Raises MemstrataError for what cannot be read or opened now; the next look tries it again."""
        stored = self._file.read()
        base, beside = self._identity.base, self._identity.beside
        described = {one.name: one for one in (*base, *beside)}
        missing = [name for name in described if not self._encodes(name)]
        for name in missing:
            if name in stored.encoders:
                self._encoders.add(self._reopen(described[name], stored.encoders[name]))
        for version in described.values():
            for shard in self._shards:
                if not shard.holds_version(version.name):
                    shard.hold(version)
        names = [one.name for one in base]
        if all(map(self._encodes, names)):
            self._encoders.base = Routing.of(names)
        self._publish(stored)
        for version in self._encoders.versions:
            if version.name not in described:
                self._let_go(version.name)

    def _let_go(self, name: str) -> None:
        for shard in self._shards:
            shard.release(name)
        self._encoders.remove(name)

    def _encodes(self, name: str) -> bool:
        return any(one.name == name for one in self._encoders.versions)

    def _run(self) -> None:
        while not self._closed.wait(self._poll_s):
            try:
                self.look()
                self._why = ""
            except MemstrataError as error:
                self._tell(str(error))
            except Exception as error:  # noqa: BLE001 - the next look may do better
                _log.exception("migrations cannot be followed")
                self._tell(f"defect: {type(error).__name__}")

    def _tell(self, why: str) -> None:
        if why != self._why:
            _log.warning("migrations cannot be followed: %s", why)
        self._why = why
