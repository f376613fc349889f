"""What a gateway asks of every shard's writer at once: maintenance, and the figures of the shards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from serve_app.api.auth import Principal
from serve_app.api.http import BodyDecoder, Request, Response, handed_out, json_response
from serve_app.api.schemas import MaintenanceIn
from serve_app.asgi import Answered, Asked
from serve_app.errors import MemstrataError

__all__ = ["EveryShard"]

AT_ONCE = 32
"""Shards that are asked at a time."""

MAINTENANCE_S = 600.0
"""For one shard: a purge rewrites its table."""

STATS_S = 2.0
"""For the figures of one shard; those that are known here stand in for them."""

_maintenance = BodyDecoder(MaintenanceIn)


class Route(Protocol):
    @property
    def handler(self) -> Callable[[Principal, Request], Awaitable[Response]]: ...


class Ask(Protocol):
    async def __call__(
        self, route: Any, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False
    ) -> Answered: ...


class _Figures(msgspec.Struct):
    shards: list[dict[str, Any]] = []


_figures = msgspec.json.Decoder(_Figures)


class EveryShard:
    """`ask` is the way to one shard's writer."""

    def __init__(self, ask: Ask, shards: int) -> None:
        self._ask, self._shards = ask, shards

    async def maintain(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """At the writer of each shard, or of the one that is named. The first refusal is the answer to all.

        A rescan of named tenants is a matter of the small files, and is begun here.
        """
        body = await _maintenance(request.body)
        if body.tenants is not None:
            return await route.handler(who, request)
        chosen = range(self._shards) if body.shard is None else [min(body.shard, self._shards - 1)]
        answers = await self._of(route, chosen, asked, MAINTENANCE_S)
        refused = next((answer for answer in answers if answer.status >= 300), None)
        if refused is not None:
            return handed_out(refused)
        done = [line for answer in answers for line in _figures.decode(answer.body).shards]
        return json_response({"action": body.action, "shards": done})

    async def stats(self, route: Route, who: Principal, request: Request, asked: Asked) -> Response:
        """Each shard as its writer has it, or as it is known here; `known_by` says which."""
        here = await route.handler(who, request)
        shown: dict[str, Any] = msgspec.json.decode(here.body)
        lines = await self._within(asyncio.Semaphore(AT_ONCE), route, asked, shown["shards"])
        followed = [line["behind_s"] for line in shown["shards"] if line["behind_s"] is not None]
        gateway = {
            "behind_s": max(followed, default=None),
            "owners_in_memory": sum(line["owners_in_memory"] for line in shown["shards"]),
            "turns_in_memory": sum(line["turns_in_memory"] for line in shown["shards"]),
        }
        return json_response(shown | {"shards": lines, "gateway": gateway})

    async def _within(
        self, places: asyncio.Semaphore, route: Route, asked: Asked, known: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        async def one(line: dict[str, Any]) -> dict[str, Any]:
            try:
                async with places:
                    answer = await self._ask(route, line["shard"], asked, STATS_S, repeatable=True)
                [found] = _figures.decode(answer.body).shards
            except (MemstrataError, msgspec.DecodeError, ValueError):
                return line | {"known_by": "gateway"}
            return found | {"known_by": "writer"}

        return list(await asyncio.gather(*map(one, known)))

    async def _of(self, route: Route, shards: Any, asked: Asked, within_s: float) -> list[Answered]:
        """Raises what the first one raises that cannot be reached, after all have been asked."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(shard: int) -> Answered:
            async with places:
                return await self._ask(route, shard, asked, within_s, repeatable=True)

        outcomes = await asyncio.gather(*map(one, shards), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
