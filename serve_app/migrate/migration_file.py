"""The migrations of a store, in one file of it: how far each is, and what their targets left behind.

Promises that a change is to the revision that was read, or refused: of two that decide at once, one has decided. What
is written is durable before it has any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from serve_app.errors import MigrationChanged, MigrationRunning, NotFound
from serve_app.migrate.record import FOLLOWS, Kind, Migration, Migrations, Step, Terms
from serve_app.routing import EPOCHS_MAX, Epoch
from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile

MIGRATIONS_FILE = "migrations.json"

ENDED_KEPT = 32
"""Migrations that have ended and are remembered; older ones are forgotten."""

STEPS_KEPT = 256
GATES_KEPT = 64
"""Of one migration, the newest."""

Fields = Mapping[str, Any]
"""Of a Migration, by name, those that change."""


class MigrationFile:
    """Safe for many threads and processes: each change is to the newest state, or refused."""

    def __init__(self, files: Documents, clock: Callable[[], int]) -> None:
        """`clock` gives microseconds since the epoch."""
        self._file = PrivateFile(files, MIGRATIONS_FILE, Migrations, Migrations)
        self._clock = clock

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be read at the moment; what was read before counts."""
        return self._file.trouble

    def read(self) -> Migrations:
        """At next to no cost while the file stays as it is. Raises StoreUnavailable."""
        return self._file.read()

    def find(self, migration_id: str) -> Migration:
        """Raises NotFound."""
        return _found(self._file.read(), migration_id)

    def add(self, kind: Kind, terms: Terms, **fields: Any) -> Migration:
        """A new one, in its first state. Raises MigrationRunning where one of its kind has not ended."""

        def begun(stored: Migrations) -> Migrations:
            now = self._clock()
            if (running := stored.running(kind)) is not None:
                raise MigrationRunning(f"migration {running.id} is in state {running.state}; one of a kind at a time")
            first = FOLLOWS[kind][0]
            made = Migration(
                id=f"m{stored.made + 1}",
                kind=kind,
                state=first,
                begun_at=now,
                terms=terms,
                steps=(Step(first, now),),
                **fields,
            )
            return replace(stored, migrations=_remembered((*stored.migrations, made)), made=stored.made + 1)

        return self._file.change(begun).migrations[-1]

    def change(
        self, migration_id: str, revision: int, *, why: str = "", epochs: Sequence[Epoch] = (), **fields: Any
    ) -> Migration:
        """Change what was read at this revision; another `state` is noted as a step, which `why` explains.

        The last of the new `epochs` is in force from here on. All is written, or nothing. Raises NotFound,
        MigrationChanged.
        """

        def unchanged(found: Migration) -> Fields:
            if found.revision != revision:
                raise MigrationChanged(f"migration {found.id} is at revision {found.revision}, not {revision}")
            return fields

        return self.amend(migration_id, unchanged, why=why, epochs=epochs)

    def amend(
        self,
        migration_id: str,
        fields_of: Callable[[Migration], Fields],
        *,
        why: str = "",
        epochs: Sequence[Epoch] = (),
    ) -> Migration:
        """Change it as it is now: `fields_of` is shown that, and gives what changes, nothing or an error of its own."""

        def amended(stored: Migrations) -> Migrations:
            found = _found(stored, migration_id)
            fields = fields_of(found)
            if not fields and not epochs:
                return stored
            changed = self._changed(found, why, fields)
            others = tuple(changed if one.id == found.id else one for one in stored.migrations)
            followed = (*stored.epochs, *epochs)[-EPOCHS_MAX:]
            return replace(stored, migrations=_remembered(others), epochs=followed)

        return _found(self._file.change(amended), migration_id)

    def keep_encoder(self, version: str, options: Mapping[str, Any] | None) -> None:
        """Note the options of a version's encoder; None: the store holds it no more."""

        def kept(stored: Migrations) -> Migrations:
            others = {name: one for name, one in stored.encoders.items() if name != version}
            encoders = others if options is None else others | {version: dict(options)}
            return stored if encoders == stored.encoders else replace(stored, encoders=encoders)

        self._file.change(kept)

    def _changed(self, found: Migration, why: str, fields: Fields) -> Migration:
        changed = replace(found, **fields, revision=found.revision + 1)
        if changed.state != found.state:
            steps = (*found.steps, Step(changed.state, self._clock(), why))
            changed = replace(changed, steps=steps[-STEPS_KEPT:])
        return replace(changed, gates=changed.gates[-GATES_KEPT:])


def _found(stored: Migrations, migration_id: str) -> Migration:
    found = next((one for one in stored.migrations if one.id == migration_id), None)
    if found is None:
        raise NotFound("there is no such migration")
    return found


def _remembered(migrations: tuple[Migration, ...]) -> tuple[Migration, ...]:
    """What a migration has put in force counts as long as no later one of its kind has."""
    in_force = {one.kind: one.id for one in migrations if one.state == "done"}.values()
    ended = [one.id for one in migrations if one.ended and one.id not in in_force]
    forgotten = set(ended[: max(0, len(ended) - ENDED_KEPT)])
    return tuple(one for one in migrations if one.id not in forgotten)
