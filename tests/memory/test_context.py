"""A context over a whole service: reproducible byte for byte, complete, and honest about what is missing."""

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from serve_app.core import Owner
from serve_app.memory.due import SummaryOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.memory.reading import OLDER_LISTED_MAX, WINDOW_TURNS_MAX
from serve_app.placement import shard_of
from tests.api.running import Running, hash_settings, refused, word

NOW = "2030-01-01T00:00:00Z"
SELDOM = MemoryOptions(summary=SummaryOptions(every_turns=1_000_000))
"""Summaries are made only when they are asked for, so that a state stays as it is."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Running]:
    running = [Running(hash_settings(tmp_path, memory=SELDOM))]
    yield running  # type: ignore[misc]
    running[0].stop()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("calm"), memory=SELDOM))
    yield running
    running.stop()


def pages(context: dict[str, Any]) -> dict[str, Any]:
    """All that is the same for the same context: everything but how long it took and how its moment is named."""
    return {name: value for name, value in context.items() if name not in ("timings_ms", "as_of", "receipt")}


def texts(context: dict[str, Any]) -> str:
    return "\n".join(message["content"] for message in context["messages"][:-1])


def talk(running: Running, user: str, session: str, first: int, last: int) -> str:
    turns = [
        {"id": f"n{n}", "role": "user" if n % 2 else "assistant", "content": f"the {word(n)} is number {n}"}
        for n in range(first, last)
    ]
    return running.append(user, session, *turns, wait="indexed")["receipt"]


def test_the_same_request_gives_the_same_context_after_a_fold_and_after_a_restart(own: list[Running]) -> None:
    talk(own[0], "u", "s", 0, 30)
    talk(own[0], "u", "other", 30, 60)
    own[0].ok("PUT", "/v1/users/u/facts/colour", json={"value": "blue"})
    own[0].ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "u"})
    asked = [
        {"session_id": "s", "now": NOW, "system": "Be kind.", "facts": ["It rains."], "budget": budget, "format": form}
        for budget in (300, 1500)
        for form in ("openai", "anthropic", "text")
    ]

    def contexts() -> list[dict[str, Any]]:
        return [pages(own[0].context("u", f"where is the {word(40)}?", **one)) for one in asked]

    first = contexts()
    assert contexts() == first
    own[0].fold()
    assert contexts() == first
    own[0] = own[0].again()
    assert contexts() == first
    assert len({one["context_id"] for one in first}) == len(asked)


def test_as_of_brings_back_what_was_shown(calm: Running) -> None:
    """By receipt, by seq and by time, with turns, facts, vectors and summaries that came later."""
    talk(calm, "past", "s", 0, 12)
    calm.ok("PUT", "/v1/users/past/facts/colour", json={"value": "blue"})
    calm.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "past"})
    query = f"the {word(3)} and the {word(20)}?"
    before = calm.context("past", query, session_id="s", now=NOW)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}Z"
    time.sleep(0.01)
    calm.ok("PUT", "/v1/users/past/facts/colour", json={"value": "red"})
    talk(calm, "past", "s", 12, 30)
    calm.ok("PUT", "/v1/users/past/facts/city", json={"value": "Riga"})
    calm.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "past"})
    after = calm.context("past", query, session_id="s", now=NOW)
    assert after["context_id"] != before["context_id"]
    for as_of in (before["as_of"], int(before["as_of"].partition(":")[2]), before["as_of"].partition(":")[2], moment):
        again = calm.context("past", query, session_id="s", now=NOW, as_of=as_of)
        assert pages(again) == pages(before), as_of
    assert pages(calm.context("past", query, session_id="s", now=NOW, as_of=after["as_of"])) == pages(after)


def test_as_of_a_time_counts_facts_as_well_as_turns(calm: Running) -> None:
    calm.append("clock", "s", "a turn")
    calm.ok("PUT", "/v1/users/clock/facts/colour", json={"value": "blue"})
    time.sleep(0.01)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}Z"
    time.sleep(0.01)
    calm.ok("PUT", "/v1/users/clock/facts/city", json={"value": "Riga"})
    shown = texts(calm.context("clock", session_id="s", as_of=moment))
    assert "blue" in shown
    assert "Riga" not in shown
    assert "a turn" not in texts(calm.context("clock", session_id="s", as_of="2001-01-01T00:00:00Z"))


@pytest.mark.parametrize("change", ["edit", "delete", "erase", "forget"])
def test_what_was_edited_or_erased_since_is_named(own: list[Running], change: str) -> None:
    own[0].append("u", "s", {"id": "a", "role": "user", "content": "first"}, "two")
    own[0].ok("PUT", "/v1/users/u/facts/k", json={"value": "v"})
    before = own[0].context("u", session_id="s", now=NOW)
    assert before["degradation"]["reasons"] == []
    where = {"user_id": "u", "session_id": "s"}
    if change == "edit":
        own[0].ok("PATCH", "/v1/turns/a", params=where, json={"content": "changed"})
    elif change == "delete":
        own[0].ok("DELETE", "/v1/turns/a", params=where)
    elif change == "forget":
        own[0].ok("DELETE", "/v1/users/u/facts/k")
    else:
        own[0].ok("DELETE", "/v1/users/u")

    def since() -> dict[str, Any]:
        return own[0].context("u", session_id="s", now=NOW, as_of=before["as_of"])

    named = since()
    assert "as_of: something was edited or erased since" in named["degradation"]["reasons"]
    own[0].fold()
    own[0] = own[0].again()
    assert pages(since()) == pages(named)
    if change in ("edit", "delete"):
        assert "first" not in texts(since())
    assert own[0].context("u", session_id="s", now=NOW)["degradation"]["reasons"] == []


def test_a_receipt_of_the_future_is_a_503_within_the_deadline(calm: Running) -> None:
    shard = shard_of(Owner("default", "waiter"), 2)
    receipt = calm.append("waiter", "s", "now")["receipt"]
    assert receipt.startswith(f"{shard}:")
    for path in ("/v1/context", "/v1/search"):
        body = {"user_id": "waiter", "query": "now", "min_receipt": receipt}
        body |= {"budget_tokens": 500} if path == "/v1/context" else {}
        assert calm.call("POST", path, json=body).status_code == 200
        started = time.monotonic()
        late = calm.call("POST", path, json={**body, "min_receipt": f"{shard}:{10**15}", "deadline_ms": 300})
        refused(late, 503, "receipt_not_reached")
        assert 0.3 <= time.monotonic() - started < 3
        assert int(late.headers["retry-after"]) >= 1
        other = calm.call("POST", path, json={**body, "min_receipt": f"{1 - shard}:1"})
        refused(other, 422, "invalid_receipt")
    asked = {"user_id": "waiter", "query": "now", "budget_tokens": 500, "as_of": f"{1 - shard}:1"}
    refused(calm.call("POST", "/v1/context", json=asked), 422, "invalid_receipt")


def test_a_read_with_a_receipt_waits_for_the_write(calm: Running) -> None:
    shard = shard_of(Owner("default", "reader"), 2)
    newest = int(calm.append("reader", "s", "one")["receipt"].partition(":")[2])

    async def read_before_write() -> tuple[Any, Any]:
        body = {"user_id": "reader", "query": "zebra", "min_receipt": f"{shard}:{newest + 2}", "mode": "lexical"}
        reading = asyncio.ensure_future(calm.ask("POST", "/v1/search", json=body))
        await asyncio.sleep(0.1)
        assert not reading.done()
        turns = [{"role": "user", "content": "a zebra"}, {"role": "user", "content": "a zebra crossing"}]
        written = await calm.ask("POST", "/v1/sessions/s/turns", json={"user_id": "reader", "turns": turns})
        return written, await reading

    written, read = calm.run(read_before_write())
    assert written.status_code == 201
    assert len(read.json()["results"]) == 2


@pytest.mark.parametrize("summarised", [False, True])
def test_every_turn_of_a_long_session_is_shown_covered_or_dropped(calm: Running, summarised: bool) -> None:
    session, total = f"long-{summarised}", WINDOW_TURNS_MAX + OLDER_LISTED_MAX
    if summarised:  # something that the summary quotes and no window reaches
        calm.append(session, session, "Never book anything that costs more than 4850 euros.")
    talk(calm, session, session, 0, 1_000)
    talk(calm, session, session, 1_000, total)
    if summarised:
        calm.ok("POST", f"/v1/sessions/{session}/summary:refresh", params={"user_id": session})
        calm.append(session, session, *[f"afterthought {n}" for n in range(3)])
    context = calm.context(session, f"the {word(7)}?", budget=4000, session_id=session)
    all_turns = {turn["id"]: turn for start in (0, 999) for turn in page(calm, session, start)}
    summary = context["summary"]
    assert (summary is not None) == summarised
    covered = {
        name
        for name, turn in all_turns.items()
        if summary is not None and summary["first_seq"] <= turn["seq"] <= summary["last_seq"]
    }
    dropped = {one["id"] for one in context["dropped"]}
    shown = {name for name, turn in all_turns.items() if turn["content"] in texts(context)}
    assert shown
    assert shown | covered | dropped == set(all_turns)
    if not summarised:
        assert len(shown) + len(dropped) == total
    if summarised:
        assert "afterthought 2" in texts(context)
        assert "4850 euros" in texts(context)


def page(running: Running, session: str, index: int) -> list[dict[str, Any]]:
    """A thousand turns of the session from the index-th on."""
    path, asked = f"/v1/sessions/{session}/turns", {"user_id": session, "limit": 1000}
    first = running.ok("GET", path, params=asked)
    if index == 0:
        return first["turns"]
    return running.ok("GET", path, params={**asked, "after_seq": first["next_after_seq"]})["turns"]


def test_a_session_that_has_left_memory_is_shown_all_the_same(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=20, summary=SELDOM.summary)))
    try:
        talk(running, "u", "old", 0, 10)
        before = running.context("u", session_id="old", now=NOW)
        talk(running, "u", "new", 10, 90)
        for folded in (False, True):
            context = running.context("u", session_id="old", now=NOW)
            assert all(f"number {n}" in texts(context) for n in range(10)), folded
            moment = running.context("u", session_id="old", now=NOW, as_of=before["as_of"])
            assert f"number {9}" in texts(moment)
            assert "number 50" not in texts(moment)
            running.fold()
    finally:
        running.stop()


def test_a_tool_exchange_that_has_left_memory_is_shown_as_one(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=20, summary=SELDOM.summary)))
    call = {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [{"id": "c1", "name": "gauge", "arguments": {"site": "mill"}}],
    }
    try:
        running.append("u", "old", call, {"role": "tool", "tool_call_id": "c1", "content": "quetzal plumage measured"})
        talk(running, "u", "new", 10, 90)
        for folded in (False, True):
            context = running.context("u", "quetzal plumage measured", budget=400)
            assert "quetzal plumage" in texts(context), folded
            assert '(calls gauge with {"site":"mill"})' in texts(context), folded
            assert context["degradation"]["reasons"] == []
            running.fold()
    finally:
        running.stop()


def test_a_past_that_memory_holds_in_part_is_named(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=20, summary=SELDOM.summary)))
    try:
        past = talk(running, "u", "s", 0, 10)

        def asked(**more: Any) -> dict[str, Any]:
            return running.context("u", session_id="s", now=NOW, **more)

        assert asked(as_of=past)["degradation"]["reasons"] == []
        talk(running, "u", "s", 10, 90)
        assert asked()["degradation"]["reasons"] == []
        [reason] = asked(as_of=past)["degradation"]["reasons"]
        assert reason.startswith("as_of: older turns are not in memory")
        present = asked()
        again = asked(as_of=present["receipt"])
        assert again["degradation"]["reasons"] == [reason]
        assert again["context_id"] == present["context_id"]
    finally:
        running.stop()


def test_facts_history_and_scope(calm: Running) -> None:
    calm.ok("PUT", "/v1/users/mixed/facts/colour", json={"value": "blue"})
    calm.append("mixed", "one", "the walrus sleeps", wait="indexed")
    calm.append("mixed", "two", "the walrus swims", wait="indexed")
    everywhere = calm.context("mixed", "what does the walrus do?", session_id="one", facts=["It rains."])
    assert "blue" in texts(everywhere)
    assert "It rains." in texts(everywhere)
    assert "walrus swims" in texts(everywhere)
    inside = calm.context("mixed", "what does the walrus do?", session_id="one", scope="session")
    assert "walrus sleeps" in texts(inside)
    assert "walrus swims" not in texts(inside)
    history = [{"role": "user", "content": "the walrus sings"}, {"role": "assistant", "content": "Does it?"}]
    inline = calm.context("mixed", "what does the walrus do?", history=history)
    assert ("walrus sings" in texts(inline), "walrus swims" in texts(inline)) == (True, True)
    assert {one["content"] for one in history} <= {message["content"] for message in inline["messages"]}


def test_an_unknown_user_gets_an_empty_context(calm: Running) -> None:
    for more in ({}, {"session_id": "none"}, {"history": []}, {"scope": "session", "session_id": "none"}):
        context = calm.context("nobody", "Anyone?", **more)
        assert [message["content"] for message in context["messages"]] == ["Anyone?"]
        assert (context["dropped"], context["retrieved"], context["summary"]) == ([], [], None)
        assert context["degradation"] == {"level": "full", "reasons": []}
    assert calm.ok("GET", "/v1/sessions", params={"user_id": "nobody"}) == {"sessions": []}


def test_an_expired_turn_does_not_live_on_in_the_summary(calm: Running) -> None:
    calm.append("brief", "s", "the meeting is in Room 81Q")
    calm.append("brief", "s", {"role": "user", "content": "the door code is 90331", "ttl_seconds": 1})
    made = calm.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "brief"})
    assert "81Q" in made["text"]
    assert "90331" in texts(calm.context("brief", session_id="s"))
    time.sleep(1.1)
    assert "90331" not in str(calm.context("brief", session_id="s"))
    assert "90331" not in str(calm.ok("GET", "/v1/sessions/s/summary", params={"user_id": "brief"}))


def test_an_expired_summary_is_made_anew_in_the_background(tmp_path: Path) -> None:
    quick = MemoryOptions(summary=SummaryOptions(ttl_s=1, settle_s=0.05))
    running = Running(hash_settings(tmp_path, memory=quick))
    try:
        talk(running, "u", "s", 0, 6)
        first = wait_for_summary(running, 0)
        time.sleep(1.1)
        assert running.context("u", session_id="s")["summary"] is None
        assert wait_for_summary(running, first["created_at"])["input_hash"] == first["input_hash"]
    finally:
        running.stop()


def wait_for_summary(running: Running, after: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        answer = running.call("GET", "/v1/sessions/s/summary", params={"user_id": "u"})
        if answer.status_code == 200 and answer.json()["created_at"] > str(after):
            return answer.json()
        time.sleep(0.05)
    raise AssertionError("no summary came")


def test_explain_says_why_a_turn_was_retrieved(calm: Running) -> None:
    calm.append("explained", "s", "The spare key is under the blue stone.", *[f"small talk {n}" for n in range(30)])
    asked = {"session_id": "s", "budget": 600}
    plain = calm.context("explained", "Where is the spare key?", **asked)["retrieved"][0]
    told = calm.context("explained", "Where is the spare key?", explain=True, **asked)["retrieved"][0]
    assert "content" not in plain
    assert "scores" not in plain
    assert told["content"] == "The spare key is under the blue stone."
    assert told["role"] == "user"
    assert sum(told["scores"].values()) == pytest.approx(told["score"], abs=1e-3)


def test_a_fact_of_a_class_holds_as_long_as_the_class(calm: Running) -> None:
    def days(**fact: Any) -> float | None:
        written = calm.ok("PUT", "/v1/users/classed/facts/one", json={"value": "x", **fact})
        if written["expires_at"] is None:
            return None
        start, end = (datetime.fromisoformat(written[name]) for name in ("written_at", "expires_at"))
        return (end - start).total_seconds() / 86_400

    assert [days(entity_class=name) for name in ("orders", "preferences", "identity")] == [1, 30, 90]
    assert days(entity_class="orders", ttl_seconds=3_600) == pytest.approx(1 / 24)
    assert days(entity_class="hobbies") is None
    assert days() is None
