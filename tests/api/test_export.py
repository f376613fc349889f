"""An export is complete, is read in pages, shows that it is whole, and can be read back into any store."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.http import NDJSON, Response, send_stream
from serve_app.api.limits import LimitOptions
from serve_app.client.http import Client
from serve_app.client.ingest import ingest, survey
from serve_app.errors import StoreUnavailable
from serve_app.memory.memory import MemoryOptions
from serve_app.stores.lance import RecordTable
from tests.api.running import Running, hash_settings, quoted, refused

OF_PLACE = ("user_id", "seq", "arrived_at", "written_at")
"""What another store gives anew."""

ODD_SESSIONS = ["..", "a/b", "%2e%2e", "s ?&#", "\u200b", "Ångström", "A\u030angstro\u0308m", "会话", "' OR 1=1 --"]


@pytest.fixture(scope="module")
def address(service: Running) -> str:
    return service.listen()


def exported(service: Running, user: str, key: str = "") -> list[dict[str, Any]]:
    answer = service.call("GET", f"/v1/users/{quoted(user)}/export", key=key)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.content.splitlines()]


def comparable(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what belongs to the place; summaries are made anew."""
    kept = [line for line in lines if line["kind"] != "summary"]
    for line in kept:
        line.pop("summaries", None)
    return [{name: value for name, value in line.items() if name not in OF_PLACE} for line in kept]


def full_of_everything(service: Running, user: str) -> None:
    calls = [{"id": "c1", "name": "look", "arguments": {"q": [1, None, "ü"]}}, {"id": "c2", "name": "none"}]
    data = {"big": 2**70 + 1, "neg": -(2**90), "0.1": 0.1, "nul": None, "schlüssel": {"深": [True, {}]}, "3": 3.0}
    turns: list[dict[str, Any]] = [
        {"id": "1", "role": "user", "content": "line\u2028separator \x85 and\r\nends", "speaker": "Zoë"},
        {"id": "2", "role": "assistant", "content": "calls", "tool_calls": calls, "metadata": {"m": {"n": -5}}},
        {"id": "3", "role": "tool", "tool_call_id": "c1", "tool_name": "look", "data": data, "field_ttl": {"neg": 900}},
        {"id": "4", "role": "tool", "tool_call_id": "c2", "content": "said", "data": [2**64]},
        {"id": "5", "role": "user", "content": "old", "created_at": "2019-02-03T04:05:06.123457+05:45"},
        {"id": "6", "role": "user", "content": "leaves", "ttl_seconds": 4_000, "created_at": None, "metadata": {}},
        {"id": "7", "role": "system", "content": '{"a": 1}'},
    ]
    for session in ODD_SESSIONS:
        service.append(user, session, *turns)
    service.append(user, ODD_SESSIONS[0], {"id": "late", "role": "user", "content": "comes last"})
    for key, fact in {
        "k": {"value": "plain"},
        "a/b": {"value": "ordered", "entity_class": "orders"},
        "..": {"value": "short", "ttl_seconds": 3_600, "entity_class": "whim"},
        "never": {"value": "stays", "entity_class": "identity", "expires_at": None},
    }.items():
        service.ok("PUT", f"/v1/users/{user}/facts/{quoted(key)}", json=fact)


def test_an_export_read_back_is_the_same_export(service: Running, address: str, tmp_path: Path) -> None:
    full_of_everything(service, "source")
    service.ok("POST", f"/v1/sessions/{quoted('a/b')}/summary:refresh", params={"user_id": "source"})
    lines = exported(service, "source")
    made = sum(line["kind"] == "summary" for line in lines)  # more are made in the background
    assert made >= 1
    assert lines[-1] == {"kind": "end", "user_id": "source", "turns": 64, "facts": 4, "summaries": made, "golden": 0}
    assert [line["kind"] for line in lines] == ["turn"] * 64 + ["fact"] * 4 + ["summary"] * made + ["end"]
    seqs = [line["seq"] for line in lines if line["kind"] == "turn"]
    assert seqs == sorted(seqs)
    path = tmp_path / "export.ndjson"
    path.write_bytes(service.call("GET", "/v1/users/source/export").content)
    assert survey(path) == (64, 0, 4, False)
    key = service.make_key(tenant="elsewhere")
    with Client(address, key) as client:
        done = ingest(client, path, lambda _: None, "target")
    assert (dict(done.statuses), done.facts) == ({"stored": 64}, 4)
    assert comparable(exported(service, "target", key)) == comparable(lines)
    with Client(address, key) as client:
        assert dict(ingest(client, path, lambda _: None, "target").statuses) == {"duplicate": 64}
    assert comparable(exported(service, "target", key)) == comparable(lines)


