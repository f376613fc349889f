"""The HTTP API as one ASGI application: the door, the table of routes, and the only map from errors to answers.

A request that the loop has no time for is refused before anything else. Of every other the route is found, the key
checked, the body read under a bound; then it is admitted (or refused at once), its handler run, and whatever that
raises becomes a problem with a stable code.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from typing import NamedTuple

import msgspec

from serve_app.api import http
from serve_app.api.admin import AdminRoutes
from serve_app.api.auth import KeyFile, Principal
from serve_app.api.backfill import BackfillRoutes
from serve_app.api.door import Door
from serve_app.api.forwarding import Forwarding, asked_of
from serve_app.api.golden import GoldenRoutes
from serve_app.api.http import HTML, Request, Response
from serve_app.api.limits import LimitOptions, Limits
from serve_app.api.migrations import MigrationRoutes
from serve_app.api.openapi import docs_page, document, query_parameters
from serve_app.api.problems import STATUS_OF_CODE, HttpError, problem
from serve_app.api.routes import Routes
from serve_app.asgi import Answered, Receive, Scope, Send
from serve_app.errors import MemstrataError, Overloaded, ReadOnlyReplica
from serve_app.memory.operator import Operator
from serve_app.migrate.pace import Pace
from serve_app.observe.metrics import Metrics

_log = logging.getLogger(__name__)

CROWDED = "more requests come than there is time for"
"""What those are told that the loop has no time for."""

ID_PREFIX_BYTES = 4
"""Of a request's id: drawn once a process; a count follows."""

ADMIN_PREFIX = ["v1", "admin"]
"""Everything below it is for keys of role admin or operator, whether it exists or not."""

READING_POSTS = frozenset(
    f"/v1/{name}" for name in ("context", "search", "embeddings", "rerank", "compress", "redact", "query:expand")
)
"""What a replica answers beside GET; every other method or path is taken for a write."""

UNITS = "/v1/admin/migrations/{migration_id}/units"
"""What a job in the background sends: nobody waits for it."""

Pieces = AsyncGenerator[bytes, None]
Handler = Callable[[Principal, Request], Awaitable[Response]]


class Verb(NamedTuple):
    """Stands for an id that this verb follows, as in `{id}:claim`."""

    suffix: str


Segment = str | Verb | None
"""What a segment has to be; None stands for an id."""


