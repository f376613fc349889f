"""A key has its rate, a tenant its share, a user its quota; over them the answer says when to come back."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.auth import KeyFile, Principal
from serve_app.api.door import IN_FLIGHT_MAX, READING_MAX
from serve_app.api.limits import BUCKETS_MAX, LimitOptions, Limits, Shares
from serve_app.errors import RateLimited
from serve_app.stores.documents_disk import DiskDocuments
from tests.api.running import Running, hash_settings, refused


def principal(key_id: str = "k", rate: float | None = None) -> Principal:
    return Principal(key_id, "t", "app", None, rate)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(limits: Limits, who: Principal, tries: int) -> int:
    passed = 0
    for _ in range(tries):
        try:
            limits.admit(who)
            passed += 1
        except RateLimited:
            pass
    return passed


# ---- rates


def test_a_key_may_burst_and_then_asks_at_its_rate() -> None:
    clock = Clock()
    limits = Limits(LimitOptions(requests_per_s=5), clock)
    assert admitted(limits, principal(), 20) == 5
    clock.now += 0.2
    assert admitted(limits, principal(), 20) == 1
    clock.now += 1_000
    assert admitted(limits, principal(), 20) == 5
    assert admitted(limits, principal("other"), 20) == 5


def test_a_key_s_own_rate_wins_and_without_any_there_is_none() -> None:
    clock = Clock()
    limits = Limits(LimitOptions(requests_per_s=5), clock)
    assert admitted(limits, principal("quick", 50), 100) == 50
    assert admitted(limits, principal("slow", 0.1), 100) == 1
    with pytest.raises(RateLimited) as told:
        limits.admit(principal("slow", 0.1))
    assert told.value.retry_after_s == 10
    clock.now += told.value.retry_after_s
    limits.admit(principal("slow", 0.1))
    assert admitted(Limits(LimitOptions(), clock), principal(), 10_000) == 10_000


def test_what_is_remembered_of_keys_is_bounded() -> None:
    limits = Limits(LimitOptions(requests_per_s=1), Clock())
    for number in range(BUCKETS_MAX + 50):
        limits.admit(principal(str(number)))
    assert len(limits._buckets) == BUCKETS_MAX
    assert admitted(limits, principal(str(BUCKETS_MAX + 49)), 5) == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(**limits: Any) -> Running:
        started.append(Running(hash_settings(tmp_path, limits=LimitOptions(**limits))))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


def test_a_key_is_made_with_a_rate_that_binds_at_the_door(start: Callable[..., Running]) -> None:
    running = start()
    made = running.ok("POST", "/v1/admin/keys", json={"role": "app", "rate_per_s": 3})
    assert made["rate_per_s"] == 3
    listed = {one["key_id"]: one["rate_per_s"] for one in running.ok("GET", "/v1/admin/keys")["keys"]}
    assert listed[made["key_id"]] == 3
    assert None in listed.values()

    answers = [running.call("GET", "/v1/sessions?user_id=u", key=made["key"]) for _ in range(10)]
    assert 3 <= sum(answer.status_code == 200 for answer in answers) < 10
    late = next(answer for answer in answers if answer.status_code != 200)
    refused(late, 429, "rate_limited")
    assert int(late.headers["retry-after"]) >= 1
    assert running.call("GET", "/v1/sessions?user_id=u").status_code == 200
    text = running.call("GET", "/metrics", key=None).text
    assert 'memstrata_http_refused_total{reason="rate_limited"}' in text
    for wrong in (0, -1, 1e9, "fast"):
        refused(
            running.call("POST", "/v1/admin/keys", json={"role": "app", "rate_per_s": wrong}), 422, "invalid_request"
        )


def test_a_key_file_from_before_there_were_rates_is_read(tmp_path: Path) -> None:
    keys = KeyFile(DiskDocuments(tmp_path))
    _, key = keys.create(tenant="t", role="app")
    stored = json.loads((tmp_path / "keys.json").read_text())
    assert [sorted(one) for one in stored] == [["key_id", "role", "sha256", "tenant"]]
    assert keys.principal(f"Bearer {key}".encode()).rate_per_s is None


# ---- shares


def test_a_tenant_takes_its_share_and_leaves_no_trace() -> None:
    shares = Shares(2, "things")
    with shares.place("a"), shares.place("a"), shares.place("b"):
        with pytest.raises(RateLimited), shares.place("a"):
            pass
        with shares.place("b"):
            pass
    assert not shares._held
    with pytest.raises(ValueError, match="x"), shares.place("a"):
        raise ValueError("x")
    assert not shares._held


def test_the_shares_leave_places_for_others() -> None:
    assert LimitOptions().tenant_requests < IN_FLIGHT_MAX
    assert LimitOptions().tenant_bodies < READING_MAX


def test_a_tenant_that_sends_slowly_keeps_no_other_tenant_out(start: Callable[..., Running]) -> None:
    """One tenant opens more requests than there are places for bodies; another is served meanwhile, and it is later."""
    running = start(turn_ms=60_000)
    other, most = running.make_key(tenant="other"), LimitOptions().tenant_bodies
    answers: list[int] = []

    async def crowd() -> tuple[httpx.Response, httpx.Response, httpx.Response]:
        over = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await over.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        headers = [(b"authorization", f"Bearer {running.key}".encode()), (b"content-length", b"9")]
        scope = {"type": "http", "method": "POST", "path": "/v1/search", "query_string": b"", "headers": headers}
        calls = [asyncio.ensure_future(running.service(scope, receive, send)) for _ in range(READING_MAX + 100)]
        await asyncio.sleep(0.2)
        body = {"user_id": "u", "query": "x"}
        own = await running.ask("POST", "/v1/search", json=body)
        others = await running.ask("POST", "/v1/search", json=body, key=other)
        over.set()
        await asyncio.gather(*calls)
        return own, others, await running.ask("POST", "/v1/search", json=body)

    own, others, later = running.run(crowd())
    refused(own, 429, "rate_limited")
    assert (others.status_code, later.status_code) == (200, 200)
    assert (answers.count(429), answers.count(400)) == (READING_MAX + 100 - most, most)


# ---- quotas


def test_a_user_holds_so_many_turns(start: Callable[..., Running]) -> None:
    running = start(user_turns=5)
    turns = [{"id": str(n), "role": "user", "content": "x"} for n in range(7)]
    running.append("u", "a", *turns[:3])
    body = {"user_id": "u", "turns": turns[:6]}
    over = running.call("POST", "/v1/sessions/a/turns", json=body)
    refused(over, 429, "quota_exceeded")
    assert int(over.headers["retry-after"]) >= 1
    assert len(running.turns("u", "a")) == 3
    running.append("u", "b", *turns[:2])
    again = running.append("u", "b", *turns[:2])
    assert [result["status"] for result in again["results"]] == ["duplicate"] * 2
    refused(
        running.call("POST", "/v1/sessions/c/turns", json={"user_id": "u", "turns": turns[:1]}), 429, "quota_exceeded"
    )
    running.append("v", "a", *turns[:5])
    running.ok("DELETE", "/v1/sessions/b", params={"user_id": "u"})
    running.append("u", "c", *turns[:2])
    text = running.call("GET", "/metrics", key=None).text
    assert 'memstrata_http_refused_total{reason="quota_exceeded"} 2.0' in text
    running.ok("DELETE", "/v1/users/u")
    running.append("u", "a", *turns[:5])
