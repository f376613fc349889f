"""The lane: every job is answered once, in order of asking, whatever a job does; and its end lets nobody wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from serve_app.errors import StoreUnavailable
from serve_app.memory.lane import Lane

MANY = 500


def test_each_job_gets_its_own_result() -> None:
    async def ask() -> list[int]:
        lane = Lane()
        try:
            return await asyncio.gather(*(lane.run(pow, n, 2) for n in range(MANY)))
        finally:
            lane.close()

    assert asyncio.run(ask()) == [n * n for n in range(MANY)]


def test_jobs_run_one_after_the_other_on_a_thread_of_their_own() -> None:
    ran: list[tuple[int, int]] = []

    async def ask() -> None:
        lane = Lane()
        await asyncio.gather(*(lane.run(lambda n=n: ran.append((n, threading.get_ident()))) for n in range(MANY)))
        lane.close()

    asyncio.run(ask())
    assert [n for n, _ in ran] == list(range(MANY))
    assert {thread for _, thread in ran}.isdisjoint({threading.get_ident()})
    assert len({thread for _, thread in ran}) == 1


def test_results_that_come_while_the_loop_is_busy_need_one_wake_up() -> None:
    async def ask() -> int:
        lane, loop = Lane(), asyncio.get_running_loop()
        told, tell = 0, loop.call_soon_threadsafe

        def counted(*arguments: object) -> object:
            nonlocal told
            told += 1
            return tell(*arguments)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        asked = [lane.run(int) for _ in range(MANY)]
        lane.close()  # all are done before the loop looks
        await asyncio.gather(*asked)
        return told

    assert asyncio.run(ask()) == 1


def test_a_job_that_fails_fails_its_caller_alone() -> None:
    async def ask() -> list[object]:
        lane = Lane()
        asked = [lane.run(int, text) for text in ("1", "no number", "3")]
        found: list[object] = await asyncio.gather(*asked, return_exceptions=True)
        lane.close()
        return found

    first, failed, last = asyncio.run(ask())
    assert (first, last) == (1, 3)
    assert isinstance(failed, ValueError)


def test_a_caller_that_has_gone_costs_nothing() -> None:
    async def ask() -> list[str]:
        lane, held, ran = Lane(), threading.Event(), []
        blocked = lane.run(held.wait)
        gone = lane.run(ran.append, "gone")
        kept = lane.run(ran.append, "kept")
        gone.cancel()
        held.set()
        await asyncio.gather(blocked, kept)
        lane.close()
        return ran

    assert asyncio.run(ask()) == ["kept"]


def test_after_its_end_it_refuses() -> None:
    async def ask() -> None:
        lane = Lane()
        asked = lane.run(int, "7")
        lane.close()
        assert await asked == 7
        with pytest.raises(StoreUnavailable):
            lane.run(int)

    asyncio.run(ask())
