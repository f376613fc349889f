"""A whole service over time: what leaves memory and what goes cold, who finds it there, and that erasing reaches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.config import Settings, StoreOptions
from serve_app.policies import DAY_S
from serve_app.retrieve.cold import COLD_CANDIDATES
from serve_app.write.commit import microseconds
from tests.api.running import Running, hash_settings, refused, word
from tests.api.test_object_store import REGION, SIGNED, bucket, server

__all__ = ["bucket", "server"]

SECRET = "kQ7xZp2LmW9sentinel"


class Hands:
    """The service's clock, put forward by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> int:
        return microseconds() + int(self.ahead * DAY_S * 1_000_000)


class Aged:
    def __init__(self, settings: Settings) -> None:
        self.clock = Hands()
        self.running = Running(settings, clock=self.clock)

    def later(self, days: float) -> None:
        self.clock.ahead += days
        self.running.fold()
        self.running.ok("POST", "/v1/admin/maintenance", json={"action": "demote"})
        self.running.fold()

    def again(self) -> None:
        self.running = self.running.again(clock=self.clock)

    def cold(self, query: str, user: str = "u", **more: Any) -> Any:
        return self.running.search(user, query, **({"tiers": ["cold"]} | more))


@pytest.fixture
def aged() -> Iterator[Callable[[Settings], Aged]]:
    started: list[Aged] = []

    def start(settings: Settings) -> Aged:
        started.append(Aged(settings))
        return started[-1]

    yield start
    for one in started:
        one.running.stop()


@pytest.fixture
def old(aged: Callable[[Settings], Aged], tmp_path: Path) -> Aged:
    """A user with a cold session and a new one, and another user with the same words."""
    one = aged(hash_settings(tmp_path / "data"))
    turns = [{"role": "user", "content": f"the {word(n)} harbour", "id": f"{n}"} for n in range(4)]
    one.running.append("u", "old", *turns)
    one.running.append("other", "old", "the harbour of another")
    one.later(31)
    one.running.append("u", "new", "a harbour seen today")
    return one


def contents(answer: Any) -> list[str]:
    return [result["content"] for result in answer["results"]]


def test_cold_turns_are_found_where_they_are_asked_for(old: Aged) -> None:
    for _ in range(2):
        assert contents(old.running.search("u", "harbour")) == ["a harbour seen today"]
        answer = old.cold("harbour")
        assert sorted(contents(answer)) == [f"the {word(n)} harbour" for n in range(4)]
        assert {result["tier"] for result in answer["results"]} == {"cold"}
        assert answer["degradation"] == {"level": "full", "reasons": []}
        assert contents(old.cold(word(3))) == [f"the {word(3)} harbour"]
        assert contents(old.cold(word(3), mode="dense")) == [f"the {word(3)} harbour"]
        assert contents(old.cold("something else")) == []
        assert len(contents(old.cold("harbour", k=2))) == 2
        both = old.cold("harbour", tiers=["hot", "warm", "cold"])
        assert len(both["results"]) == 5
        assert {result["tier"] for result in both["results"]} == {"hot", "cold"}
        assert contents(old.cold("harbour", "other")) == ["the harbour of another"]
        assert contents(old.cold("harbour", "nobody")) == []
        old.again()


def test_what_has_expired_hides_no_cold_turn(old: Aged) -> None:
    ends = [{"role": "user", "content": "harbour harbour", "ttl_seconds": 40 * 86_400} for _ in range(COLD_CANDIDATES)]
    old.running.append("v", "old", *ends)
    old.running.append("v", "old", "of many words about other things one is harbour")
    old.later(31)
    assert len(contents(old.cold("harbour", "v", k=200))) == COLD_CANDIDATES + 1
    old.clock.ahead += 10
    assert contents(old.cold("harbour", "v")) == ["of many words about other things one is harbour"]


