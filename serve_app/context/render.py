"""Renders a draft in a provider's format, and counts exactly what it has written.

Pure. The tokens of a page are those of every string in it plus `MESSAGE_OVERHEAD_TOKENS` a message,
each given to one zone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from serve_app.context import quote
from serve_app.context.draft import Piece, openai_call
from serve_app.context.exchanges import Call
from serve_app.context.inputs import Format
from serve_app.context.layout import ZONES, Zone
from serve_app.context.quote import Record
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS, block_tokens, message_tokens
from serve_app.ports import Tokenizer

Message = dict[str, Any]

PARAGRAPH = "\n\n"
OPENING = "(The conversation so far.)"
"""Anthropic's messages start with the user; this stands there where memory starts with the assistant."""

CONVERSATION_TITLE = "The conversation so far, oldest first"
QUERY_LEAD = "The user now says:\n"

_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_TOOL_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
TOOL_NAME_CHARS_MAX = 64

BLANK = "(blank)"
"""Stands for a turn of nothing but white space, which Anthropic refuses."""

ARGUMENTS_NESTING_MAX = 200
"""Depth of objects and arrays up to which arguments are sent as an object; deeper ones stay text."""


class Page(msgspec.Struct, frozen=True):
    """A rendered context: `messages` and `system`, or `text`; and the tokens of each zone."""

    zones: dict[Zone, int]
    messages: tuple[Message, ...] = ()
    system: str | None = None
    text: str | None = None

    @property
    def tokens(self) -> int:
        return sum(self.zones.values())


def render(pieces: Sequence[Piece], style: Format, tokenizer: Tokenizer) -> Page:
    """The pieces, in their order, as a page of that format."""
    return _RENDERERS[style](pieces, tokenizer)


def _openai(pieces: Sequence[Piece], tokenizer: Tokenizer) -> Page:
    """One message a piece, save that system text and facts share the first."""
    head = [piece for piece in pieces if piece.role == "system"]
    zones: dict[Zone, int] = dict.fromkeys(ZONES, 0)
    messages: list[Message] = []
    if head:
        message: Message = {"role": "system", "content": PARAGRAPH.join(piece.text for piece in head)}
        messages.append(message)
        _share(zones, head, message_tokens(message, tokenizer), tokenizer)
    for piece in pieces[len(head) :]:
        message = _openai_message(piece)
        messages.append(message)
        if piece.tokens is None or piece.calls or piece.answers:
            zones[piece.zone] += message_tokens(message, tokenizer)
        else:
            zones[piece.zone] += MESSAGE_OVERHEAD_TOKENS + piece.tokens
    return Page(zones, messages=tuple(messages))


def _openai_message(piece: Piece) -> Message:
    if piece.answers:
        return {"role": "tool", "tool_call_id": piece.answers.id, "content": piece.text}
    if piece.calls:
        calls = [openai_call(_named(call)) for call in piece.calls]
        return {"role": "assistant", "content": piece.text or None, "tool_calls": calls}
    return {"role": piece.role, "content": piece.text}


def _anthropic(pieces: Sequence[Piece], tokenizer: Tokenizer) -> Page:
    """System apart; then user and assistant in turn, neighbours of one role as blocks of one message."""
    head = [piece for piece in pieces if piece.role == "system"]
    rest = list(pieces[len(head) :])
    if rest[0].role == "assistant":
        rest.insert(0, Piece("recent", "user", OPENING))
    zones: dict[Zone, int] = dict.fromkeys(ZONES, 0)
    system = PARAGRAPH.join(piece.text for piece in head) if head else None
    if system is not None:
        _share(zones, head, tokenizer.count(system), tokenizer)
    messages: list[Message] = []
    ids = _AnthropicIds()
    for piece in rest:
        role = "assistant" if piece.role == "assistant" else "user"
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
            zones[piece.zone] += MESSAGE_OVERHEAD_TOKENS
        blocks = _anthropic_blocks(piece, ids)
        messages[-1]["content"].extend(blocks)
        zones[piece.zone] += _anthropic_tokens(piece, blocks, tokenizer)
    return Page(zones, messages=tuple(_plain(message) for message in messages), system=system)


