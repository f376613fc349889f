"""Reads wait for what was written through the same gateway, and never for longer than the bound."""

from __future__ import annotations

import asyncio
import time

from serve_app.api import own_writes
from serve_app.api.own_writes import OwnWrites
from serve_app.core import Owner

ME, YOU = Owner("t", "me"), Owner("t", "you")


def test_it_waits_until_the_owners_own_write_is_shown() -> None:
    applied = {0: 1, 1: 9}

    async def read(own: OwnWrites, owner: Owner | None, at_most_s: float | None = None) -> float:
        began = time.monotonic()
        await own.shown(owner, at_most_s)
        return time.monotonic() - began

    async def all_of_it() -> None:
        own = OwnWrites(applied.__getitem__, bound_s=30.0)
        assert not own.any
        own.note(ME, b'{"receipt": "0:5", "deleted": 1}')
        own.note(YOU, b'{"receipt": "1:9"}')
        own.note(YOU, b'{"no": "receipt"}')
        own.note(YOU, b"none")
        assert own.any
        assert await read(own, YOU) < 5
        assert await read(own, Owner("t", "other")) < 5
        assert 0.05 <= await read(own, ME, 0.05) < 10  # the bound of the read counts, too
        waiting = asyncio.create_task(read(own, ME))
        everybody = asyncio.create_task(read(own, None))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert not everybody.done()
        applied[0] = 5
        assert await waiting < 10
        assert await everybody < 10

    asyncio.run(all_of_it())


def test_it_remembers_those_that_wrote_last() -> None:
    async def all_of_it() -> None:
        own = OwnWrites(lambda shard: 0, bound_s=0.2)
        for number in range(own_writes.OWNERS_MAX + 1):
            own.note(Owner("t", str(number)), b'{"receipt": "0:1"}')
        began = time.monotonic()
        await own.shown(Owner("t", "0"))
        assert time.monotonic() - began < 0.1
        await own.shown(Owner("t", "1"))
        assert time.monotonic() - began >= 0.2

    asyncio.run(all_of_it())
