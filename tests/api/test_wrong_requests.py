"""A request that reads well and cannot be answered: each field, parameter and method is refused for its own reason."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.running import Running, refused
from tests.api.test_refusals import VALID

SAID_FIRST = {"role": "user", "content": "a", "id": "one"}


@pytest.fixture(scope="module", autouse=True)
def kept(service: Running) -> None:
    service.append("u", "kept", {"id": "kept", "role": "user", "content": "old"})


@pytest.fixture
def user(service: Running) -> Iterator[str]:
    """A user of whom nothing is stored, also after the test."""
    yield "nobody"
    assert service.ok("GET", "/v1/sessions", params={"user_id": "nobody"}) == {"sessions": []}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"budget_tokens": 1}, "query_exceeds_budget"),
        ({"budget_tokens": 0}, "query_exceeds_budget"),
        ({"budget_tokens": 2_000_001}, "invalid_request"),
        ({"budget_tokens": 20, "system": "word " * 100}, "system_exceeds_budget"),
        ({"query": ""}, "invalid_request"),
        ({"session_id": "s", "history": []}, "invalid_request"),
        ({"history": [SAID_FIRST, {"role": "user", "content": "b", "id": "one"}]}, "invalid_request"),
        ({"history": [{**SAID_FIRST, "id": "history-1"}, {"role": "user", "content": "b"}]}, "invalid_request"),
        ({"scope": "session"}, "invalid_request"),
        ({"layout": "baroque"}, "invalid_request"),
        ({"tokenizer": "none"}, "invalid_request"),
        ({"format": "yaml"}, "invalid_request"),
        ({"as_of": "soon"}, "invalid_receipt"),
        ({"as_of": -1}, "invalid_request"),
        ({"as_of": "9:1"}, "invalid_receipt"),
        ({"as_of": "2024-05-06T07:08:09"}, "invalid_request"),
        ({"min_receipt": "x"}, "invalid_receipt"),
        ({"min_receipt": "9:1"}, "invalid_receipt"),
        ({"min_receipt": "٣:٣"}, "invalid_receipt"),
        ({"deadline_ms": 0}, "invalid_request"),
        ({"deadline_ms": 60_001}, "invalid_request"),
    ],
)
def test_a_context_that_cannot_be(service: Running, change: dict[str, Any], code: str) -> None:
    body = {"user_id": "u", "query": "What colour?", "budget_tokens": 500, **change}
    refused(service.call("POST", "/v1/context", json=body), 422, code)


def test_a_turn_that_is_sent_along_twice_counts_once(service: Running) -> None:
    given = service.context("nobody", history=[SAID_FIRST, SAID_FIRST])
    assert [one["content"] for one in given["messages"]] == ["a", "And now?"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"k": 0}, "invalid_request"),
        ({"k": 1_001}, "invalid_request"),
        ({"k": 1.5}, "invalid_request"),
        ({"query": "  "}, "invalid_request"),
        ({"query": "x" * 16_385}, "invalid_request"),
        ({"mode": "magic"}, "invalid_request"),
        ({"tiers": []}, "invalid_request"),
        ({"tiers": ["lukewarm"]}, "invalid_request"),
        ({"filters": {"roles": []}}, "invalid_request"),
        ({"filters": {"from": "yesterday"}}, "invalid_request"),
        ({"filters": {"to": "2024-05-06T07:08:09"}}, "invalid_request"),
        ({"filters": {"kinds": ["rumour"]}}, "invalid_request"),
        ({"filters": {"entities": []}}, "invalid_request"),
        ({"filters": {"entities": ["--"]}}, "invalid_request"),
        ({"filters": {"entities": ["a"] * 33}}, "invalid_request"),
    ],
)
def test_a_search_that_cannot_be(service: Running, change: dict[str, Any], code: str) -> None:
    refused(service.call("POST", "/v1/search", json={"user_id": "u", "query": "x", **change}), 422, code)


def test_what_is_documented_and_not_built_says_so(service: Running) -> None:
    refused(service.call("POST", "/v1/embeddings", json={"input": "x", "dimensions": 3}), 422, "not_supported")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/turns/none?user_id=u&session_id=kept"),
        ("PATCH", "/v1/turns/none?user_id=u&session_id=kept"),
        ("DELETE", "/v1/turns/none?user_id=u&session_id=kept"),
        ("GET", "/v1/turns/kept?user_id=u&session_id=other"),
        ("GET", "/v1/users/u/facts/none"),
        ("DELETE", "/v1/users/u/facts/none"),
        ("GET", "/v1/sessions/none/summary?user_id=u"),
        ("POST", "/v1/sessions/none/summary:refresh?user_id=u"),
        ("GET", "/v1/erasures/none"),
        ("DELETE", "/v1/admin/keys/none"),
        ("GET", "/v1/no/such/route"),
        ("GET", "/v1/search/"),
        ("GET", "/"),
        ("GET", "/v1//turns/x"),
    ],
)
def test_what_is_not_there_is_a_404(service: Running, method: str, path: str) -> None:
    refused(service.call(method, path, json={"content": "x"}), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/search", "POST"),
        ("OPTIONS", "/v1/context", "POST"),
        ("PUT", "/v1/turns/kept", "DELETE, GET, HEAD, PATCH"),
        ("POST", "/v1/sessions", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("BREW", "/metrics", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(service: Running, method: str, path: str, allow: str) -> None:
    answer = service.call(method, path)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allow


@pytest.mark.parametrize("path", ["/healthz", "/docs", "/openapi.json", "/v1/sessions?user_id=u"])
def test_head_says_what_get_would(service: Running, path: str) -> None:
    head, full = service.call("HEAD", path), service.call("GET", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(full.content))
    assert head.headers["content-type"] == full.headers["content-type"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/sessions?user_id=u&hat=1"),
        ("GET", "/v1/sessions?user_id=u&user_id=u"),
        ("GET", "/v1/sessions?user_id=u&user_id=v"),
        ("GET", "/v1/sessions?user_id"),
        ("GET", "/v1/sessions?user_id="),
        ("GET", "/v1/sessions?user_id=%ff"),
        ("GET", "/v1/sessions?user_id=a%00b"),
        ("GET", "/v1/sessions?User_id=u"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/sessions/s/turns?user_id=u&limit=0"),
        ("GET", "/v1/sessions/s/turns?user_id=u&limit=1001"),
        ("GET", "/v1/sessions/s/turns?user_id=u&limit=1_0"),
        ("GET", "/v1/sessions/s/turns?user_id=u&limit=%D9%A3"),
        ("GET", "/v1/sessions/s/turns?user_id=u&limit=%201"),
        ("GET", "/v1/sessions/s/turns?user_id=u&after_seq=" + "9" * 5_000),
        ("POST", "/v1/search?hat=1"),
        ("POST", "/v1/context?user_id=u"),
        ("GET", "/v1/users/u/facts?limit=3"),
        ("GET", "/v1/users/u/export?x=1"),
        ("GET", "/v1/admin/stats?shard=0"),
        ("GET", "/v1/erasures/none?x=1"),
    ],
)
def test_query_parameters_are_known_single_and_right(service: Running, method: str, path: str) -> None:
    refused(service.call(method, path, json=VALID["search"][2]), 422, "invalid_request")
