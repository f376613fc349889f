"""The thin layer over ASGI: one request read whole under a bound, one response sent. Knows no route."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from serve_app.api.problems import HttpError, Problem
from serve_app.api.schemas import BODY_BYTES_MAX
from serve_app.asgi import Answered, Receive, Scope, Send
from serve_app.errors import InvalidRequest

T = TypeVar("T")

JSON = b"application/json"
PROBLEM = b"application/problem+json"
NDJSON = b"application/x-ndjson"
HTML = b"text/html; charset=utf-8"

HANDED_OUT = frozenset({b"retry-after", b"www-authenticate", b"allow"})
"""Of the headers of another process's answer, beside its content type."""

NESTING_MAX = 200
"""Depth of arrays and objects in a body; no honest body comes near."""

LARGE_BODY_BYTES = 32 << 10
"""A larger body is read on a thread: millions of small values would hold up the event loop."""

BODY_READ_S = 30.0
"""What a caller has to send a body. Who is slower than that holds a place that others wait for."""

SEND_PIECE_S = 30.0
"""What a caller has to take one piece of a long answer. Who is slower than that is cut off, visibly."""

_encoder = msgspec.json.Encoder()


class Request(msgspec.Struct):
    """One request: `path` holds the decoded segments that the route's pattern leaves open."""

    method: str
    path: list[str]
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes
    started: float
    """When its head had come in, by `perf_counter`."""


class Response(msgspec.Struct):
    """`pieces`, where there are any, follow the body; the answer is long then, and made while it is sent."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    pieces: AsyncGenerator[bytes, None] | None = None


def handed_out(answer: Answered) -> Response:
    """What another process has answered, as the answer to the caller."""
    headers = tuple((name, value) for name, value in answer.headers if name in HANDED_OUT)
    return Response(answer.status, answer.body, dict(answer.headers).get(b"content-type", JSON), headers)


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, _encoder.encode(value))


def problem_response(problem: Problem, retry_after_s: float | None = None) -> Response:
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if retry_after_s is not None:
        headers = ((b"retry-after", str(max(1, round(retry_after_s))).encode()),)
    if problem.status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    if problem.status == 408:  # who sent too slowly does not keep the connection either
        headers += ((b"connection", b"close"),)
    return Response(problem.status, _encoder.encode(problem), PROBLEM, headers)


def segments(scope: Scope) -> list[str]:
    """The path as decoded segments. The split comes before the decoding, so an id may hold a slash."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    try:
        if b"%" not in raw:
            return raw.partition(b"?")[0].decode().split("/")[1:]
        return [unquote_to_bytes(part).decode() for part in raw.partition(b"?")[0].split(b"/")[1:]]
    except UnicodeDecodeError as error:
        raise InvalidRequest("the path is not valid UTF-8") from error


def parameters(scope: Scope, known: frozenset[str]) -> dict[str, str]:
    """The query parameters, each of them known and given once. Raises InvalidRequest."""
    raw: bytes = scope.get("query_string", b"")
    if not raw:
        return {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except (UnicodeDecodeError, ValueError) as error:
        raise InvalidRequest("the query string is not valid") from error
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequest("a query parameter is given twice")
    if unknown := sorted(found.keys() - known):
        raise InvalidRequest(f"unknown query parameter: {unknown[0][:64]}")
    return found


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limit_s: float = BODY_READ_S) -> bytes:
    """The whole body. Raises HttpError: `body_too_large` as soon as that is known, `body_timeout` after `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            return await _whole_body(headers, receive)
    except TimeoutError as error:
        raise HttpError("body_timeout", f"a body has {limit_s:g} seconds to come in") from error


async def _whole_body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    stated = headers.get(b"content-length", b"0")
    if stated.isdigit() and int(stated) > BODY_BYTES_MAX:
        raise _too_large()
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError("invalid_json", "the body ended early")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY_BYTES_MAX:
            raise _too_large()
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_large() -> HttpError:
    return HttpError("body_too_large", f"a body has at most {BODY_BYTES_MAX} bytes")


def headers_of(response: Response) -> tuple[tuple[bytes, bytes], ...]:
    """Those of an answer whose length is known."""
    length = str(len(response.body)).encode()
    return ((b"content-type", response.content_type), (b"content-length", length), *response.headers)


async def send_response(send: Send, response: Response, request_id: bytes, *, head: bool = False) -> None:
    """To HEAD goes what GET would get, without the body."""
    headers = [*headers_of(response), (b"x-request-id", request_id)]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else response.body})


async def send_stream(
    receive: Receive, send: Send, response: Response, request_id: bytes, *, head: bool = False
) -> None:
    """The body, then its pieces as they are made; ends early where the caller has gone.

    What a piece raises is raised here: the server closes the connection without the mark of the end, so that the
    caller sees a broken transfer and no whole answer.
    """
    assert response.pieces is not None
    headers = [(b"content-type", response.content_type), (b"x-request-id", request_id), *response.headers]
    gone = asyncio.ensure_future(receive())  # nothing more comes in but that the caller has gone
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        piece = b"" if head else response.body
        while piece and not gone.done():
            async with asyncio.timeout(SEND_PIECE_S):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await anext(response.pieces, b"")
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await response.pieces.aclose()


class BodyDecoder(Generic[T]):
    """Reads a body as one of the schemas, and says in words what is wrong with it."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    async def __call__(self, body: bytes) -> T:
        """Raises InvalidRequest (a wrong value), HttpError `invalid_json` (no JSON, or nested too deeply)."""
        if len(body) > LARGE_BODY_BYTES:
            return await asyncio.to_thread(self._read, body)
        return self._read(body)

    def _read(self, body: bytes) -> T:
        try:
            decoded = self._decoder.decode(body)
            if b"\\u0000" in body or body.count(b"[") + body.count(b"{") > NESTING_MAX:
                _refuse_nul_and_depth(msgspec.json.decode(body))
        except msgspec.ValidationError as error:
            raise InvalidRequest(str(error)) from error
        except msgspec.DecodeError as error:
            if _has_lone_surrogate(body):
                raise InvalidRequest("a text holds half of a surrogate pair, which is no character") from error
            raise HttpError("invalid_json", str(error)) from error
        except RecursionError as error:
            raise _too_deep() from error
        return decoded


def _refuse_nul_and_depth(value: Any, depth: int = 0) -> None:
    """Raises InvalidRequest where any text of a JSON value holds NUL, HttpError where it is nested too deeply."""
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidRequest("a text holds NUL (U+0000), which is not allowed")
        return
    if not isinstance(value, dict | list):
        return
    if depth == NESTING_MAX:
        raise _too_deep()
    for inner in value:
        _refuse_nul_and_depth(inner, depth + 1)
    for inner in value.values() if isinstance(value, dict) else ():
        _refuse_nul_and_depth(inner, depth + 1)


def _too_deep() -> HttpError:
    return HttpError("invalid_json", f"the body is nested more than {NESTING_MAX} deep")


def _has_lone_surrogate(body: bytes) -> bool:
    """Whether this makes the body undecodable: the standard library lets it pass, msgspec does not."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False
