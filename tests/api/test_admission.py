"""Over a bound the answer is a fast 429 that says when to come back; what was let in is answered, all of it."""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.app import IN_FLIGHT_MAX
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

    running = Running(hash_settings(tmp_path), segments=segments)
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
