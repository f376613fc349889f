"""Tool data over HTTP: values come back as they were sent, are found by what they are, and leave when they expire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serve_app.memory.memory import MemoryOptions
from tests.api.running import Running, hash_settings, quoted, refused
from tests.write.shards import wait_until

HUGE = 123456789012345678901234567890


def ahead(**more: float) -> str:
    return (datetime.now(UTC) + timedelta(**more)).isoformat()


def result(turn_id: str, data: Any, **more: Any) -> dict[str, Any]:
    return {"id": turn_id, "role": "tool", "tool_name": "shop", "tool_call_id": f"c-{turn_id}", "data": data, **more}


def found_by(service: Running, user: str, *conditions: tuple[str, str, Any], **more: Any) -> dict[str, list[str]]:
    """The turns that a search finds, newest or best first, with the paths that matched."""
    data = [{"path": path, "op": op, "value": value} for path, op, value in conditions]
    answer = service.search(user, more.pop("query", ""), k=100, filters={"data": data}, **more)
    return {one["id"]: one["matched_paths"] for one in answer["results"]}


@pytest.fixture(params=["hot", "mostly in tables"])
def stocked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    """Twelve results of one user, in memory or all but the newest in the tables only."""
    resident = 4096 if request.param == "hot" else 2
    service = Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=resident)))
    for number in range(12):
        data = {"number": number, "id": HUGE + number, "preis in €": f"{number}.50", "tags": [None, number]}
        service.append("u", "s", result(str(number), data))
    if resident < 12:
        service.fold()
    yield service
    service.stop()


def test_filters_are_exact_and_exhaustive(stocked: Running) -> None:
    newest_first = [str(number) for number in reversed(range(12))]
    assert list(found_by(stocked, "u", ("number", "gte", 0))) == newest_first
    assert found_by(stocked, "u", ("$.number", "in", [3, 4.0, "5"])) == {"4": ["$.number"], "3": ["$.number"]}
    assert found_by(stocked, "u", ("id", "eq", HUGE + 7)) == {"7": ["$.id"]}
    assert found_by(stocked, "u", ("['preis in €']", "lt", 1.5)) == {"0": ["$['preis in €']"]}
    both = found_by(stocked, "u", ("tags[*]", "is_null", None), ("tags", "contains", 9))
    assert both == {"9": ["$.tags", "$.tags[0]"]}
    assert set(found_by(stocked, "u", ("number", "lt", 6), query="shop", session_id="s")) == set(newest_first[6:])
    assert found_by(stocked, "u", ("missing", "ne", 1)) == {}
    assert found_by(stocked, "other", ("number", "gte", 0)) == {}


def test_data_come_back_to_the_last_digit(service: Running) -> None:
    written = b'{"n":9007199254740993,"huge":-123456789012345678901234567890,"b":null,"\xe9\x94\xae":[1.5,"1",true,{}]}'
    turn = b'{"user_id":"exact","turns":[{"id":"t","role":"tool","data":%b}]}' % written
    service.ok("POST", "/v1/sessions/s/turns", content=turn)
    shown = service.call("GET", "/v1/turns/t", params={"user_id": "exact", "session_id": "s"}).content
    assert b'"data":%b' % written in shown
    assert msgspec.json.decode(shown)["content"] == written.decode()


def test_a_search_that_looks_at_too_much_is_refused_in_whole(service: Running) -> None:
    for number in range(8):
        service.append("much", "s", result(str(number), {"v": list(range(20_000)), "n": number}))
    each = [{"path": "v[*]", "op": "gte", "value": 0}] * 31
    body = {"user_id": "much", "query": "", "filters": {"data": [*each, {"path": "n", "op": "exists"}]}}
    problem = refused(service.call("POST", "/v1/search", json=body), 422, "invalid_request")
    assert "narrow the search" in problem["detail"]
    refused(service.call("POST", "/v1/search", json={**body, "deadline_ms": 1}), 503, "deadline_passed")
    narrow = {"data": [*each, {"path": "n", "op": "eq", "value": 3}]}
    assert [one["id"] for one in service.search("much", "", filters=narrow)["results"]] == ["3"]


@pytest.mark.parametrize(
    "condition",
    [
        {"path": "$..a", "op": "eq", "value": 1},
        {"path": "", "op": "eq", "value": 1},
        {"path": "x" * 1_025, "op": "eq", "value": 1},
        {"path": "$" + ".a" * 65, "op": "eq", "value": 1},
        {"path": "a", "op": "matches", "value": 1},
        {"path": "a", "op": "gt", "value": "many"},
        {"path": "a", "op": "in", "value": 1},
        {"path": "a", "op": "before", "value": "2025-01-01"},
        {"path": "a", "value": 1},
        {"path": "a", "op": "eq", "value": 1, "case": "any"},
    ],
)
def test_a_condition_that_cannot_be(service: Running, condition: dict[str, Any]) -> None:
    for conditions in ([condition], [{"path": "a", "op": "exists"}, condition]):
        body = {"user_id": "u", "query": "x", "filters": {"data": conditions}}
        refused(service.call("POST", "/v1/search", json=body), 422, "invalid_request")


def test_conditions_are_bounded(service: Running) -> None:
    body = {"user_id": "u", "filters": {"data": [{"path": "a", "op": "exists"}] * 33}}
    refused(service.call("POST", "/v1/search", json=body), 422, "invalid_request")
    body["filters"]["data"].pop()
    assert service.ok("POST", "/v1/search", json=body)["results"] == []


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "tool", "content": "no data", "field_ttl": {"a": 5}},
        {"role": "tool", "data": {"a": 1}, "field_ttl": {"$..a": 5}},
        {"role": "tool", "data": {"a": 1}, "field_ttl": {"a": 0}},
        {"role": "tool", "data": {"a": 1}, "field_ttl": {"a": 1.5}},
        {"role": "tool", "data": {"a": 1}, "field_ttl": {"a": "no such class"}},
        {"role": "tool", "data": {"a": 1}, "field_ttl": {f"k{n}": 5 for n in range(101)}},
    ],
)
def test_times_to_live_that_cannot_be(service: Running, turn: dict[str, Any]) -> None:
    body = {"user_id": "none", "turns": [turn]}
    refused(service.call("POST", "/v1/sessions/s/turns", json=body), 422, "invalid_request")


def views(service: Running, user: str, **moment: Any) -> dict[str, str]:
    """What can be seen of a user, each as one text. Only some views may look ahead."""
    seen = {
        "search": service.search(user, "offer", **moment),
        "all": service.search(user, filters={"tool_name": "shop"}, **moment),
        "context": service.context(user, session_id="s", **moment),
        "other session": service.context(user, "offer", session_id="t", **moment),
        "text": service.context(user, session_id="s", format="text", **moment),
    }
    if not moment:
        seen["turns"] = service.turns(user, "s")
        seen["export"] = service.call("GET", f"/v1/users/{quoted(user)}/export").text
        seen["turn"] = service.ok("GET", "/v1/turns/offer", params={"user_id": user, "session_id": "s"})
    return {name: str(value) for name, value in seen.items()}


def offer(mark: str = "", **more: Any) -> list[dict[str, Any]]:
    """A call and its result, with three values that hold for ten minutes; `mark` makes them differ from others."""
    call = {"role": "assistant", "content": "the offer", "tool_call_id": "c-offer", "tool_name": "shop", "data": {}}
    data = {"order": "A-77", "price": f"pricewise{mark}", "rows": [{"gate": f"gatewise{mark}"}, f"rowwise{mark}"]}
    lives = {"price": 600, "rows[*].gate": 600, "$.rows[1]": 600}
    return [call, result("offer", data, field_ttl=lives, **more)]


def test_a_field_is_there_until_it_expires_and_in_no_view_afterwards(service: Running) -> None:
    service.append("fields", "s", *offer())
    values = ("pricewise", "gatewise", "rowwise")
    for _ in range(2):
        assert {name for name, text in views(service, "fields").items() if all(one in text for one in values)} == {
            *views(service, "fields")
        }
        later = views(service, "fields", now=ahead(hours=1))
        assert [(name, one) for name, text in later.items() for one in values if one in text] == []
        assert [name for name, text in later.items() if "A-77" not in text] == []
    found = service.search("fields", "offer", filters={"tool_name": "shop", "roles": ["tool"]}, now=ahead(hours=1))
    assert found["results"][0]["data"] == {"order": "A-77", "rows": [{}, None]}
    assert found["results"][0]["content"] == '{"order":"A-77","rows":[{},null]}'
    assert found_by(service, "fields", ("price", "eq", "pricewise"), now=ahead(hours=1)) == {}
    assert found_by(service, "fields", ("price", "eq", "pricewise")) == {"offer": ["$.price"]}


def in_files(service: Running, words: Sequence[bytes]) -> list[str]:
    """Files that hold one of the words; some go while they are read."""
    found = []
    for path in service.data.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            found += [path.name for word in words if word in path.read_bytes()]
    return found


def test_what_has_expired_on_arrival_is_never_seen_and_leaves_the_files(service: Running) -> None:
    service.append("past", "s", *offer("past", created_at=ahead(hours=-1)))
    service.append(
        "past", "s", {"role": "user", "content": "brieflysaid", "created_at": ahead(hours=-1), "ttl_seconds": 5}
    )
    service.ok("PUT", "/v1/users/past/facts/pin", json={"value": "pinwise", "ttl_seconds": 1})
    values = ("pricewisepast", "gatewisepast", "rowwisepast", "brieflysaid")
    assert [(name, one) for name, text in views(service, "past").items() for one in values if one in text] == []
    assert service.ok("GET", "/v1/sessions", params={"user_id": "past"})["sessions"][0]["turns"] == 2
    edited = service.ok("PATCH", "/v1/turns/offer?user_id=past&session_id=s", json={"metadata": {"seen": True}})
    assert edited["data"] == {"order": "A-77", "rows": [{}, None]}
    wait_until(lambda: service.ok("GET", "/v1/users/past/facts")["facts"] == [])
    done = service.ok("POST", "/v1/admin/maintenance", json={"action": "expire"})
    assert done["action"] == "expire"
    # Soon, not at once, where the service's own round has just found them: then that round is still at it.
    wait_until(lambda: not in_files(service, [value.encode() for value in (*values, "pinwise")]))
    assert service.turns("past", "s")[1]["data"] == {"order": "A-77", "rows": [{}, None]}


def test_a_field_may_live_as_long_as_its_class(service: Running) -> None:
    policy = {"entity_classes": {"orders": 60, "prices": 5}}
    service.ok("PUT", "/v1/admin/policies/ttl", json=policy)
    try:
        data = {"order": 1, "price": 2, "note": 3}
        service.append("classed", "s", result("t", data, field_ttl={"order": "orders", "price": "prices"}))
        body = {"user_id": "classed", "turns": [result("x", data, field_ttl={"order": "identity"})]}
        refused(service.call("POST", "/v1/sessions/s/turns", json=body), 422, "invalid_request")
        fact = service.ok("PUT", "/v1/users/classed/facts/deal", json={"value": "a deal", "entity_class": "prices"})
    finally:
        service.ok("PUT", "/v1/admin/policies/ttl", json={})
    for seconds, left in ((1, data), (30, {"order": 1, "note": 3}), (90, {"note": 3})):
        found = service.search("classed", filters={"tool_name": "shop"}, now=ahead(seconds=seconds))
        assert found["results"][0]["data"] == left
    assert {"key", "value", "receipt", "expires_at"} <= set(fact)
    life = datetime.fromisoformat(fact["expires_at"]) - datetime.fromisoformat(fact["written_at"])
    assert life == timedelta(seconds=5)
    default = service.ok("PUT", "/v1/users/classed/facts/name", json={"value": "x", "entity_class": "identity"})
    life = datetime.fromisoformat(default["expires_at"]) - datetime.fromisoformat(default["written_at"])
    assert life == timedelta(days=90)


def test_a_turn_that_is_sent_along_expires_like_a_stored_one(service: Running) -> None:
    sent = [{"role": "user", "content": "hello"}, *offer(created_at=ahead(minutes=-9))]
    sent.append({"role": "user", "content": "saidbriefly", "created_at": ahead(minutes=-9), "ttl_seconds": 600})
    now = str(service.context("nobody", history=sent)["messages"])
    later = str(service.context("nobody", history=sent, now=ahead(minutes=5))["messages"])
    assert "pricewise" in now
    assert "saidbriefly" in now
    assert "A-77" in later
    assert "pricewise" not in later
    assert "saidbriefly" not in later


def test_an_edit_that_repeats_the_data_stays_rendered_from_it(service: Running) -> None:
    service.append("edits", "s", result("t", {"price": 5, "order": 7}, field_ttl={"price": 600}))
    edited = service.ok(
        "PATCH", "/v1/turns/t?user_id=edits&session_id=s", json={"content": '{"order": 7, "price": 5.0}'}
    )
    assert edited["content"] == '{"price":5,"order":7}'
    later = service.search("edits", filters={"tool_name": "shop"}, now=ahead(hours=1))["results"][0]
    assert later["content"] == '{"order":7}'


def test_facts_and_summaries_are_found_by_their_words(service: Running) -> None:
    service.ok("PUT", "/v1/users/known/facts/tea", json={"value": "drinks oolong", "ttl_seconds": 600})
    service.ok("PUT", "/v1/users/known/facts/home", json={"value": "lives in Riga", "entity_class": "identity"})
    service.append("known", "s", "I had oolong in Riga, and decided to move to the harbour.", "It is quiet there.")
    service.ok("POST", "/v1/sessions/s/summary:refresh?user_id=known")

    def kinds(query: str, *wanted: str, **more: Any) -> list[tuple[str, str]]:
        filters = {"kinds": list(wanted)} if wanted else {}
        results = service.search("known", query, mode="lexical", filters=filters, **more)["results"]
        return [(one["kind"], one.get("key", "")) for one in results]

    assert kinds("oolong") == [("turn", "")]
    assert kinds("oolong", "fact") == [("fact", "tea")]
    assert kinds("where is home", "fact") == [("fact", "home")]
    assert kinds("oolong", "fact", now=ahead(hours=1)) == []
    assert sorted(kinds("oolong", "fact", "turn")) == [("fact", "tea"), ("turn", "")]
    assert sorted(kinds("harbour", "summary", "turn", "fact")) == [("summary", ""), ("turn", "")]
    assert kinds("", "fact") == [("fact", "home"), ("fact", "tea")]
    (home,) = service.search("known", "Riga", mode="lexical", filters={"kinds": ["fact"]})["results"]
    assert (home["id"], home["content"], home["entity_class"], home["session_id"]) == (
        "home",
        "lives in Riga",
        "identity",
        None,
    )
    service.ok("DELETE", "/v1/users/known/facts/home")
    assert kinds("Riga", "fact") == []
    service.ok("DELETE", "/v1/sessions/s?user_id=known")
    assert kinds("harbour", "summary") == []


def test_a_summary_quotes_nothing_that_will_expire(service: Running) -> None:
    lasting = {"role": "user", "content": "I decided to buy the harbourhouse."}
    brief = {"role": "user", "content": "We agreed on terracotta.", "data": {"a": 1}, "field_ttl": {"a": 600}}
    service.append("sums", "s", lasting, brief)
    text = service.ok("POST", "/v1/sessions/s/summary:refresh?user_id=sums")["text"]
    assert "harbourhouse" in text
    assert "terracotta" not in text
