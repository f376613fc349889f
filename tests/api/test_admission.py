"""Over a bound the answer is a fast 429 that says when to come back; what was let in is answered, all of it."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.door import IN_FLIGHT_MAX, READING_MAX
from serve_app.api.http import problem_response, read_body
from serve_app.api.limits import LimitOptions
from serve_app.api.problems import HttpError, problem
from serve_app.memory.memory import MemoryOptions
from serve_app.ports import SegmentStore
from serve_app.stores.segments_object import open_segments
from serve_app.write.commit import WriterBounds
from tests.api.running import Running, hash_settings, refused

TURNS = 1_000
QUEUED = WriterBounds().queue_weight


class Stalled:
    """A segment store whose `create` waits while the gate is closed."""

    def __init__(self, inner: SegmentStore, gate: threading.Event) -> None:
        self._inner = inner
        self._gate = gate

    def create(self, name: str, data: bytes) -> None:
        self._gate.wait()
        self._inner.create(name, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    opened.set()
    yield opened
    opened.set()


@pytest.fixture
def stalled(tmp_path: Path, gate: threading.Event) -> Iterator[Running]:
    def segments(uri: str, options: Mapping[str, str]) -> SegmentStore:
        return Stalled(open_segments(uri, options), gate)

    most = 2 * IN_FLIGHT_MAX
    whole = LimitOptions(turn_ms=60_000, tenant_requests=most, tenant_writes=most, tenant_bodies=2 * READING_MAX)
    patient = MemoryOptions(write_wait_s=60.0)
    running = Running(hash_settings(tmp_path, limits=whole, memory=patient), segments=segments)
    yield running
    gate.set()
    running.stop()


def body(user: str, number: int, count: int) -> dict[str, Any]:
    return {
        "user_id": user,
        "turns": [{"id": f"{number}-{turn}", "role": "user", "content": "x"} for turn in range(count)],
    }


async def burst(running: Running, gate: threading.Event, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    """All at once while nothing can be committed; the gate opens when what is refused has been refused."""
    gate.clear()
    calls = [asyncio.ensure_future(running.ask("POST", "/v1/sessions/s/turns", json=one)) for one in bodies]
    refusing = time.monotonic()
    while time.monotonic() - refusing < 20:
        await asyncio.sleep(0.05)
        if any(call.done() for call in calls):
            break
    await asyncio.sleep(0.3)
    assert all(call.result().status_code == 429 for call in calls if call.done())
    gate.set()
    return await asyncio.gather(*calls)


def accounted(running: Running, user: str, answers: list[httpx.Response], count: int) -> tuple[int, int]:
    """(accepted, refused) calls: all turns of the accepted ones are there, none of the refused ones."""
    turned_away = [answer for answer in answers if answer.status_code == 429]
    for answer in turned_away:
        refused(answer, 429, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
    accepted = [answer for answer in answers if answer.status_code == 201]
    assert len(accepted) + len(turned_away) == len(answers)
    stored = sum(
        session["turns"] for session in running.ok("GET", "/v1/sessions", params={"user_id": user})["sessions"]
    )
    assert stored == count * len(accepted)
    return len(accepted), len(turned_away)


def test_too_many_requests_in_flight(stalled: Running, gate: threading.Event) -> None:
    more = 40
    bodies = [body("many", number, 1) for number in range(IN_FLIGHT_MAX + more)]
    answers = stalled.run(burst(stalled, gate, bodies))
    assert accounted(stalled, "many", answers, 1) == (IN_FLIGHT_MAX, more)
    assert stalled.call("GET", "/healthz", key=None).status_code == 200


def test_a_full_write_queue(stalled: Running, gate: threading.Event) -> None:
    calls = QUEUED // TURNS + 12
    answers = stalled.run(burst(stalled, gate, [body("full", number, TURNS) for number in range(calls)]))
    accepted, turned_away = accounted(stalled, "full", answers, TURNS)
    assert accepted >= QUEUED // TURNS
    assert turned_away >= 1
    text = stalled.call("GET", "/metrics", key=None).text
    assert f'memstrata_http_refused_total{{reason="overloaded"}} {float(turned_away)}' in text


def test_bodies_that_never_end_keep_nobody_from_working(stalled: Running) -> None:
    url = httpx.URL(stalled.listen())
    head = f"POST /v1/search HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stalled.key}\r\nContent-Length: 99\r\n\r\n"
    with ExitStack() as open_ones:
        for _ in range(IN_FLIGHT_MAX + 8):
            slow = open_ones.enter_context(socket.create_connection((url.host, url.port)))
            slow.sendall(head.encode() + b'{"user')
        headers = {"authorization": f"Bearer {stalled.key}"}
        for _ in range(3):
            answer = httpx.post(
                f"{url}/v1/search", json={"user_id": "u", "query": "x"}, headers=headers, trust_env=False
            )
            assert answer.status_code == 200, answer.text
            time.sleep(0.2)


def test_too_many_bodies_at_once(stalled: Running) -> None:
    """Whoever comes when all places are taken is sent away; once they are free again, nobody is."""

    async def slow(begun: list[int], full: asyncio.Event, over: asyncio.Event, answers: list[int]) -> None:
        async def receive() -> dict[str, Any]:
            begun.append(1)
            if len(begun) == READING_MAX:
                full.set()
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        headers = [(b"authorization", f"Bearer {stalled.key}".encode()), (b"content-length", b"9")]
        scope = {"type": "http", "method": "POST", "path": "/v1/search", "query_string": b"", "headers": headers}
        await stalled.service(scope, receive, send)

    async def crowd() -> tuple[list[int], httpx.Response, httpx.Response]:
        begun: list[int] = []
        answers: list[int] = []
        full, over = asyncio.Event(), asyncio.Event()
        calls = [asyncio.ensure_future(slow(begun, full, over, answers)) for _ in range(READING_MAX)]
        await full.wait()
        body = {"user_id": "u", "query": "x"}
        turned_away = await stalled.ask("POST", "/v1/search", json=body)
        over.set()
        await asyncio.gather(*calls)
        return answers, turned_away, await stalled.ask("POST", "/v1/search", json=body)

    answers, turned_away, later = stalled.run(crowd())
    assert answers == [400] * READING_MAX
    refused(turned_away, 429, "overloaded")
    assert int(turned_away.headers["retry-after"]) >= 1
    assert later.status_code == 200


def test_a_body_that_takes_too_long_is_given_up() -> None:
    async def trickle() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(HttpError) as given_up:
        asyncio.run(asyncio.wait_for(read_body({}, trickle, limit_s=0.1), 5))
    assert given_up.value.code == "body_timeout"
    answer = problem_response(problem("body_timeout", str(given_up.value)))
    assert (answer.status, (b"connection", b"close") in answer.headers) == (408, True)