class Route(NamedTuple):
    """A method, a pattern of segments, and the query parameters that it knows."""

    method: str
    pattern: tuple[Segment, ...]
    template: str
    handler: Handler
    query: frozenset[str]

    @property
    def reads(self) -> bool:
        """Whether it leaves the store as it is."""
        return self.method == "GET" or self.template in READING_POSTS

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the answer; else a job in the background asks."""
        return self.template != UNITS


def table(
    routes: Routes, admin: AdminRoutes, golden: GoldenRoutes, migrations: MigrationRoutes, backfill: BackfillRoutes
) -> list[Route]:
    """Every route that needs a key."""
    described: list[tuple[str, str, Handler]] = [
        ("POST", "/v1/sessions/{session_id}/turns", routes.append_turns),
        ("GET", "/v1/sessions/{session_id}/turns", routes.list_turns),
        ("GET", "/v1/sessions", routes.list_sessions),
        ("DELETE", "/v1/sessions/{session_id}", routes.delete_session),
        ("GET", "/v1/turns/{turn_id}", routes.get_turn),
        ("PATCH", "/v1/turns/{turn_id}", routes.edit_turn),
        ("DELETE", "/v1/turns/{turn_id}", routes.delete_turn),
        ("POST", "/v1/context", routes.context),
        ("POST", "/v1/search", routes.search),
        ("POST", "/v1/compress", routes.compress),
        ("POST", "/v1/query:expand", routes.expand),
        ("PUT", "/v1/users/{user_id}/facts/{key}", routes.put_fact),
        ("GET", "/v1/users/{user_id}/facts/{key}", routes.get_fact),
        ("DELETE", "/v1/users/{user_id}/facts/{key}", routes.delete_fact),
        ("GET", "/v1/users/{user_id}/facts", routes.list_facts),
        ("GET", "/v1/users/{user_id}/entities", routes.list_entities),
        ("GET", "/v1/sessions/{session_id}/summary", routes.get_summary),
        ("POST", "/v1/sessions/{session_id}/summary:refresh", routes.refresh_summary),
        ("GET", "/v1/users", admin.list_users),
        ("POST", "/v1/golden", golden.add),
        ("GET", "/v1/golden", golden.page),
        ("DELETE", "/v1/golden", golden.remove),
        ("GET", "/v1/users/{user_id}/export", routes.export),
        ("DELETE", "/v1/users/{user_id}", routes.erase_user),
        ("GET", "/v1/erasures/{erasure_id}", routes.get_erasure),
        ("POST", "/v1/redact", routes.redact),
        ("POST", "/v1/embeddings", routes.embeddings),
        ("POST", "/v1/rerank", routes.rerank),
        ("GET", "/v1/admin/stats", admin.stats),
        ("POST", "/v1/admin/maintenance", admin.maintain),
        ("POST", "/v1/admin/backups", admin.begin_backup),
        ("GET", "/v1/admin/backups", admin.list_backups),
        ("POST", "/v1/admin/migrations", migrations.begin),
        ("GET", "/v1/admin/migrations", migrations.list),
        ("GET", "/v1/admin/migrations/{migration_id}", migrations.get),
        ("POST", "/v1/admin/migrations/{migration_id}:advance", migrations.advance),
        ("POST", "/v1/admin/migrations/{migration_id}:pause", migrations.pause),
        ("POST", "/v1/admin/migrations/{migration_id}:resume", migrations.resume),
        ("POST", "/v1/admin/migrations/{migration_id}:rollback", migrations.rollback),
        ("GET", "/v1/admin/migrations/{migration_id}/report", migrations.report),
        ("POST", "/v1/admin/keys", admin.create_key),
        ("GET", "/v1/admin/keys", admin.list_keys),
        ("DELETE", "/v1/admin/keys/{key_id}", admin.delete_key),
        ("GET", "/v1/admin/policies/{name}", admin.get_policy),
        ("PUT", "/v1/admin/policies/{name}", admin.put_policy),
        ("GET", "/v1/admin/layouts", admin.list_layouts),
        ("GET", "/v1/admin/layouts/{name}", admin.get_layout),
        ("PUT", "/v1/admin/layouts/{name}", admin.put_layout),
        ("DELETE", "/v1/admin/layouts/{name}", admin.remove_layout),
        ("POST", "/v1/admin/migrations/{migration_id}:claim", backfill.claim),
        ("PUT", UNITS, backfill.put_units),
    ]
    return [
        Route(method, _pattern(template), template, handler, query_parameters(method, template))
        for method, template, handler in described
    ]


def _pattern(template: str) -> tuple[Segment, ...]:
    return tuple(map(_segment, template.split("/")[1:]))


def _segment(part: str) -> Segment:
    if not part.startswith("{"):
        return part
    suffix = part.partition("}")[2]
    return Verb(suffix) if suffix else None


class _Table:
    """Finds routes: those without ids in their path by one look, the others among those of the same length."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._of_length: dict[int, list[Route]] = {}
        for route in routes:
            self._of_length.setdefault(len(route.pattern), []).append(route)
        self._plain = {
            (route.method, *route.pattern): route
            for route in routes
            if all(isinstance(part, str) for part in route.pattern)
        }

    def find(self, method: str, segments: list[str]) -> tuple[Route, list[str]]:
        """The route and the values of its open segments. Raises HttpError."""
        plain = self._plain.get((method, *segments))
        if plain is not None:
            return plain, []
        matching = [route for route in self._of_length.get(len(segments), ()) if _fits(route.pattern, segments)]
        for route in matching:
            if route.method == method:
                return route, _values(route.pattern, segments)
        if matching:
            raise _method_not_allowed([route.method for route in matching])
        raise HttpError("not_found", "there is no such route")


