"""A small HTTP client: one key, bounded retries, problems as errors."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote as percent_encoded
from urllib.parse import urlencode

import httpx

from serve_app.errors import InvalidRequest, MemstrataError

TRIES = 6
CONNECT_TRIES = 2
"""Where nobody listens: one more try, for a service that is just being started again."""

RETRY_AFTER_S = 1.0
RETRY_AFTER_S_MAX = 30.0
RETRIED = (429, 500, 503)
"""500 is what a load balancer says while a replica is replaced; writes carry turn ids, so that a repeat is safe."""

REQUEST_S = 60.0
GOLDEN_PAGE = 1_000
READY_POLL_S = 0.25

Json = dict[str, Any]


class Unreachable(MemstrataError):
    code = "unreachable"


class Refused(MemstrataError):
    """The service answered with a problem; `code` is the problem's."""

    def __init__(self, status: int, problem: Json) -> None:
        self.status = status
        self.code = str(problem.get("code", "unknown"))
        super().__init__(f"{status} {self.code}: {problem.get('detail') or problem.get('title') or 'no detail'}")


class Client:
    """A context manager. Every call gives the answer's JSON or raises Refused or Unreachable.

    Raises InvalidRequest for a key that is none.
    """

    def __init__(self, url: str, key: str = "") -> None:
        if not (key.isascii() and key.isprintable()):
            raise InvalidRequest("this is no key: keys are of printable ASCII characters")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=REQUEST_S, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def wait_ready(self, seconds: float) -> None:
        """Return once /readyz answers 200. Raises Unreachable after `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self._http.get("/readyz").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass  # not there yet
            time.sleep(READY_POLL_S)
        raise Unreachable(f"{self.url}/readyz did not answer 200 within {seconds:.0f} s")

    def put_fact(self, user: str, key: str, fact: Json) -> Json:
        return self._send(f"/v1/users/{quote(user)}/facts/{quote(key)}", fact, "PUT")

    def fact(self, user: str, key: str) -> Json | None:
        """None where there is no such fact."""
        try:
            return self._send(f"/v1/users/{quote(user)}/facts/{quote(key)}", {}, "GET")
        except Refused as error:
            if error.code != "not_found":
                raise
            return None

    def append(self, user: str, session: str, turns: list[Json], wait: str = "durable") -> Json:
        body = {"user_id": user, "turns": turns, "wait": wait}
        return self._send(f"/v1/sessions/{quote(session)}/turns", body)

    def compress(self, turns: Sequence[Mapping[str, Any]], target_tokens: int, **more: Any) -> Json:
        """A summary of these turns, of which nothing is stored."""
        return self._send("/v1/compress", {"turns": list(turns), "target_tokens": target_tokens, **more})

    def refresh_summary(self, user: str, session: str) -> Json:
        """Make the session's summary anew now, where it would follow in the background."""
        return self._send(f"/v1/sessions/{quote(session)}/summary:refresh?user_id={quote(user)}", {})

    def context(self, body: Json) -> Json:
        return self._send("/v1/context", body)

    def search(self, body: Json) -> Json:
        return self._send("/v1/search", body)

    def erase(self, user: str) -> str:
        """Erase a user; gives the id of the erasure. Readers see nothing of the user from now on."""
        return str(self._send(f"/v1/users/{quote(user)}", {}, "DELETE")["erasure_id"])

    def golden(self, user: str | None = None) -> list[Json]:
        """The golden queries of the key's tenant, of all its users or of one."""
        found: list[Json] = []
        asked = {} if user is None else {"user_id": user}
        after: Json = {}
        while True:
            page = self._send(f"/v1/golden?{urlencode({'limit': GOLDEN_PAGE} | asked | after)}", {}, "GET")
            found += page["golden"]
            if "next" not in page:
                return found
            after = {"after": page["next"]}

    def put_golden(self, golden: Json) -> Json:
        return self._send("/v1/golden", golden)

    def begin_backup(self, kind: str, uri: str | None) -> Json:
        return self._send("/v1/admin/backups", {"kind": kind} | ({"uri": uri} if uri else {}))

    def backups(self) -> list[Json]:
        return list(self._send("/v1/admin/backups", {}, "GET")["backups"])

    def begin_migration(self, body: Json) -> Json:
        """Raises Refused where one of its kind is running already, or what it is to go to cannot be."""
        return self._send("/v1/admin/migrations", body)

    def migrations(self) -> Json:
        return self._send("/v1/admin/migrations", {}, "GET")

    def migration(self, migration: str) -> Json:
        return self._send(f"/v1/admin/migrations/{quote(migration)}", {}, "GET")

    def guide_migration(self, migration: str, word: str) -> Json:
        """advance, pause, resume or rollback."""
        return self._send(f"/v1/admin/migrations/{quote(migration)}:{word}", {})

    def migration_report(self, migration: str) -> Json:
        return self._send(f"/v1/admin/migrations/{quote(migration)}/report", {}, "GET")

    def migration_page(self, migration: str) -> str:
        """The same as HTML."""
        answer = self._asked("GET", f"/v1/admin/migrations/{quote(migration)}/report?format=html", {})
        return answer.text if answer.is_success else str(_read(answer))

    def policy(self, name: str) -> Json:
        return dict(self._send(f"/v1/admin/policies/{quote(name)}", {}, "GET")["policy"])

    def put_policy(self, name: str, policy: Json) -> None:
        self._send(f"/v1/admin/policies/{quote(name)}", policy, "PUT")

    def tune_layout(self, name: str, shares: Mapping[str, int], when: Json | None = None) -> Json:
        """Set a layout of the key's tenant: percents for all six zones, and the requests that it is meant for.

        It counts from the next context on. Raises Refused for what is no layout.
        """
        body: Json = {"shares": dict(shares)} | ({"when": when} if when else {})
        return self._send(f"/v1/admin/layouts/{quote(name)}", body, "PUT")

    def layouts(self) -> Json:
        """All layouts of the key's tenant, and their revision."""
        return self._send("/v1/admin/layouts", {}, "GET")

    def layout(self, name: str) -> Json:
        return self._send(f"/v1/admin/layouts/{quote(name)}", {}, "GET")

    def remove_layout(self, name: str) -> Json:
        """`default` is the built-in one then."""
        return self._send(f"/v1/admin/layouts/{quote(name)}", {}, "DELETE")

    def maintain(self, action: str, tenants: Sequence[str] | None = None) -> Json:
        """An action of maintenance, on all shards; with `tenants` a rescan of theirs is begun."""
        return self._send("/v1/admin/maintenance", {"action": action} | ({"tenants": list(tenants)} if tenants else {}))

    def stats(self) -> Json:
        return self._send("/v1/admin/stats", {}, "GET")

    def _send(self, path: str, body: Json, method: str = "POST") -> Json:
        return _read(self._asked(method, path, body))

    def _asked(self, method: str, path: str, body: Json) -> httpx.Response:
        for tried in range(1, TRIES + 1):
            answer = self._ask(method, path, body, tried)
            if answer is not None and (answer.status_code not in RETRIED or tried == TRIES):
                return answer
            time.sleep(_retry_after(answer))
        raise AssertionError("unreachable: the last try gives or raises")

    def _ask(self, method: str, path: str, body: Json, tried: int) -> httpx.Response | None:
        try:
            return self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            if tried >= (CONNECT_TRIES if isinstance(error, httpx.ConnectError) else TRIES):
                raise Unreachable(f"{self.url} cannot be reached ({error}); is the service running?") from error
            return None


def quote(identifier: str) -> str:
    """An id as a segment of a path; one of dots alone would be taken for a way up."""
    return "%2E" * len(identifier) if identifier.strip(".") == "" else percent_encoded(identifier, safe="")


def _read(answer: httpx.Response) -> Json:
    try:
        value = answer.json()
    except ValueError as error:
        raise Refused(answer.status_code, {"detail": "the answer is not JSON"}) from error
    if not isinstance(value, dict):
        raise Refused(answer.status_code, {"detail": "the answer is not a JSON object"})
    if answer.is_success:
        return value
    raise Refused(answer.status_code, value)


def _retry_after(answer: httpx.Response | None) -> float:
    try:
        asked = float(answer.headers["Retry-After"]) if answer is not None else RETRY_AFTER_S
    except (KeyError, ValueError):
        asked = RETRY_AFTER_S
    return min(max(asked, 0.0), RETRY_AFTER_S_MAX)
