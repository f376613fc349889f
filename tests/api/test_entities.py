"""Entities over HTTP: listing and filter are exact wherever the turns lie, and what is gone is named no more."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lancedb
import pytest

from serve_app.config import StoreOptions
from serve_app.memory.memory import MemoryOptions
from tests.api.running import Running, hash_settings, refused

RESIDENT = 8


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that keeps few turns of a user in memory."""
    options = MemoryOptions(owner_turns_resident=RESIDENT)
    one = Running(hash_settings(tmp_path_factory.mktemp("small"), memory=options, store=StoreOptions(shards=1)))
    yield one
    with contextlib.suppress(RuntimeError):
        one.stop()


def listed(service: Running, user: str, **query: Any) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = service.ok("GET", f"/v1/users/{user}/entities", params=query)["entities"]
    return answer


def counts(service: Running, user: str, **query: Any) -> dict[str, int]:
    return {one["name"]: one["count"] for one in listed(service, user, **query)}


def test_letters_that_are_others_in_lower_case_stop_neither_a_write_nor_a_search(service: Running) -> None:
    for day, month in enumerate(("Apr\u0131l", "APR\u0130L", "\u017feptember"), 1):
        service.append("odd", "s", {"id": f"m{day}", "role": "user", "content": f"We met on {day} {month} 2023"})
    service.append("odd", "s", {"id": "h", "role": "user", "content": "四月二三十日，四月十五十日"})
    assert counts(service, "odd")["1 Apr\u0131l 2023"] == 1
    for query in ("last w\u0131nter", "last fr\u0130day", "la \u017femana pasada", "qué hice el sabado"):
        service.ok("POST", "/v1/search", json={"user_id": "odd", "query": query})


def test_what_a_user_names_is_listed_with_counts_and_last_mention(service: Running) -> None:
    service.append(
        "ent", "s1", {"id": "a", "role": "user", "content": "Met Alice in Paris", "created_at": "2024-01-01T00:00:00Z"}
    )
    service.append(
        "ent",
        "s2",
        {
            "id": "b",
            "role": "user",
            "content": "The trip to PARIS, order INV-20394",
            "created_at": "2024-02-01T00:00:00Z",
        },
    )
    assert listed(service, "ent") == [
        {
            "name": "PARIS",
            "class": "place",
            "count": 2,
            "first_at": "2024-01-01T00:00:00Z",
            "last_at": "2024-02-01T00:00:00Z",
            "last_turn": {"session_id": "s2", "turn_id": "b"},
            "ttl_class": None,
            "ttl_seconds": None,
        },
        {
            "name": "INV-20394",
            "class": "order",
            "count": 1,
            "first_at": "2024-02-01T00:00:00Z",
            "last_at": "2024-02-01T00:00:00Z",
            "last_turn": {"session_id": "s2", "turn_id": "b"},
            "ttl_class": "orders",
            "ttl_seconds": 86_400,
        },
        {
            "name": "Alice",
            "class": "name",
            "count": 1,
            "first_at": "2024-01-01T00:00:00Z",
            "last_at": "2024-01-01T00:00:00Z",
            "last_turn": {"session_id": "s1", "turn_id": "a"},
            "ttl_class": None,
            "ttl_seconds": None,
        },
    ]
    assert counts(service, "ent", **{"class": "place"}) == {"PARIS": 2}
    assert counts(service, "ent", prefix="ali") == {"Alice": 1}
    assert listed(service, "nobody") == []


def test_pages_give_each_entity_once(service: Running) -> None:
    for number in range(7):
        service.append("pages", "s", f"It shows ZX-{100 + number} and Paris")
    seen, after = [], None
    while True:
        page = service.ok("GET", "/v1/users/pages/entities", params={"limit": 3} | ({"after": after} if after else {}))
        seen += [one["name"] for one in page["entities"]]
        after = page.get("next")
        if after is None:
            break
    assert seen == ["Paris", *(f"ZX-{106 - number}" for number in range(7))]


@pytest.mark.parametrize(
    "query", [{"class": "dragon"}, {"limit": 0}, {"limit": 1_001}, {"after": "x"}, {"after": "1.2."}, {"q": "x"}]
)
def test_a_listing_that_cannot_be(service: Running, query: dict[str, Any]) -> None:
    assert service.call("GET", "/v1/users/u/entities", params=query).status_code == 422


def test_who_may_see_them(service: Running) -> None:
    service.append("owner", "s", "Met Alice in Paris")
    bound = service.make_key(user_id="owner")
    other = service.make_key(user_id="stranger")
    assert service.ok("GET", "/v1/users/owner/entities", key=bound)["entities"]
    refused(service.call("GET", "/v1/users/owner/entities", key=other), 403, "forbidden")
    refused(service.call("GET", "/v1/users/owner/entities", key=None), 401, "unauthorized")
    elsewhere = service.make_key(tenant="elsewhere", role="app")
    assert service.ok("GET", "/v1/users/owner/entities", key=elsewhere)["entities"] == []


