"""What a gateway does with requests that it does not answer itself: they go to whoever writes the shard.

A gateway is a follower: it reads, and changes the small files of the store. Whatever changes a shard is passed on as
the whole request that it is, and what comes back is handed out as it is. It is asked again where that does no harm,
and never where a second time could say something else than the first: then the caller hears that nobody knows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Protocol, TypeVar

import msgspec
from msgspec import Meta

from serve_app.api.auth import Principal
from serve_app.api.every_shard import EveryShard
from serve_app.api.http import LARGE_BODY_BYTES, Request, Response, handed_out
from serve_app.api.own_writes import OwnWrites
from serve_app.api.schemas import BODY_BYTES_MAX, DEADLINE_MS_MAX
from serve_app.api.turn_ids import identified, stored_by_us
from serve_app.asgi import Answered, Asked, Scope
from serve_app.core import Owner
from serve_app.errors import (
    MemstrataError,
    NotFound,
    NotSupported,
    Overloaded,
    ShardElsewhere,
    StorageTrouble,
    StoreUnavailable,
)
from serve_app.placement import shard_of

T = TypeVar("T")

__all__ = ["ForwardOptions", "Forwarding", "Route", "Upstream", "asked_of"]

PASSED_ON = frozenset({b"authorization", b"content-type"})
"""Of the headers of a request: what a shard's service reads."""

INDEXED_WAIT_S = 30.0
"""On top, for who waits until a turn's vectors are there and names no time: as long as the service waits at most."""

FALLBACK_SHARD = 0
"""Asked where a request names no user that can be read: its service says what is wrong with it, as ever."""

SUMMARY_WAIT_S = 60.0
"""For a summary that a model makes."""

ERASURE_WAIT_S = 2.0

NOBODY_KNOWS = "it is not there now; whether this request took it away nobody knows, for an answer was lost"

_ERASURE = re.compile(r"er-([0-9]{1,4})-[0-9a-f]{32}")
"""An erasure's id begins with its shard."""

Seconds = Annotated[float, Meta(gt=0, le=600)]


class ForwardOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a gateway. Times in seconds."""

    wait_s: Seconds = 15.0
    """For the writer of a shard: that it is somewhere, and that it answers."""
    own_write_s: Annotated[float, Meta(ge=0, le=10)] = 0.25
    """For which a read waits until it shows what was written through the same gateway; then it goes on without."""
    hits_s: Seconds = 10.0
    """Between two times that noted hits are sent to the writers."""


class Upstream(Protocol):
    """The way to whoever writes a shard. Lives on the service's event loop, which starts and stops it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ask(self, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False) -> Answered:
        """What the shard's writer answers. `repeatable`: doing it twice is as good as doing it once.

        Raises ShardElsewhere where it surely was not done in that time, StoreUnavailable where nobody knows,
        Overloaded.
        """
        ...

    def troubles(self) -> Sequence[str]:
        """What hinders it, in words."""
        ...

    def figures(self) -> Iterable[tuple[str, str, float]]:
        """For `observe.metrics.Gauges`."""
        ...


class Meter(Protocol):
    def forwarded(self, route: str, outcome: str) -> None:
        """A request was passed on, and this is what became of it: a status class, or the code of a failure."""
        ...


class Route(Protocol):
    """Of a request, see `api/app.py`."""

    @property
    def method(self) -> str: ...
    @property
    def template(self) -> str: ...
    @property
    def reads(self) -> bool: ...
    @property
    def handler(self) -> Callable[[Principal, Request], Awaitable[Response]]: ...


class _Named(msgspec.Struct):
    """What is read of a body to know where it goes; all else of it is the shard's service's matter."""

    user_id: str | None = None
    min_receipt: str | None = None
    wait: str = ""
    deadline_ms: int | None = None


_named = msgspec.json.Decoder(_Named)

Way = Callable[[Route, Principal, Request, Asked], Awaitable[Response]]

HERE = frozenset(
    {
        ("POST", "/v1/admin/keys"),
        ("DELETE", "/v1/admin/keys/{key_id}"),
        ("PUT", "/v1/admin/policies/{name}"),
        ("PUT", "/v1/admin/layouts/{name}"),
        ("DELETE", "/v1/admin/layouts/{name}"),
        ("POST", "/v1/golden"),
        ("DELETE", "/v1/golden"),
    }
)
"""What changes small files of the store alone, by compare-and-set: any process may."""


