"""Layouts over HTTP: set, chosen by name or by rule, counted as revisions, and contexts of earlier revisions again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serve_app.client.http import Client, Refused
from serve_app.memory.due import SummaryOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.stores.layout_file import LAYOUTS_FILE
from tests.api.running import Running, hash_settings, refused

SELDOM = MemoryOptions(summary=SummaryOptions(every_turns=1_000_000))
"""No summary comes between two contexts that are compared."""

SHARES = {"system": 8, "facts": 6, "summary": 22, "retrieved": 16, "recent": 36, "query": 12}
LONG_AGO = [f"turn {number} about the harbour and its many little boats" for number in range(60)]
PAGE = ("context_id", "messages", "zones", "total_tokens", "dropped", "retrieved", "layout")


def page(context: dict[str, Any]) -> dict[str, Any]:
    return {name: context[name] for name in PAGE}


@pytest.fixture(scope="module")
def tenants(service: Running) -> tuple[str, str]:
    """Keys of two tenants' admins."""
    return service.make_key(tenant="a", role="admin"), service.make_key(tenant="b", role="admin")


def put(service: Running, key: str, name: str, when: Any = None, **shares: int) -> Any:
    body = {"shares": SHARES | shares} | ({"when": when} if when else {})
    return service.ok("PUT", f"/v1/admin/layouts/{name}", json=body, key=key)


def context(service: Running, key: str, query: str = "what boats are there?", **more: Any) -> Any:
    body = {"user_id": "u", "session_id": "s", "query": query, "budget_tokens": 400, **more}
    return service.ok("POST", "/v1/context", json=body, key=key)


def test_a_layout_is_set_read_listed_and_removed_by_admins_of_its_tenant(
    service: Running, tenants: tuple[str, str]
) -> None:
    ours, theirs = tenants
    before = service.ok("GET", "/v1/admin/layouts", key=ours)["revision"]
    made = put(service, ours, "wide%20one", {"models": ["gpt-*"]}, recent=30)
    assert made == {
        "name": "wide one",
        "shares": SHARES | {"recent": 30},
        "when": {"models": ["gpt-*"]},
        "built_in": False,
        "revision": before + 1,
    }
    assert service.ok("GET", "/v1/admin/layouts/wide%20one", key=ours) == made
    listed = service.ok("GET", "/v1/admin/layouts", key=ours)
    assert [one["name"] for one in listed["layouts"]] == ["default", "wide one"]
    refused(service.call("GET", "/v1/admin/layouts/wide%20one", key=theirs), 404, "not_found")
    app = service.make_key(tenant="a", role="app")
    refused(service.call("GET", "/v1/admin/layouts/default", key=app), 403, "forbidden")
    assert service.ok("DELETE", "/v1/admin/layouts/wide%20one", key=ours)["revision"] == before + 2
    refused(service.call("DELETE", "/v1/admin/layouts/wide%20one", key=ours), 404, "not_found")
    assert service.ok("GET", "/v1/admin/layouts/default", key=theirs)["built_in"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"shares": SHARES | {"recent": 37}}, "101 in all"),
        ({"shares": {"recent": 37}}, "system"),
        ({"shares": SHARES | {"recent": "36"}}, "int"),
        ({"shares": SHARES, "when": {"query_types": ["riddle"]}}, "riddle"),
        ({"shares": SHARES, "when": {"models": []}}, "names nothing"),
        ({"shares": SHARES, "colour": 1}, "colour"),
    ],
)
def test_what_is_no_layout_is_refused_in_words(
    service: Running, tenants: tuple[str, str], body: dict[str, Any], word: str
) -> None:
    problem = refused(service.call("PUT", "/v1/admin/layouts/x", json=body, key=tenants[0]), 422, "invalid_request")
    assert word in problem["detail"]


def test_the_name_wins_then_the_closest_rule_then_default(service: Running) -> None:
    key = service.make_key(tenant="choosing", role="admin")
    put(service, key, "by-model", {"models": ["gpt-*"]}, recent=10)
    put(service, key, "by-type", {"query_types": ["temporal"], "user_tiers": ["paid"]}, recent=11)
    put(service, key, "plain", recent=12)
    assert context(service, key)["layout"] == {"name": "default", "revision": 3, "query_type": "lookup"}
    assert context(service, key, model="gpt-x")["layout"]["name"] == "by-model"
    when = context(service, key, "When did we meet?", model="gpt-x", user_tier="paid")
    assert (when["layout"]["name"], when["zones"]["recent"]["budget"]) == ("by-type", 44)
    assert context(service, key, "Hi!", user_tier="paid", query_type="temporal")["layout"]["name"] == "by-type"
    assert context(service, key, "Hi!", user_tier="paid")["layout"] == {
        "name": "default",
        "revision": 3,
        "query_type": "small_talk",
    }
    assert context(service, key, model="gpt-x", layout="plain")["zones"]["recent"]["budget"] == 48
    body = {"user_id": "u", "query": "x", "budget_tokens": 100, "layout": "nope"}
    problem = refused(service.call("POST", "/v1/context", json=body, key=key), 422, "invalid_request")
    assert "'by-model'" in problem["detail"]
    put(service, key, "default", recent=13)
    assert context(service, key)["zones"]["recent"]["budget"] == 52


