"""What the two routes of a backfill do: a job claims a migration, and sends units of vectors. For operators alone.

Units are MessagePack (`migrate/units.py`), since vectors are bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec

from serve_app.api.auth import Principal
from serve_app.api.http import BodyDecoder, Request, Response
from serve_app.api.schemas import ClaimIn
from serve_app.errors import InvalidRequest, ReadOnlyReplica
from serve_app.migrate.backfill import Backfills
from serve_app.migrate.units import MSGPACK, Units

WHY = "a job of a migration reads and writes every tenant's turns: only an operator runs one"

_claim = BodyDecoder(ClaimIn)
_units: msgspec.msgpack.Decoder[Units] = msgspec.msgpack.Decoder(Units)
_answers = msgspec.msgpack.Encoder()


class BackfillRoutes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(self, backfills: Backfills | None, pool: Executor) -> None:
        """None: this service writes nothing."""
        self._backfills, self._pool = backfills, pool

    async def claim(self, who: Principal, request: Request) -> Response:
        who.require_operator(WHY)
        body = await _claim(request.body)
        return await self._answered(lambda there: there.claim(request.path[0], body.worker))

    async def put_units(self, who: Principal, request: Request) -> Response:
        who.require_operator(WHY)
        return await self._answered(lambda there: there.put(request.path[0], _read(request.body)))

    async def _answered(self, ask: Callable[[Backfills], object]) -> Response:
        if self._backfills is None:
            raise ReadOnlyReplica("the service that writes the store runs its migrations")
        done = await asyncio.get_running_loop().run_in_executor(self._pool, ask, self._backfills)
        return Response(200, _answers.encode(done), MSGPACK.encode())


def _read(body: bytes) -> Units:
    try:
        return _units.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is no unit: {error}") from error
