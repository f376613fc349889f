"""`/openapi.json` and the page at `/docs`, made from the schemas and the table of codes; no second source of truth."""

from __future__ import annotations

import html
import re
from importlib import metadata
from typing import Any

import msgspec

from serve_app.api import ids, schemas
from serve_app.api.problems import STATUS_OF_CODE, TITLES, Problem
from serve_app.layouts import LAYOUTS_MAX, REVISIONS_MAX, TunedLayout
from serve_app.paths import PATH_CHARACTERS_MAX
from serve_app.policies import OF_SERVICE, OF_TENANT
from serve_app.retrieve.conditions import CONDITIONS_MAX
from serve_app.retrieve.work import LOOKED_AT_MAX
from serve_app.stores.golden_file import GOLDEN_QUERIES_MAX

Bodies = tuple[type, ...]
"""The shapes of which a body has one."""

Operation = tuple[str, str, str, type | Bodies | None, tuple[str, ...], int]

POLICIES: Bodies = (*OF_TENANT.values(), *OF_SERVICE.values())

GOLDEN_PAGE = ("user_id?", "after?", "limit?")

MIGRATION = "/v1/admin/migrations/{migration_id}"

MIGRATIONS: tuple[Operation, ...] = (
    ("post", "/v1/admin/migrations", "Begin a migration (role operator)", schemas.MigrationIn, (), 201),
    ("get", "/v1/admin/migrations", "List migrations, oldest first (role operator)", None, (), 200),
    ("get", MIGRATION, "A migration, and how far it is (role operator)", None, (), 200),
    ("post", f"{MIGRATION}:advance", "Have it go on without waiting (role operator)", None, (), 200),
    ("post", f"{MIGRATION}:pause", "Have it rest where it is (role operator)", None, (), 200),
    ("post", f"{MIGRATION}:resume", "End its rest (role operator)", None, (), 200),
    ("post", f"{MIGRATION}:rollback", "Have it turn back (role operator)", None, (), 200),
    ("get", f"{MIGRATION}/report", "What its gates found (role operator)", None, ("format?",), 200),
)

