"""`POST /v1/compress`: what it takes, what it gives, and that nothing of it stays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.running import Running, refused

NOW = "2024-05-01T00:00:00Z"
BUDGET = "My budget for the trip must not exceed 4850 euros."


def said(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def talk(count: int) -> list[dict[str, Any]]:
    return [said(f"We spoke about the little boat {n * 'x'} down by the harbour.") for n in range(count)]


def compress(service: Running, turns: list[dict[str, Any]], target: int = 100, **more: Any) -> dict[str, Any]:
    return service.ok("POST", "/v1/compress", json={"turns": turns, "target_tokens": target, **more})


def test_it_gives_a_summary_under_its_target_that_keeps_what_binds(service: Running) -> None:
    made = compress(service, [said("Hello!"), said(BUDGET), *talk(40)], 60, now=NOW)
    assert "4850" in made["text"]
    assert 0 < made["tokens"] <= 60
    assert (made["first_seq"], made["last_seq"]) == (0, 41)
    assert [(one["turn_id"], one["status"]) for one in made["constraints"]] == [("1", "active")]
    assert made["version"]
    assert made["input_hash"]
    assert made["created_at"] == NOW
    assert made["expires_at"] > NOW
    assert made["degradation"] == {"level": "full", "reasons": []}


def test_a_turn_is_named_by_its_id_or_its_place(service: Running) -> None:
    made = compress(service, [said(BUDGET), said("I am allergic to peanuts.", id="nuts"), said(BUDGET, id="nuts")])
    assert {one["turn_id"] for one in made["constraints"]} <= {"0", "nuts"}
    assert {"0", "nuts"} & {one["turn_id"] for one in made["constraints"]}


def test_the_same_turns_give_the_same_answer(service: Running) -> None:
    turns = [said(BUDGET), *talk(30)]
    first = compress(service, turns, 80, now=NOW)
    assert compress(service, turns[:-1], 80, now=NOW)["input_hash"] != first["input_hash"]
    assert compress(service, turns, 80, now=NOW) == first


def test_what_has_expired_is_left_out_and_what_will_ends_the_answer(service: Running) -> None:
    old = said("The pin is 4711 and must not change.", created_at="2024-04-01T00:00:00Z", ttl_seconds=60)
    ends = {"created_at": "2024-05-01T00:00:00Z", "ttl_seconds": 4 * 365 * 24 * 3600}
    made = compress(service, [old, said(BUDGET, **ends)], now=NOW)
    assert "4711" not in str(made)
    assert "4850" in made["text"]
    assert (made["first_seq"], made["last_seq"]) == (1, 1)
    assert made["expires_at"] <= "2028-05-01T00:00:00Z"
    nothing = compress(service, [old], now=NOW)
    assert nothing["text"] == ""
    assert nothing["first_seq"] is None
    assert nothing["tokens"] == 0


def test_an_expired_field_of_data_is_left_out(service: Running) -> None:
    data = {"order": "ZX-81Q", "price": 77123}
    turn = {"role": "user", "data": data, "created_at": "2024-04-01T00:00:00Z", "field_ttl": {"price": 60}}
    assert "77123" not in str(compress(service, [turn, said(BUDGET)], now=NOW))
    classed = turn | {"field_ttl": {"price": "orders"}}
    assert "77123" not in str(compress(service, [classed, said(BUDGET)], now=NOW))


def test_secrets_are_taken_out_before_anything_is_read(service: Running) -> None:
    made = compress(service, [said("My card is 4111 1111 1111 1111 and must never be shown.")])
    assert "4111" not in str(made)
    assert "[credit_card]" in made["text"]


def test_a_tokenizer_by_name(service: Running) -> None:
    assert compress(service, [said(BUDGET)], 50, tokenizer="o200k_base")["tokens"] <= 50
    wrong = {"turns": [said("x")], "target_tokens": 5, "tokenizer": "no"}
    refused(service.call("POST", "/v1/compress", json=wrong), 422, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        {"turns": []},
        {"turns": [{"role": "user"}]},
        {"turns": [said("x")] * 1001},
        {"turns": [said("x", colour=1)]},
        {"turns": [said("x" * (1 << 20))] * 3},
        {"target_tokens": 0},
        {"target_tokens": -5},
        {"target_tokens": 2_000_001},
        {"target_tokens": "many"},
        {"now": "2024-05-01T00:00:00"},
        {"user_id": "zelda"},
        {"turns": [{"role": "user", "data": {"a": 1}, "field_ttl": {"a": "no_such_class"}}]},
    ],
)
def test_bad_requests_are_refused(service: Running, body: dict[str, Any]) -> None:
    whole = {"turns": [said("x")], "target_tokens": 50} | body
    refused(service.call("POST", "/v1/compress", json=whole), 422, "invalid_request")


def test_it_is_metered_like_any_summary(service: Running) -> None:
    counter = 'memstrata_compressor_duration_seconds_count{backend="extractive",result="made"}'
    before = _sample(service, counter)
    compress(service, [said(BUDGET)])
    assert _sample(service, counter) >= before + 1


def _sample(service: Running, name: str) -> float:
    lines = service.call("GET", "/metrics", key=None).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_nothing_is_stored(service: Running) -> None:
    compress(service, [said("The zorkmid must be kept.")])
    assert "zorkmid" not in str(service.ok("GET", "/v1/users"))
    files = [path for path in service.data.rglob("*") if path.is_file()]
    assert files
    assert not any(b"zorkmid" in path.read_bytes() for path in files)
