"""The ways to writers and Control: what is known of a call whose other end went, by handles of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException

from serve_app.asgi import Answered, Asked
from serve_app.cluster.messages import Beat, Leases, Wanted
from serve_app.deployments.ways import THERE_S, ServeControl, ServeWriters, writer_deployment
from serve_app.errors import MemstrataError, Overloaded, ShardElsewhere, StoreUnavailable
from serve_app.stores.relay import Segment

ASKED = Asked("POST", b"/v1/x", b"", (), b"{}")
DONE = Answered(200, (), b"{}")


class Method:
    def __init__(self, replica: Replica, name: str) -> None:
        self._replica, self._name = replica, name

    async def remote(self, *given: Any) -> Any:
        await self._replica.lives.wait()
        work = asyncio.ensure_future(getattr(self._replica, f"_{self._name}")(*given))
        await asyncio.wait({work, self._replica.death}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            raise ActorUnavailableError("gone", b"1" * 16)
        return work.result()


class Replica:
    """As of a Serve handle: calls wait while it is not there, and fail when it dies under them."""

    def __init__(self) -> None:
        self.asked = 0
        self.refuses: Exception | None = None
        self.takes_s = 0.0
        self.told = Leases(7, ("writer-0",))
        self.death: asyncio.Future[None]
        self.lives = asyncio.Event()
        self.start()

    def start(self) -> None:
        self.death = asyncio.get_running_loop().create_future()
        self.lives.set()

    def die(self) -> None:
        self.lives.clear()
        self.death.set_result(None)

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    async def _watch(self, hold_s: float) -> None:
        await asyncio.sleep(hold_s)

    async def _ask(self, shard: int, asked: Asked, within_s: float) -> Answered:
        self.asked += 1
        await asyncio.sleep(self.takes_s)
        if self.refuses is not None:
            raise self.refuses
        return DONE

    async def _segments(self, wanted: dict[int, Wanted], wait_s: float) -> dict[int, list[Segment] | None]:
        await asyncio.sleep(self.takes_s)
        return {shard: [Segment(one.after + 1, b"news")] for shard, one in wanted.items()}

    async def _beat(self, beat: Beat) -> Leases:
        return self.told

    _leases = _beat


class Ending(Replica):
    """Of a Serve that ends: the handle itself refuses, before there is anything to wait for."""

    def __getattr__(self, name: str) -> Any:
        return self if name != "watch" else super().__getattr__(name)

    def remote(self, *given: Any) -> Any:
        raise RayServeException("the handle has ended")


def writers(replica: Replica, opens: list[tuple[str, str]] | None = None) -> ServeWriters:
    def open_handle(*names: str) -> Replica:
        if opens is not None:
            opens.append(names)  # type: ignore[arg-type]
        return replica

    return ServeWriters(open_handle)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


async def failed(ways: ServeWriters, error: type[MemstrataError], within_s: float = 5.0) -> float:
    began = time.monotonic()
    with pytest.raises(MemstrataError) as raised:
        await ways.ask("writer-0", 0, ASKED, within_s)
    assert type(raised.value) is error
    return time.monotonic() - began


def test_a_writer_is_found_by_its_name_and_answers() -> None:
    async def work() -> None:
        opens: list[tuple[str, str]] = []
        ways = writers(Replica(), opens)
        assert await ways.ask("writer-3", 0, ASKED, 5.0) == DONE
        assert await ways.ask("writer-3", 1, ASKED, 5.0) == DONE
        assert opens == [writer_deployment("writer-3")] == [("ShardWriter-3", "memstrata-writer-3")]
        ways.close()

    run(work())


def test_what_is_under_way_at_a_death_is_unknown_and_what_comes_after_is_surely_not_done() -> None:
    async def work() -> None:
        replica = Replica()
        ways = writers(replica)
        await ways.ask("writer-0", 0, ASKED, 5.0)
        replica.takes_s = 10.0
        under_way = asyncio.create_task(failed(ways, StoreUnavailable))
        await asyncio.sleep(0.05)
        replica.die()
        assert await under_way < 0.5
        assert replica.asked == 2
        assert THERE_S - 0.1 < await failed(ways, ShardElsewhere) < THERE_S + 1
        assert replica.asked == 2
        replica.takes_s = 0.0
        waiting = asyncio.create_task(ways.ask("writer-0", 0, ASKED, 5.0))
        await asyncio.sleep(0.1)
        replica.start()
        assert await waiting == DONE
        ways.close()

    run(work())


def test_a_writer_that_is_silent_is_given_up_for_what_waits_there() -> None:
    async def work() -> None:
        replica = Replica()
        ways = writers(replica)
        await ways.ask("writer-0", 0, ASKED, 5.0)
        replica.takes_s = 10.0
        replica.lives.clear()  # nothing fails, nothing answers: its node is gone
        assert 0.5 < await failed(ways, StoreUnavailable, 8.0) < 6
        await failed(ways, ShardElsewhere)
        ways.close()

    run(work())


def test_one_that_was_never_deployed_is_not_there() -> None:
    async def work() -> None:
        def none(*_names: str) -> Any:
            raise RayServeException("no such deployment")

        ways = ServeWriters(none)
        assert await failed(ways, ShardElsewhere, 0.2) < 1
        ways.close()

    run(work())


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (BackPressureError(num_queued_requests=1, max_queued_requests=1), Overloaded),
        (DeploymentUnavailableError.__new__(DeploymentUnavailableError), ShardElsewhere),
        (ShardElsewhere("moved"), ShardElsewhere),
        (StoreUnavailable("late"), StoreUnavailable),
        (KeyError("a fault over there"), StoreUnavailable),
    ],
)
def test_what_a_writer_says_is_told_and_what_ray_says_translated(raised: Exception, told: type[MemstrataError]) -> None:
    async def work() -> None:
        replica = Replica()
        replica.refuses = raised
        ways = writers(replica)
        await failed(ways, told)
        ways.close()

    run(work())


def test_new_segments_are_asked_for_where_the_writer_is_there_and_nobody_waits_for_one_that_is_not() -> None:
    async def work() -> None:
        replica = Replica()
        ways = writers(replica)
        wanted = {4: Wanted("me", 7)}
        with pytest.raises(ShardElsewhere):
            await ways.segments("writer-0", wanted, 0.1)
        await ways.ask("writer-0", 0, ASKED, 5.0)
        assert await ways.segments("writer-0", wanted, 0.1) == {4: [Segment(8, b"news")]}
        replica.takes_s = 10.0
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await ways.segments("writer-0", wanted, 0.1)
        assert time.monotonic() - began < 5
        under_way = asyncio.create_task(ways.segments("writer-0", wanted, 8.0))
        await asyncio.sleep(0.05)
        replica.die()
        with pytest.raises(StoreUnavailable):
            await under_way
        assert time.monotonic() - began < 8
        ways.close()

    run(work())


def test_control_answers_or_is_unavailable() -> None:
    async def work() -> None:
        replica = Replica()
        control = ServeControl(lambda *_names: replica)
        assert await control.leases(3) == replica.told == await control.beat(Beat("writer-0", "a"))
        replica.lives.clear()
        with pytest.raises(StoreUnavailable):
            await control.beat(Beat("writer-0", "a"))

    run(work())


def test_a_handle_that_refuses_at_once_is_no_defect() -> None:
    async def scene() -> None:
        way = writers(Ending())
        with pytest.raises(StoreUnavailable):
            await way.ask("writer-0", 0, ASKED, 5.0)
        with pytest.raises(StoreUnavailable):
            await way.segments("writer-0", {0: Wanted("me", 1)}, 0.1)
        way.close()

    run(scene())