OPERATIONS: tuple[Operation, ...] = (
    # method, path, what it does, body, query parameters, status of success
    ("post", "/v1/sessions/{session_id}/turns", "Append turns", schemas.AppendTurnsIn, (), 201),
    (
        "get",
        "/v1/sessions/{session_id}/turns",
        "List turns, oldest first",
        None,
        ("user_id", "limit?", "after_seq?"),
        200,
    ),
    ("get", "/v1/sessions", "List a user's sessions", None, ("user_id",), 200),
    ("delete", "/v1/sessions/{session_id}", "Delete a session", None, ("user_id",), 200),
    ("get", "/v1/turns/{turn_id}", "Read one turn", None, ("user_id", "session_id"), 200),
    ("patch", "/v1/turns/{turn_id}", "Change a turn", schemas.EditTurnIn, ("user_id", "session_id"), 200),
    ("delete", "/v1/turns/{turn_id}", "Delete a turn", None, ("user_id", "session_id"), 200),
    ("post", "/v1/context", "Build a context under a token budget", schemas.ContextIn, (), 200),
    ("post", "/v1/search", "Search a user's turns", schemas.SearchIn, (), 200),
    ("post", "/v1/compress", "Make a summary of turns that are sent along", schemas.CompressIn, (), 200),
    (
        "post",
        "/v1/query:expand",
        "Keywords, a self-contained rewrite, and the time it names",
        schemas.ExpandIn,
        (),
        200,
    ),
    ("put", "/v1/users/{user_id}/facts/{key}", "Set a fact", schemas.FactIn, (), 200),
    ("get", "/v1/users/{user_id}/facts/{key}", "Read a fact", None, (), 200),
    ("delete", "/v1/users/{user_id}/facts/{key}", "Delete a fact", None, (), 200),
    ("get", "/v1/users/{user_id}/facts", "List facts", None, (), 200),
    (
        "get",
        "/v1/users/{user_id}/entities",
        "What a user's turns name, the most often named first; go on after the answer's `next`",
        None,
        ("class?", "prefix?", "after?", "limit?"),
        200,
    ),
    ("get", "/v1/sessions/{session_id}/summary", "Read the summary of a session", None, ("user_id",), 200),
    ("post", "/v1/sessions/{session_id}/summary:refresh", "Make the summary anew", None, ("user_id",), 200),
    (
        "get",
        "/v1/users",
        "Users who have turns or facts (role admin); go on after the answer's `next`",
        None,
        ("prefix?", "after?", "limit?"),
        200,
    ),
    ("post", "/v1/golden", "Store a golden query: who asks what, and which turns answer", schemas.GoldenIn, (), 201),
    ("get", "/v1/golden", "List golden queries; go on after the answer's `next`", None, GOLDEN_PAGE, 200),
    ("delete", "/v1/golden", "Remove one golden query, or all of a user", None, ("id?", "user_id?"), 200),
    ("get", "/v1/users/{user_id}/export", "Everything held about a user, as NDJSON", None, (), 200),
    ("delete", "/v1/users/{user_id}", "Erase a user", None, (), 202),
    ("get", "/v1/erasures/{erasure_id}", "The progress of an erasure", None, (), 200),
    ("post", "/v1/redact", "Take personal data out of a text", schemas.RedactIn, (), 200),
    ("post", "/v1/embeddings", "Embed texts (OpenAI's shape)", schemas.EmbeddingsIn, (), 200),
    ("post", "/v1/rerank", "Put documents in order for a query", schemas.RerankIn, (), 200),
    ("get", "/v1/admin/stats", "State of the shards (role admin)", None, (), 200),
    ("post", "/v1/admin/maintenance", "Do a piece of maintenance now (role admin)", schemas.MaintenanceIn, (), 200),
    ("post", "/v1/admin/backups", "Begin a backup (role operator)", schemas.BackupIn, (), 202),
    ("get", "/v1/admin/backups", "List backups (role admin)", None, (), 200),
    *MIGRATIONS,
    ("post", "/v1/admin/keys", "Make a key (role admin)", schemas.KeyIn, (), 201),
    ("get", "/v1/admin/keys", "List keys (role admin)", None, (), 200),
    ("delete", "/v1/admin/keys/{key_id}", "Revoke a key (role admin)", None, (), 200),
    ("get", "/v1/admin/policies/{name}", "Read a policy (role admin)", None, (), 200),
    ("put", "/v1/admin/policies/{name}", "Set a policy (role admin)", POLICIES, (), 200),
    ("get", "/v1/admin/layouts", "List the tenant's layouts (role admin)", None, (), 200),
    ("get", "/v1/admin/layouts/{name}", "Read a layout (role admin)", None, (), 200),
    ("put", "/v1/admin/layouts/{name}", "Set a layout; it counts at once (role admin)", TunedLayout, (), 200),
    ("delete", "/v1/admin/layouts/{name}", "Remove a layout (role admin)", None, (), 200),
    (
        "post",
        "/v1/admin/migrations/{migration_id}:claim",
        "A job takes the backfill of a migration over (role operator); the answer is MessagePack",
        schemas.ClaimIn,
        (),
        200,
    ),
    (
        "put",
        "/v1/admin/migrations/{migration_id}/units",
        "Vectors that a job has made (role operator), in MessagePack: see `serve_app/migrate/units.py`",
        None,
        (),
        200,
    ),
    ("get", "/healthz", "Alive", None, (), 200),
    ("get", "/readyz", "Ready, and what is degraded", None, (), 200),
    ("get", "/metrics", "Prometheus metrics", None, (), 200),
    ("get", "/openapi.json", "This description", None, (), 200),
    ("get", "/docs", "The same for people", None, (), 200),
)

OPEN_PATHS = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")

