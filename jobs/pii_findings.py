"""What a privacy level would take out of a stored row: counted by kind, never shown. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from serve_app.core import Fact, Summary, Turn
from serve_app.policies import PrivacyLevel
from serve_app.privacy.kinds import ALL
from serve_app.privacy.redact import redact
from serve_app.write.redaction import redacted_fact, redacted_turn

Held = Turn | Fact | Summary

TYPES: Final[Mapping[str, type[Held]]] = {"turn": Turn, "fact": Fact, "summary": Summary}
"""Of the kinds of rows that hold somebody's words."""


def found_in(kind: str, body: bytes, level: PrivacyLevel) -> Counter[str]:
    """How much of each kind of personal data the row's packed value holds that the level covers; empty for none."""
    held = msgspec.msgpack.decode(body, type=TYPES[kind])
    before, after = _said(held), _redacted(held, level)
    return Counter({kind: more for kind in ALL if (more := _marks(after, kind) - _marks(before, kind)) > 0})


def _redacted(held: Held, level: PrivacyLevel) -> bytes:
    """As the service would store it. A summary quotes turns: it is looked at as the text that it is."""
    match held:
        case Turn():
            return _said(redacted_turn(held, level))
        case Fact():
            return _said(redacted_fact(held, level))
        case _:
            return redact(_said(held).decode(), level).text.encode()


def _said(held: Held) -> bytes:
    """All that somebody may have written."""
    match held:
        case Turn():
            arguments = [call.arguments for call in held.tool_calls]
            beside = msgspec.json.encode((held.speaker, held.metadata, arguments))
            return b"\n".join((held.content.encode(), beside, held.data or b""))
        case Fact():
            return held.value.encode()
        case _:
            quoted = [*(one.text for one in held.constraints), *(one.title for one in held.topics)]
            return "\n".join((held.text, *quoted)).encode()


def _marks(text: bytes, kind: str) -> int:
    return text.count(f"[{kind}]".encode())
