"""No request of one tenant reads or changes what is another's, whatever it puts into ids and filters."""

from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.running import Running, quoted

SECRET = "zirconia"
IDS = ["john", "john_b", "john%", "john*", "' OR '1'='1", "john\u200b", "JOHN", "../john", "acme", "john/john", "a|b"]
ids = st.sampled_from(IDS) | st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def tenants(service: Running) -> tuple[str, str]:
    return service.make_key(tenant="acme"), service.make_key(tenant="acme2")


def reads(user: str, session: str, turn: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Every request that could show something of a user."""
    where = {"user_id": user, "session_id": session}
    search = {"user_id": user, "query": SECRET, "tiers": ["hot", "warm", "cold"]}
    return [
        ("GET", f"/v1/sessions/{quoted(session)}/turns", {"params": {"user_id": user}}),
        ("GET", "/v1/sessions", {"params": {"user_id": user}}),
        ("GET", f"/v1/turns/{quoted(turn)}", {"params": where}),
        ("POST", "/v1/search", {"json": search}),
        ("POST", "/v1/search", {"json": {**search, "query": "", "session_id": session}}),
        ("POST", "/v1/search", {"json": {**search, "query": "", "filters": {"metadata": {"owner": user}}}}),
        ("POST", "/v1/context", {"json": {**where, "query": SECRET[:4], "budget_tokens": 2000}}),
        ("POST", "/v1/context", {"json": {"user_id": user, "query": SECRET[:4], "budget_tokens": 2000}}),
        ("GET", f"/v1/sessions/{quoted(session)}/summary", {"params": {"user_id": user}}),
        ("POST", f"/v1/sessions/{quoted(session)}/summary:refresh", {"params": {"user_id": user}}),
        ("GET", f"/v1/users/{quoted(user)}/export", {}),
        ("GET", "/v1/golden", {"params": {"user_id": user}}),
        ("GET", f"/v1/users/{quoted(user)}/facts", {}),
        ("GET", f"/v1/users/{quoted(user)}/facts/{quoted(turn)}", {}),
    ]


def changes(user: str, session: str, turn: str) -> list[tuple[str, str, dict[str, Any]]]:
    where = {"user_id": user, "session_id": session}
    gold = {"session_id": session, "turn_id": turn}
    return [
        ("PATCH", f"/v1/turns/{quoted(turn)}", {"params": where, "json": {"content": "overwritten"}}),
        ("DELETE", f"/v1/turns/{quoted(turn)}", {"params": where}),
        ("DELETE", f"/v1/users/{quoted(user)}/facts/{quoted(turn)}", {}),
        ("DELETE", "/v1/golden", {"params": {"user_id": user}}),
        ("POST", "/v1/golden", {"json": {"user_id": user, "query": "mine", "gold": [gold]}}),
        ("DELETE", f"/v1/sessions/{quoted(session)}", {"params": {"user_id": user}}),
        ("DELETE", f"/v1/users/{quoted(user)}", {}),
    ]


def asked(service: Running, key: str, request: tuple[str, str, dict[str, Any]]) -> httpx.Response:
    method, path, arguments = request
    return service.call(method, path, key=key, **arguments)


@settings(max_examples=25, deadline=None)
@given(user=ids, session=ids, turn=ids, guest=ids)
def test_two_tenants_with_the_same_or_hostile_ids_share_nothing(
    service: Running, tenants: tuple[str, str], user: str, session: str, turn: str, guest: str
) -> None:
    mine, theirs = tenants
    said = {"id": turn, "role": "user", "content": f"the {SECRET} is hidden", "metadata": {"owner": user}}
    service.append(user, session, said, key=mine)
    put = service.call("PUT", f"/v1/users/{quoted(user)}/facts/{quoted(turn)}", json={"value": SECRET}, key=mine)
    assert put.status_code == 200
    golden = {"user_id": user, "query": SECRET, "gold": [{"session_id": session, "turn_id": turn}]}
    assert service.call("POST", "/v1/golden", json=golden, key=mine).status_code == 201
    own = [asked(service, mine, request) for request in reads(user, session, turn)]
    assert sum(SECRET in answer.text for answer in own) >= len(own) - 3
    for name in (user, guest):
        for request in [*reads(name, session, turn), *changes(name, session, turn)]:
            answer = asked(service, theirs, request)
            assert answer.status_code in (200, 202, 404)
            assert f"{SECRET} is hidden" not in answer.text
            assert f'"value":"{SECRET}"' not in answer.text
    assert [asked(service, mine, request).status_code for request in reads(user, session, turn)] == [200] * len(own)
    shown = service.call("GET", f"/v1/turns/{quoted(turn)}", params={"user_id": user, "session_id": session}, key=mine)
    assert shown.json()["content"] == said["content"]
    service.call("DELETE", f"/v1/users/{quoted(user)}", key=mine)


def test_an_erasure_is_shown_to_its_tenant_only(service: Running, tenants: tuple[str, str]) -> None:
    service.append("leaver", "s", "bye", key=tenants[0])
    erasure = service.ok("DELETE", "/v1/users/leaver", key=tenants[0])["erasure_id"]
    assert service.call("GET", f"/v1/erasures/{erasure}", key=tenants[0]).status_code == 200
    assert service.call("GET", f"/v1/erasures/{erasure}", key=tenants[1]).status_code == 404


def test_a_tenant_cannot_be_named_by_a_body_or_a_header(service: Running, tenants: tuple[str, str]) -> None:
    service.append("john", "s", f"the {SECRET}", key=tenants[0])
    headers = {"x-tenant": "acme", "x-memstrata-route": "acme", "x-forwarded-user": "john"}
    answer = service.call("GET", "/v1/sessions", params={"user_id": "john"}, key=tenants[1], headers=headers)
    assert answer.json() == {"sessions": []}
    body = {"user_id": "john", "query": SECRET, "tenant": "acme"}
    assert service.call("POST", "/v1/search", json=body, key=tenants[1]).status_code == 422
