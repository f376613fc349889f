"""What a context says, before any provider's format: pieces of text, each with its zone and its role.

Pure. Decides what is a real chat message (the session's own user and assistant turns, and tool calls
with their results) and what is a quote: everything else that memory gives back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from serve_app.context import quote
from serve_app.context.exchanges import Call, Exchange, announced
from serve_app.context.layout import Zone
from serve_app.context.quote import Record
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS, compact_json
from serve_app.core import Fact, Summary, Turn
from serve_app.ports import Tokenizer

FACTS_TITLE = "Facts about the user"
RETRIEVED_TITLE = "Turns from memory that may bear on what follows, oldest first"
TURN_TITLE = "A turn from memory"


class Piece(msgspec.Struct, frozen=True):
    """One message in the making. `calls` are all answered by the pieces right after it, each naming its call."""

    zone: Zone
    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()
    answers: Call | None = None


def conversation(exchange: Exchange, session: str) -> tuple[Piece, ...]:
    """An exchange of the session as chat messages. Calls without a result are told in words: no provider takes them."""
    first, results = exchange[0], exchange[1:]
    if first.role in ("system", "tool"):
        return (Piece("recent", "user", quote.block(TURN_TITLE, [turn_record(first, session)])),)
    given: dict[str, list[str]] = {}
    for result in results:
        given.setdefault(result.tool_call_id or "", []).append(result.text)
    calls = announced(first)
    answered = tuple(call for call in calls if call.id in given)
    words = [_spoken(first), *(_in_words(call) for call in calls if call.id not in given)]
    head = Piece("recent", _chat_role(first), "\n".join(filter(None, words)), calls=answered)
    return (head, *(Piece("recent", "tool", "\n".join(given[call.id]), answers=call) for call in answered))


def turn_record(turn: Turn, session: str) -> Record:
    """A turn as quoted data, with its calls in words."""
    calls = announced(turn)
    said = turn.content if calls else turn.text
    text = "\n".join(filter(None, [said, *(_in_words(call) for call in calls)]))
    return Record(quote.turn_source(turn, session), text)


def fact_record(fact: Fact) -> Record:
    return Record(f"{quote.moment(fact.written_at)[:10]}, {fact.key}:", fact.value)


def note_record(note: str) -> Record:
    return Record("from the application:", note)


def summary_piece(summary: Summary) -> Piece:
    title = "Summary of this conversation up to here"
    source = f"made {quote.moment(summary.created_at)}"
    return Piece("summary", "user", quote.block(title, [Record(source, summary.text)]))


def facts_piece(records: Sequence[Record], mark: str) -> Piece:
    return Piece("facts", "system", quote.block(FACTS_TITLE, records, mark))


def retrieved_piece(records: Sequence[Record], mark: str) -> Piece:
    return Piece("retrieved", "user", quote.block(RETRIEVED_TITLE, records, mark))


def piece_tokens(piece: Piece, tokenizer: Tokenizer) -> int:
    """What a piece is planned to cost as a message of its own; what it does cost is measured once it is rendered."""
    tokens = MESSAGE_OVERHEAD_TOKENS + tokenizer.count(piece.text)
    if piece.calls:
        tokens += tokenizer.count(compact_json([openai_call(call) for call in piece.calls]))
    if piece.answers:
        tokens += tokenizer.count(piece.answers.id)
    return tokens


def openai_call(call: Call) -> dict[str, object]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _chat_role(turn: Turn) -> Literal["user", "assistant"]:
    return "assistant" if turn.role == "assistant" else "user"


def _spoken(turn: Turn) -> str:
    """What a turn says aloud; a turn that announces a call keeps its data for the arguments."""
    said = turn.content if announced(turn) else turn.text
    return f"{turn.speaker}: {said}" if turn.speaker and said else said


def _in_words(call: Call) -> str:
    return f"(calls {call.name} with {call.arguments})"
