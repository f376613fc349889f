"""Turns that belong together: a tool call with all its results. Shown as one, or left out as one.

Pure. An exchange is a tuple of turns; most hold a single turn. One that starts with an assistant
turn that announces calls goes on with the tool turns that answer them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

import msgspec

from serve_app.context.tokens import compact_json
from serve_app.core import ToolCall, Turn

Exchange = tuple[Turn, ...]
TurnKey = tuple[str, str]
"""Session and id: ids are unique within a session only."""

UNNAMED_TOOL = "tool"


class Call(msgspec.Struct, frozen=True):
    """An announced call with its arguments as JSON text."""

    id: str
    name: str
    arguments: str


def linked(turn: Turn) -> bool:
    """Whether the turn may belong to an exchange of several."""
    return bool(turn.tool_call_id or turn.tool_calls or turn.role == "tool")


def any_linked(turns: Iterable[Turn]) -> bool:
    return any(turn.tool_call_id or turn.tool_calls or turn.role == "tool" for turn in turns)


key_of: Callable[[Turn], TurnKey] = attrgetter("session", "id")


def partition(turns: Iterable[Turn]) -> list[Exchange]:
    """All turns as exchanges, each turn in one, in order of their first turns. `turns` must be in seq order.

    A result belongs to the newest earlier call of its id in its session: ids may come again. A result
    whose call is not there is an exchange of its own.
    """
    exchanges: list[list[Turn]] = []
    by_call: dict[TurnKey, list[Turn]] = {}
    for turn in turns:
        exchange: list[Turn] | None = None
        if turn.role == "tool" and turn.tool_call_id:
            exchange = by_call.get((turn.session, turn.tool_call_id))
        if exchange is None:
            exchange = []
            exchanges.append(exchange)
        exchange.append(turn)
        for call in announced(turn):
            by_call[turn.session, call.id] = exchange
    return [tuple(exchange) for exchange in exchanges]


def announced(turn: Turn) -> tuple[Call, ...]:
    """The calls that a turn announces, by `tool_calls` or by its own call id, each id once."""
    if turn.role != "assistant" or not (turn.tool_calls or turn.tool_call_id):
        return ()
    calls = {call.id: Call(call.id, call.name, _arguments(call)) for call in turn.tool_calls}
    if turn.tool_call_id and turn.tool_call_id not in calls:
        data = "{}" if turn.data is None else turn.data.decode()
        calls[turn.tool_call_id] = Call(turn.tool_call_id, turn.tool_name or UNNAMED_TOOL, data)
    return tuple(calls.values())


def _arguments(call: ToolCall) -> str:
    """Callers that copy OpenAI's messages send JSON text already; it is not encoded twice."""
    if call.arguments is None:
        return "{}"
    if isinstance(call.arguments, str) and call.arguments.lstrip().startswith("{"):
        return call.arguments
    return compact_json(call.arguments)