def test_a_fact_ends_when_it_is_said_to(service: Running) -> None:
    both = {"value": "v", "ttl_seconds": 5, "expires_at": "2990-01-01T00:00:00Z"}
    refused(service.call("PUT", "/v1/users/f/facts/k", json=both), 422, "invalid_request")
    refused(service.call("PUT", "/v1/users/f/facts/k", json={"value": "v", "expires_at": "x"}), 422, "invalid_request")
    put = service.ok("PUT", "/v1/users/f/facts/k", json={"value": "v", "expires_at": "2990-01-01T00:00:00Z"})
    assert put["expires_at"] == "2990-01-01T00:00:00Z"
    service.ok("PUT", "/v1/users/f/facts/k", json={"value": "v", "expires_at": "1990-01-01T00:00:00Z"})
    assert service.ok("GET", "/v1/users/f/facts") == {"facts": []}


def test_of_an_unknown_user_there_is_the_end_alone(service: Running) -> None:
    counts = {"turns": 0, "facts": 0, "summaries": 0, "golden": 0}
    assert exported(service, "nobody") == [{"kind": "end", "user_id": "nobody", **counts}]


def test_head_gives_no_body_and_holds_no_place(service: Running) -> None:
    for _ in range(2 * LimitOptions().tenant_exports):
        answer = service.call("HEAD", "/v1/users/source/export")
        assert (answer.status_code, answer.content) == (200, b"")


# ---- an export that does not end well


class Failing(RecordTable):
    """A table that stops answering after some reads."""

    reads_left = 10**9

    def turns(self, owner: str, seqs: Any) -> Any:
        Failing.reads_left -= 1
        if Failing.reads_left < 0:
            raise StoreUnavailable("gone")
        return super().turns(owner, seqs)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=8, rest_s=0.01)), table=Failing)
    for start in range(0, 400, 100):
        running.append("u", "s", *[{"id": str(n), "role": "user", "content": "x"} for n in range(start, start + 100)])
    running.fold()
    yield running
    Failing.reads_left = 10**9
    running.stop()


def test_a_store_that_fails_at_once_is_an_error_and_later_a_broken_transfer(failing: Running, tmp_path: Path) -> None:
    url, headers = failing.listen(), {"authorization": f"Bearer {failing.key}"}
    Failing.reads_left = 0
    refused(failing.call("GET", "/v1/users/u/export"), 503, "store_unavailable")
    Failing.reads_left = 2
    got: list[bytes] = []
    with httpx.stream("GET", f"{url}/v1/users/u/export", headers=headers, trust_env=False) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            got.extend(answer.iter_bytes())
    assert b"".join(got).count(b"\n") >= 32
    assert b'"kind":"end"' not in b"".join(got)
    cut = tmp_path / "cut.ndjson"
    cut.write_bytes(b"".join(got))
    assert survey(cut).cut
    Failing.reads_left = 10**9
    whole = failing.call("GET", "/v1/users/u/export").content
    cut.write_bytes(whole)
    assert survey(cut) == (400, 0, 0, False)
    cut.write_bytes(b"".join(whole.splitlines(keepends=True)[3:]))
    assert survey(cut).cut


def test_who_leaves_stops_the_reading(service: Running) -> None:
    """Pieces are not made for a caller that has gone."""
    made: list[int] = []

    async def leave() -> None:
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if len(made) == 3:
                left.set()
                await asyncio.sleep(0.01)

        async def pieces() -> Any:
            for number in range(1_000):
                made.append(number)
                yield b"x"

        await send_stream(receive, send, Response(200, b"first", NDJSON, pieces=pieces()), b"-")

    service.run(leave())
    assert len(made) < 10


def test_a_tenant_has_so_many_exports_at_once_and_each_gives_its_place_back(service: Running) -> None:
    most, other = LimitOptions().tenant_exports, service.make_key(tenant="patient")
    service.append("slow", "s", "said")
    path = "/v1/users/slow/export"

    async def crowd() -> list[httpx.Response]:
        taken, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def send(message: Any) -> None:
            if message.get("body"):
                begun.release()
                await taken.wait()

        calls = [asyncio.ensure_future(service.service(asked(path), silent, send)) for _ in range(most)]
        for _ in calls:
            await begun.acquire()
        answers = [await service.ask("GET", path), await service.ask("GET", path, key=other)]
        taken.set()
        await asyncio.gather(*calls)
        return [*answers, await service.ask("GET", path)]

    def asked(path: str) -> dict[str, Any]:
        headers = [(b"authorization", f"Bearer {service.key}".encode())]
        return {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}

    left = {"asked": 0}

    async def silent() -> dict[str, Any]:
        left["asked"] += 1
        if left["asked"] <= most:  # their bodies, which are empty
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    turned_away, others, later = service.run(crowd())
    refused(turned_away, 429, "rate_limited")
    assert int(turned_away.headers["retry-after"]) >= 1
    assert (others.status_code, later.status_code) == (200, 200)
