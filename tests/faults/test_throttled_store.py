"""A bucket that answers 503 SlowDown, loses answers or is slow: nothing acknowledged is lost or there twice."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from moto.server import ThreadedMotoServer

from serve_app.api.limits import LimitOptions
from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, refused
from tests.api.test_object_store import SIGNED, in_bucket
from tests.faults.throttled import FAIR, Throttled, Weather

CLIENTS = 8
RECOVERED_S = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    yield moto.get_host_and_port()
    moto.stop()


class Store(NamedTuple):
    """A service whose store lies behind the way; `again` gives one on the same store with nothing in between."""

    way: Throttled
    running: Running


@pytest.fixture
def store(server: tuple[str, int], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    bucket = f"b{abs(hash(request.node.name)) % 10**12}"
    url = f"http://{server[0]}:{server[1]}/{bucket}"
    assert httpx.put(url, headers={"authorization": SIGNED}, trust_env=False).status_code == 200
    way = Throttled(*server)
    settings = in_bucket(tmp_path, way.address, bucket)
    settings = msgspec.structs.replace(settings, fold=FoldOptions(age_s=1.0), limits=LimitOptions(turn_ms=60_000))
    running = Running(settings)
    yield Store(way, running)
    way.weather = FAIR
    running.stop()
    way.close()


class Wrote(NamedTuple):
    turn_id: str
    status: int
    took_s: float
    retry_after: str | None


async def writing(running: Running, client: int, until: float, **more: Any) -> list[Wrote]:
    """One client that appends turn after turn, and goes on to the next one whatever the answer."""
    done: list[Wrote] = []
    while time.monotonic() < until:
        turn_id, began = f"{client}-{len(done)}", time.monotonic()
        turn = {"id": turn_id, "role": "user", "content": f"turn {turn_id}"}
        body = {"user_id": "u", "turns": [turn], **more}
        answer = await running.ask("POST", f"/v1/sessions/s{client}/turns", json=body)
        took_s = time.monotonic() - began
        done.append(Wrote(turn_id, answer.status_code, took_s, answer.headers.get("retry-after")))
        if answer.status_code != 201:
            await asyncio.sleep(0.05)
    return done


def written(running: Running, seconds: float, **more: Any) -> list[Wrote]:
    async def all_of_them() -> list[list[Wrote]]:
        until = time.monotonic() + seconds
        return await asyncio.gather(*(writing(running, client, until, **more) for client in range(CLIENTS)))

    return [one for theirs in running.run(all_of_them()) for one in theirs]


def stored(running: Running) -> list[str]:
    return [turn["id"] for client in range(CLIENTS) for turn in running.turns("u", f"s{client}")]


def recovered_s(running: Running) -> float:
    began = time.monotonic()
    while True:
        body = {"user_id": "u", "turns": [{"role": "user", "content": "after"}]}
        if running.call("POST", "/v1/sessions/after/turns", json=body).status_code == 201:
            return time.monotonic() - began
        assert time.monotonic() - began < 60
        time.sleep(0.05)


def assert_kept(running: Running, wrote: list[Wrote]) -> None:
    """Also by a service that reads all of it from the store again."""
    for _ in range(2):
        there = stored(running)
        assert len(there) == len(set(there))
        assert {one.turn_id for one in wrote if one.status == 201} <= set(there)
        assert set(there) <= {one.turn_id for one in wrote}
        running.run(running.service.stop())
        running.run(running.service.start())


@pytest.mark.parametrize(
    "weather", [Weather(throttled=0.7), Weather(lost=0.7), Weather(throttled=0.4, lost=0.4, delay_s=0.02)], ids=str
)
@pytest.mark.slow
def test_what_is_acknowledged_by_a_store_that_throttles_is_there_once(store: Store, weather: Weather) -> None:
    running = store.running
    running.append("u", "s0", {"id": "first", "role": "user", "content": "before"})
    store.way.weather = weather
    wrote = [Wrote("first", 201, 0.0, None), *written(running, 6.0, deadline_ms=2_000)]
    assert {one.status for one in wrote} <= {201, 429, 503}
    assert all(one.retry_after for one in wrote if one.status != 201)
    assert sum(one.status == 201 for one in wrote) > 1
    store.way.weather = FAIR
    assert recovered_s(running) < RECOVERED_S
    assert_kept(running, wrote)


def test_while_the_store_takes_nothing_writes_are_refused_soon_it_is_asked_seldom_and_reads_go_on(store: Store) -> None:
    running = store.running
    running.append("u", "s0", {"id": "first", "role": "user", "content": "before"})
    store.way.weather = Weather(throttled=1.0)
    asked = store.way.requests
    wrote = written(running, 4.0)
    assert {one.status for one in wrote} == {503}
    assert all(one.retry_after for one in wrote)
    took = sorted(one.took_s for one in wrote)
    assert took[int(0.99 * len(took))] < 4.0
    assert took[len(took) // 2] < 0.5  # most are told at once that the store is left alone
    assert store.way.requests - asked < 60  # however many ask: four tries a batch, and a second between batches
    assert running.search("u", "before")["results"]
    store.way.weather = FAIR
    assert recovered_s(running) < RECOVERED_S
    assert set(stored(running)) <= {"first", *(one.turn_id for one in wrote)}


def test_a_write_waits_for_a_slow_store_as_long_as_it_says_and_is_told_that_it_may_be_stored(store: Store) -> None:
    running = store.running
    running.append("u", "s", "before", wait="indexed")
    store.way.weather = Weather(delay_s=2.0)
    turn = {"id": "late", "role": "user", "content": "late"}
    body = {"user_id": "u", "turns": [turn], "deadline_ms": 300}
    began = time.monotonic()
    answer = running.call("POST", "/v1/sessions/s/turns", json=body)
    assert time.monotonic() - began < 1.5
    refused(answer, 503, "store_unavailable")
    assert answer.headers["retry-after"] == "1"
    store.way.weather = FAIR
    again = running.ok("POST", "/v1/sessions/s/turns", json=body | {"deadline_ms": 20_000})
    assert again["results"][0]["status"] in ("stored", "duplicate")
    assert [turn["content"] for turn in running.turns("u", "s")] == ["before", "late"]


def test_a_slow_store_leaves_places_for_those_who_read(server: tuple[str, int], store: Store) -> None:
    """More writes wait than one tenant may have; its searches are answered all the same."""
    running, most = store.running, LimitOptions().tenant_writes
    running.append("u", "s", "before", wait="indexed")
    store.way.weather = Weather(delay_s=1.5)

    async def crowd() -> tuple[list[httpx.Response], httpx.Response]:
        body = {"user_id": "u", "turns": [{"role": "user", "content": "x"}]}
        calls = [
            asyncio.ensure_future(running.ask("POST", "/v1/sessions/s/turns", json=body)) for _ in range(most + 100)
        ]
        await asyncio.sleep(0.5)
        found = await running.ask("POST", "/v1/search", json={"user_id": "u", "query": "before"})
        return await asyncio.gather(*calls), found

    wrote, found = running.run(crowd())
    assert found.status_code == 200
    assert [one.status_code for one in wrote].count(201) == most
    for one in wrote:
        if one.status_code != 201:
            refused(one, 429, "rate_limited")
