"""Who is let in when more come than there is time for."""

import asyncio
from pathlib import Path
from typing import Any

from serve_app.api.door import TURN_MIN, Door
from serve_app.api.limits import LimitOptions
from tests.api.running import Running, hash_settings, refused

TURN_S = 0.05


class Clock:
    """Goes on by `each_s` whenever it is looked at."""

    def __init__(self, each_s: float) -> None:
        self.each_s, self.now = each_s, 0.0

    def __call__(self) -> float:
        self.now += self.each_s
        return self.now


async def arrivals(door: Door, count: int) -> list[bool]:
    """So many requests that are ready at once: which of them are late."""
    late: list[bool] = []
    for _ in range(count):
        asyncio.get_running_loop().call_soon(lambda: late.append(door.late()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return late


def test_a_turn_begins_what_it_has_time_for_and_the_next_one_begins_anew() -> None:
    async def crowd() -> None:
        door = Door(TURN_S, Clock(TURN_S / 100))
        for _ in range(2):
            late = await arrivals(door, 300)
            let_in = late.count(False)
            assert 99 <= let_in <= 102
            assert late == [False] * let_in + [True] * (300 - let_in)

    asyncio.run(crowd())


def test_few_are_let_in_however_slow_it_is() -> None:
    async def crowd() -> None:
        door = Door(TURN_S, Clock(TURN_S))
        assert (await arrivals(door, TURN_MIN + 9)).count(True) == 9

    asyncio.run(crowd())


def test_as_many_wait_for_a_turn_as_it_has_time_for() -> None:
    """By how long each took lately; those that were begun make room."""

    async def crowd() -> None:
        door = Door(TURN_S, Clock(TURN_S / 100))
        assert not any(door.crowded() for _ in range(300))  # nothing is known yet
        for _ in range(60):
            await arrivals(door, 100)
        came = [door.crowded() for _ in range(300)]
        let_in = came.count(False)
        assert 95 <= let_in <= 110
        assert came == [False] * let_in + [True] * (300 - let_in)
        await arrivals(door, 10)
        assert [door.crowded() for _ in range(20)] == [False] * 10 + [True] * 10

    asyncio.run(crowd())


def test_a_burst_is_answered_or_turned_away_at_once_and_whoever_comes_back_is_served(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, limits=LimitOptions(turn_ms=1)))
    running.append("u", "s", "a word")
    body = {"user_id": "u", "query": "word", "mode": "lexical"}

    async def burst() -> list[Any]:
        calls = [running.ask("POST", "/v1/search", json=body) for _ in range(400)]
        return await asyncio.gather(*calls, running.ask("GET", "/readyz", key=None))

    *answers, ready = running.run(burst())
    assert ready.status_code == 200
    assert {answer.status_code for answer in answers} == {200, 429}
    for answer in answers:
        if answer.status_code == 429:
            refused(answer, 429, "overloaded")
            assert answer.headers["retry-after"] == "1"
    assert running.ok("POST", "/v1/search", json=body)["results"]
    running.stop()
