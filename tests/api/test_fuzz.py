"""Whatever comes in, the answer is one of the documented ones, and no secret gets out with it."""

import logging
import random
from typing import Any

import msgspec
import pytest

from serve_app.api.app import Route
from serve_app.api.problems import STATUS_OF_CODE
from serve_app.api.schemas import Body
from tests.api.running import Running, quoted
from tests.api.test_auth import BODIES, ROUTES

REQUESTS = 900
SEED = 20_240_506
SAID = "saffron-umbrella"

ATOMS: list[Any] = [
    None,
    True,
    0,
    -1,
    7,
    2**63,
    10**40,
    1.5,
    1e308,
    "",
    "x",
    SAID,
    "0:1",
    "2024-05-06T07:08:09Z",
    "9999-12-31T23:59:59Z",
    "../..",
    "\x7f",
    "🙂" * 300,
    "user",
    "tool",
    "session",
    "hybrid",
    "a' OR '1'='1",
    [],
    {},
    [[[]]],
    {"$": 1},
]
FIELDS = sorted({name for kind in Body.__subclasses__() for name in kind.__struct_encode_fields__} | {"hat"})


class Fuzzer:
    """Random requests that are nearly right: a valid one with a few things changed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def request(self) -> tuple[str, str, bytes]:
        route = self._random.choice(ROUTES)
        method = route.method if self._chance(0.95) else self._random.choice(["GET", "PUT", "HEAD", "POST", "TRACE"])
        return method, self._path(route), self._body(route)

    def _path(self, route: Route) -> str:
        names = ["u", "s", "t", SAID, "a/b", "..", "🙂", "\x00", "x" * 300]
        parts = [
            (part if self._chance(0.98) else "nowhere")
            if isinstance(part, str)
            else quoted(self._random.choice(names)) + (part.suffix if part else "")
            for part in route.pattern
        ]
        query = [f"{name}={quoted(self._random.choice(names))}" for name in route.query if self._chance(0.9)]
        query += ["limit=" + self._random.choice(["1", "0", "-5", "99999", "x", ""])] if self._chance(0.1) else []
        query += ["%ff=%00"] if self._chance(0.02) else []
        return "/" + "/".join(parts) + ("?" + "&".join(query) if query else "")

    def _body(self, route: Route) -> bytes:
        body = BODIES.get(route.template)
        encoded = b"" if body is None else msgspec.json.encode(self._changed(body))
        if self._chance(0.1):
            place = self._random.randrange(len(encoded) + 1)
            encoded = encoded[:place] + self._random.randbytes(self._random.randrange(4)) + encoded[place + 1 :]
        return encoded

    def _changed(self, body: Any) -> Any:
        if isinstance(body, dict):
            changed = {name: self._changed(value) for name, value in body.items() if self._chance(0.97)}
            more = [name for name in FIELDS if self._chance(0.02)]
            return changed | {name: self._value(3) for name in more}
        if isinstance(body, list):
            return [self._changed(one) for one in body for _ in range(self._random.choice([1, 1, 1, 0, 3]))]
        return body if self._chance(0.9) else self._value(2)

    def _value(self, depth: int) -> Any:
        if depth == 0 or self._chance(0.6):
            return self._random.choice(ATOMS)
        if self._chance(0.5):
            return [self._value(depth - 1) for _ in range(self._random.randrange(3))]
        return {self._random.choice(FIELDS): self._value(depth - 1) for _ in range(self._random.randrange(3))}

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


def test_no_request_breaks_the_service(service: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fuzzer, met = Fuzzer(SEED), {}
    for _ in range(REQUESTS):
        method, path, body = fuzzer.request()
        answer = service.call(method, path, content=body)
        met[answer.status_code] = met.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, (method, path, body, answer.text)
        assert service.key not in answer.text
        assert "Traceback" not in answer.text
        if answer.status_code >= 400 and method != "HEAD":
            problem = answer.json()
            assert STATUS_OF_CODE[problem["code"]] == problem["status"] == answer.status_code
    assert service.call("GET", "/readyz").json() == {"status": "ready", "degraded": []}
    service.append("after", "s", "all is well")
    assert service.found("after", "well") == ["all is well"]
    assert {200, 201, 400, 404, 405, 422} <= set(met)
    assert met[200] + met[201] > REQUESTS // 10
    logged = [record for record in caplog.records if record.name != "httpx"]
    assert [record.getMessage() for record in logged if record.exc_info] == []
    for record in logged:
        assert SAID not in record.getMessage()
        assert service.key not in record.getMessage()
