"""The gateway's way to writers: what is asked again, what is not, and how much may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serve_app.asgi import Answered, Asked
from serve_app.cluster.lease_file import LeaseFile
from serve_app.cluster.messages import Beat, Leases
from serve_app.cluster.upstream import Upstream, UpstreamBounds
from serve_app.errors import Overloaded, ShardElsewhere, StoreUnavailable
from serve_app.stores.documents_disk import DiskDocuments

ASKED = Asked("POST", b"/v1/turns", b"", (), b"{}")
DONE = Answered(200, (), b"done")
BOUNDS = UpstreamBounds(parked=2, parked_bytes=100, pause_s=0.01, pause_s_max=0.02, moved_s=0.05)


class Fleet:
    """Control and the writers: `leases` hold, and `answers` says what each writer does with a request."""

    def __init__(self) -> None:
        self.now = Leases(1, ("a", "a"))
        self.away = False
        self.news = asyncio.Event()
        self.asked: list[str] = []
        self.does: dict[str, Callable[[], Answered]] = {"a": lambda: DONE, "b": lambda: DONE}

    def move(self, *writers: str) -> None:
        self.now = Leases(self.now.revision + 1, writers)
        self.news.set()

    async def beat(self, beat: Beat) -> Leases:
        return self.now

    async def leases(self, after: int = -1) -> Leases:
        if self.away:
            raise StoreUnavailable("Control is away")
        if self.now.revision <= after:
            self.news.clear()
            await self.news.wait()
        return self.now

    async def ask(self, writer: str, shard: int, asked: Asked, within_s: float) -> Answered:
        self.asked.append(writer)
        return self.does[writer]()


def raising(error: Exception) -> Callable[[], Answered]:
    def answer() -> Answered:
        raise error

    return answer


def played(act: Callable[[Fleet, Upstream], Awaitable[None]], file: LeaseFile | None = None) -> None:
    async def scene() -> None:
        fleet = Fleet()
        upstream = Upstream(fleet, fleet, file, BOUNDS)
        await upstream.start()
        try:
            await act(fleet, upstream)
        finally:
            await upstream.stop()

    asyncio.run(scene())


def figures(upstream: Upstream) -> dict[str, float]:
    return {name.removeprefix("memstrata_forwarded"): value for name, _, value in upstream.figures()}


def test_what_surely_was_not_done_is_asked_where_the_shard_has_gone(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        fleet.does["a"] = raising(ShardElsewhere("not here"))
        asking = asyncio.create_task(upstream.ask(0, ASKED, 10.0))
        await asyncio.sleep(0.05)
        fleet.move("", "a")
        await asyncio.sleep(0.05)
        assert not asking.done()
        fleet.move("b", "a")
        assert await asking == DONE
        assert set(fleet.asked[:-1]) == {"a"}
        assert fleet.asked[-1] == "b"

    played(act)


def test_it_ends_with_the_time_that_there_was(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        fleet.does["a"] = raising(ShardElsewhere("not here"))
        with pytest.raises(ShardElsewhere):
            await upstream.ask(0, ASKED, 0.1)
        with pytest.raises(ShardElsewhere):
            await upstream.ask(7, ASKED, 0.0)

    played(act)


def test_an_unknown_outcome_is_the_callers_unless_it_may_be_repeated(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        lost = [raising(StoreUnavailable("lost")), lambda: DONE]
        fleet.does["a"] = lambda: lost.pop(0)()
        with pytest.raises(StoreUnavailable):
            await upstream.ask(0, ASKED, 10.0)
        assert await upstream.ask(0, ASKED, 10.0) == DONE
        lost[:] = [raising(StoreUnavailable("lost")), lambda: DONE]
        assert await upstream.ask(0, ASKED, 10.0, repeatable=True) == DONE
        assert figures(upstream)["_unknown"] == 1

    played(act)


def test_once_an_outcome_is_unknown_a_later_refusal_does_not_make_it_sure(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        said = [raising(StoreUnavailable("lost"))]
        fleet.does["a"] = lambda: (said.pop() if said else raising(ShardElsewhere("not here")))()
        with pytest.raises(StoreUnavailable, match="lost"):
            await upstream.ask(0, ASKED, 0.1, repeatable=True)

    played(act)


@pytest.mark.parametrize("refusal", [raising(Overloaded("too much")), lambda: Answered(429, (), b"{}")])
def test_nor_does_one_that_says_too_much(refusal: Callable[[], Answered]) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        said = [raising(StoreUnavailable("lost"))]
        fleet.does["a"] = lambda: (said.pop() if said else refusal)()
        with pytest.raises(StoreUnavailable, match="lost"):
            await upstream.ask(0, ASKED, 0.1, repeatable=True)
        said = [raising(StoreUnavailable("lost")), *[refusal] * 2, lambda: DONE][::-1]
        assert await upstream.ask(0, ASKED, 10.0, repeatable=True) == DONE
        large = ASKED._replace(body=b"x" * 200)
        said = [raising(StoreUnavailable("lost"))]
        with pytest.raises(StoreUnavailable, match="lost"):
            await upstream.ask(0, large, 10.0, repeatable=True)
        assert figures(upstream)["_unknown"] == 2

    played(act)


def test_a_writer_that_hangs_is_left_for_the_one_that_has_its_shard(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        hanging = asyncio.Event()
        answer = fleet.ask

        async def ask(writer: str, shard: int, asked: Asked, within_s: float) -> Answered:
            if writer == "a":
                await hanging.wait()
            return await answer(writer, shard, asked, within_s)

        fleet.ask = ask  # type: ignore[method-assign]
        asking = asyncio.create_task(upstream.ask(0, ASKED, 30.0, repeatable=True))
        once = asyncio.create_task(upstream.ask(0, ASKED, 30.0))
        await asyncio.sleep(0.05)
        fleet.move("b", "b")
        assert await asking == DONE
        assert fleet.asked == ["b"]
        hanging.set()
        assert await once == DONE
        assert fleet.asked == ["b", "a"]

    played(act)


def test_only_so_many_wait_and_further_ones_hear_it_at_once(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        await asyncio.sleep(0.02)
        fleet.move("", "a")
        await asyncio.sleep(0.1)
        waiting = [asyncio.create_task(upstream.ask(0, ASKED, 10.0)) for _ in range(2)]
        await asyncio.sleep(0.02)
        with pytest.raises(Overloaded):
            await upstream.ask(0, ASKED, 10.0)
        assert await upstream.ask(1, ASKED, 10.0) == DONE
        assert figures(upstream)["_parked"] == 2
        fleet.move("b", "a")
        assert await asyncio.gather(*waiting) == [DONE, DONE]
        assert figures(upstream)["_parked"] == 0

    played(act)


def test_bodies_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    async def act(fleet: Fleet, upstream: Upstream) -> None:
        fleet.does["a"] = raising(ShardElsewhere("not here"))
        with pytest.raises(Overloaded):
            await upstream.ask(0, ASKED._replace(body=b"x" * 101), 10.0)

    played(act)


def test_while_control_is_away_the_file_says_where_to_ask(tmp_path: Path) -> None:
    file = LeaseFile(DiskDocuments(tmp_path))
    file.replace(Leases(), Leases(4, ("b", "b")))

    async def act(fleet: Fleet, upstream: Upstream) -> None:
        fleet.away = True
        assert await upstream.ask(0, ASKED, 10.0) == DONE
        assert fleet.asked == ["b"]
        assert upstream.troubles()

    played(act, file)
