"""What a gateway makes of the answers of all shards."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from serve_app.api.auth import Principal
from serve_app.api.every_shard import EveryShard
from serve_app.api.http import PROBLEM, Request
from serve_app.asgi import Answered, Asked

DONE = Answered(200, ((b"content-type", b"application/json"),), b'{"shards":[{"shard":0}]}')
REFUSED = Answered(
    429,
    ((b"content-type", PROBLEM), (b"retry-after", b"7"), (b"x-request-id", b"theirs")),
    b'{"code":"rate_limited"}',
)


def test_a_refusal_of_one_shard_is_handed_out_with_when_to_come_again() -> None:
    async def ask(route: Any, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False) -> Answered:
        return REFUSED if shard == 1 else DONE

    body = b'{"action":"fold"}'
    who = Principal("key", "acme", "operator", None)
    request = Request("POST", [], {}, {}, body, time.perf_counter())
    asked = Asked("POST", b"/v1/admin/maintenance", b"", (), body)
    response = asyncio.run(EveryShard(ask, 3).maintain(None, who, request, asked))  # type: ignore[arg-type]
    assert (response.status, response.body, response.content_type) == (429, REFUSED.body, PROBLEM)
    assert response.headers == ((b"retry-after", b"7"),)
