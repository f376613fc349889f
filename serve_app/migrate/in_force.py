"""Which reranker and which compressor are in force: those of the settings, or those that a migration has put there.

Pure. What a migration has put in force counts as long as the settings still say what was in force before it; a section
that says something else was written since, and counts. While a migration runs, both are as its record says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from serve_app.errors import InvalidRequest
from serve_app.memory.configurations import name_of
from serve_app.memory.reranking import RerankOptions
from serve_app.migrate.record import Kind, Migration, Migrations
from serve_app.models.summarise import CompressOptions

Options = TypeVar("Options", RerankOptions, CompressOptions)

SECTIONS: dict[Kind, str] = {"reranker": "rerank", "compressor": "compress"}
"""Of the settings, by kind of migration."""

SETTLED = frozenset({"retire", "done"})
"""States in which there is no way back: the new one is in force, and the old one may be gone."""


def read_as(kind: type[Options], options: Mapping[str, object]) -> Options:
    """A section as a request or a record has it. Raises InvalidRequest."""
    try:
        return msgspec.convert(options, kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidRequest(f"options: {error}") from error


def named(kind: Kind, options: Mapping[str, object]) -> str:
    """The name of a configuration as a record has it."""
    return name_of(read_as(RerankOptions, options) if kind == "reranker" else read_as(CompressOptions, options))


def trial_of(kind: Kind, migrations: Migrations) -> Migration | None:
    """The migration that tries another one beside what is in force."""
    running = migrations.running(kind)
    return running if running is not None and running.names and running.state not in SETTLED else None


def in_force(kind: Kind, section: Options, migrations: Migrations) -> tuple[Options, str]:
    """`section`: of the settings. With what whoever owns the settings is told, if anything."""
    if (trial := trial_of(kind, migrations)) is not None:
        return _warned(kind, section, read_as(type(section), trial.was), trial)
    put = [one for one in migrations.migrations if one.kind == kind and one.state in SETTLED]
    if not put or name_of(section) != named(kind, put[-1].was):
        return section, ""
    return _warned(kind, section, read_as(type(section), put[-1].options), put[-1])


def _warned(kind: Kind, section: Options, options: Options, migration: Migration) -> tuple[Options, str]:
    if name_of(section) == name_of(options):
        return options, ""
    told = f"migration {migration.id} says which {kind} is in force, and counts until the file says the same"
    return options, f"[{SECTIONS[kind]}] of the settings is not what is in force: {told}"