class Api:
    """Answers one request after the other; holds no state but counters."""

    def __init__(
        self,
        routes: Routes,
        admin: AdminRoutes,
        golden: GoldenRoutes,
        migrations: MigrationRoutes,
        backfill: BackfillRoutes,
        keys: KeyFile,
        operator: Operator,
        metrics: Metrics,
        limits: LimitOptions,
        pace: Pace,
        read_only: bool = False,
        forwarding: Forwarding | None = None,
    ) -> None:
        """`pace` is told of each request that somebody waits for. `forwarding`: where another process writes."""
        self._pace = pace
        self._keys = keys
        self._limits = Limits(limits)
        self._operator = operator
        self._read_only = read_only
        self._forwarding = forwarding
        self._metrics = metrics
        self._id_prefix = os.urandom(ID_PREFIX_BYTES).hex().encode()
        self._request_numbers = itertools.count()
        self._door = Door(limits.turn_ms / 1000)
        self._routes = _Table(table(routes, admin, golden, migrations, backfill))
        crowded = http.problem_response(problem("overloaded", CROWDED), Overloaded.retry_after_s)
        self._crowded = Answered(crowded.status, http.headers_of(crowded), crowded.body)
        self._document = msgspec.json.encode(document())
        self._page = docs_page()
        # The routes that need no key; none shows data.
        self._open_routes: dict[str, Callable[[], Awaitable[Response]]] = {
            "healthz": self._healthz,
            "readyz": self._readyz,
            "metrics": self._metrics_text,
            "openapi.json": self._openapi,
            "docs": self._docs,
        }

    def refusal(self, path: bytes) -> Answered | None:
        """See `AsgiService`. The routes that need no key are for those who look after the service: they come in."""
        if path.partition(b"?")[0].lstrip(b"/").decode("latin1") in self._open_routes or not self._door.crowded():
            return None
        self._metrics.refused("overloaded")
        self._metrics.answered("unknown", self._crowded.status, 0.0)
        return self._crowded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request_id = b"%b%08x" % (self._id_prefix, next(self._request_numbers))
        late = self._door.late()
        template, response = await self._answer(scope, receive, request_id, started, late)
        head = scope["method"] == "HEAD"
        try:
            if response.pieces is None:
                await http.send_response(send, response, request_id, head=head)
            else:
                await http.send_stream(receive, send, response, request_id, head=head)
        finally:
            self._metrics.answered(template, response.status, time.perf_counter() - started)

    async def _answer(
        self, scope: Scope, receive: Receive, request_id: bytes, started: float, late: bool
    ) -> tuple[str, Response]:
        """The template of the route (for the metrics) and its answer."""
        template = "unknown"
        try:
            segments = http.segments(scope)
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            if len(segments) == 1 and segments[0] in self._open_routes:
                template = f"/{segments[0]}"
                return template, await self._open_route(method, segments[0])
            if late:
                raise Overloaded(CROWDED)
            headers: dict[bytes, bytes] = dict(scope["headers"])
            who = self._keys.principal(headers.get(b"authorization"))
            self._limits.admit(who)
            if segments[:2] == ADMIN_PREFIX:
                who.require_admin()
            route, path = self._routes.find(method, segments)
            template = f"{route.method} {route.template}"
            if self._read_only and not route.reads:
                raise ReadOnlyReplica("this service follows another one's store; write to that service")
            with self._limits.bodies.place(who.tenant), self._door.reading:
                body = await http.read_body(headers, receive)
            with self._places(route, who.tenant):
                request = Request(method, path, http.parameters(scope, route.query), headers, body, started)
                response = await self._handled(route, who, request, scope)
                if response.pieces is not None:
                    response = await _begun(response, self._limits.exports.place(who.tenant))
                return template, response
        except MemstrataError as error:
            return template, self._problem(error)
        except Exception:  # noqa: BLE001 - a defect: the caller gets a 500 with the id under which it is logged
            _log.exception("request %s failed: %s", request_id.decode(), template)
            return template, self._problem(HttpError("internal_error", f"request {request_id.decode()}; see the log"))

    @contextmanager
    def _places(self, route: Route, tenant: str) -> Iterator[None]:
        """What waits for other processes takes no place from what is answered here: reads go on while writers do not.
        Where writes are done here, they leave some places to reads.

        Raises Overloaded, RateLimited.
        """
        passed_on = self._forwarding is not None and self._forwarding.passes_on(route)
        if passed_on:
            with self._limits.passed_on.place(tenant), self._door.passed_on:
                yield
            return
        writes = nullcontext() if route.reads else self._limits.writes.place(tenant)
        with self._limits.requests.place(tenant), writes, self._door.working:
            yield

    async def _handled(self, route: Route, who: Principal, request: Request, scope: Scope) -> Response:
        if self._forwarding is not None:
            return await self._forwarding.answer(route, who, request, asked_of(scope, request))
        if not route.awaited:
            return await route.handler(who, request)
        self._pace.begin()
        try:
            return await route.handler(who, request)
        finally:
            self._pace.end()

    def _problem(self, error: MemstrataError) -> Response:
        code = error.code if error.code in STATUS_OF_CODE else "internal_error"
        if STATUS_OF_CODE[code] in (429, 503, 507):
            self._metrics.refused(code)
        answer = http.problem_response(problem(code, str(error)), error.retry_after_s)
        if isinstance(error, HttpError) and error.allowed:
            answer.headers += ((b"allow", ", ".join(error.allowed).encode()),)
        return answer

    async def _open_route(self, method: str, name: str) -> Response:
        if method != "GET":
            raise _method_not_allowed(["GET"])
        return await self._open_routes[name]()

    async def _healthz(self) -> Response:
        return http.json_response({"status": "alive"})

    async def _readyz(self) -> Response:
        ready = self._operator.ready
        state = {"status": "ready" if ready else "starting", "degraded": self._operator.troubles()}
        return http.json_response(state, 200 if ready else 503)

    async def _metrics_text(self) -> Response:
        """Gauges walk over all blocks in memory, which takes its time."""
        return Response(200, await asyncio.to_thread(self._metrics.text), self._metrics.content_type)

    async def _openapi(self) -> Response:
        return Response(200, self._document)

    async def _docs(self) -> Response:
        return Response(200, self._page, HTML)


