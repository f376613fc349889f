"""Who may do what: no key, no data; a key does what its role and its user allow, until it is revoked."""

import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from serve_app.api.admin import AdminRoutes
from serve_app.api.app import Route, table
from serve_app.api.auth import KeyFile
from serve_app.api.backfill import BackfillRoutes
from serve_app.api.golden import GoldenRoutes
from serve_app.api.migrations import MigrationRoutes
from serve_app.api.routes import Routes
from serve_app.context.layout import ZONES
from serve_app.errors import InvalidRequest, NotFound, StoreUnavailable, Unauthorized
from serve_app.stores.documents_disk import DiskDocuments
from tests.api.running import Running, refused

ROUTES: list[Route] = table(
    object.__new__(Routes),
    object.__new__(AdminRoutes),
    object.__new__(GoldenRoutes),
    object.__new__(MigrationRoutes),
    object.__new__(BackfillRoutes),
)
DATA_ROUTES = [route for route in ROUTES if not route.template.startswith("/v1/admin")]
ADMIN_ROUTES = [route for route in ROUTES if route.template.startswith("/v1/admin")]

BODIES: dict[str, Any] = {
    "/v1/admin/policies/{name}": {},
    "/v1/admin/layouts/{name}": {"shares": dict.fromkeys(ZONES, 16)},
    "/v1/admin/backups": {"kind": "full"},
    "/v1/sessions/{session_id}/turns": {"user_id": "zelda", "turns": [{"role": "user", "content": "x"}]},
    "/v1/turns/{turn_id}": {"content": "changed"},
    "/v1/context": {"user_id": "zelda", "query": "x", "budget_tokens": 500},
    "/v1/search": {"user_id": "zelda", "query": "x"},
    "/v1/compress": {"turns": [{"role": "user", "content": "x"}], "target_tokens": 50},
    "/v1/query:expand": {"query": "x", "now": "2024-05-06T07:08:09Z"},
    "/v1/users/{user_id}/facts/{key}": {"value": "changed"},
    "/v1/redact": {"text": "x"},
    "/v1/golden": {"user_id": "zelda", "query": "x", "gold": [{"session_id": "s", "turn_id": "t"}]},
    "/v1/embeddings": {"input": "x"},
    "/v1/rerank": {"query": "x", "documents": ["y"]},
    "/v1/admin/maintenance": {"action": "fold"},
    "/v1/admin/migrations": {"encoder": {"model": "hash"}},
    "/v1/admin/keys": {"role": "app"},
    "/v1/admin/migrations/{migration_id}:claim": {"worker": "w"},
}


def named(route: Route) -> str:
    return f"{route.method} {route.template}"


def arguments(route: Route, user: str = "zelda") -> dict[str, Any]:
    """A right request of the route for a user: path, query and body."""
    filled = route.template.replace("{user_id}", user).replace("{session_id}", "s").replace("{turn_id}", "t")
    filled = (
        filled.replace("layouts/{name}", "layouts/default")
        .replace("{name}", "privacy")
        .replace("{key}", "k")
        .replace("{erasure_id}", "none")
        .replace("{key_id}", "none")
        .replace("{migration_id}", "none")
    )
    query = {name: {"user_id": user, "session_id": "s"}[name] for name in route.query & {"user_id", "session_id"}}
    body = BODIES.get(route.template)
    if body is not None and "user_id" in body:
        body = {**body, "user_id": user}
    return {"path": filled, "params": query} | ({"json": body} if body is not None else {})


@pytest.fixture(scope="module", autouse=True)
def owned(service: Running) -> None:
    service.append("zelda", "s", {"id": "t", "role": "user", "content": "quetzal"})
    service.ok("PUT", "/v1/users/zelda/facts/k", json={"value": "quetzal"})


def unchanged(service: Running) -> None:
    assert [turn["content"] for turn in service.turns("zelda", "s")] == ["quetzal"]
    assert service.ok("GET", "/v1/users/zelda/facts/k")["value"] == "quetzal"


