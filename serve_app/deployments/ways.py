"""The ways to writers, to Control and to hot shards on Ray Serve: `cluster.messages.WriterCalls` and `ControlCalls`,
and `memory.hot_shards.HotShardCalls`, by handles.

Handles work on an event loop only; what is here is made, used and closed on one. Serve lets a call to a deployment
without a replica wait for the next one, and fails what is under way at a replica that dies, done or not. So each writer
is watched by a call that always stands: it fails within a millisecond when the writer's process dies, and goes
unanswered when its node does. What is asked of a writer that is known to be gone is refused before it is sent, which
is the one case in which nobody has to wonder whether it was done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ray import serve
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from serve_app.asgi import Answered, Asked
from serve_app.cluster.messages import Beat, Leases, Wanted
from serve_app.deployments.standing import Remote, Standing
from serve_app.errors import HotShardUnavailable, MemstrataError, Overloaded, ShardElsewhere, StoreUnavailable
from serve_app.ports import HotProducts, Vectors
from serve_app.stores.relay import Segment

__all__ = [
    "CONTROL",
    "ServeControl",
    "ServeHotShards",
    "ServeWriters",
    "hot_shard_deployment",
    "opened",
    "writer_deployment",
]

T = TypeVar("T")

OpenHandle = Callable[[str, str], Any]
"""By the names of a deployment and its application; blocks."""

CONTROL = "Control", "memstrata-control"
"""Its deployment and application."""

WATCH_S = 0.5
"""How long a writer holds the call that watches it. What it has left to end within it ends a replaced writer, too."""

LATE_S = 3.0
"""A writer that is so late with its answer to that call is gone, or no better than gone."""

AGAIN_S = 0.05
"""Between two tries to find a writer."""

THERE_S = 1.0
"""How long a request waits for a writer that is not there before it is sent back."""

SEGMENTS_S = 1.0
"""What a question for segments may take beyond the time that the writer is to hold it."""

SETTLE_S = 1.0
"""What is under way has so long to end by itself once the writer is gone: one that leaves in order still answers."""

BEAT_S = 2.0
"""The longest that a beat is left waiting."""

LEASES_S = 15.0
"""The longest that a question for later leases is left waiting. Longer than Control holds one."""

WRITERS_MAX = 1_024
"""Writers that are watched; one more ends the watch over the oldest."""


def writer_deployment(writer: str) -> tuple[str, str]:
    """The deployment and application of the writer of this name: `writer-0`, and so on."""
    number = writer.removeprefix("writer-")
    return f"ShardWriter-{number}", f"memstrata-writer-{number}"


def hot_shard_deployment(name: str) -> tuple[str, str]:
    """The deployment and application of the hot shard of this name: `hot-0`, and so on."""
    number = name.removeprefix("hot-")
    return f"HotShard-{number}", f"memstrata-hot-{number}"


def opened(deployment: str, application: str) -> Any:
    """Raises RayServeException where there is no such deployment."""
    return serve.get_deployment_handle(deployment, application)


class ServeWriters:
    """`WriterCalls` on Ray Serve."""

    def __init__(self, open_handle: OpenHandle = opened) -> None:
        self._open_handle = open_handle
        self._writers: dict[str, _Writer] = {}

    async def ask(self, writer: str, shard: int, asked: Asked, within_s: float) -> Answered:
        return await self._of(writer).ask(shard, asked, within_s)

    async def segments(
        self, writer: str, wanted: Mapping[int, Wanted], wait_s: float
    ) -> dict[int, list[Segment] | None]:
        return await self._of(writer).segments(wanted, wait_s)

    def close(self) -> None:
        while self._writers:
            self._writers.popitem()[1].close()

    def _of(self, writer: str) -> _Writer:
        found = self._writers.get(writer)
        if found is None:
            if len(self._writers) >= WRITERS_MAX:
                self._writers.pop(next(iter(self._writers))).close()
            found = self._writers[writer] = _Writer(writer, self._open_handle)
        return found


class _Writer:
    """One writer as it is seen from here: there or gone, and what is asked of it."""

    def __init__(self, name: str, open_handle: OpenHandle) -> None:
        self._name, self._open_handle = name, open_handle
        self._handle: Any = None
        self._there = asyncio.Event()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._watch())

    async def ask(self, shard: int, asked: Asked, within_s: float) -> Answered:
        ends = time.monotonic() + within_s
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within_s, THERE_S)):
                await self._there.wait()
        left_s = ends - time.monotonic()
        if not self._there.is_set() or left_s <= 0:
            raise ShardElsewhere(f"{self._name} is not there")
        answer: Answered = await self._called(lambda handle: handle.ask.remote(shard, asked, left_s), left_s)
        return answer

    async def segments(self, wanted: Mapping[int, Wanted], wait_s: float) -> dict[int, list[Segment] | None]:
        if not self._there.is_set():
            raise ShardElsewhere(f"{self._name} is not there")
        found: dict[int, list[Segment] | None] = await self._called(
            lambda handle: handle.segments.remote(dict(wanted), wait_s), wait_s + SEGMENTS_S
        )
        return found

    async def _called(self, call_of: Remote, left_s: float) -> Any:
        """What the writer answers to this call."""
        lost = self._lost
        call = asyncio.ensure_future(self._sent(call_of))
        try:
            await asyncio.wait({call, lost}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not call.done() and lost.done():
                await asyncio.wait({call}, timeout=SETTLE_S)
            if not call.done():
                raise StoreUnavailable(f"{self._name} was asked and did not answer")
            return self._answered(call)
        finally:
            call.cancel()

    async def _sent(self, call_of: Remote) -> Any:
        """Whatever Ray throws comes to who awaits it, also what it throws before there is anything to be awaited."""
        return await call_of(self._handle)

    def close(self) -> None:
        self._watching.cancel()
        self._gone()

    def _answered(self, call: asyncio.Future[T]) -> T:
        try:
            return call.result()
        except BackPressureError as error:
            raise Overloaded(f"too much waits for {self._name}") from error
        except DeploymentUnavailableError as error:
            raise ShardElsewhere(f"{self._name} cannot be started") from error
        except Exception as error:  # whatever Ray throws: it was sent, and nobody knows more
            raise _own(error) or StoreUnavailable(f"{self._name} was lost while it was asked") from error

    async def _watch(self) -> None:
        while True:
            try:
                if self._handle is None:
                    self._handle = await asyncio.to_thread(self._open_handle, *writer_deployment(self._name))
                hold_s = WATCH_S if self._there.is_set() else 0.0
                async with asyncio.timeout(hold_s + LATE_S):  # wait_for may swallow the cancellation of `close`
                    await self._handle.watch.remote(hold_s)
                self._found()
            except BackPressureError:
                self._found()  # too busy to be watched is not gone
                await asyncio.sleep(WATCH_S)
            except Exception:  # noqa: BLE001  # gone, whatever Ray calls it
                self._gone()
                await asyncio.sleep(AGAIN_S)

    def _found(self) -> None:
        if not self._there.is_set():
            self._lost = asyncio.get_running_loop().create_future()
            self._there.set()

    def _gone(self) -> None:
        self._there.clear()
        if not self._lost.done():
            self._lost.set_result(None)


class ServeControl:
    """`ControlCalls` on Ray Serve."""

    def __init__(self, open_handle: OpenHandle = opened) -> None:
        self._open_handle = open_handle
        self._handle: Any = None

    async def beat(self, beat: Beat) -> Leases:
        return await self._asked(lambda handle: handle.beat.remote(beat), BEAT_S)

    async def leases(self, after: int = -1) -> Leases:
        return await self._asked(lambda handle: handle.leases.remote(after), LEASES_S)

    async def _asked(self, call: Callable[[Any], Any], within_s: float) -> Leases:
        try:
            if self._handle is None:
                self._handle = await asyncio.to_thread(self._open_handle, *CONTROL)
            async with asyncio.timeout(within_s):
                answer: Leases = await call(self._handle)
        except Exception as error:
            raise _own(error) or StoreUnavailable("Control does not answer") from error
        return answer


class ServeHotShards:
    """`HotShardCalls` on Ray Serve. Of each hot shard there may be several replicas."""

    def __init__(self, open_handle: OpenHandle = opened) -> None:
        self._open_handle = open_handle
        self._hot_shards: dict[int, Standing[HotShardUnavailable]] = {}

    async def products(self, number: int, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        found: HotProducts | None = await self._of(number).answer(
            lambda remote: remote.products.remote(shard, owner, version, query)
        )
        return found

    def close(self) -> None:
        while self._hot_shards:
            self._hot_shards.popitem()[1].close()

    def _of(self, number: int) -> Standing[HotShardUnavailable]:
        """Raises HotShardUnavailable for one that is known to be gone."""
        found = self._hot_shards.get(number)
        if found is None:
            name = f"hot-{number}"
            open_handle = partial(self._open_handle, *hot_shard_deployment(name))
            found = Standing(name, open_handle, asyncio.get_running_loop(), HotShardUnavailable, several=True)
            self._hot_shards[number] = found
        if found.gone:
            raise found.unavailable()
        return found


def _own(error: Exception) -> MemstrataError | None:
    """What was raised over there on purpose; Ray wraps it, or does not."""
    cause = getattr(error, "cause", error)
    return cause if isinstance(cause, MemstrataError) else None
