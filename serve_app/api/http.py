"""The thin layer over ASGI: one request read whole under a bound, one response sent. Knows no route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from serve_app.api.problems import HttpError, Problem
from serve_app.api.schemas import BODY_BYTES_MAX
from serve_app.asgi import Receive, Scope, Send
from serve_app.errors import InvalidRequest

T = TypeVar("T")

JSON = b"application/json"
PROBLEM = b"application/problem+json"
NDJSON = b"application/x-ndjson"
HTML = b"text/html; charset=utf-8"

NESTING_MAX = 200
"""Depth of arrays and objects in a body; no honest body comes near."""

_encoder = msgspec.json.Encoder()


class Request(msgspec.Struct):
    """One request: `path` holds the decoded segments that the route's pattern leaves open."""

    method: str
    path: list[str]
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes


class Response(msgspec.Struct):
    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, _encoder.encode(value))


def problem_response(problem: Problem, retry_after_s: float | None = None) -> Response:
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if retry_after_s is not None:
        headers = ((b"retry-after", str(max(1, round(retry_after_s))).encode()),)
    if problem.status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    return Response(problem.status, _encoder.encode(problem), PROBLEM, headers)


def segments(scope: Scope) -> list[str]:
    """The path as decoded segments. The split comes before the decoding, so an id may hold a slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        return [unquote_to_bytes(part).decode() for part in raw.partition(b"?")[0].split(b"/")[1:]]
    except UnicodeDecodeError as error:
        raise InvalidRequest("the path is not valid UTF-8") from error


def parameters(scope: Scope) -> dict[str, str]:
    raw: bytes = scope.get("query_string", b"")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidRequest("the query string is not valid") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("a query parameter is given twice")
    return found


async def read_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    """The whole body, or HttpError `body_too_large` as soon as that is known."""
    stated = headers.get(b"content-length", b"0")
    if stated.isdigit() and int(stated) > BODY_BYTES_MAX:
        raise HttpError("body_too_large", f"a body has at most {BODY_BYTES_MAX} bytes")
    message = await receive()
    if not message.get("more_body"):
        return bytes(message.get("body", b""))
    parts, size = [message.get("body", b"")], len(message.get("body", b""))
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError("invalid_json", "the body ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES_MAX:
            raise HttpError("body_too_large", f"a body has at most {BODY_BYTES_MAX} bytes")
    return b"".join(parts)


async def send_response(send: Send, response: Response, request_id: bytes) -> None:
    headers = [
        (b"content-type", response.content_type),
        (b"content-length", str(len(response.body)).encode()),
        (b"x-request-id", request_id),
        *response.headers,
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


class BodyDecoder:
    """Reads a body as one of the schemas, and says in words what is wrong with it."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def __call__(self, body: bytes) -> Any:
        try:
            decoded = self._decoder.decode(body)
            if b"\\u0000" in body:
                refuse_nul(msgspec.json.decode(body))
        except msgspec.ValidationError as error:
            raise InvalidRequest(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpError("invalid_json", str(error)) from error
        except RecursionError as error:
            raise HttpError("invalid_json", "the body is nested too deeply") from error
        return decoded


def refuse_nul(value: Any, depth: int = 0) -> None:
    """Raises InvalidRequest where any text of a JSON value holds NUL."""
    if depth > NESTING_MAX:
        raise HttpError("invalid_json", "the body is nested too deeply")
    if isinstance(value, str) and "\0" in value:
        raise InvalidRequest("a text holds NUL (U+0000), which is not allowed")
    if isinstance(value, dict):
        for key, inner in value.items():
            refuse_nul(key, depth + 1)
            refuse_nul(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            refuse_nul(inner, depth + 1)
