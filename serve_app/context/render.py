"""Renders a draft in a provider's format, and counts exactly what it has written.

Pure. The tokens of a page are those of every string in it plus `MESSAGE_OVERHEAD_TOKENS` a message,
each given to one zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from serve_app.context import quote
from serve_app.context.draft import Piece
from serve_app.context.inputs import Format
from serve_app.context.layout import ZONES, Zone
from serve_app.context.quote import Record
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS, block_tokens, message_tokens
from serve_app.context.wire import Wire
from serve_app.ports import Tokenizer

Message = dict[str, Any]

PARAGRAPH = "\n\n"
OPENING = "(The conversation so far.)"
"""Anthropic's messages start with the user; this stands there where memory starts with the assistant."""

HEAD_ZONES: frozenset[Zone] = frozenset({"system", "facts"})
"""They stand first, and change with neither turns nor query."""

CONVERSATION_TITLE = "The conversation so far, oldest first"
QUERY_LEAD = "The user now says:\n"


class CachePrefix(msgspec.Struct, frozen=True):
    """Where a page's stable beginning ends: what a provider's prompt cache can hold while turns and queries change.

    All of `system` if it is set, the first `messages` of the messages, the first `characters` of the text.
    """

    tokens: int
    system: bool = False
    messages: int = 0
    characters: int = 0


class Page(msgspec.Struct, frozen=True):
    """A rendered context: `messages` and `system`, or `text`; and the tokens of each zone.

    `head_characters`: of the text, system text and facts.
    """

    zones: dict[Zone, int]
    messages: tuple[Message, ...] = ()
    system: str | None = None
    text: str | None = None
    head_characters: int = 0

    @property
    def tokens(self) -> int:
        return sum(self.zones.values())

    @property
    def prefix(self) -> CachePrefix:
        first = self.messages[0]["role"] if self.messages else ""
        tokens = self.zones["system"] + self.zones["facts"]
        return CachePrefix(tokens, self.system is not None, int(first == "system"), self.head_characters)


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
    wire = _wire(pieces)
    for piece in pieces[len(head) :]:
        message = _openai_message(piece, wire)
        messages.append(message)
        if piece.tokens is None or piece.calls or piece.answers:
            zones[piece.zone] += message_tokens(message, tokenizer)
        else:
            zones[piece.zone] += MESSAGE_OVERHEAD_TOKENS + piece.tokens
    return Page(zones, messages=tuple(messages))


def _wire(pieces: Sequence[Piece]) -> Wire:
    return Wire(call.name for piece in pieces for call in piece.calls)


def _openai_message(piece: Piece, wire: Wire) -> Message:
    if piece.answers:
        return {"role": "tool", "tool_call_id": wire.answer(piece.answers), "content": piece.text}
    if piece.calls:
        calls = [wire.call(call).openai for call in piece.calls]
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
    wire = _wire(rest)
    for piece in rest:
        role = "assistant" if piece.role == "assistant" else "user"
        if not messages or messages[-1]["role"] != role:
            messages.append({"role": role, "content": []})
            zones[piece.zone] += MESSAGE_OVERHEAD_TOKENS
        blocks = _anthropic_blocks(piece, wire)
        messages[-1]["content"].extend(blocks)
        zones[piece.zone] += _anthropic_tokens(piece, blocks, tokenizer)
    return Page(zones, messages=tuple(_plain(message) for message in messages), system=system)


def _anthropic_tokens(piece: Piece, blocks: Sequence[Message], tokenizer: Tokenizer) -> int:
    if piece.tokens is not None and len(blocks) == 1 and blocks[0].get("text") == piece.text:
        return piece.tokens
    return sum(block_tokens(block, tokenizer) for block in blocks)


def _anthropic_blocks(piece: Piece, wire: Wire) -> list[Message]:
    if piece.answers:
        return [{"type": "tool_result", "tool_use_id": wire.answer(piece.answers), "content": piece.text}]
    text = [{"type": "text", "text": piece.text}] if piece.text or not piece.calls else []
    return [*text, *(wire.call(call).anthropic for call in piece.calls)]


def _plain(message: Message) -> Message:
    """A message of one text block, as the string that it is."""
    content = message["content"]
    if len(content) == 1 and content[0]["type"] == "text":
        return {"role": message["role"], "content": content[0]["text"]}
    return message


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
    head = PARAGRAPH.join(section for zone, section in sections if zone in HEAD_ZONES)
    return Page(_reconciled(zones, tokenizer.count(text)), text=text, head_characters=len(head))


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


_RENDERERS: dict[Format, Callable[[Sequence[Piece], Tokenizer], Page]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "text": _text,
}