LIMITS = {
    "turns_a_call": schemas.TURNS_A_CALL_MAX,
    "turn_bytes": schemas.CONTENT_BYTES_MAX,
    "body_bytes": schemas.BODY_BYTES_MAX,
    "k": schemas.RESULTS_MAX,
    "query_characters": schemas.QUERY_CHARACTERS_MAX,
    "budget_tokens": schemas.BUDGET_TOKENS_MAX,
    "deadline_ms": schemas.DEADLINE_MS_MAX,
    "id_characters": ids.ID_CHARACTERS_MAX,
    "page_turns": schemas.PAGE_TURNS_MAX,
    "page_users": schemas.PAGE_USERS_MAX,
    "layouts": LAYOUTS_MAX,
    "layout_revisions": REVISIONS_MAX,
    "page_entities": schemas.PAGE_ENTITIES_MAX,
    "entities": schemas.ENTITIES_MAX,
    "conditions": CONDITIONS_MAX,
    "data_values_looked_at": LOOKED_AT_MAX,
    "rerank_documents": schemas.RERANK_DOCUMENTS_MAX,
    "rerank_characters": schemas.RERANK_CHARACTERS_MAX,
    "compress_characters": schemas.COMPRESS_CHARACTERS_MAX,
    "path_characters": PATH_CHARACTERS_MAX,
    "field_ttls": schemas.FIELD_TTLS_MAX,
    "gold_turns": schemas.GOLD_TURNS_MAX,
    "golden_queries": GOLDEN_QUERIES_MAX,
    "page_golden": schemas.PAGE_GOLDEN_MAX,
}


PAGE = """<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width"><title>Memstrata API</title>
<style>
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui;margin:2rem auto;max-width:60rem;padding:0 1rem}
table{border-collapse:collapse;width:100%}
td{border-top:1px solid #8884;padding:.3rem .6rem;vertical-align:top}
</style>
<h1>Memstrata API</h1>
<p>Send <code>Authorization: Bearer &lt;key&gt;</code>.
The machine-readable description is <a href="/openapi.json">/openapi.json</a>.</p>
<h2>Routes</h2><table>{routes}</table>
<h2>Errors</h2><table>{codes}</table>
</html>
"""


def query_parameters(method: str, path: str) -> frozenset[str]:
    """The query parameters of a route: those that are described here, and no other, are accepted."""
    names = {(one, other): query for one, other, _, _, query, _ in OPERATIONS}[method.lower(), path]
    return frozenset(name.rstrip("?") for name in names)


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 description of this service."""
    bodies = [one for _, _, _, body, _, _ in OPERATIONS for one in _shapes(body)]
    _, components = msgspec.json.schema_components([*bodies, Problem], ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for method, path, title, body, query, status in OPERATIONS:
        paths.setdefault(path, {})[method] = _operation(method, path, title, body, query, status)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Memstrata", "version": metadata.version("memstrata"), "x-limits": LIMITS},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "x-error-codes": {code: {"status": STATUS_OF_CODE[code], "title": TITLES[code]} for code in STATUS_OF_CODE},
    }


def _operation(
    method: str, path: str, title: str, body: type | Bodies | None, query: tuple[str, ...], status: int
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{method}{path}").strip("_"),
        "summary": title,
        "parameters": [_parameter(name, "path") for name in re.findall(r"{(\w+)}", path)]
        + [_parameter(name, "query") for name in query],
        "responses": {str(status): {"description": "Done"}, "default": _problem_response()},
    }
    if body is not None:
        shapes = [{"$ref": f"#/components/schemas/{one.__name__}"} for one in _shapes(body)]
        schema = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if path not in OPEN_PATHS:
        described["security"] = [{"key": []}]
    return described


def _shapes(body: type | Bodies | None) -> Bodies:
    return () if body is None else body if isinstance(body, tuple) else (body,)


def _parameter(name: str, place: str) -> dict[str, Any]:
    kind = "integer" if name.rstrip("?") in ("limit", "after_seq") else "string"
    return {
        "name": name.rstrip("?"),
        "in": place,
        "required": not name.endswith("?"),
        "schema": {"type": kind},
    }


def _problem_response() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": "A problem (RFC 9457)", "content": {"application/problem+json": {"schema": schema}}}


def docs_page() -> bytes:
    """A page for people: every route, every error code. Static, without scripts."""
    routes = "".join(
        f"<tr><td><code>{method.upper()}</code></td><td><code>{html.escape(path)}</code></td>"
        f"<td>{html.escape(title)}</td></tr>"
        for method, path, title, _, _, _ in OPERATIONS
    )
    codes = "".join(
        f"<tr><td>{status}</td><td><code>{code}</code></td><td>{html.escape(TITLES[code])}</td></tr>"
        for code, status in STATUS_OF_CODE.items()
    )
    return PAGE.replace("{routes}", routes).replace("{codes}", codes).encode()
