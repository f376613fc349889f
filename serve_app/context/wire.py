"""What providers take of tool calls: ids and names of few characters, arguments as a JSON object. Pure.

What a provider takes stays as it is. Anything else is written so that two different things never become one: an id
becomes a digest of it, a name what is left of it and a digest. The same conversation gives the same, in any process.

    OpenAI      ids of at most 40 characters; names of `a-z A-Z 0-9 _ -`, at most 64; arguments are JSON text
    Anthropic   ids of `a-z A-Z 0-9 _ -`, each used once in a request; names alike; the input is an object

Both get the same ids and names, which are those that both take.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from serve_app.context.exchanges import Call
from serve_app.context.tokens import compact_json

ID_CHARS_MAX = 40
NAME_CHARS_MAX = 64
NAME_KEPT_CHARS = 48
"""Of a name that is rewritten so much stays readable; a digest follows."""

DIGEST_BYTES = 8
ARGUMENTS_NESTING_MAX = 200
"""Depth of objects and arrays up to which arguments are sent as an object; deeper ones stay text."""

_ID = re.compile(rf"[a-zA-Z0-9_-]{{1,{ID_CHARS_MAX}}}")
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_CHARS_MAX}}}")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class WireCall(msgspec.Struct, frozen=True):
    """A call as a provider takes it."""

    id: str
    name: str
    input: dict[str, Any]
    arguments: str
    """`input` as JSON text: that of the caller where it is an object, digit by digit."""

    @property
    def openai(self) -> dict[str, object]:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}

    @property
    def anthropic(self) -> dict[str, object]:
        return {"type": "tool_use", "id": self.id, "name": self.name, "input": self.input}


class Wire:
    """The calls of one page, in its order. `names`: those of all its tools."""

    def __init__(self, names: Iterable[str]) -> None:
        self._ids: set[str] = set()
        self._current: dict[str, str] = {}
        self._names = _names(names)

    def call(self, call: Call) -> WireCall:
        """The next call that is announced. An id that was used before is another one from here on."""
        self._current[call.id] = taken = _unused(_id(call.id), call.id, self._ids)
        self._ids.add(taken)
        return _wired(call, taken, self._names[call.name])

    def answer(self, call: Call) -> str:
        """The id by which the newest call of this id is answered."""
        return self._current[call.id]


def planned(call: Call) -> WireCall:
    """About as it will be: another call of the page may make its id or name another one of the same length."""
    return _wired(call, _id(call.id), _name(call.name))


def _wired(call: Call, taken: str, name: str) -> WireCall:
    value = _parsed(call.arguments)
    if isinstance(value, dict):
        return WireCall(taken, name, value, call.arguments)
    return WireCall(taken, name, {"value": value}, compact_json({"value": value}))


def _names(names: Iterable[str]) -> dict[str, str]:
    """Names that providers take stay, so the others make way for them."""
    distinct = sorted(set(names))
    used = {name for name in distinct if _NAME.fullmatch(name)}
    found = {name: name for name in used}
    for name in distinct:
        if name not in found:
            found[name] = _unused(_name(name), name, used, _readable(name))
            used.add(found[name])
    return found


def _id(text: str) -> str:
    return text if _ID.fullmatch(text) else f"call_{_digest(text)}"


def _name(text: str) -> str:
    return text if _NAME.fullmatch(text) else f"{_readable(text)}{_digest(text)}"


def _readable(name: str) -> str:
    return f"{_NOT_IN_NAMES.sub('_', name[: NAME_KEPT_CHARS - 1])}_"


def _unused(wanted: str, text: str, used: set[str], lead: str = "call_") -> str:
    """`wanted`, or else the first digest of the text and a number that nobody has."""
    repeat = 1
    while wanted in used:
        repeat += 1
        wanted = lead + _digest(f"{text}\0{repeat}")
    return wanted


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


def _parsed(text: str) -> Any:
    """The value of a JSON text; the text itself where the value could not be written again.

    That is so for what is no JSON, for numbers that JSON has no word for (NaN, 1e999), for half a
    surrogate pair, and for what is nested too deeply.
    """
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return text if _deeper(value, ARGUMENTS_NESTING_MAX) else value


def _deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(one, levels - 1) for one in inner)