def test_an_earlier_context_is_the_same_after_its_layout_was_tuned_and_after_a_restart(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path, memory=SELDOM))
    written = running.append("u", "s", *LONG_AGO, wait="indexed")["receipt"]
    asked = {"now": "2026-12-01T03:00:00Z"}

    def tune(recent: int) -> None:
        put(running, "", "default", summary=0, retrieved=0, recent=recent)

    untuned = context(running, "", **asked)
    assert untuned["as_of"] == untuned["receipt"]
    tune(90 - 28)
    tuned = context(running, "", **asked)
    tune(0)
    again = context(running, "", **asked)
    assert tuned["as_of"] == f"{tuned['receipt']}@1"
    assert len({one["context_id"] for one in (untuned, tuned, again)}) == 3
    for _ in range(2):
        assert page(context(running, "", as_of=untuned["as_of"], **asked)) == page(untuned)
        assert page(context(running, "", as_of=written, **asked)) == page(untuned)
        assert page(context(running, "", as_of=tuned["as_of"], **asked)) == page(tuned)
        assert context(running, "", as_of=tuned["as_of"], **asked)["as_of"] == tuned["as_of"]
        assert page(context(running, "", as_of=again["as_of"], **asked)) == page(again)
        assert page(context(running, "", as_of="2126-01-01T00:00:00Z", **asked)) == page(again)
        assert context(running, "", as_of="2001-01-01T00:00:00Z", **asked)["layout"]["revision"] == 0
        running = running.again()
    later = running.append("u", "s", "one more")["receipt"]
    assert context(running, "", as_of=later, **asked)["layout"]["revision"] == 2
    body = {"user_id": "u", "session_id": "s", "query": "x", "budget_tokens": 400}
    for wrong, code in (
        (f"{written}@3", "invalid_request"),
        (f"{written}@", "invalid_request"),
        ("@1", "invalid_receipt"),
    ):
        refused(running.call("POST", "/v1/context", json={**body, "as_of": wrong}), 422, code)
    refused(running.call("POST", "/v1/context", json={**body, "min_receipt": tuned["as_of"]}), 422, "invalid_receipt")
    running.stop()


def test_a_context_from_before_the_oldest_layouts_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_app.layouts.REVISIONS_MAX", 2)
    running = Running(hash_settings(tmp_path))
    written = running.append("u", "s", "hello")["receipt"]
    for recent in (30, 31, 32, 33):
        put(running, "", "default", recent=recent)
    for as_of in (written, f"{written}@1", "2001-01-01T00:00:00Z"):
        shown = context(running, "", as_of=as_of)
        assert (shown["layout"]["revision"], shown["zones"]["recent"]["budget"]) == (2, 124)
        assert any("not kept any more" in reason for reason in shown["degradation"]["reasons"])
    shown = context(running, "", as_of=f"{written}@3")
    assert (shown["layout"]["revision"], shown["degradation"]["reasons"]) == (3, [])
    running.stop()


def test_a_file_that_cannot_be_read_leaves_the_built_in_layout(tmp_path: Path) -> None:
    (tmp_path / LAYOUTS_FILE).write_text("{")
    running = Running(hash_settings(tmp_path))
    shown = context(running, "")
    assert (shown["layout"]["name"], shown["layout"]["revision"]) == ("default", 0)
    assert "layouts: store_unavailable" in shown["degradation"]["reasons"]
    refused(running.call("GET", "/v1/admin/layouts"), 503, "store_unavailable")
    running.stop()


def test_the_client_tunes_layouts(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path))
    with Client(running.listen(), running.key) as client:
        client.tune_layout("own/one", SHARES | {"recent": 20}, {"user_tiers": ["paid"]})
        assert client.layout("own/one")["shares"]["recent"] == 20
        assert [one["name"] for one in client.layouts()["layouts"]] == ["default", "own/one"]
        client.remove_layout("own/one")
        with pytest.raises(Refused, match="no layout"):
            client.layout("own/one")
    running.stop()
