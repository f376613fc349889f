"""Who is held: of the key's tenant alone, in order, page by page, until all have been seen."""

from typing import Any

import pytest

from serve_app.core import Owner
from serve_app.memory.reading import range_of
from tests.api.running import Running, quoted, refused

USERS = [
    "a",
    "a b",
    "a\U0010ffff",
    "a\U0010ffff\U0010ffff",
    "ab",
    "b",
    "b'%",
    "é",
    "\ud7ff",
    "\ue000",
    "\U0001f642",
    "~",
]


@pytest.fixture(scope="module")
def admin(service: Running) -> str:
    """Of a tenant with users in the tables, in the log's tail, with facts alone, erased and emptied; beside others."""
    key = service.make_key(tenant="acme", role="admin")
    for tenant in ("acm", "acme ", "acme2", "acme\U0010ffff"):
        service.append("intruder", "s", "x", key=service.make_key(tenant=tenant))
    for user in [*USERS[:6], "erased", "emptied"]:
        service.append(user, "s", {"id": "1", "role": "user", "content": "x"}, key=key)
    service.fold()
    for user in USERS[6:11]:
        service.append(user, "s", {"id": "1", "role": "user", "content": "x"}, key=key)
    fact = service.call("PUT", f"/v1/users/{quoted(USERS[11])}/facts/k", json={"value": "v"}, key=key)
    assert fact.status_code == 200
    service.ok("DELETE", "/v1/users/erased", key=key)
    service.ok("DELETE", "/v1/sessions/s", params={"user_id": "emptied"}, key=key)
    return key


def walked(service: Running, key: str, **asked: Any) -> list[str]:
    found: list[str] = []
    while True:
        page = service.ok("GET", "/v1/users", params=asked, key=key)
        assert len(page["users"]) <= asked.get("limit", 100)
        found += [user["user_id"] for user in page["users"]]
        if "next" not in page:
            return found
        assert page["next"] == found[-1]
        asked["after"] = page["next"]


@pytest.mark.parametrize("limit", [1, 2, 5, 1_000])
def test_all_users_of_the_tenant_and_no_other(service: Running, admin: str, limit: int) -> None:
    assert walked(service, admin, limit=limit) == sorted(USERS)


@pytest.mark.parametrize("prefix", ["a", "a\U0010ffff", "b", "\ud7ff", "\U0001f642", "none", ""])
def test_users_by_the_beginning_of_their_ids(service: Running, admin: str, prefix: str) -> None:
    assert walked(service, admin, limit=2, prefix=prefix) == [user for user in sorted(USERS) if user.startswith(prefix)]


@pytest.mark.parametrize("after", ["a", "aa", "zz", "\U0010ffff" * 256])
def test_users_after_one(service: Running, admin: str, after: str) -> None:
    assert walked(service, admin, after=after) == [user for user in sorted(USERS) if user > after]
    assert walked(service, admin, after=after, prefix="a") == [
        user for user in sorted(USERS) if user > after and user.startswith("a")
    ]


def test_it_is_for_admins_with_right_words(service: Running, admin: str) -> None:
    for key in (service.make_key(tenant="acme"), service.make_key(tenant="acme", user_id="a")):
        refused(service.call("GET", "/v1/users", key=key), 403, "forbidden")
    refused(service.call("GET", "/v1/users", key=None), 401, "unauthorized")
    for wrong in ("limit=0", "limit=1001", "limit=x", "after=", "after=a%1Fb", "prefix=%1F", "tenant=acm", "user_id=a"):
        refused(service.call("GET", f"/v1/users?{wrong}", key=admin), 422, "invalid_request")


@pytest.mark.parametrize("prefix", ["", "x", "\U0010ffff", "a\U0010ffff\U0010ffff", "\ud7ff"])
def test_a_range_holds_what_begins_so_and_nothing_else(prefix: str) -> None:
    start, end = range_of("t", prefix, None)
    for more in ("", "\x20", "\U0010ffff" * 300, "z"):
        assert start <= Owner("t", prefix + more).key < end or prefix + more == ""
    assert not start <= Owner("t ", prefix).key < end
    assert not start <= Owner("t\U0010ffff", prefix).key < end
    assert end.encode() > start.encode()