def test_a_filter_lets_through_what_names_all_of_them(service: Running) -> None:
    said = ["Met Alice in Paris", "Alice called", "I love Paris", "nothing", "on 8 May 2023 we left", "order INV-20394"]
    service.append("fil", "s", *said)
    for names, expected in [
        (["alice"], [1, 0]),
        (["ＰＡＲＩＳ"], [2, 0]),
        (["Alice", "paris"], [0]),
        (["2023年5月8日"], [4]),
        (["2023-05-08"], [4]),
        (["inv 20394"], [5]),
        (["Bob"], []),
    ]:
        for query in ("", "Alice in Paris"):
            for mode in ("hybrid", "lexical", "dense"):
                found = service.found("fil", query, filters={"entities": names}, mode=mode)
                assert sorted(found) == sorted(said[place] for place in expected), (names, query, mode)
    assert service.found("fil", "", filters={"entities": ["alice"]}) == [said[1], said[0]]
    assert service.found("fil", "", filters={"entities": ["alice"], "roles": ["assistant"]}) == []
    assert service.found("fil", "", filters={"entities": ["alice"]}, session_id="other") == []


def test_a_fact_names_entities_too(service: Running) -> None:
    service.ok("PUT", "/v1/users/facts/facts/home", json={"value": "lives in Paris"})
    service.ok("PUT", "/v1/users/facts/facts/pet", json={"value": "a dog"})
    assert service.found("facts", filters={"entities": ["paris"], "kinds": ["fact"]}) == ["lives in Paris"]


def test_a_query_that_names_one_prefers_the_turns_that_do(service: Running) -> None:
    service.append("boost", "s", *(f"the trip number {number} was nice" for number in range(30)), "In Paris it rained")
    answer = service.search("boost", "trip paris", explain=True, k=50)
    assert answer["explain"]["entities"] == ["paris"]
    results = answer["results"]
    boosts = {one["content"]: one["scores"]["entity"] for one in results}
    assert boosts.pop("In Paris it rained") > 0
    assert not any(boosts.values())


def test_a_speaker_who_is_named_gets_no_boost_of_this_kind(service: Running) -> None:
    turns = [{"role": "user", "speaker": name, "content": f"hello {name[::-1]}"} for name in ("Caroline", "Melanie")]
    service.append("talk", "s", *turns, {"role": "user", "speaker": "Melanie", "content": "Hey Caroline!"})
    results = service.search("talk", "what did Caroline say", explain=True)["results"]
    assert len(results) == 3
    assert all(one["scores"]["entity"] == 0 for one in results)


def test_edits_and_erasures_are_followed(service: Running) -> None:
    service.append(
        "gone",
        "s",
        {"id": "a", "role": "user", "content": "Met Alice in Paris"},
        {"id": "b", "role": "user", "content": "Saw Bob in Paris"},
    )
    address = {"user_id": "gone", "session_id": "s"}
    service.ok("PATCH", "/v1/turns/a", params=address, json={"content": "Met Carol in Oslo"})
    assert counts(service, "gone") == {"Bob": 1, "Paris": 1, "Carol": 1, "Oslo": 1}
    assert service.found("gone", filters={"entities": ["alice"]}) == []
    service.ok("DELETE", "/v1/turns/b", params=address)
    assert counts(service, "gone") == {"Carol": 1, "Oslo": 1}
    service.ok("DELETE", "/v1/users/gone")
    assert counts(service, "gone") == {}


def test_what_has_expired_names_nothing_before_it_is_removed(service: Running) -> None:
    data = {"order_id": "A-5519-03", "city": "Riga"}
    service.append(
        "late",
        "s",
        {"role": "tool", "data": data, "field_ttl": {"$.order_id": 1}},
        {"role": "user", "content": "Met Alice", "ttl_seconds": 1},
    )
    assert counts(service, "late") == {"Alice": 1, "Riga": 1, "A-5519-03": 1}
    time.sleep(1.1)
    assert counts(service, "late") == {"Riga": 1}
    assert service.found("late", filters={"entities": ["A-5519-03"]}) == []
    assert service.found("late", filters={"entities": ["alice"]}) == []
    assert len(service.found("late", filters={"entities": ["riga"]})) == 1


def test_what_is_redacted_is_no_entity(service: Running) -> None:
    service.ok("PUT", "/v1/admin/policies/privacy", json={"level": "strict"})
    try:
        service.append("private", "s", "Write to bob.smith@example.com, key sk-abcdefghijklmnopqrstuvwxyz123456")
    finally:
        service.ok("PUT", "/v1/admin/policies/privacy", json={"level": "secrets"})
    assert not any("bob" in one["name"].lower() or "sk-" in one["name"] for one in listed(service, "private"))


