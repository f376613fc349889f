"""Hits that a gateway has noted, sent to the writers of their shards: nobody writes here.

They go by the same way as requests, but as something that no HTTP server gives on (`asgi.NOTE_HITS`): what comes from
outside cannot be taken for it. A batch that is not taken is noted again; what a kill loses costs a topic a
little of its time in its tier, as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from serve_app.api.forwarding import Upstream
from serve_app.asgi import NOTE_HITS, Asked, Receive, Send
from serve_app.errors import MemstrataError
from serve_app.write.hits import Noted

__all__ = ["SentHits", "note_sent_hits"]

_log = logging.getLogger(__name__)

OWNERS_A_BATCH = 500
BATCHES_A_ROUND = 20
"""Of one shard; the rest waits for the next round."""

SEND_S = 2.0
"""For one batch to be taken."""

LAST_S = 3.0
"""For all of it, at the end."""

_hits = msgspec.msgpack.Decoder(dict[int, dict[str, dict[int, int]]])
"""By shard, owner and turn: when it was found."""


async def note_sent_hits(noted: Mapping[int, Noted], receive: Receive, send: Send) -> None:
    """The other end: what a gateway has sent is noted here, and written in time. The answer says nothing more."""
    message = await receive()
    [(number, hits)] = _hits.decode(message["body"]).items()
    noted[number].note_again(hits)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class SentHits:
    """`noted`: by shard. Lives on one event loop."""

    def __init__(self, noted: Mapping[int, Noted], upstream: Upstream, every_s: float) -> None:
        self._noted, self._upstream, self._every_s = noted, upstream, every_s
        self._sending: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sending = asyncio.get_running_loop().create_task(self._send_on())

    async def stop(self) -> None:
        """What is noted goes first, as far as it does soon."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_S):
                await self.send()
        except TimeoutError:
            _log.warning("hits that were noted here could not be sent at the end")

    async def send(self) -> None:
        """All that is noted, within the bounds of one round. What a shard does not take stays noted here."""
        await asyncio.gather(*(self._send_of(number, noted) for number, noted in self._noted.items()))

    async def _send_on(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.send()
            except Exception:  # noqa: BLE001 - a defect must not end it for good: topics would age as if nobody asked
                _log.exception("hits that were noted here could not be sent")

    async def _send_of(self, number: int, noted: Noted) -> None:
        for _ in range(BATCHES_A_ROUND):
            hits = noted.take(OWNERS_A_BATCH)
            if not hits:
                return
            asked = Asked(NOTE_HITS, b"/", b"", (), msgspec.msgpack.encode({number: hits}))
            try:
                await self._upstream.ask(number, asked, SEND_S, repeatable=True)
            except MemstrataError:
                noted.note_again(hits)
                return
            except BaseException:
                noted.note_again(hits)
                raise
