"""What the routes of `/v1/admin/migrations` do. Operators alone begin and guide: what serves is the service's.

An admin sees that there are migrations and how far they are; what their gates found of other tenants is not its matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from serve_app.api.auth import Principal
from serve_app.api.http import HTML, BodyDecoder, Request, Response, json_response
from serve_app.api.schemas import MigrationIn
from serve_app.api.times import format_time
from serve_app.errors import InvalidRequest
from serve_app.migrate.migrating import Migrating, Wanted, Word
from serve_app.migrate.record import Gate, Migration, Step
from serve_app.routing import Routing

WHO = "a migration changes what serves every tenant: only an operator begins it, guides it and sees its figures"
OUTLINE = ("id", "kind", "state", "begun_at", "paused")
"""Of a migration what an admin sees, beside when each state began and how each gate decided."""

FORMATS = ("json", "html")

_migration = BodyDecoder(MigrationIn)

Progress = Callable[[Migration], dict[str, Any] | None]
"""How far a migration is in what takes long; None where nothing of it is going on. Blocking."""


class Report(Protocol):
    """What a migration's gates have found. Blocking."""

    def json(self, migration: Migration) -> dict[str, Any]: ...

    def page(self, migration: Migration) -> str:
        """The same for people, as HTML without scripts."""
        ...


class MigrationRoutes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(self, migrating: Migrating, progress: Progress, report: Report) -> None:
        self._migrating = migrating
        self._progress = progress
        self._report = report

    async def begin(self, who: Principal, request: Request) -> Response:
        who.require_operator(WHO)
        wanted = _wanted(await _migration(request.body))
        begun = await asyncio.to_thread(self._migrating.begin, wanted)
        return json_response(shown_migration(begun), 201)

    async def list(self, who: Principal, request: Request) -> Response:
        """Newest last, without how far each is."""
        who.require_admin()
        stored = await asyncio.to_thread(self._migrating.file.read)
        shown = shown_migration if who.role == "operator" else outlined
        return json_response({"migrations": [shown(one) for one in stored.migrations]})

    async def get(self, who: Principal, request: Request) -> Response:
        who.require_operator(WHO)
        found = await asyncio.to_thread(self._migrating.file.find, request.path[0])
        progress = None if found.ended else await asyncio.to_thread(self._progress, found)
        return json_response(shown_migration(found) | {"progress": progress})

    async def report(self, who: Principal, request: Request) -> Response:
        who.require_operator(WHO)
        form = request.query.get("format", "json")
        if form not in FORMATS:
            raise InvalidRequest(f"format: one of {', '.join(FORMATS)}")
        found = await asyncio.to_thread(self._migrating.file.find, request.path[0])
        if form == "html":
            return Response(200, (await asyncio.to_thread(self._report.page, found)).encode(), HTML)
        told = await asyncio.to_thread(self._report.json, found)
        return json_response(told | {"gates": [_shown_gate(one) for one in found.gates]})

    async def advance(self, who: Principal, request: Request) -> Response:
        return await self._said(who, request, "advance")

    async def pause(self, who: Principal, request: Request) -> Response:
        return await self._said(who, request, "pause")

    async def resume(self, who: Principal, request: Request) -> Response:
        return await self._said(who, request, "resume")

    async def rollback(self, who: Principal, request: Request) -> Response:
        return await self._said(who, request, "rollback")

    async def _said(self, who: Principal, request: Request, word: Word) -> Response:
        who.require_operator(WHO)
        return json_response(shown_migration(await asyncio.to_thread(self._migrating.say, request.path[0], word)))


def _wanted(body: MigrationIn) -> Wanted:
    sections = {"embedding": body.encoder, "reranker": body.reranker, "compressor": body.compressor}
    if (options := sections.pop(body.kind)) is None:
        section = "encoder" if body.kind == "embedding" else body.kind
        raise InvalidRequest(f"a migration of kind {body.kind} needs {section}: its section of the settings")
    if any(other is not None for other in sections.values()):
        raise InvalidRequest("one migration changes one thing: encoder, reranker or compressor")
    return Wanted(body.kind, options, body.replaces or "", body.terms, body.runner)


def shown_migration(migration: Migration) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": migration.id,
        "kind": migration.kind,
        "state": migration.state,
        "begun_at": format_time(migration.begun_at),
        "paused": migration.paused,
        "wish": migration.wish or None,
        "trouble": migration.trouble or None,
        "options": migration.options,
        "terms": msgspec.to_builtins(migration.terms),
        "runner": migration.runner,
        "steps": [_shown_step(one) for one in migration.steps],
        "gates": [_shown_gate(one) for one in migration.gates],
        "revision": migration.revision,
    }
    if migration.kind != "embedding":
        return shown | {"names": migration.names, "was_names": migration.was_names}
    version = None if migration.version is None else msgspec.to_builtins(migration.version)
    return shown | {
        "version": version,
        "replaces": migration.replaces,
        "base": _names(migration.base),
        "target": _names(migration.target),
    }


def outlined(migration: Migration) -> dict[str, Any]:
    """Without options, reasons and figures."""
    shown = shown_migration(migration)
    return {name: shown[name] for name in OUTLINE} | {
        "steps": [{"state": one["state"], "at": one["at"]} for one in shown["steps"]],
        "gates": [{name: one[name] for name in ("state", "verdict", "at")} for one in shown["gates"]],
    }


def _names(routing: Routing | None) -> tuple[str, ...] | None:
    return None if routing is None else routing.names


def _shown_step(step: Step) -> dict[str, Any]:
    return {"state": step.state, "at": format_time(step.at), "why": step.why or None}


def _shown_gate(gate: Gate) -> dict[str, Any]:
    shown = {"state": gate.state, "verdict": gate.verdict, "at": format_time(gate.at)}
    return shown | {"reasons": gate.reasons, "figures": gate.figures}
