"""What cannot be right is refused: with its own status and code, in few words, and without a trace in the store."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from serve_app.api.http import NESTING_MAX
from serve_app.api.problems import STATUS_OF_CODE
from serve_app.api.schemas import BODY_BYTES_MAX, CONTENT_BYTES_MAX, TURNS_A_CALL_MAX
from tests.api.running import Running, refused

NOW = "2024-05-06T07:08:09Z"
USERS = (f"user-{number}" for number in itertools.count())

VALID: dict[str, tuple[str, str, dict[str, Any]]] = {
    "turns": ("POST", "/v1/sessions/s/turns", {"user_id": "u", "turns": [{"role": "user", "content": "hello"}]}),
    "edit": ("PATCH", "/v1/turns/kept?user_id=u&session_id=kept", {"content": "new"}),
    "search": ("POST", "/v1/search", {"user_id": "u", "query": "x", "filters": {"roles": ["user"]}}),
    "context": ("POST", "/v1/context", {"user_id": "u", "query": "x", "budget_tokens": 500}),
    "history": (
        "POST",
        "/v1/context",
        {"user_id": "u", "query": "x", "budget_tokens": 500, "history": [{"role": "user", "content": "a"}]},
    ),
    "fact": ("PUT", "/v1/users/u/facts/colour", {"value": "blue"}),
    "redact": ("POST", "/v1/redact", {"text": "x", "policy": "strict"}),
    "embeddings": ("POST", "/v1/embeddings", {"input": ["a", "b"]}),
    "maintenance": ("POST", "/v1/admin/maintenance", {"action": "fold", "shard": 0}),
    "key": ("POST", "/v1/admin/keys", {"role": "app", "tenant": "t"}),
}


@pytest.fixture(scope="module", autouse=True)
def kept(service: Running) -> None:
    service.append("u", "kept", {"id": "kept", "role": "user", "content": "old"})


@pytest.fixture
def user(service: Running) -> Iterator[str]:
    """A user of whom nothing is stored, neither before the test nor after it."""
    name = next(USERS)
    yield name
    assert service.ok("GET", "/v1/sessions", params={"user_id": name}) == {"sessions": []}
    assert service.ok("GET", f"/v1/users/{name}/facts") == {"facts": []}


def append_raw(service: Running, user: str, turn: bytes, **more: Any) -> httpx.Response:
    body = b'{"user_id":' + msgspec.json.encode(user) + b',"turns":[' + turn + b"]}"
    return service.call("POST", "/v1/sessions/s/turns", content=body, **more)


@pytest.mark.parametrize("name", VALID)
def test_every_route_with_a_body_takes_a_right_one(service: Running, name: str) -> None:
    method, path, body = VALID[name]
    assert service.call(method, path, json=body).status_code in (200, 201)


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"NaN", b'{"', b"nonsense"])
def test_a_body_that_is_no_json_is_a_400(service: Running, name: str, raw: bytes) -> None:
    method, path, _ = VALID[name]
    refused(service.call(method, path, content=raw), 400, "invalid_json")


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("raw", [b"[]", b"null", b"7", b'"text"', b"{}", b"[" * 50_000])
def test_json_of_another_shape_is_a_422(service: Running, name: str, raw: bytes) -> None:
    method, path, _ = VALID[name]
    refused(service.call(method, path, content=raw), 422, "invalid_request")


@pytest.mark.parametrize("name", VALID)
def test_an_unknown_field_is_refused_by_name(service: Running, name: str) -> None:
    method, path, body = VALID[name]
    assert "hat" in refused(service.call(method, path, json={**body, "hat": 1}), 422, "invalid_request")["detail"]


@pytest.mark.parametrize(("name", "place"), [("turns", "turns"), ("history", "history"), ("search", "filters")])
def test_an_unknown_field_inside_is_refused(service: Running, name: str, place: str) -> None:
    method, path, body = VALID[name]
    inner = body[place]
    changed = [{**inner[0], "hat": 1}] if isinstance(inner, list) else {**inner, "hat": 1}
    refused(service.call(method, path, json={**body, place: changed}), 422, "invalid_request")


@pytest.mark.parametrize("name", VALID)
def test_each_field_refuses_another_type(service: Running, name: str) -> None:
    method, path, body = VALID[name]
    for field in body:
        for wrong in ({"a": 1}, [[]], 1.5, True):
            refused(service.call(method, path, json={**body, field: wrong}), 422, "invalid_request")


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "king", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": ""},
        {"role": "user", "content": "x", "id": ""},
        {"role": "user", "content": "x", "speaker": ""},
        {"role": "user", "content": "x", "ttl_seconds": 0},
        {"role": "user", "content": "x", "ttl_seconds": 1.5},
        {"role": "user", "content": "x", "metadata": []},
        {"role": "user", "content": "x", "tool_calls": [{"id": "a"}]},
        {"role": "user", "content": "x", "metadata": {"n": 2**64}},
        {"role": "user", "content": "x", "metadata": {"deep": [{"n": -(2**63) - 1}]}},
        {"role": "assistant", "content": "x", "tool_calls": [{"id": "a", "name": "b", "arguments": {"n": 10**30}}]},
        {"role": "user", "content": "x" * (CONTENT_BYTES_MAX + 1)},
        {"role": "tool", "data": ["x" * CONTENT_BYTES_MAX]},
    ],
)
def test_a_malformed_turn_refuses_the_whole_call(service: Running, user: str, turn: dict[str, Any]) -> None:
    body = {"user_id": user, "turns": [{"role": "user", "content": "sound"}, turn]}
    refused(service.call("POST", "/v1/sessions/s/turns", json=body), 422, "invalid_request")


@pytest.mark.parametrize(
    "turn",
    [
        rb'{"role":"user","content":"\ud800"}',
        rb'{"role":"user","content":"\udc00x"}',
        rb'{"role":"user","content":"x","metadata":{"\ud800":1}}',
        rb'{"role":"user","content":"x","id":"\ud8000000"}',
        rb'{"role":"user","content":"a\u0000b"}',
        rb'{"role":"tool","data":{"a":[{"b\u0000":1}]}}',
        rb'{"role":"user","content":"x","metadata":{"k":"\u0000"}}',
        rb'{"role":"user","content":"x","speaker":"\u0000"}',
    ],
)
def test_nul_and_half_surrogates_are_refused_anywhere(service: Running, user: str, turn: bytes) -> None:
    refused(append_raw(service, user, turn), 422, "invalid_request")


def test_an_escaped_backslash_before_u0000_is_text(service: Running) -> None:
    name = next(USERS)
    assert append_raw(service, name, rb'{"role":"user","content":"a\\u0000b \ud83d\ude00"}').status_code == 201
    assert service.turns(name, "s")[0]["content"] == r"a\u0000b 😀"


@pytest.mark.parametrize("field", ["data", "metadata"])
@pytest.mark.parametrize("depth", [NESTING_MAX, 400, 900, 5_000])
def test_deep_nesting_is_refused_before_anything_is_stored(service: Running, user: str, field: str, depth: int) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    turn = b'{"role":"tool","content":"x","' + field.encode() + b'":' + nested + b"}"
    refused(append_raw(service, user, turn), 400, "invalid_json")


@pytest.mark.parametrize("depth", [NESTING_MAX - 4, 20])
def test_nesting_within_the_bound_is_kept(service: Running, depth: int) -> None:
    name = next(USERS)
    nested = b'{"a":' * depth + b"[1]" + b"}" * depth
    turn = b'{"role":"tool","data":' + nested + b',"metadata":' + nested + b"}"
    assert append_raw(service, name, turn).status_code == 201
    shown = service.call("GET", "/v1/sessions/s/turns", params={"user_id": name}).content
    assert shown.count(nested) == 2


def test_a_content_that_is_deeper_json_than_its_data_is_a_text(service: Running) -> None:
    name = next(USERS)
    service.append(name, "s", {"role": "tool", "content": "[" * 100_000, "data": [1]})
    assert service.turns(name, "s")[0]["content"] == "[" * 100_000


@pytest.mark.parametrize(("content", "data", "text"), [("1", True, "1"), ('{"a": 1}', {"a": 1}, '{"a":1}')])
def test_a_content_is_left_to_its_data_only_if_it_says_the_same(
    service: Running, content: str, data: Any, text: str
) -> None:
    name = next(USERS)
    service.append(name, "s", {"role": "tool", "content": content, "data": data})
    assert service.turns(name, "s")[0]["content"] == text


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**100, -(10**400)])
def test_integers_in_data_are_exact_at_any_size(service: Running, number: int) -> None:
    name = next(USERS)
    service.append(name, "s", {"role": "tool", "data": {"n": [number]}})
    assert (
        f'"data":{{"n":[{number}]}}'.encode()
        in service.call("GET", "/v1/sessions/s/turns", params={"user_id": name}).content
    )


@pytest.mark.parametrize("number", [b"1" * 5_000, b"1e999", b"-1e999"])
def test_numbers_that_nobody_can_hold_are_refused(service: Running, user: str, number: bytes) -> None:
    refused(append_raw(service, user, b'{"role":"tool","data":' + number + b"}"), 422, "invalid_request")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"01", b"+1", b".5"])
def test_numbers_that_json_does_not_know_are_refused(service: Running, user: str, number: bytes) -> None:
    refused(append_raw(service, user, b'{"role":"tool","data":' + number + b"}"), 400, "invalid_json")


@pytest.mark.parametrize("count", [0, TURNS_A_CALL_MAX + 1])
def test_the_number_of_turns_is_bounded(service: Running, user: str, count: int) -> None:
    body = {"user_id": user, "turns": [{"role": "user", "content": "x"}] * count}
    refused(service.call("POST", "/v1/sessions/s/turns", json=body), 422, "invalid_request")


def test_a_body_as_large_as_allowed_is_read(service: Running) -> None:
    whole = msgspec.json.encode(VALID["search"][2]).ljust(BODY_BYTES_MAX)
    assert service.call("POST", "/v1/search", content=whole).status_code == 200
    refused(service.call("POST", "/v1/search", content=whole + b" "), 413, "body_too_large")


def test_a_body_without_a_stated_length_is_cut_off_early(service: Running) -> None:
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        for _ in range(1_000):
            sent += 1 << 20
            yield b" " * (1 << 20)

    refused(service.call("POST", "/v1/search", content=endless()), 413, "body_too_large")
    assert BODY_BYTES_MAX < sent <= BODY_BYTES_MAX + (1 << 20)


def test_a_stated_length_over_the_bound_is_refused_unread(service: Running) -> None:
    async def never() -> Any:
        raise AssertionError("the body was read")
        yield b""

    length = {"content-length": str(BODY_BYTES_MAX + 1)}
    refused(service.call("POST", "/v1/search", content=never(), headers=length), 413, "body_too_large")


def test_every_code_of_a_request_was_met_here() -> None:
    """Here and in `test_wrong_requests`. Trouble inside is met in the tests of storage, encoder and start; bounds of
    keys and users in `test_limits`, a replica's refusal in `tests/test_replica.py`, a shard's
    elsewhere in `tests/test_one_shard.py`, a
    deadline's in `test_tool_data.py`, conflicts in `test_backfill.py`."""
    inside = {"internal_error", "store_unavailable", "writer_fenced", "log_damaged", "receipt_not_reached"}
    inside |= {
        "not_ready",
        "encoder_unavailable",
        "ranker_unusable",
        "reranker_unavailable",
        "storage_full",
        "overloaded",
        "body_timeout",
        "unauthorized",
        "forbidden",
        "rate_limited",
        "quota_exceeded",
        "read_only_replica",
        "shard_elsewhere",
        "deadline_passed",
        "conflict",
        "migration_changed",
        "migration_claimed",
        "migration_fenced",
        "migration_running",
    }
    met = {"invalid_json", "not_found", "method_not_allowed", "body_too_large", "invalid_request", "invalid_receipt"}
    met |= {"query_exceeds_budget", "system_exceeds_budget", "not_supported"}
    assert met | inside == set(STATUS_OF_CODE)
