"""What `/openapi.json` says is what the service does: the same routes, parameters, limits and codes."""

import re
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from serve_app.api import schemas
from serve_app.api.openapi import document
from serve_app.api.problems import STATUS_OF_CODE, TITLES
from tests.api.running import Running
from tests.api.test_auth import BODIES, ROUTES

OPEN = {("GET", path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")}


@pytest.fixture(scope="module")
def described(service: Running) -> dict[str, Any]:
    return service.ok("GET", "/openapi.json", key=None)


def test_it_is_a_valid_description(described: dict[str, Any]) -> None:
    assert described == msgspec.json.decode(msgspec.json.encode(document()))
    assert [error.message for error in OpenAPIV31SpecValidator(described).iter_errors()] == []


def test_it_has_every_route_and_no_other(described: dict[str, Any]) -> None:
    told = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert told == {(route.method, route.template) for route in ROUTES} | OPEN
    for method, path in OPEN:
        assert "security" not in described["paths"][path][method.lower()]
    for route in ROUTES:
        assert described["paths"][route.template][route.method.lower()]["security"] == [{"key": []}]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_parameters_and_bodies_are_those_that_are_read(described: dict[str, Any], route: Any) -> None:
    told = described["paths"][route.template][route.method.lower()]
    assert {one["name"] for one in told["parameters"] if one["in"] == "query"} == route.query
    in_path = [one["name"] for one in told["parameters"] if one["in"] == "path"]
    assert in_path == re.findall(r"{(\w+)}", route.template)
    assert ("requestBody" in told) == (route.template in BODIES and route.method in ("POST", "PUT", "PATCH"))


def test_limits_are_the_constants_that_bind(described: dict[str, Any]) -> None:
    limits = described["info"]["x-limits"]
    kinds = described["components"]["schemas"]
    assert (
        limits["turns_a_call"] == schemas.TURNS_A_CALL_MAX == kinds["AppendTurnsIn"]["properties"]["turns"]["maxItems"]
    )
    assert limits["turn_bytes"] == schemas.CONTENT_BYTES_MAX == 1 << 20
    assert limits["body_bytes"] == schemas.BODY_BYTES_MAX == 8 << 20
    search, context = kinds["SearchIn"]["properties"], kinds["ContextIn"]["properties"]
    assert limits["k"] == schemas.RESULTS_MAX == search["k"]["maximum"] == 1_000
    assert limits["query_characters"] == schemas.QUERY_CHARACTERS_MAX == search["query"]["maxLength"]
    assert limits["budget_tokens"] == schemas.BUDGET_TOKENS_MAX == context["budget_tokens"]["maximum"] == 2_000_000
    assert limits["deadline_ms"] == schemas.DEADLINE_MS_MAX == context["deadline_ms"]["anyOf"][0]["maximum"] == 60_000
    compress = kinds["CompressIn"]["properties"]
    assert limits["turns_a_call"] == compress["turns"]["maxItems"]
    assert limits["budget_tokens"] == compress["target_tokens"]["maximum"]
    assert limits["compress_characters"] == schemas.COMPRESS_CHARACTERS_MAX == 2_097_152
    assert limits["id_characters"] == context["user_id"]["maxLength"] == 256
    assert limits["page_turns"] == schemas.PAGE_TURNS_MAX


def test_unknown_fields_are_refused_in_writing(described: dict[str, Any]) -> None:
    bodies = [kind for name, kind in described["components"]["schemas"].items() if name.endswith("In")]
    assert len(bodies) >= 10
    assert all(kind["additionalProperties"] is False for kind in bodies)


def test_every_code_is_listed_with_its_status(described: dict[str, Any]) -> None:
    assert described["x-error-codes"] == {
        code: {"status": status, "title": TITLES[code]} for code, status in STATUS_OF_CODE.items()
    }


def test_the_page_for_people_lists_every_route_and_code(service: Running) -> None:
    answer = service.call("GET", "/docs", key=None)
    assert answer.headers["content-type"].startswith("text/html")
    for route in ROUTES:
        assert f"<code>{route.template}</code>" in answer.text
    for code in STATUS_OF_CODE:
        assert f"<code>{code}</code>" in answer.text