@pytest.mark.parametrize("route", ROUTES, ids=named)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer {digest}",
        "Bearer é",
    ],
)
def test_no_route_of_the_table_answers_without_a_known_key(service: Running, route: Route, header: str | None) -> None:
    headers = {}
    if header is not None:
        digest = KeyFile(service.settings.files).records(None)[0].sha256
        headers["authorization"] = header.format(key=service.key, digest=digest).encode()
    answer = service.call(route.method, **arguments(route), key=None, headers=headers)
    refused(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    unchanged(service)


@pytest.mark.parametrize("path", ["/v1/no/such", "/v1/admin/no-such", "/x"])
def test_without_a_key_nobody_learns_which_routes_there_are(service: Running, path: str) -> None:
    refused(service.call("GET", path, key=None), 401, "unauthorized")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
def test_open_routes_show_no_data_and_no_key(service: Running, path: str) -> None:
    answer = service.call("GET", path, key=None)
    assert answer.status_code == 200
    for secret in ("quetzal", "zelda", service.key, service.key.split("_", 2)[2]):
        assert secret not in answer.text


@pytest.mark.parametrize("route", ADMIN_ROUTES, ids=named)
@pytest.mark.parametrize("key", [{"role": "app"}, {"role": "app", "user_id": "zelda"}, {"role": "app", "user_id": "u"}])
def test_admin_routes_are_for_unbound_admins(service: Running, route: Route, key: dict[str, str]) -> None:
    refused(service.call(route.method, **arguments(route), key=service.make_key(**key)), 403, "forbidden")


@pytest.mark.parametrize("route", ADMIN_ROUTES, ids=named)
@pytest.mark.parametrize("role", ["admin", "operator"])
def test_admin_routes_answer_admins(service: Running, route: Route, role: str) -> None:
    answer = service.call(route.method, **arguments(route), key=service.make_key(role=role))
    if (route.method, route.template) == ("POST", "/v1/admin/backups"):  # an operator's, and this service has no place
        refused(answer, *((403, "forbidden") if role == "admin" else (422, "invalid_request")))
    elif (route.method, route.template) == ("GET", "/v1/admin/migrations"):  # that there are some, an admin may see
        assert answer.json() == {"migrations": []}
    elif "migrations" in route.template and role == "admin":  # what serves is the service's
        refused(answer, 403, "forbidden")
    elif route.template.endswith("/units"):  # they are no JSON
        refused(answer, 422, "invalid_request")
    elif "{migration_id}" in route.template:
        refused(answer, 404, "not_found")
    elif (route.method, route.template) == ("POST", "/v1/admin/migrations"):  # to what serves already
        assert answer.status_code == 422
    else:
        assert answer.status_code in (200, 201) or route.method == "DELETE"


@pytest.mark.parametrize("route", DATA_ROUTES, ids=named)
def test_a_bound_key_is_refused_for_any_other_user(service: Running, route: Route) -> None:
    bound = service.make_key(user_id="guest")
    asked = arguments(route)
    answer = service.call(route.method, **asked, key=bound)
    if "{user_id}" in route.template or "user_id" in route.query or "user_id" in asked.get("json", {}):
        refused(answer, 403, "forbidden")
    assert "quetzal" not in answer.text
    unchanged(service)


def test_a_bound_key_serves_its_own_user(service: Running) -> None:
    bound = service.make_key(user_id="guest")
    service.append("guest", "s", "mine", key=bound)
    assert service.call("GET", "/v1/users/guest/export", key=bound).status_code == 200


def test_an_admin_makes_and_sees_and_revokes_keys_of_its_tenant_only(service: Running) -> None:
    admin = service.make_key(role="admin", tenant="acme")
    own = service.ok("POST", "/v1/admin/keys", json={"role": "app"}, key=admin)
    assert own["tenant"] == "acme"
    for wanted in ({"role": "app", "tenant": "other"}, {"role": "operator"}, {"role": "operator", "tenant": "acme"}):
        refused(service.call("POST", "/v1/admin/keys", json=wanted, key=admin), 403, "forbidden")
    other = service.ok("POST", "/v1/admin/keys", json={"role": "app", "tenant": "other"})
    seen = service.ok("GET", "/v1/admin/keys", key=admin)["keys"]
    assert {one["tenant"] for one in seen} == {"acme"}
    assert {own["key_id"]} < {one["key_id"] for one in seen}
    refused(service.call("DELETE", f"/v1/admin/keys/{other['key_id']}", key=admin), 404, "not_found")
    assert service.call("GET", "/v1/sessions?user_id=u", key=other["key"]).status_code == 200
    service.ok("DELETE", f"/v1/admin/keys/{own['key_id']}", key=admin)
    refused(service.call("GET", "/v1/sessions?user_id=u", key=own["key"]), 401, "unauthorized")
    assert other["key_id"] in {one["key_id"] for one in service.ok("GET", "/v1/admin/keys")["keys"]}


def test_only_an_operator_revokes_the_key_of_an_operator(service: Running) -> None:
    made = service.ok("POST", "/v1/admin/keys", json={"role": "operator", "tenant": "acme"})
    admin = service.make_key(role="admin", tenant="acme")
    path = f"/v1/admin/keys/{made['key_id']}"
    refused(service.call("DELETE", path, key=admin), 403, "forbidden")
    assert service.call("GET", "/v1/admin/keys", key=made["key"]).status_code == 200
    refused(service.call("DELETE", path, key=service.make_key(role="admin", tenant="other")), 404, "not_found")
    service.ok("DELETE", path)
    refused(service.call("GET", "/v1/admin/keys", key=made["key"]), 401, "unauthorized")


@pytest.mark.parametrize("role", ["admin", "operator"])
def test_a_key_that_could_never_do_anything_is_not_made(service: Running, role: str) -> None:
    before = service.ok("GET", "/v1/admin/keys")
    wanted = {"role": role, "user_id": "zelda"}
    refused(service.call("POST", "/v1/admin/keys", json=wanted), 422, "invalid_request")
    assert service.ok("GET", "/v1/admin/keys") == before


def test_a_key_counts_and_stops_counting_at_once_also_from_another_process(service: Running) -> None:
    beside = KeyFile(service.settings.files)
    key_id, key = beside.create(tenant="default", role="app")
    assert service.call("GET", "/v1/sessions?user_id=u", key=key).status_code == 200
    beside.revoke(key_id, "default")
    refused(service.call("GET", "/v1/sessions?user_id=u", key=key), 401, "unauthorized")


def test_keys_are_hashed_at_rest_and_only_their_owner_may_read_the_files(service: Running) -> None:
    made = service.make_key()
    stored = (service.data / "keys.json").read_text()
    for key in (made, service.key):
        assert key not in stored
        assert key.split("_", 2)[2] not in stored
    for name in ("keys.json", "admin.key", "store.json", "lock"):
        assert stat.S_IMODE((service.data / name).stat().st_mode) == 0o600
    assert len({service.make_key() for _ in range(20)}) == 20


def test_a_list_of_keys_shows_no_secret(service: Running) -> None:
    made = service.make_key()
    shown = service.call("GET", "/v1/admin/keys").text
    assert made not in shown
    assert KeyFile(service.settings.files).records(None)[-1].sha256 not in shown


def test_writers_in_several_processes_lose_no_key(tmp_path: Path) -> None:
    made: list[str] = []

    def make() -> None:
        beside = KeyFile(DiskDocuments(tmp_path))
        made.extend(beside.create(tenant="t", role="app")[0] for _ in range(10))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.key_id for one in KeyFile(DiskDocuments(tmp_path)).records(None)) == sorted(made)