def test_turns_that_leave_memory_are_found_before_and_after_the_fold(old: Aged) -> None:
    """The newest stay in memory, and what has left it after them is not known to the tables yet."""
    old.running.append("v", "first", "a pelican at sea", wait="indexed")
    old.running.append("v", "second", "another pelican", wait="indexed")
    old.running.fold()
    old.clock.ahead += 0.02  # within one topic
    old.running.append("v", "first", "that pelican again", wait="indexed")
    old.running.fold()
    old.clock.ahead += 6.99
    old.running.ok("POST", "/v1/admin/maintenance", json={"action": "demote"})
    for _ in range(2):
        for mode in ("hybrid", "lexical", "dense"):
            results = old.running.search("v", "pelican", mode=mode)["results"]
            tiers = {result["content"]: result["tier"] for result in results}
            assert tiers == {"a pelican at sea": "hot", "another pelican": "warm", "that pelican again": "hot"}
        old.running.fold()


def test_filters_hold_for_cold_turns(old: Aged) -> None:
    users = {"roles": ["user"]}
    assert contents(old.cold("", filters=users)) == [f"the {word(n)} harbour" for n in reversed(range(4))]
    assert contents(old.cold("harbour", session_id="new")) == []
    assert len(contents(old.cold("harbour", session_id="old"))) == 4
    assert contents(old.cold("harbour", filters={"roles": ["assistant"]})) == []
    assert len(contents(old.cold("harbour", filters=users))) == 4


def test_a_context_never_uses_cold_turns_and_lists_them_as_left_out(old: Aged) -> None:
    context = old.running.context("u", "what of the harbour?", session_id="new")
    assert [one["id"] for one in context["retrieved"] if one["tier"] == "cold"] == []
    assert word(3) not in str(context["messages"])
    of_old = old.running.context("u", "what of the harbour?", session_id="old")
    assert word(3) not in str(of_old["messages"])
    assert {one["id"] for one in of_old["dropped"] if one["zone"] == "recent"} == {f"{n}" for n in range(4)}


def test_cold_turns_are_still_the_users(old: Aged) -> None:
    said = [f"the {word(n)} harbour" for n in range(4)]
    assert [turn["content"] for turn in old.running.turns("u", "old")] == said
    assert old.running.ok("GET", "/v1/turns/3?user_id=u&session_id=old")["content"] == said[3]
    exported = old.running.call("GET", "/v1/users/u/export").text
    assert all(one in exported for one in said)
    lines = {one["session_id"]: one["turns"] for one in old.running.ok("GET", "/v1/sessions?user_id=u")["sessions"]}
    assert lines == {"old": 4, "new": 1}
    again = old.running.append("u", "old", {"role": "user", "content": said[3], "id": "3"})
    assert again["results"][0]["status"] == "duplicate"


def test_an_edit_brings_a_cold_turn_back(old: Aged) -> None:
    address = "/v1/turns/3?user_id=u&session_id=old"
    old.running.ok("PATCH", address, json={"content": "the harbour in other words"})
    for _ in range(2):
        assert old.running.ok("GET", address)["content"] == "the harbour in other words"
        found = old.running.search("u", "other words")["results"]
        assert ("the harbour in other words", "warm") in [(one["content"], one["tier"]) for one in found]
        assert contents(old.cold(word(3))) == []
        old.running.fold()
    old.again()
    assert old.running.turns("u", "old")[3]["content"] == "the harbour in other words"


def test_what_is_moved_and_not_folded_is_found_all_the_same(aged: Callable[[Settings], Aged], tmp_path: Path) -> None:
    one = aged(hash_settings(tmp_path / "data"))
    one.running.append("u", "s", "a harbour", "a mountain")
    one.running.fold()
    one.clock.ahead += 31
    one.running.ok("POST", "/v1/admin/maintenance", json={"action": "demote"})
    assert contents(one.running.search("u", "harbour")) == []
    assert contents(one.cold("harbour")) == ["a harbour"]
    assert [turn["content"] for turn in one.running.turns("u", "s")] == ["a harbour", "a mountain"]


def test_what_is_found_stays(aged: Callable[[Settings], Aged], tmp_path: Path) -> None:
    one = aged(hash_settings(tmp_path / "data"))
    one.running.append("u", "a", "a harbour")
    one.running.append("u", "b", "a mountain")
    one.clock.ahead += 6
    one.running.search("u", "harbour", mode="lexical")
    one.later(2)
    tiers = {result["content"]: result["tier"] for result in one.running.search("u", "harbour mountain")["results"]}
    assert tiers == {"a harbour": "hot", "a mountain": "warm"}