class Forwarding:
    """`applied`: the newest seq of a shard that is shown here."""

    def __init__(
        self, upstream: Upstream, shards: int, applied: Callable[[int], int], options: ForwardOptions, meter: Meter
    ) -> None:
        self._upstream, self._shards, self._options, self._meter = upstream, shards, options, meter
        self._own = OwnWrites(applied, options.own_write_s)
        self._every = EveryShard(self._ask, shards)
        self._failing: dict[int, str] = {}
        """What became of the last request to a shard, where it failed."""
        self._ways: Mapping[tuple[str, str], Way] = {
            ("POST", "/v1/sessions/{session_id}/turns"): self._append,
            ("DELETE", "/v1/sessions/{session_id}"): self._remove,
            ("PATCH", "/v1/turns/{turn_id}"): self._repeat,
            ("DELETE", "/v1/turns/{turn_id}"): self._remove,
            ("PUT", "/v1/users/{user_id}/facts/{key}"): self._repeat,
            ("DELETE", "/v1/users/{user_id}/facts/{key}"): self._remove,
            ("DELETE", "/v1/users/{user_id}"): self._once,
            ("POST", "/v1/sessions/{session_id}/summary:refresh"): self._summary,
            ("POST", "/v1/admin/maintenance"): self._every.maintain,
            ("GET", "/v1/admin/stats"): self._every.stats,
            ("GET", "/v1/erasures/{erasure_id}"): self._erasure,
        }

    async def answer(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """By the shard's writer, or here: then once what was written through here is shown."""
        way = self._ways.get((route.method, route.template))
        if way is not None:
            return await way(route, who, request, asked)
        if not route.reads and (route.method, route.template) not in HERE:
            who.require_operator("backups and migrations are for operators alone")
            raise NotSupported("backups and migrations are not made by gateways; see the documentation of clusters")
        if self._own.any:
            await self._own_writes_shown(route, who, request)
        return await route.handler(who, request)

    def passes_on(self, route: Route) -> bool:
        """Whether another process answers it, at least in part."""
        return (route.method, route.template) in self._ways

    def troubles(self) -> list[tuple[str, int | None]]:
        """What hinders the way to the writers, and of which shard."""
        found: list[tuple[str, int | None]] = [(text, None) for text in self._upstream.troubles()]
        return [*found, *((text, shard) for shard, text in sorted(self._failing.items()))]

    # ---- the ways

    async def _append(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """With ids from here where the turns have none: then it does no harm to ask twice."""
        named = await _read(request)
        given = await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, identified, request.body)
        if given is None or len(given.body) > BODY_BYTES_MAX:
            return await self._pass_on(route, who, named.user_id, asked, self._options.wait_s)
        within_s = self._options.wait_s + (_indexed_wait_s(named) if named.wait == "indexed" else 0.0)
        asked = asked._replace(body=given.body)
        response = await self._pass_on(route, who, named.user_id, asked, within_s, repeatable=True)
        response.body = stored_by_us(response.body, given.made)
        return response

    async def _repeat(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """It says what is to be there: twice is as good as once. Another's change in between came first, then."""
        user = await _user_of(route, request)
        return await self._pass_on(route, who, user, asked, self._options.wait_s, repeatable=True)

    async def _remove(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """Asked again where an answer was lost; what is not there any more then may have gone by the first time."""
        user = await _user_of(route, request)
        ends = asyncio.get_running_loop().time() + self._options.wait_s
        try:
            return await self._pass_on(route, who, user, asked, self._options.wait_s)
        except StoreUnavailable as lost:
            left_s = ends - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise
            try:
                response = await self._pass_on(route, who, user, asked, left_s, repeatable=True)
            except (ShardElsewhere, Overloaded):  # that was surely not done; the first may have been
                raise lost from None
            if response.status == 429:
                raise
        if response.status == 404 or (response.status == 200 and _removed_nothing(response.body)):
            raise StoreUnavailable(NOBODY_KNOWS)
        return response

    async def _once(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """A second erasure would count nothing and have another id: the first would be lost to who asked."""
        user = await _user_of(route, request)
        return await self._pass_on(route, who, user, asked, self._options.wait_s)

    async def _summary(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        user = await _user_of(route, request)
        return await self._pass_on(route, who, user, asked, SUMMARY_WAIT_S, repeatable=True)

    async def _erasure(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """As it is known here once it is done; else its writer knows more, and first."""
        found: Response | None = None
        try:
            found = await route.handler(who, request)
            if b'"state":"done"' in found.body:
                return found
        except NotFound:
            pass
        named = _ERASURE.fullmatch(request.path[0])
        if named is None or int(named[1]) >= self._shards:
            return found or await route.handler(who, request)
        try:
            return handed_out(await self._ask(route, int(named[1]), asked, ERASURE_WAIT_S, repeatable=True))
        except StorageTrouble:
            if found is None:
                raise
            return found

    # ---- what they share

    async def _pass_on(
        self, route: Route, who: Principal, user: str | None, asked: Asked, within_s: float, *, repeatable: bool = False
    ) -> Response:
        owner = None if user is None else Owner(who.tenant, user)
        shard = FALLBACK_SHARD if owner is None else shard_of(owner, self._shards)
        answer = await self._ask(route, shard, asked, within_s, repeatable=repeatable)
        if owner is not None and answer.status < 300:
            self._own.note(owner, answer.body)
        return handed_out(answer)

    async def _ask(
        self, route: Route, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False
    ) -> Answered:
        template = f"{route.method} {route.template}"
        try:
            answer = await self._upstream.ask(shard, asked, within_s, repeatable=repeatable)
        except MemstrataError as error:
            self._meter.forwarded(template, error.code)
            if isinstance(error, StorageTrouble):
                self._failing[shard] = f"its writer does not answer: {error}"
            raise
        self._meter.forwarded(template, f"{answer.status // 100}xx")
        self._failing.pop(shard, None)
        return answer

    async def _own_writes_shown(self, route: Route, who: Principal, request: Request) -> None:
        """Not for who names a receipt: that wait is the read's own. Stateless routes show nothing."""
        if route.method == "POST" and route.template not in ("/v1/context", "/v1/search", "/v1/golden"):
            return
        named = await _read(request) if route.method == "POST" else _Named()
        if named.min_receipt is not None:
            return
        user = named.user_id or _user_in_address(route, request) or who.user
        at_most_s = None if named.deadline_ms is None else named.deadline_ms / 4_000
        await self._own.shown(None if user is None else Owner(who.tenant, user), at_most_s)


def asked_of(scope: Scope, request: Request) -> Asked:
    """A request as it is passed on."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    headers = [(name, value) for name, value in scope["headers"] if name in PASSED_ON]
    query: bytes = scope.get("query_string", b"")
    return Asked(request.method, path.partition(b"?")[0], query, tuple(headers), request.body)


async def _user_of(route: Route, request: Request) -> str | None:
    """Whose memory the request is about; None where it does not say so in a way that can be read."""
    return _user_in_address(route, request) or (await _read(request)).user_id


def _user_in_address(route: Route, request: Request) -> str | None:
    if route.template.startswith("/v1/users/{user_id}"):
        return request.path[0]
    return request.query.get("user_id")


async def _read(request: Request) -> _Named:
    """Nothing is found in a body that is none: whoever answers it says so."""
    return await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, _names_in, request.body)


def _names_in(body: bytes) -> _Named:
    try:
        return _named.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _Named()


async def _off_the_loop_if(large: bool, read: Callable[[bytes], T], body: bytes) -> T:
    return await asyncio.to_thread(read, body) if large else read(body)


def _indexed_wait_s(named: _Named) -> float:
    """What is named is not validated here: it makes the wait no longer than any that is allowed, and no shorter."""
    return INDEXED_WAIT_S if named.deadline_ms is None else max(0, min(named.deadline_ms, DEADLINE_MS_MAX)) / 1_000


class _Removed(msgspec.Struct):
    deleted: int = 1


_removed = msgspec.json.Decoder(_Removed)


def _removed_nothing(body: bytes) -> bool:
    try:
        return _removed.decode(body).deleted == 0
    except msgspec.DecodeError:
        return False