@pytest.mark.parametrize("tenant", ["", "a\x1fb", "x" * 257, "\udcff"])
def test_a_tenant_is_an_id(tmp_path: Path, tenant: str) -> None:
    with pytest.raises(InvalidRequest):
        KeyFile(DiskDocuments(tmp_path)).create(tenant=tenant, role="app")
    with pytest.raises(InvalidRequest):
        KeyFile(DiskDocuments(tmp_path)).create(tenant="t", role="app", user=tenant)


def test_the_first_start_makes_one_operator_key(tmp_path: Path) -> None:
    keys = KeyFile(DiskDocuments(tmp_path))
    first = keys.ensure_first()
    assert first is not None
    assert (tmp_path / "admin.key").read_text() == f"{first}\n"
    assert keys.principal(f"Bearer {first}".encode()).role == "operator"
    assert keys.ensure_first() is None


def test_a_damaged_key_file_lets_nobody_in_and_is_named(tmp_path: Path) -> None:
    key = KeyFile(DiskDocuments(tmp_path)).ensure_first()
    keys = KeyFile(DiskDocuments(tmp_path))
    (tmp_path / "keys.json").write_text("[{")
    with pytest.raises(StoreUnavailable, match=r"keys\.json"):
        keys.principal(f"Bearer {key}".encode())
    (tmp_path / "keys.json").unlink()
    with pytest.raises(Unauthorized):
        keys.principal(f"Bearer {key}".encode())


def test_what_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        KeyFile(DiskDocuments(tmp_path)).revoke("none", None)
