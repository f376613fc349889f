"""What operators do with migrations: begin one, and say that it is to go on, to rest, or to turn back.

Nothing is done here but to write down what is wished; Control does it. A wish that the migration's state does not
allow is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from serve_app.errors import Conflict, InvalidRequest, NotSupported
from serve_app.migrate.migration_file import Fields, MigrationFile
from serve_app.migrate.record import Kind, Migration
from serve_app.migrate.switching import Switch
from serve_app.policies import Policies, Terms

Word = Literal["advance", "pause", "resume", "rollback"]


class Wanted(NamedTuple):
    """A migration as it is asked for. `terms` are those that are not as in the policy `migration`."""

    kind: Kind
    options: Mapping[str, Any]
    replaces: str
    terms: Mapping[str, Any]
    runner: Literal["service", "none"] = "service"


class Migrating:
    def __init__(self, file: MigrationFile, switches: Mapping[Kind, Switch], policies: Policies) -> None:
        """In a replica there are no switches, and nothing can be begun."""
        self.file = file
        self._switches = switches
        self._policies = policies

    def begin(self, wanted: Wanted) -> Migration:
        """Raises InvalidRequest for what cannot be, MigrationRunning, StorageTrouble."""
        if wanted.kind not in self._switches:
            raise NotSupported(f"kind: a service that cannot change its {wanted.kind}")
        terms = _merged(self._policies.of_service(Terms), wanted.terms)
        known = self._switches[wanted.kind].begin(wanted.options, wanted.replaces)
        fields: dict[str, Any] = {"options": dict(wanted.options), "runner": wanted.runner, **known}
        return self.file.add(wanted.kind, terms, **fields)

    def say(self, migration_id: str, word: Word) -> Migration:
        """Raises NotFound, Conflict."""
        return self.file.amend(migration_id, lambda found: wished(found, word))


def wished(migration: Migration, word: Word) -> Fields:
    """What changes in the record. Raises Conflict. Pure."""
    if migration.ended:
        raise Conflict(f"migration {migration.id} has ended: {migration.state}")
    if migration.state == "rolling_back" or (migration.state == "retire" and word == "rollback"):
        raise Conflict(f"migration {migration.id} is in state {migration.state}, from which it only goes on")
    if word == "pause":
        return {"paused": True}
    if word == "resume":
        return {"paused": False}
    if migration.wish == "rollback":
        raise Conflict(f"migration {migration.id} is about to turn back")
    return {"wish": word}


def _merged(policy: Terms, given: Mapping[str, Any]) -> Terms:
    try:
        return msgspec.convert(msgspec.to_builtins(policy) | dict(given), Terms)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"terms: {error}") from error
