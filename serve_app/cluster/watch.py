"""The newest leases that this process knows: by a long poll of Control, or the store's file while Control is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from serve_app.cluster.lease_file import LeaseFile
from serve_app.cluster.messages import ControlCalls, Leases
from serve_app.errors import MemstrataError

__all__ = ["LeaseWatch"]

_log = logging.getLogger(__name__)

POLL_S = 15.0
"""For Control's answer, which it holds back as long as there is no news: longer than its own bound for that."""

PAUSE_S, PAUSE_S_MAX = 0.1, 1.0
"""Before Control is asked again that has not answered; doubled each time."""

QUICK_S = 0.05
"""Before it is asked again in any case."""


class LeaseWatch:
    """Lives on one event loop."""

    def __init__(self, control: ControlCalls, file: LeaseFile | None = None) -> None:
        self.newest = Leases()
        self.trouble: str | None = None
        """Why Control cannot be asked at the moment."""
        self._control, self._file = control, file
        self._news = asyncio.Event()
        self._told: list[Callable[[], None]] = []
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def tell(self, told: Callable[[], None]) -> None:
        """Call this at each change."""
        self._told.append(told)

    def learn(self, leases: Leases) -> None:
        """What somebody has said of them; only what is newer counts."""
        if leases.revision <= self.newest.revision:
            return
        self.newest = leases
        news, self._news = self._news, asyncio.Event()
        news.set()
        for told in self._told:
            told()

    async def news(self, revision: int, within_s: float) -> None:
        """Return as soon as there is something newer, or after that time."""
        if self.newest.revision > revision:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()

    async def _follow(self) -> None:
        pause_s = PAUSE_S
        while True:
            try:
                async with asyncio.timeout(POLL_S):
                    self.learn(await self._control.leases(self.newest.revision))
                self.trouble, pause_s = None, PAUSE_S
                await asyncio.sleep(QUICK_S)
                continue
            except (MemstrataError, TimeoutError) as error:
                self.trouble = f"Control does not answer: {error}"
            except Exception as error:  # noqa: BLE001 - a defect must not end it: a move would never be heard of
                if self.trouble is None:
                    _log.exception("Control cannot be asked for leases")
                self.trouble = f"Control cannot be asked: {type(error).__name__}"
            await self._look()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _look(self) -> None:
        """What the store says; nothing where it does not answer either."""
        if self._file is not None:
            with contextlib.suppress(MemstrataError):
                self.learn(await asyncio.to_thread(self._file.read))
