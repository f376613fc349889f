"""The process of a writer: has open what it is leased, and answers for it what gateways pass on.

Each shard has a service of its own, with a data folder below the process's; what is heavy the services share
(`sharing.py`). The process says again and again what it has open (its beat), and hears what it is to have open. It
keeps what it has while Control is away: that nobody else writes meanwhile is the log's promise, and a shard that
another process has taken over is closed as soon as that shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from serve_app.asgi import Answered, Asked
from serve_app.cluster.held import HeldBounds, HeldShard, ShardService
from serve_app.cluster.leases import held_by
from serve_app.cluster.messages import Beat, ControlCalls, Leases, Wanted
from serve_app.cluster.rings import Rings
from serve_app.cluster.sharing import Shared
from serve_app.cluster.watch import LeaseWatch
from serve_app.config import Settings
from serve_app.errors import Conflict, MemstrataError, ShardElsewhere
from serve_app.service import Service
from serve_app.stores.relay import Segment

__all__ = ["Host", "HostBounds"]

_log = logging.getLogger(__name__)

WITHIN_S = 30.0
"""For one answer, where the caller names no time."""


class HostBounds(msgspec.Struct, frozen=True):
    beat_s: float = 0.5
    beat_limit_s: float = 2.0
    """For Control's answer to one."""
    opening: int = 4
    """Shards that are being opened at a time."""
    rest_s: float = 1.0
    """Before a shard that was taken over by another process, or met a defect, is opened again, where it is leased to
    this one still.
    """
    leave_s: float = 20.0
    """For the shards to go elsewhere, when this process ends."""
    leave_beats: int = 3
    """Beats without an answer, after which one that leaves waits for Control no longer."""


class Host:
    """`start`, `ask` and `stop` on one event loop."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        control: ControlCalls,
        bounds: HostBounds | None = None,
        held: HeldBounds | None = None,
        **injected: Any,
    ) -> None:
        """`settings.data` is a folder for this process alone. `injected` goes into each `Service`."""
        self.name, self.incarnation = name, uuid.uuid4().hex
        self._settings = msgspec.structs.replace(settings, role="writer")
        self._control, self._bounds, self._held_bounds = control, bounds or HostBounds(), held
        self._shared = Shared(self._settings, **injected)
        self._watch = LeaseWatch(control)
        self._watch.tell(self._beat_now)
        self._rings = Rings()
        self._held: dict[int, HeldShard] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._rests: dict[int, float] = {}
        """When a shard may be opened again that was fenced here, or met a defect."""
        self._places = asyncio.Semaphore(self._bounds.opening)
        self._wake = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._unheard = 0
        self._leaving = False
        self._left = False

    async def start(self) -> None:
        """Returns at once: the shards come with the leases."""
        self._watch.start()
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def ask(self, shard: int, asked: Asked, within_s: float = WITHIN_S) -> Answered:
        """See `WriterCalls.ask`."""
        held = self._held.get(shard)
        if held is None:
            raise ShardElsewhere(f"shard {shard} is not held by {self.name}")
        return await held.ask(asked, within_s)

    async def segments(self, wanted: Mapping[int, Wanted], wait_s: float) -> dict[int, list[Segment] | None]:
        """See `WriterCalls.segments`."""
        return await self._rings.segments(wanted, wait_s)

    async def stop(self) -> None:
        """Let go of the shards one and all, wait (within bounds) until Control knows, and close."""
        self._leaving = True
        self._beat_now()
        if self._beating is not None:
            await asyncio.wait({self._beating}, timeout=self._bounds.leave_s)
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        await self._watch.stop()
        for held in self._held.values():
            held.release()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)
        await asyncio.to_thread(self._shared.close)

    def check(self) -> None:
        """Raises what has ended the beats, if anything has: a defect, or another process that has the name now."""
        if self._beating is not None and self._beating.done() and not self._leaving:
            self._beating.result()

    @property
    def open(self) -> tuple[int, ...]:
        """The shards that take requests here."""
        return tuple(sorted(number for number, held in self._held.items() if held.open))

    def troubles(self) -> list[str]:
        """What hinders it, in words."""
        found = [held.trouble for held in self._held.values() if held.trouble is not None]
        if self._unheard:
            found.append(f"Control has not answered {self._unheard} beats")
        return found

    def _beat_now(self) -> None:
        self._wake.set()

    async def _beat(self) -> None:
        """Until this process has left. Raises Conflict where another one has its name, now and for ever."""
        while not self._left:
            self._wake.clear()
            said = Beat(self.name, self.incarnation, tuple(sorted(self._held)), self._leaving)
            try:
                async with asyncio.timeout(self._bounds.beat_limit_s):  # `wait_for` of 3.11 can lose a cancellation
                    leases = await self._control.beat(said)
                self._unheard = 0
                self._watch.learn(leases)
                self._follow(held_by(leases, self.name))
                self._note_left(said, leases)
            except Conflict:
                self._follow(frozenset())
                raise
            except (MemstrataError, TimeoutError):
                self._unheard += 1
                self._give_up_leaving()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.beat_s):
                    await self._wake.wait()

    def _follow(self, wanted: frozenset[int]) -> None:
        """Have these open and no others, as soon as can be."""
        now = asyncio.get_running_loop().time()
        for number, held in self._held.items():
            if number not in wanted:
                held.release()
        for number in sorted(wanted - self._held.keys()):
            if now >= self._rests.get(number, now):
                self._hold(number)

    def _hold(self, number: int) -> None:
        held = HeldShard(number, self._composing(number), self._places, self._beat_now, self._held_bounds)
        self._held[number] = held
        self._lives[number] = asyncio.get_running_loop().create_task(self._live(held))

    async def _live(self, held: HeldShard) -> None:
        rests = True
        try:
            await held.run()
            rests = held.fenced
        except Exception:  # noqa: BLE001 - a defect, or a store that fails while it is closed: the others go on
            _log.exception("shard %d has not been closed in order", held.number)
        finally:
            self._rings.closed(held.number)
            del self._held[held.number], self._lives[held.number]
            if rests:
                self._rests[held.number] = asyncio.get_running_loop().time() + self._bounds.rest_s
            self._beat_now()

    def _composing(self, number: int) -> Callable[[], ShardService]:
        data = str(Path(self._settings.data) / f"shard-{number}")
        settings = msgspec.structs.replace(self._settings, data=data)

        def composed() -> ShardService:
            ring = self._rings.opened(number)
            return Service(settings, only=[number], ring=lambda _: ring, **self._shared.injected())

        return composed

    def _note_left(self, said: Beat, leases: Leases) -> None:
        """Once Control has heard that nothing is open here, and gives nothing more."""
        if said.leaving and not (said.shards or self._held or held_by(leases, self.name)):
            self._left = True

    def _give_up_leaving(self) -> None:
        if self._leaving and self._unheard >= self._bounds.leave_beats:
            self._left = True
