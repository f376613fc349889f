"""A replica as a service: it reads what another service writes, says how stale it is, and refuses every write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.api.app import READING_POSTS
from serve_app.api.openapi import document
from serve_app.config import Settings, StoreOptions, load_settings
from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.stores.relay import SegmentRing
from serve_app.stores.segments_object import open_reader
from serve_app.write.follow import FollowOptions
from tests.api.running import Running, hash_settings, refused

NOW = "2030-01-01T00:00:00Z"


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(settings: Settings, **injected: Any) -> Running:
        started.append(Running(settings, **injected))
        return started[-1]

    yield begin
    for running in reversed(started):
        running.stop()


@pytest.fixture
def writer(start: Callable[..., Running], tmp_path: Path) -> Running:
    return start(hash_settings(tmp_path / "writer"))


def following(writer: Running, **follow: Any) -> Settings:
    folder = writer.data.parent / "replica"
    chosen = FollowOptions(data=str(writer.data), **follow)
    return hash_settings(folder, role="replica", follow=chosen)


@pytest.fixture
def replica(start: Callable[..., Running], writer: Running) -> Running:
    one = start(following(writer))
    (one.data / "admin.key").write_text(writer.key)  # for the calls of these tests; it holds no key of its own
    return one


def reached(replica: Running, receipt: str, user: str = "u") -> None:
    replica.search(user, "x", min_receipt=receipt)


def test_it_answers_as_its_writer_does(writer: Running, replica: Running) -> None:
    writer.append("u", "s", *[f"the river number {n}" for n in range(12)], wait="indexed")
    writer.ok("PUT", "/v1/users/u/facts/colour", json={"value": "blue"})
    receipt = writer.append("u", "s", "the last one", wait="indexed")["receipt"]
    reached(replica, receipt)
    paths = ["/v1/sessions/s/turns?user_id=u", "/v1/sessions?user_id=u", "/v1/users/u/facts", "/v1/users/u/export"]
    for path in paths:
        assert replica.call("GET", path).text == writer.call("GET", path).text
    asked = {"query": "river number 7", "session_id": "s", "now": NOW, "min_receipt": receipt}
    ours, theirs = (one.context("u", **asked) for one in (replica, writer))
    assert (ours["context_id"], ours["messages"]) == (theirs["context_id"], theirs["messages"])
    ours, theirs = (
        [(one["id"], one["score"]) for one in each.search("u", "river")["results"]] for each in (replica, writer)
    )
    assert ours == theirs


def test_a_read_with_a_receipt_waits_for_it_or_says_that_it_is_not_reached(writer: Running, replica: Running) -> None:
    for number in range(20):
        receipt = writer.append("u", "s", f"word {number}")["receipt"]
        assert replica.found("u", f"word {number}", mode="lexical", min_receipt=receipt)[0] == f"word {number}"
    shard, _, seq = receipt.partition(":")
    body = {"user_id": "u", "query": "x", "min_receipt": f"{shard}:{int(seq) + 100}", "deadline_ms": 150}
    began = time.monotonic()
    answer = replica.call("POST", "/v1/search", json=body)
    refused(answer, 503, "receipt_not_reached")
    assert "retry-after" in answer.headers
    assert 0.1 < time.monotonic() - began < 5


def test_every_route_that_writes_is_refused_and_nothing_is_written(writer: Running, replica: Running) -> None:
    writer.append("u", "s", {"id": "t", "role": "user", "content": "kept"})
    routes = [(path, method) for path, methods in document()["paths"].items() for method in methods]
    written = [pair for pair in routes if pair[1] != "get" and pair[0] not in READING_POSTS]
    assert len(written) >= 10
    for path, method in written:
        for name in ("session_id", "turn_id", "user_id", "key", "key_id", "name"):
            path = path.replace(f"{{{name}}}", "x")
        answer = replica.call(method.upper(), path, json={})
        refused(answer, 503, "read_only_replica")
        assert int(answer.headers["retry-after"]) >= 1
    assert [turn["content"] for turn in writer.turns("u", "s")] == ["kept"]


def test_what_is_deleted_is_gone_here_too_and_keys_count_at_once(writer: Running, replica: Running) -> None:
    writer.append("gone", "s", "to be erased")
    key = writer.make_key(user_id="u")
    receipt = writer.append("u", "s", "kept")["receipt"]
    assert replica.call("GET", "/v1/sessions?user_id=u", key=key).status_code == 200
    refused(replica.call("GET", "/v1/sessions?user_id=gone", key=key), 403, "forbidden")
    reached(replica, receipt)
    erasure = writer.ok("DELETE", "/v1/users/gone")["erasure_id"]
    while writer.ok("GET", f"/v1/erasures/{erasure}")["state"] != "done":
        time.sleep(0.02)
    ends = time.monotonic() + 20
    while replica.call("GET", f"/v1/erasures/{erasure}").json().get("state") != "done":
        assert time.monotonic() < ends
        time.sleep(0.02)
    assert replica.turns("gone", "s") == []
    assert replica.found("gone", "erased") == []
    key_id = key.split("_")[1]
    writer.ok("DELETE", f"/v1/admin/keys/{key_id}")
    refused(replica.call("GET", "/v1/sessions?user_id=u", key=key), 401, "unauthorized")


def test_it_says_how_far_it_is_behind(start: Callable[..., Running], writer: Running) -> None:
    writer.append("u", "s", "known", wait="indexed")
    asleep = {"now": False}

    def reader(uri: str, options: Any) -> Any:
        inner = open_reader(uri, options)

        class Sleepy:
            def __getattr__(self, name: str) -> Any:
                if asleep["now"]:
                    raise StoreUnavailable("asleep")
                return getattr(inner, name)

        return Sleepy()

    replica = start(following(writer), reader=reader)
    (replica.data / "admin.key").write_text(writer.key)
    assert replica.ok("GET", "/readyz", key=None) == {"status": "ready", "degraded": []}
    assert all(0 <= one["behind_s"] < 5 for one in replica.ok("GET", "/v1/admin/stats")["shards"])
    assert replica.search("u", "known")["degradation"]["reasons"] == []
    asleep["now"] = True
    time.sleep(0.6)
    writer.append("u", "s", "not seen")
    degraded = replica.ok("GET", "/readyz", key=None)["degraded"]
    assert [(one["what"], one["shard"]) for one in degraded] == [("replica_behind", 0), ("replica_behind", 1)]
    assert "asleep" in degraded[0]["detail"]
    assert all(one["behind_s"] > 0.2 for one in replica.ok("GET", "/v1/admin/stats")["shards"])
    for answer in (replica.search("u", "known"), replica.context("u", session_id="s")):
        [reason] = answer["degradation"]["reasons"]
        assert reason.startswith("replica: ")
        assert reason.endswith("s behind")
    assert [turn["content"] for turn in replica.turns("u", "s")] == ["known"]
    assert "memstrata_replica_behind_seconds" in replica.call("GET", "/metrics", key=None).text


def test_it_outlives_its_writer_and_follows_the_next_one(start: Callable[..., Running], tmp_path: Path) -> None:
    """The next writer has another data folder and the same log and tables."""
    shared = StoreOptions(shards=2, log_uri=str(tmp_path / "log"), tables_uri=str(tmp_path / "tables"))
    first = start(hash_settings(tmp_path / "first", store=shared))
    first.append("u", "s", "by the first", wait="indexed")
    replica = start(hash_settings(tmp_path / "replica", store=shared, role="replica"))
    assert [turn["content"] for turn in replica.turns("u", "s")] == ["by the first"]
    second = start(hash_settings(tmp_path / "second", store=shared))
    receipt = second.append("u", "s", "by the second")["receipt"]
    reached(replica, receipt)
    assert [turn["content"] for turn in replica.turns("u", "s")] == ["by the first", "by the second"]
    body = {"user_id": "u", "turns": [{"role": "user", "content": "late"}]}
    refused(first.call("POST", "/v1/sessions/s/turns", json=body), 503, "writer_fenced")


def test_what_cannot_be_followed_is_refused_by_name(
    start: Callable[..., Running], writer: Running, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnavailable, match="no table shard-0000"):
        start(hash_settings(tmp_path / "r1", role="replica", follow=FollowOptions(data=str(tmp_path / "nowhere"))))
    unnamed = StoreOptions()
    with pytest.raises(InvalidRequest, match=r"store\.json is not there: name the store's number of shards"):
        start(hash_settings(tmp_path / "r2", store=unnamed, role="replica", follow=FollowOptions(data=str(tmp_path))))
    assert not (tmp_path / "nowhere").exists()
    seven = StoreOptions(shards=7)
    with pytest.raises(InvalidRequest, match="2 shards; the settings ask for 7"):
        start(hash_settings(tmp_path / "r3", store=seven, role="replica", follow=FollowOptions(data=str(writer.data))))
    with pytest.raises(InvalidRequest, match="hash_64"):
        start(following(writer), encoder=lambda _: HashEmbedder(32))
    with pytest.raises(StoreUnavailable, match="in use"):
        start(hash_settings(writer.data, role="replica"))


def test_the_settings_of_a_replica(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, follow=tmp_path / "writer")
    assert (settings.role, settings.follow.data) == ("replica", str(tmp_path / "writer"))
    assert settings.layout.log_uri == str(tmp_path / "writer" / "log")
    config = tmp_path / "c.toml"
    config.write_text('role = "replica"\n[follow]\ndata = "/x"\npoll_s = 0.5\n')
    assert load_settings(tmp_path, config).follow == FollowOptions(data="/x", poll_s=0.5)
    assert load_settings(tmp_path, config, follow=Path("/y")).follow.data == "/y"
    for text, named in [
        ('role = "replica"\n', "a replica follows"),
        ('[follow]\ndata = "/x"\n', "follow.data"),
        ("[follow]\npoll_s = 0\n", "poll_s"),
        ('role = "reader"\n', "role"),
    ]:
        config.write_text(text)
        with pytest.raises(InvalidRequest, match=named):
            load_settings(tmp_path, config)


def test_reads_of_many_at_once_stay_exact_while_the_writer_writes(writer: Running, replica: Running) -> None:
    """Each read names the receipt of a write: its turn is there, whatever fold or commit is in flight."""

    async def one(number: int) -> None:
        for step in range(8):
            word = f"w{number}x{step}"
            body = {"user_id": f"user-{number}", "turns": [{"role": "user", "content": word}]}
            written = await writer.ask("POST", f"/v1/sessions/s{number}/turns", json=body)
            asked = {
                "user_id": f"user-{number}",
                "query": word,
                "mode": "lexical",
                "min_receipt": written.json()["receipt"],
            }
            answer: httpx.Response = await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(replica.ask("POST", "/v1/search", json=asked), replica.loop)
            )
            assert answer.json()["results"][0]["content"] == word, answer.text

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(8)))

    writer.fold()
    writer.run(all_of_them())


def test_golden_queries_are_read_and_follow_their_turns(writer: Running, replica: Running) -> None:
    writer.append("u", "s", *[{"id": one, "role": "user", "content": one} for one in ("a", "b")])
    for turn in ("a", "b"):
        gold = [{"session_id": "s", "turn_id": turn}]
        body = {"user_id": "u", "query": turn, "gold": gold}
        receipt = writer.ok("POST", "/v1/golden", json=body)
        refused(replica.call("POST", "/v1/golden", json=body), 503, "read_only_replica")
    reached(replica, writer.append("u", "s", "more")["receipt"])
    assert [one["query"] for one in replica.ok("GET", "/v1/golden")["golden"]] == ["a", "b"]
    refused(replica.call("DELETE", "/v1/golden", params={"id": receipt["id"]}), 503, "read_only_replica")
    gone = writer.ok("DELETE", "/v1/turns/a", params={"user_id": "u", "session_id": "s"})
    reached(replica, gone["receipt"])
    assert [one["query"] for one in replica.ok("GET", "/v1/golden")["golden"]] == ["b"]


def test_layouts_tuned_at_the_writer_count_here_at_once_and_give_the_same_bytes(
    writer: Running, replica: Running
) -> None:
    turns = [f"turn {number} of a kettle" for number in range(60)]
    receipt = writer.append("u", "s", *turns, wait="indexed")["receipt"]
    layout = {"shares": {"system": 0, "facts": 0, "summary": 0, "retrieved": 0, "recent": 80, "query": 20}}
    reached(replica, receipt)
    for revision, recent in enumerate((80, 40), 1):
        layout["shares"]["recent"] = recent
        writer.ok("PUT", "/v1/admin/layouts/own", json=layout)
        asked = {"session_id": "s", "now": NOW, "as_of": f"{receipt}@{revision}", "layout": "own"}
        pages = [one.context("u", "boats?", 300, **asked) for one in (writer, replica)]
        assert pages[0]["layout"] == pages[1]["layout"]
        assert pages[0]["context_id"] == pages[1]["context_id"]
    refused(replica.call("PUT", "/v1/admin/layouts/own", json=layout), 503, "read_only_replica")
    assert replica.ok("GET", "/v1/admin/layouts") == writer.ok("GET", "/v1/admin/layouts")


def test_what_a_writer_hands_over_is_shown_without_a_look_at_the_log(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    """Its looks are a minute apart: what it shows before has come from the writer."""
    rings = [SegmentRing() for _ in range(2)]
    writer = start(hash_settings(tmp_path / "writer"), ring=rings.__getitem__)
    writer.append("u", "s", "first")
    replica = start(following(writer, poll_s=60, look_s=60, stale_s=1), relay=rings.__getitem__)
    (replica.data / "admin.key").write_text(writer.key)
    for number in range(3):
        receipt = writer.append("u", "s", f"the river number {number}")["receipt"]
        found = replica.search("u", "river", min_receipt=receipt, deadline_ms=20_000)["results"]
        assert f"the river number {number}" in [one["content"] for one in found]
