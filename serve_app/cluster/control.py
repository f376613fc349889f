"""Control: hears the beats of the writers and gives the shards to them. All that it must not forget is in the store.

It promises that

* a writer that was silent for a bound loses its shards to the others, one that leaves is emptied first, and one that
  comes gets its share (`leases.py` says which);
* no clock but its own is asked: of a beat only the moment of its coming counts. When it has just started, or was held
  up itself, everybody has the whole bound again before it judges;
* the leases that it tells of stand in the store: whoever finds it away finds them there.

That two writers believe in one shard can happen all the same, for a while; the log's fences decide then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from serve_app.cluster.founding import founded
from serve_app.cluster.lease_file import LeaseFile
from serve_app.cluster.leases import NOBODY, Writer, assigned, held_by
from serve_app.cluster.messages import Beat, Leases
from serve_app.config import Settings
from serve_app.errors import Conflict, MemstrataError, Overloaded, StoreUnavailable

__all__ = ["Control", "ControlBounds"]

_log = logging.getLogger(__name__)

WRITERS_MAX = 1_024
"""That are known at a time; further ones are refused. A store has no more shards."""

POLLS_MAX = 4_096
"""Who waits for news at a time."""

INCARNATIONS_MAX = 16
"""Of one writer that are remembered: processes that were given up may speak again."""


def _show(line: str) -> None:
    print(line, flush=True)


class ControlBounds(msgspec.Struct, frozen=True):
    silence_s: float = 3.0
    """A writer that was not heard for so long is taken for dead."""
    gather_s: float = 1.0
    """From the first beat of all until the shards are given out, where nobody has any: so that all who start together
    get their share at once.
    """
    look_s: float = 0.25
    """Between two looks at who is silent."""
    held_up_s: float = 1.0
    """A look that comes so much too late says that Control itself was held up, and its view is old."""
    poll_s: float = 10.0
    """How long an answer is held back while there is no news."""


@dataclass
class _Heard:
    """What is known of one writer."""

    incarnation: str
    at: float
    holds: frozenset[int]
    """Those that it has said are open, and those that it was given since."""
    leaving: bool = False


class Control:
    """`ControlCalls`, by one process. All calls on one event loop."""

    def __init__(
        self,
        settings: Settings,
        bounds: ControlBounds | None = None,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _show,
    ) -> None:
        """`tell` shows the first key of a new store to people."""
        self._settings, self._bounds, self._clock, self._tell = settings, bounds or ControlBounds(), clock, tell
        self._file = LeaseFile(settings.files)
        self._leases = Leases()
        self._shards = 0
        self._heard: dict[str, _Heard] = {}
        self._incarnations: dict[str, list[str]] = {}
        """By the names of writers, the processes that have had it, in the order in which they were first heard."""
        self._first_beat: float | None = None
        self._looked = 0.0
        self._wake, self._news = asyncio.Event(), asyncio.Event()
        self._polls = 0
        self._looking: asyncio.Task[None] | None = None
        self._trouble: str | None = None

    async def start(self) -> None:
        """Make the store if there is none, and read the leases. Raises StorageTrouble, InvalidRequest."""
        identity = await asyncio.to_thread(founded, self._settings, self._tell)
        self._leases = await asyncio.to_thread(self._file.read)
        self._looked = now = self._clock()
        for name in set(self._leases.writers) - {NOBODY}:
            self._heard[name] = _Heard("", now, held_by(self._leases, name))
        self._shards = identity.shards
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """Nothing depends on it."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self._shards = 0
        self._news.set()

    async def beat(self, beat: Beat) -> Leases:
        self._require_started()
        now = self._clock()
        found = self._heard.get(beat.writer)
        if found is None and len(self._heard) >= WRITERS_MAX:
            raise Overloaded(f"more than {WRITERS_MAX} writers")
        if found is None or found.incarnation != beat.incarnation:
            if found is not None and self._older(beat, found.incarnation):
                raise Conflict(f"another process is {beat.writer} now")
            self._remember(beat)
            found = self._heard[beat.writer] = _Heard(beat.incarnation, now, frozenset())
            self._wake.set()
        if self._first_beat is None:
            self._first_beat = now
        changed = (beat.shards, beat.leaving) != (tuple(sorted(found.holds)), found.leaving)
        found.at, found.leaving = now, beat.leaving
        found.holds = frozenset(beat.shards) | held_by(self._leases, beat.writer)
        if changed:
            self._wake.set()
        return self._leases

    async def leases(self, after: int = -1) -> Leases:
        self._require_started()
        if self._polls >= POLLS_MAX:
            raise Overloaded(f"more than {POLLS_MAX} wait for leases")
        self._polls += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.poll_s):
                    while self._leases.revision <= after and self._shards:
                        await self._news.wait()
        finally:
            self._polls -= 1
        return self._leases

    def check(self) -> None:
        """Raises what has ended its looks at the writers, if anything has: a defect, after which it is no good."""
        if self._shards and self._looking is not None and self._looking.done():
            self._looking.result()

    def troubles(self) -> list[str]:
        """What hinders it, in words."""
        return [] if self._trouble is None else [self._trouble]

    def _require_started(self) -> None:
        if not self._shards:
            raise StoreUnavailable("Control is starting")

    def _older(self, beat: Beat, incarnation: str) -> bool:
        """Whether this process was heard before that one. Of two that live and have one name, the later one counts."""
        heard = self._incarnations.get(beat.writer, [])
        return beat.incarnation in heard[: heard.index(incarnation)] if incarnation in heard else False

    def _remember(self, beat: Beat) -> None:
        if beat.writer not in self._incarnations and len(self._incarnations) >= WRITERS_MAX:
            del self._incarnations[next(name for name in self._incarnations if name not in self._heard)]
        heard = self._incarnations.setdefault(beat.writer, [])
        if beat.incarnation not in heard:
            heard.append(beat.incarnation)
            del heard[:-INCARNATIONS_MAX]

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._bounds.look_s):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._decide()
                self._trouble = None
            except MemstrataError as error:
                if self._trouble is None:
                    _log.warning("leases cannot be changed: %s", error)
                self._trouble = f"leases cannot be changed: {error}"
                await asyncio.sleep(self._bounds.look_s)

    async def _decide(self) -> None:
        self._judge(self._clock())
        if self._gathering():
            return
        alive = {name: Writer(heard.holds, heard.leaving) for name, heard in self._heard.items()}
        wanted = assigned(self._leases, alive, self._shards)
        if wanted is self._leases:
            return
        self._take(await asyncio.to_thread(self._file.replace, self._leases, wanted))

    def _judge(self, now: float) -> None:
        """Forget who was silent for too long, unless nobody could have been heard."""
        held_up = now - self._looked > self._bounds.look_s + self._bounds.held_up_s
        self._looked = now
        for name, heard in list(self._heard.items()):
            if held_up:
                heard.at = now
            elif now - heard.at > self._bounds.silence_s:
                _log.warning("%s has been silent for %.1f s: its shards go to others", name, now - heard.at)
                del self._heard[name]

    def _gathering(self) -> bool:
        if any(self._leases.writers):
            return False
        return self._first_beat is None or self._clock() < self._first_beat + self._bounds.gather_s

    def _take(self, leases: Leases) -> None:
        _log.info("leases %d: %s", leases.revision, ", ".join(leases.writers))
        self._leases = leases
        news, self._news = self._news, asyncio.Event()
        news.set()