async def _begun(response: Response, place: AbstractContextManager[None]) -> Response:
    """A long answer with its first piece, which shows whether there is one at all; the place is held to its end."""
    assert response.pieces is not None
    pieces = _within(place, response.pieces)
    return msgspec.structs.replace(response, body=await anext(pieces, b""), pieces=pieces)


async def _within(place: AbstractContextManager[None], pieces: Pieces) -> Pieces:
    async with aclosing(pieces):
        with place:
            async for piece in pieces:
                yield piece


def _fits(pattern: tuple[Segment, ...], segments: list[str]) -> bool:
    for part, segment in zip(pattern, segments, strict=True):
        if part is None or part == segment:
            continue
        if not (isinstance(part, Verb) and segment.endswith(part.suffix)):
            return False
    return True


def _values(pattern: tuple[Segment, ...], segments: list[str]) -> list[str]:
    """What the segments are that the pattern leaves open."""
    pairs = zip(pattern, segments, strict=True)
    return [
        segment.removesuffix(part.suffix) if isinstance(part, Verb) else segment
        for part, segment in pairs
        if not isinstance(part, str)
    ]


def _method_not_allowed(methods: list[str]) -> HttpError:
    allowed = sorted({*methods, "HEAD"} if "GET" in methods else methods)
    return HttpError("method_not_allowed", f"this route has {', '.join(allowed)}", allowed)