def test_a_policy_is_the_tenants(aged: Callable[[Settings], Aged], tmp_path: Path) -> None:
    one = aged(hash_settings(tmp_path / "data"))
    never = {"warm_after_s": None, "cold_after_s": None}
    one.running.ok("PUT", "/v1/admin/policies/lifecycle", json=never)
    one.running.append("u", "a", "a harbour")
    one.later(100)
    assert contents(one.cold("harbour")) == []
    assert one.running.search("u", "harbour")["results"][0]["tier"] == "hot"


def test_tiers_that_answered_are_counted(old: Aged) -> None:
    def counted() -> dict[str, float]:
        lines = old.running.call("GET", "/metrics", key=None).text.splitlines()
        return {
            line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("memstrata_tier_reads_total")
        }

    def gained(ask: Callable[[], Any]) -> set[str]:
        before = counted()
        ask()
        return {name for name, value in counted().items() if value > before[name]}

    def named(*pairs: str) -> set[str]:
        return {
            f'memstrata_tier_reads_total{{result="{result}",tier="{tier}"}}' for result, tier in map(str.split, pairs)
        }

    assert len(counted()) == 6
    assert gained(lambda: old.running.search("u", "harbour")) == named("hit hot")
    assert gained(lambda: old.running.context("u", "harbour")) == named("hit hot")
    assert gained(lambda: old.cold("harbour")) == named("hit cold")
    assert gained(lambda: old.cold("nothing of the kind")) == named("miss cold")
    old.again()
    assert gained(lambda: old.running.search("u", "harbour")) == named("miss hot", "hit warm")


def in_bucket(folder: Path, server: str, bucket: str, cold_server: str) -> Settings:
    def options(endpoint: str) -> dict[str, str]:
        keys = {"region": REGION, "access_key_id": "any", "secret_access_key": "any", "allow_http": "true"}
        return {"endpoint": endpoint} | keys

    store = StoreOptions(
        shards=1,
        log_uri=f"s3://{bucket}/log",
        tables_uri=f"s3://{bucket}/tables",
        cold_uri=f"s3://{bucket}/cold",
        options=options(server),
        cold_options=options(cold_server) if cold_server != server else {},
    )
    return hash_settings(folder, store=store)


def objects_with(server: str, bucket: str, text: str) -> list[str]:
    headers = {"authorization": SIGNED}
    listed = httpx.get(f"{server}/{bucket}?list-type=2&max-keys=10000", headers=headers, trust_env=False).text
    names = [part.split("</Key>")[0] for part in listed.split("<Key>")[1:]]
    bodies = {name: httpx.get(f"{server}/{bucket}/{name}", headers=headers, trust_env=False).content for name in names}
    return [name for name, body in bodies.items() if text.encode() in body]


def test_erasing_reaches_the_cold_tables_of_an_object_store(
    aged: Callable[[Settings], Aged], tmp_path: Path, server: str, bucket: str
) -> None:
    one = aged(in_bucket(tmp_path / "data", server, bucket, server))
    one.running.append("u", "s", f"a {SECRET} harbour")
    one.running.append("other", "s", "another harbour")
    one.later(31)
    assert contents(one.cold("harbour")) == [f"a {SECRET} harbour"]
    assert {name.split("/")[0] for name in objects_with(server, bucket, SECRET)} >= {"cold"}
    erasure = one.running.ok("DELETE", "/v1/users/u")["erasure_id"]
    one.running.ok("POST", "/v1/admin/maintenance", json={"action": "compact"})
    shown = one.running.ok("GET", f"/v1/erasures/{erasure}")
    assert shown["counts"]["cold"] == 1
    assert objects_with(server, bucket, SECRET) == []
    assert contents(one.cold("harbour", "other")) == ["another harbour"]


