"""The core's values as the API shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from serve_app.api.times import format_time
from serve_app.context.window import Context, Retrieved
from serve_app.core import Fact, Summary, Turn
from serve_app.records import Erasure
from serve_app.retrieve.search import Found

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def shown_turn(turn: Turn) -> dict[str, Any]:
    """A stored turn as the API gives it."""
    shown: dict[str, Any] = {
        "id": turn.id,
        "session_id": turn.session,
        "seq": turn.seq,
        "role": turn.role,
        "content": turn.text,
        "speaker": turn.speaker,
        "created_at": format_time(turn.created_at, turn.offset_minutes),
        "arrived_at": format_time(turn.arrived_at),
    }
    if turn.tool_calls:
        shown["tool_calls"] = turn.tool_calls
    for name in ("tool_call_id", "tool_name", "metadata"):
        if getattr(turn, name) is not None:
            shown[name] = getattr(turn, name)
    if turn.data is not None:
        shown["data"] = msgspec.Raw(turn.data)
    if turn.expires_at is not None:
        shown["expires_at"] = format_time(turn.expires_at)
    return shown


def shown_fact(fact: Fact) -> dict[str, Any]:
    return {
        "key": fact.key,
        "value": fact.value,
        "entity_class": fact.entity_class,
        "written_at": format_time(fact.written_at),
        "expires_at": None if fact.expires_at is None else format_time(fact.expires_at),
    }


def shown_summary(summary: Summary) -> dict[str, Any]:
    return {
        "text": summary.text,
        "first_seq": summary.first_seq,
        "last_seq": summary.last_seq,
        "tokens": summary.tokens,
        "version": summary.version,
        "input_hash": summary.input_hash,
        "created_at": format_time(summary.created_at),
        "expires_at": format_time(summary.expires_at),
    }


def shown_context(context: Context, explained: Sequence[Found]) -> dict[str, Any]:
    """`explained`: what search found for this context, where the caller wants to see why; else nothing."""
    why = {(one.turn.session, one.turn.id): one for one in explained}
    shown: dict[str, Any] = {
        "context_id": context.context_id,
        "messages": context.written,
        "zones": context.zones,
        "total_tokens": context.total_tokens,
        "budget_tokens": context.budget_tokens,
        "stable_prefix_tokens": context.stable_prefix_tokens,
        "dropped": context.dropped,
        "retrieved": [_shown_retrieved(one, why.get((one.session_id, one.id))) for one in context.retrieved],
        "summary": None if context.summary is None else shown_summary(context.summary),
        "degradation": context.degradation,
    }
    if context.system is not None:
        shown["system"] = context.system
    if context.text is not None:
        shown["text"] = context.text
    return shown


def _shown_retrieved(one: Retrieved, why: Found | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": one.id,
        "session_id": one.session_id,
        "seq": one.seq,
        "created_at": _EPOCH + timedelta(0, 0, one.created_at),  # the encoder writes it as `format_time` would
        "score": round(one.score, 4),
        "tier": one.tier,
        "zone": one.zone,
    }
    if why is None:
        return shown
    found = shown_found(why, explain=True)
    return shown | {name: found[name] for name in ("role", "speaker", "content", "scores")}


def shown_found(found: Found, explain: bool) -> dict[str, Any]:
    shown = shown_turn(found.turn)
    parts = found.parts if explain else {arm: part for arm, part in found.parts.items() if part}
    scores = {arm: round(part, 4) for arm, part in parts.items()}
    return shown | {"kind": "turn", "score": round(found.score, 4), "scores": scores, "tier": found.tier}


def shown_erasure(erasure: Erasure) -> dict[str, Any]:
    return {
        "erasure_id": erasure.id,
        "state": erasure.state,
        "counts": erasure.counts,
        "requested_at": format_time(erasure.requested_at),
        "completed_at": None if erasure.completed_at is None else format_time(erasure.completed_at),
    }
