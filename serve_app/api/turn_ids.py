"""Ids for turns that come without: made before a write is passed on, so that it may be passed on twice. Pure but for
the drawing of ids.

A write whose answer was lost is asked again. With ids the second one stores nothing twice; what it then calls a
duplicate, of an id that nobody else can have, is what the first one stored.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import msgspec

__all__ = ["Identified", "identified", "stored_by_us"]

ID_BYTES = 16

_body = msgspec.json.Decoder(dict[str, msgspec.Raw])
_turns = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_answer = msgspec.json.Decoder(dict[str, msgspec.Raw])
_results = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

_NULL = b"null"
_DUPLICATE, _STORED = b'"duplicate"', msgspec.Raw(b'"stored"')


class Identified(NamedTuple):
    """A body whose turns all have ids, and those that were made here, as JSON."""

    body: bytes
    made: frozenset[bytes]


def identified(body: bytes) -> Identified | None:
    """None for what is no such body: whoever it is passed on to says why."""
    try:
        whole = _body.decode(body)
        turns = _turns.decode(whole["turns"])
    except (msgspec.DecodeError, KeyError, RecursionError):
        return None
    made = {}
    for index, turn in enumerate(turns):
        if bytes(turn.get("id", _NULL)) == _NULL:
            made[index] = f'"t-{secrets.token_hex(ID_BYTES)}"'.encode()
            turn["id"] = msgspec.Raw(made[index])
    if not made:
        return Identified(body, frozenset())
    whole["turns"] = msgspec.Raw(msgspec.json.encode(turns))
    return Identified(msgspec.json.encode(whole), frozenset(made.values()))


def stored_by_us(answer: bytes, made: frozenset[bytes]) -> bytes:
    """The answer to such a body, as if it had been asked once."""
    if not made or _DUPLICATE not in answer:
        return answer
    try:
        whole = _answer.decode(answer)
        results = _results.decode(whole["results"])
    except (msgspec.DecodeError, KeyError):
        return answer
    for one in results:
        if bytes(one.get("id", _NULL)) in made and bytes(one.get("status", _NULL)) == _DUPLICATE:
            one["status"] = _STORED
    whole["results"] = msgspec.Raw(msgspec.json.encode(results))
    return msgspec.json.encode(whole)