def _anthropic_tokens(piece: Piece, blocks: Sequence[Message], tokenizer: Tokenizer) -> int:
    if piece.tokens is not None and len(blocks) == 1 and blocks[0].get("text") == piece.text:
        return piece.tokens
    return sum(block_tokens(block, tokenizer) for block in blocks)


class _AnthropicIds:
    """Ids that Anthropic takes: of few characters, and each used once in a request."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._current: dict[str, str] = {}

    def announce(self, call: Call) -> str:
        wire = call.id if _ANTHROPIC_ID.fullmatch(call.id) else _short_digest(call.id)
        repeat = 1
        while wire in self._used:
            repeat += 1
            wire = _short_digest(f"{call.id}\0{repeat}")
        self._used.add(wire)
        self._current[call.id] = wire
        return wire

    def answer(self, call: Call) -> str:
        return self._current[call.id]


def _anthropic_blocks(piece: Piece, ids: _AnthropicIds) -> list[Message]:
    if piece.answers:
        return [{"type": "tool_result", "tool_use_id": ids.answer(piece.answers), "content": piece.text}]
    said = _said(piece)
    text = [{"type": "text", "text": said}] if said else []
    uses = [
        {"type": "tool_use", "id": ids.announce(call), "name": _named(call).name, "input": _input(call)}
        for call in piece.calls
    ]
    return [*text, *uses]


def _said(piece: Piece) -> str:
    """The text of a piece as Anthropic takes it. The query stays as it is, whatever it is."""
    if piece.text.strip() or piece.zone == "query":
        return piece.text
    return "" if piece.calls else BLANK


def _plain(message: Message) -> Message:
    """A message of one text block, as the string that it is."""
    content = message["content"]
    if len(content) == 1 and content[0]["type"] == "text":
        return {"role": message["role"], "content": content[0]["text"]}
    return message


def _input(call: Call) -> dict[str, Any]:
    """Arguments as the object that Anthropic wants."""
    value = _parsed(call.arguments)
    return value if isinstance(value, dict) else {"value": value}


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


def _named(call: Call) -> Call:
    """The call under a name that providers take."""
    name = _NOT_IN_TOOL_NAMES.sub("_", call.name)[:TOOL_NAME_CHARS_MAX]
    return call if name == call.name else Call(call.id, name, call.arguments)


def _text(pieces: Sequence[Piece], tokenizer: Tokenizer) -> Page:
    """One string: the zones as paragraphs, the conversation as a quoted block, the query last."""
    sections: list[tuple[Zone, str]] = [(piece.zone, piece.text) for piece in pieces[:-1] if piece.zone != "recent"]
    recent = [_text_record(piece) for piece in pieces if piece.zone == "recent"]
    if recent:
        sections.append(("recent", quote.block(CONVERSATION_TITLE, recent)))
    sections.append(("query", QUERY_LEAD + pieces[-1].text))
    text = PARAGRAPH.join(section for _, section in sections)
    zones: dict[Zone, int] = dict.fromkeys(ZONES, 0)
    for zone, section in sections:
        zones[zone] += tokenizer.count(section)
    return Page(_reconciled(zones, tokenizer.count(text)), text=text)


def _text_record(piece: Piece) -> Record:
    if piece.answers:
        return Record(f"result of {piece.answers.name}:", piece.text)
    calls = [f"(calls {call.name} with {call.arguments})" for call in piece.calls]
    return Record(f"{piece.role}:", "\n".join(filter(None, [piece.text, *calls])))


def _share(zones: dict[Zone, int], head: Sequence[Piece], tokens: int, tokenizer: Tokenizer) -> None:
    """Give the tokens of the one system text to its zones: the caller's text its own count, the facts the rest."""
    own = min(tokenizer.count(head[0].text), tokens) if len(head) > 1 else tokens
    zones[head[0].zone] += own
    zones[head[-1].zone] += tokens - own


def _reconciled(zones: Mapping[Zone, int], total: int) -> dict[Zone, int]:
    """The same zones with `total` as their sum: what joining them saved or cost goes to the largest."""
    settled = dict(zones)
    for zone in sorted(settled, key=lambda z: settled[z], reverse=True):
        settled[zone] = max(0, settled[zone] + total - sum(settled.values()))
    return settled


def _short_digest(text: str) -> str:
    return "call_" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_RENDERERS: dict[Format, Callable[[Sequence[Piece], Tokenizer], Page]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "text": _text,
}