def test_a_cold_store_that_does_not_answer_takes_nothing_else_with_it(
    aged: Callable[[Settings], Aged], tmp_path: Path, server: str, bucket: str
) -> None:
    one = aged(in_bucket(tmp_path / "data", server, bucket, server))
    one.running.append("u", "s", "a cold harbour")
    one.later(31)
    one.running.stop()
    settings = in_bucket(tmp_path / "data", server, bucket, "http://127.0.0.1:9")
    one.running = Running(settings, clock=one.clock)
    one.running.append("u", "new", "a new harbour")
    assert one.running.ok("GET", "/readyz", key=None)["degraded"] == []
    answer = one.cold("harbour", tiers=["hot", "warm", "cold"])
    assert contents(answer) == ["a new harbour"]
    assert answer["degradation"]["reasons"] == ["cold: store_unavailable"]
    assert contents(one.running.search("u", "harbour")) == ["a new harbour"]
    context = one.running.context("u", "harbour?", session_id="s")
    assert context["degradation"] == {"level": "full", "reasons": []}
    refused = one.running.call("GET", "/v1/sessions/s/turns?user_id=u")
    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    degraded = one.running.ok("GET", "/readyz", key=None)["degraded"]
    assert [trouble["what"] for trouble in degraded] == ["cold"]
    one.running.stop()
    one.running = Running(in_bucket(tmp_path / "data", server, bucket, server), clock=one.clock)
    assert contents(one.cold("harbour")) == ["a cold harbour"]


def test_a_context_as_of_before_says_what_has_expired_since(aged: Callable[[Settings], Aged], tmp_path: Path) -> None:
    one = aged(hash_settings(tmp_path))
    running = one.running
    running.append("u", "s", {"role": "user", "content": "leaves soon", "ttl_seconds": 3_600}, "stays")
    before = running.context("u", session_id="s")
    moment = {"as_of": before["as_of"], "now": before["now"]}
    assert running.context("u", session_id="s", **moment)["degradation"]["reasons"] == []
    one.clock.ahead += 1
    after = running.context("u", session_id="s", **moment)
    assert after["degradation"]["reasons"] == ["as_of: something has expired since"]
    assert "leaves soon" not in str(after["messages"])
    assert running.context("u", session_id="s")["degradation"]["reasons"] == []


def test_an_edit_that_repeats_what_is_left_of_the_data_leaves_no_field_behind(
    aged: Callable[[Settings], Aged], tmp_path: Path
) -> None:
    one = aged(hash_settings(tmp_path))
    running, where = one.running, {"user_id": "u", "session_id": "s"}
    data = {"price": "p-gone", "stock": "s-later", "order": "o-stays"}
    turn = {"id": "t", "role": "tool", "data": data, "field_ttl": {"price": 3_600, "stock": 7_200}}
    running.append("u", "s", turn)
    one.clock.ahead += 1.5 / 24
    shown = running.ok("GET", "/v1/turns/t", params=where)["content"]
    assert "p-gone" not in shown
    assert "s-later" in shown
    running.ok("PATCH", "/v1/turns/t", params=where, json={"content": shown})
    one.clock.ahead += 1 / 24
    assert "s-later" not in running.call("GET", "/v1/turns/t", params=where).text
    assert "o-stays" in running.call("GET", "/v1/turns/t", params=where).text


def test_what_has_expired_cannot_be_deleted(aged: Callable[[Settings], Aged], tmp_path: Path) -> None:
    one = aged(hash_settings(tmp_path))
    running, where = one.running, {"user_id": "u", "session_id": "s"}
    running.append("u", "s", {"id": "t", "role": "user", "content": "leaves", "ttl_seconds": 60})
    running.ok("PUT", "/v1/users/u/facts/k", json={"value": "leaves", "ttl_seconds": 60})
    one.clock.ahead += 1
    refused(running.call("DELETE", "/v1/turns/t", params=where), 404, "not_found")
    refused(running.call("DELETE", "/v1/users/u/facts/k"), 404, "not_found")


def test_a_cold_turn_inside_the_span_of_a_summary_is_listed_as_left_out(
    aged: Callable[[Settings], Aged], tmp_path: Path
) -> None:
    one = aged(hash_settings(tmp_path))
    running = one.running
    running.append("u", "s", *[{"id": f"old-{n}", "role": "user", "content": f"quince number {n}"} for n in range(5)])
    one.later(31)
    running.append("u", "s", *[f"newer number {n}" for n in range(12)], wait="indexed")
    running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "u"})
    for budget in (150, 400, 4_000):
        context = running.context("u", session_id="s", budget=budget)
        cold = {one["id"] for one in context["dropped"] if one["reason"] == "cold"}
        assert cold == {f"old-{n}" for n in range(5)}, budget
