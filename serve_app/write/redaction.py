"""What a tenant's policy takes out of a turn or a fact before it is stored, and out of what is stored already."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from serve_app.core import Fact, ToolCall, Turn
from serve_app.policies import PRIVACY_LEVELS, PrivacyLevel
from serve_app.privacy.redact import redact
from serve_app.privacy.values import redact_json, redact_named, redact_value
from serve_app.stores.rows import Stub
from serve_app.write.operations import NewTurn, says_the_same

T = TypeVar("T", NewTurn, Turn)

COMPARED_CHARACTERS_MAX = 64 << 10
"""A longer turn that is sent again under another policy is compared as it is: the writer does not wait for more."""


def redacted_turn(turn: T, level: PrivacyLevel) -> T:
    """The very turn where nothing is found in it. Ids, names of tools and keys inside data stay."""
    if level == "off":
        return turn
    changes: dict[str, Any] = {}
    content = redact(turn.content, level).text
    if content is not turn.content:
        changes["content"] = content
    if turn.speaker is not None and (speaker := redact(turn.speaker, level).text) is not turn.speaker:
        changes["speaker"] = speaker
    if turn.data is not None and (data := redact_json(turn.data, level)) is not turn.data:
        changes["data"] = data
    if turn.metadata and (metadata := redact_value(turn.metadata, level)) is not turn.metadata:
        changes["metadata"] = metadata
    if turn.tool_calls and (calls := _redacted_calls(turn.tool_calls, level)) != turn.tool_calls:
        changes["tool_calls"] = calls
    return msgspec.structs.replace(turn, **changes) if changes else turn


def _redacted_calls(calls: tuple[ToolCall, ...], level: PrivacyLevel) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(call.id, call.name, redact_value(call.arguments, level)) for call in calls)


def redacted_fact(fact: Fact, level: PrivacyLevel) -> Fact:
    """The very fact where nothing is found in it. Its key says what its value is."""
    value = redact_named(fact.value, level, fact.key)
    return fact if value == fact.value else msgspec.structs.replace(fact, value=value)


def repeats(stored: Turn | Stub, new: NewTurn, level: PrivacyLevel) -> bool:
    """Whether a turn that is sent again is the stored one, though another policy was in force when that came.

    `new` is redacted by the policy of today, `level`; the stored one by a looser one or a tighter one.
    """
    if says_the_same(stored, new):
        return True
    held = 0 if isinstance(stored, Stub) else stored.characters
    if max(held, len(new.content) + len(new.data or b"")) > COMPARED_CHARACTERS_MAX:
        return False
    if isinstance(stored, Turn) and says_the_same(redacted_turn(stored, level), new):
        return True
    tighter = PRIVACY_LEVELS[PRIVACY_LEVELS.index(level) + 1 :]
    return any(says_the_same(stored, redacted_turn(new, one)) for one in tighter)
