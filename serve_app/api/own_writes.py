"""What was written through this gateway, remembered for a while, so that it is read here at once.

A promise of convenience: a read of an owner waits, briefly and never to an error, until it shows what the owner has
written through the same gateway. Who needs more names the receipt.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from serve_app.core import Owner

__all__ = ["OwnWrites"]

OWNERS_MAX = 20_000
"""Whose newest write is remembered, those that wrote last."""

POLL_S = 0.003


class _Written(msgspec.Struct):
    receipt: str = ""


_written = msgspec.json.Decoder(_Written)


class OwnWrites:
    """`applied`: the newest seq of a shard that is shown here. Lives on one event loop."""

    def __init__(self, applied: Callable[[int], int], bound_s: float) -> None:
        self._applied, self._bound_s = applied, bound_s
        self._of: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._newest: dict[int, int] = {}
        """By shard, of all owners."""

    def note(self, owner: Owner, answer: bytes) -> None:
        """What was answered to a write of the owner's: its receipt, where it has one, is what reads wait for."""
        try:
            shard, _, seq = _written.decode(answer).receipt.partition(":")
            written = int(shard), int(seq)
        except (msgspec.DecodeError, ValueError):
            return
        self._of[owner.key] = written
        self._of.move_to_end(owner.key)
        if len(self._of) > OWNERS_MAX:
            self._of.popitem(last=False)
        self._newest[written[0]] = max(self._newest.get(written[0], 0), written[1])

    @property
    def any(self) -> bool:
        return bool(self._newest)

    async def shown(self, owner: Owner | None, at_most_s: float | None = None) -> None:
        """Wait until the owner's newest write is shown here (without an owner: everybody's), within the bound."""
        wanted = self._wanted(owner)
        ends = time.monotonic() + (self._bound_s if at_most_s is None else min(self._bound_s, at_most_s))
        for shard, seq in wanted:
            while self._applied(shard) < seq and time.monotonic() < ends:  # noqa: ASYNC110 - told by other threads
                await asyncio.sleep(POLL_S)

    def _wanted(self, owner: Owner | None) -> list[tuple[int, int]]:
        if owner is None:
            return list(self._newest.items())
        written = self._of.get(owner.key)
        return [] if written is None else [written]