def test_beyond_memory_all_is_as_exact(small: Running) -> None:
    """In memory, in the log alone, in the tables, and after a start: always the same."""
    places = ["Paris", "Oslo", "Riga", "Lima"]
    for number in range(40):
        small.append(
            "far",
            "s",
            {"id": f"t{number}", "role": "user", "content": f"We saw {places[number % 4]}, ZX-{100 + number % 10}"},
        )
    expected = dict.fromkeys(places, 10) | {f"ZX-{100 + number}": 4 for number in range(10)}

    def check() -> None:
        assert counts(small, "far") == expected
        for query in ("", "Oslo"):
            found = small.search("far", query, filters={"entities": ["OSLO"]}, k=100)["results"]
            assert {one["id"] for one in found} == {f"t{number}" for number in range(1, 40, 4)}

    check()
    small.fold()
    check()
    small.ok("PATCH", "/v1/turns/t0", params={"user_id": "far", "session_id": "s"}, json={"content": "We saw Bob"})
    small.ok("DELETE", "/v1/turns/t1", params={"user_id": "far", "session_id": "s"})
    small.append("far", "s", {"id": "e", "role": "tool", "data": {"order_id": "Q-1"}, "field_ttl": {"order_id": 10**8}})
    expected |= {"Paris": 9, "Oslo": 9, "Bob": 1, "ZX-100": 3, "ZX-101": 3, "Q-1": 1}
    assert counts(small, "far") == expected
    small.fold()
    assert counts(small, "far") == expected


def test_a_table_without_the_column_is_looked_into(tmp_path: Path) -> None:
    """As an earlier release left it: the turns themselves tell, until the fold knows better."""
    options = MemoryOptions(owner_turns_resident=RESIDENT)
    service = Running(hash_settings(tmp_path, memory=options, store=StoreOptions(shards=1)))
    for number in range(30):
        service.append("old", "s", f"We saw {['Paris', 'Oslo'][number % 2]}")
    service.fold()
    service.stop()
    (folder,) = [path for path in tmp_path.rglob("shard-0000.lance") if "cold" not in str(path)]
    table = lancedb.connect(str(folder.parent)).open_table("shard-0000")
    table.drop_columns(["entities"])
    service = Running(service.settings)
    try:
        assert counts(service, "old") == {"Oslo": 15, "Paris": 15}
        assert len(service.found("old", filters={"entities": ["oslo"]}, k=100)) == 15
    finally:
        service.stop()


def test_cold_turns_are_filtered_by_what_they_name(tmp_path: Path) -> None:
    service = Running(hash_settings(tmp_path, store=StoreOptions(shards=1)))
    try:
        service.ok("PUT", "/v1/admin/policies/lifecycle", json={"warm_after_s": 1, "cold_after_s": 1})
        service.append("ice", "s", "We saw Paris", "We saw Oslo", wait="indexed")
        service.fold()
        time.sleep(1.2)
        for _ in range(3):
            service.ok("POST", "/v1/admin/maintenance", json={"action": "demote"})
            service.fold()
        found = service.search("ice", filters={"entities": ["oslo"]}, tiers=["cold"])["results"]
        assert [(one["content"], one["tier"]) for one in found] == [("We saw Oslo", "cold")]
        assert counts(service, "ice") == {}
    finally:
        service.stop()


def test_a_class_of_entities_names_its_time_to_live(service: Running) -> None:
    """Facts and fields that the caller classes so; nothing that merely looks like an order expires by itself."""
    fact = service.ok("PUT", "/v1/users/ttl/facts/parcel", json={"value": "INV-20394", "entity_class": "order"})
    assert fact["expires_at"] is not None
    assert service.ok("PUT", "/v1/users/ttl/facts/plain", json={"value": "INV-20394"})["expires_at"] is None
    assert (
        service.ok("PUT", "/v1/users/ttl/facts/pet", json={"value": "Rex", "entity_class": "pet"})["expires_at"] is None
    )
    service.append("ttl", "s", {"role": "tool", "data": {"id": "A-55"}, "field_ttl": {"id": "order"}})
    assert service.turns("ttl", "s")[0]["field_expires_at"]
    service.ok("PUT", "/v1/admin/policies/ttl", json={"entity_classes": {"order": 60, "place": 120}})
    try:
        service.append("ttl", "s", "order INV-20394 to Paris")
        lives = {one["class"]: (one["ttl_class"], one["ttl_seconds"]) for one in listed(service, "ttl")}
        assert lives == {"order": ("order", 60), "place": ("place", 120), "code": (None, None)}
    finally:
        service.ok("PUT", "/v1/admin/policies/ttl", json={})
