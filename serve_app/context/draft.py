"""What a context says, before any provider's format: pieces of text, each with its zone and its role.

Pure. Decides what is a real chat message (the session's own user and assistant turns, and tool calls
with their results) and what is a quote: everything else that memory gives back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from serve_app.context import quote
from serve_app.context.costs import Costs, Frame, Line
from serve_app.context.exchanges import Call, Exchange, announced, linked
from serve_app.context.inputs import Standing
from serve_app.context.layout import Zone
from serve_app.context.quote import Record
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS, compact_json
from serve_app.context.wire import planned
from serve_app.core import Fact, Turn
from serve_app.ports import Tokenizer

FACTS_TITLE = "Facts about the user"
SUMMARY_TITLE = "Summary of this conversation up to here, in the user's words unless marked"
RETRIEVED_TITLE = "Turns from memory that may bear on what follows, oldest first"
TURN_TITLE = "A turn from memory"

BLANK = "(blank)"
"""Stands for a turn that says nothing, or nothing but white space."""


class Piece(msgspec.Struct, frozen=True, gc=False):
    """One message in the making. `calls` are all answered by the pieces right after it, each naming its call.

    `tokens` are those of the text, where they are known.
    """

    zone: Zone
    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()
    answers: Call | None = None
    tokens: int | None = None


def conversation(exchange: Exchange, session: str, costs: Costs) -> tuple[Piece, ...]:
    """An exchange of the session as chat messages. Calls without a result are told in words: no provider takes them."""
    first = exchange[0]
    if first.role == "system" or first.role == "tool":
        return (Piece("recent", "user", quote.block(TURN_TITLE, [turn_record(first, session)])),)
    if not (first.tool_call_id or first.tool_calls):
        text = _spoken(first, first.text) or BLANK
        return (Piece("recent", first.role, text, tokens=costs.said(first, text)),)
    given: dict[str, list[str]] = {}
    for result in exchange[1:]:
        given.setdefault(result.tool_call_id or "", []).append(result.text)
    calls = announced(first)
    answered = tuple(call for call in calls if call.id in given)
    # A turn that announces a call keeps its data for the arguments.
    words = [
        _spoken(first, first.content if calls else first.text),
        *(_in_words(call) for call in calls if call.id not in given),
    ]
    said = "\n".join(filter(None, words)) or ("" if answered else BLANK)
    results = [Piece("recent", "tool", _together(given[call.id]), answers=call) for call in answered]
    return (Piece("recent", first.role, said, calls=answered), *results)


def _together(results: Sequence[str]) -> str:
    text = "\n".join(results)
    return BLANK if not text or text.isspace() else text


def line_of(turn: Turn, session: str, costs: Costs) -> Line:
    """A turn as a line of a quoted block; worked out once for readers of its own session, and once for all others."""
    kept, own = costs.turns.of(turn), turn.session == session
    line = kept.own if own else kept.theirs
    if line is None:
        line = costs.line(turn_record(turn, session))
        if line.text is not turn.content:
            return line
        if own:
            kept.own = line
        else:
            kept.theirs = line
    return line


def turn_record(turn: Turn, session: str) -> Record:
    return Record(quote.turn_source(turn, session), _quotable(turn))


def _quotable(turn: Turn) -> str:
    """What a turn says as quoted data, with its calls in words."""
    calls = announced(turn) if linked(turn) else ()
    if not calls:
        return turn.text
    return "\n".join(filter(None, [turn.content, *(_in_words(call) for call in calls)]))


def fact_record(fact: Fact) -> Record:
    return Record(f"{quote.moment(fact.written_at)[:10]}, {fact.key}:", fact.value)


def standing_record(one: Standing) -> Record:
    """A conversation that was sent along is no session."""
    where = f"in session {one.session}" if one.session else "in this conversation"
    return Record(f"{quote.moment(one.said_at)[:10]}, said {where}:", one.text)


def note_record(note: str) -> Record:
    return Record("from the application:", note)


def facts_piece(records: Sequence[Record], mark: str) -> Piece:
    return Piece("facts", "system", quote.block(FACTS_TITLE, records, mark))


def retrieved_piece(lines: Sequence[Line], mark: str, frame: Frame, costs: Costs) -> Piece:
    text = quote.block(RETRIEVED_TITLE, lines, mark)
    if not costs.adds_up(text):
        return Piece("retrieved", "user", text)
    tokens = frame.message - MESSAGE_OVERHEAD_TOKENS + frame.lead * len(lines) + sum([line.exact for line in lines])
    return Piece("retrieved", "user", text, tokens=tokens)


def piece_tokens(piece: Piece, tokenizer: Tokenizer) -> int:
    """What a piece is planned to cost as a message of its own; what it does cost is measured once it is rendered."""
    tokens = MESSAGE_OVERHEAD_TOKENS + (tokenizer.count(piece.text) if piece.tokens is None else piece.tokens)
    if piece.calls:
        tokens += tokenizer.count(compact_json([planned(call).openai for call in piece.calls]))
    if piece.answers:
        tokens += tokenizer.count(planned(piece.answers).id)
    return tokens


def _spoken(turn: Turn, said: str) -> str:
    """Nothing for what is nothing but white space, which providers refuse."""
    if not said or said.isspace():
        return ""
    return f"{turn.speaker}: {said}" if turn.speaker else said


def _in_words(call: Call) -> str:
    return f"(calls {call.name} with {call.arguments})"
