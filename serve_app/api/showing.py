"""The core's values as the API shows them. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from serve_app.api.times import format_time
from serve_app.backup.runner import Shown
from serve_app.context.candidates import summary_id
from serve_app.context.window import Context, Retrieved
from serve_app.core import Constraint, Degradation, Fact, Receipt, Role, Summary, TimeWindow, ToolCall, Turn
from serve_app.kept import Entry, Kept
from serve_app.layouts import QueryType
from serve_app.memory.compressing import Made
from serve_app.memory.entities import EntityLine
from serve_app.memory.relevance import Relevances
from serve_app.records import Erasure
from serve_app.retrieve.found import Explained, Found
from serve_app.retrieve.fuse import ARMS
from serve_app.retrieve.statements import Result, Statement, written_at

WRITTEN_A_GENERATION = 4_096
WRITTEN_CHARACTERS_MAX = 2_000
"""Turns whose encoded form is kept, twice at most, and how long they may be: some megabytes of usual turns."""


class ShownTurn(msgspec.Struct):
    """A stored turn as the API gives it. What is UNSET is left out; a struct is written out faster than a mapping."""

    id: str
    session_id: str
    seq: int
    role: Role
    content: str
    speaker: str | None
    created_at: str
    arrived_at: str
    tool_calls: tuple[ToolCall, ...] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    data: msgspec.Raw | UnsetType = UNSET
    expires_at: str | UnsetType = UNSET
    field_expires_at: dict[str, str] | UnsetType = UNSET


class EditedTurn(ShownTurn):
    receipt: str = ""


class ExportedTurn(ShownTurn):
    kind: str = "turn"
    user_id: str = ""


class ShownFound(ShownTurn):
    """A turn that a search found."""

    kind: str = "turn"
    score: float = 0.0
    scores: dict[str, float] = {}
    tier: str = "hot"
    matched_paths: tuple[str, ...] | UnsetType = UNSET
    explain: ShownWhy | UnsetType = UNSET


class ShownWhy(msgspec.Struct):
    """Why the second stage put a turn where it stands: its place before, and what was known and said of it."""

    first_rank: int
    first_score: float
    rerankers: Mapping[str, float]
    features: Mapping[str, float | None]
    contributions: Mapping[str, float]


S = TypeVar("S", bound=ShownTurn)


def shown_turn(turn: Turn) -> ShownTurn:
    return _shown(ShownTurn, turn)


def edited_turn(turn: Turn, receipt: Receipt) -> EditedTurn:
    shown = _shown(EditedTurn, turn)
    shown.receipt = str(receipt)
    return shown


def exported_turn(turn: Turn, user: str) -> ExportedTurn:
    shown = _shown(ExportedTurn, turn)
    shown.user_id = user
    return shown


def _shown(kind: type[S], turn: Turn) -> S:
    shown = kind(
        turn.id,
        turn.session,
        turn.seq,
        turn.role,
        turn.text,
        turn.speaker,
        format_time(turn.created_at, turn.offset_minutes),
        format_time(turn.arrived_at),
    )
    if turn.role == "tool" or turn.tool_name is not None or turn.tool_calls or turn.tool_call_id is not None:
        shown.tool_calls = turn.tool_calls or UNSET
        shown.tool_call_id = UNSET if turn.tool_call_id is None else turn.tool_call_id
        shown.tool_name = UNSET if turn.tool_name is None else turn.tool_name
    if turn.metadata is not None:
        shown.metadata = turn.metadata
    if turn.data is not None:
        shown.data = msgspec.Raw(turn.data)
    if turn.expires_at is not None:
        shown.expires_at = format_time(turn.expires_at)
    if turn.fields_expire:
        shown.field_expires_at = {field.path: format_time(field.at) for field in turn.fields_expire}
    return shown


def exported_fact(fact: Fact, user: str) -> dict[str, Any]:
    return shown_fact(fact) | {"kind": "fact", "user_id": user}


def exported_summary(summary: Summary, user: str) -> dict[str, Any]:
    return shown_summary(summary) | {"kind": "summary", "session_id": summary.session, "user_id": user}


def shown_fact(fact: Fact) -> dict[str, Any]:
    return {
        "key": fact.key,
        "value": fact.value,
        "entity_class": fact.entity_class,
        "written_at": format_time(fact.written_at),
        "expires_at": None if fact.expires_at is None else format_time(fact.expires_at),
    }


def shown_entity(line: EntityLine, ttl_class: str | None, ttl_seconds: int | None) -> dict[str, Any]:
    """`ttl_class`: what a fact or a field of data of this class gets as its time to live, by the policy `ttl`."""
    return {
        "name": line.name,
        "class": line.kind,
        "count": line.count,
        "first_at": format_time(line.first_at),
        "last_at": format_time(line.last_at),
        "last_turn": {"session_id": line.session, "turn_id": line.turn_id},
        "ttl_class": ttl_class,
        "ttl_seconds": ttl_seconds,
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
        "topics": [msgspec.to_builtins(topic) for topic in summary.topics],
        "constraints": [shown_constraint(one) for one in summary.constraints],
    }


def shown_compressed(made: Made) -> dict[str, Any]:
    """Where every turn had expired the summary covers none."""
    span = {} if made.covers else {"first_seq": None, "last_seq": None}
    return shown_summary(made.summary) | span | {"degradation": Degradation("full", made.summary.reasons)}


def shown_constraint(one: Constraint) -> dict[str, Any]:
    """`lasting`: it binds beyond its session."""
    return {"text": one.text, "turn_id": one.turn_id, "status": one.status, "lasting": one.lasting}


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
        "cache_prefix": context.cache_prefix,
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


def shown_choice(layout: str, revision: int, query_type: QueryType | None) -> dict[str, Any]:
    """The layout of a context, and what the query was taken for where that was looked at."""
    shown: dict[str, Any] = {"name": layout, "revision": revision}
    return shown if query_type is None else shown | {"query_type": query_type}


def _shown_retrieved(one: Retrieved, why: Found | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": one.id,
        "session_id": one.session_id,
        "seq": one.seq,
        "created_at": format_time(one.created_at),
        "score": one.score,
        "tier": one.tier,
        "zone": one.zone,
    }
    if why is None:
        return shown
    found = shown_found(why, explain=True)
    shown |= {name: getattr(found, name) for name in ("role", "speaker", "content", "scores")}
    return shown if found.explain is UNSET else shown | {"explain": found.explain}


class _Written(Entry[Turn]):
    """A turn as it stands in results, encoded, without the brace at its end."""

    __slots__ = ("json",)

    def __init__(self, turn: Turn, gone: Callable[[weakref.ref[Turn]], None]) -> None:
        super().__init__(turn, gone)
        self.json = msgspec.json.encode(shown_turn(turn))[:-1]


_written: Kept[Turn, _Written] = Kept(_Written, WRITTEN_A_GENERATION)


class _Finding(msgspec.Struct):
    """What a result says beside its turn."""

    kind: str
    score: float
    scores: dict[str, float]
    tier: str
    matched_paths: tuple[str, ...] | UnsetType = UNSET
    explain: ShownWhy | UnsetType = UNSET


def shown_results(found: Sequence[Result], explain: bool) -> list[msgspec.Raw]:
    """Each result encoded by itself: as one call many would hold every other thread up."""
    return [_shown_result(one, explain) for one in found]


def _shown_result(found: Result, explain: bool) -> msgspec.Raw:
    """What is found once is likely to be found again: of a short turn the encoded form is kept as long as the turn."""
    if isinstance(found, Statement):
        return msgspec.Raw(msgspec.json.encode(_shown_statement(found, explain)))
    if found.turn.characters > WRITTEN_CHARACTERS_MAX:
        return msgspec.Raw(msgspec.json.encode(shown_found(found, explain)))
    matched = UNSET if found.matched is None else found.matched
    finding = _Finding("turn", found.score, _scores(found, explain), found.tier, matched, _shown_why(found))
    return msgspec.Raw(b"%b,%b" % (_written.of(found.turn).json, msgspec.json.encode(finding)[1:]))


def shown_found(found: Found, explain: bool) -> ShownFound:
    shown = _shown(ShownFound, found.turn)
    shown.score, shown.tier = found.score, found.tier
    shown.scores = _scores(found, explain)
    shown.matched_paths = UNSET if found.matched is None else found.matched
    shown.explain = _shown_why(found)
    return shown


def _shown_why(found: Found) -> ShownWhy | UnsetType:
    why = found.why
    return UNSET if why is None else ShownWhy(why.rank, why.score, why.by, why.features, why.contributions)


def shown_explained(explained: Explained) -> dict[str, Any]:
    """What a search did: the tiers and the version that were searched, how many turns, and by whom they were judged."""
    return {
        "tiers": explained.tiers,
        "version": explained.version,
        "candidates": explained.candidates,
        "reranked": explained.reranked,
        "window": _shown_window(explained.window),
        "entities": explained.entities,
        "rerankers": [
            {"kind": one.kind, "name": one.name, "result": one.result, "ms": round(1e3 * one.seconds, 3)}
            for one in explained.judged
        ],
    }


def _shown_statement(found: Statement, explain: bool) -> dict[str, Any]:
    """A fact or a summary with the fields of a turn that was found; what it has not is null."""
    value = found.value
    shown: dict[str, Any] = {
        "id": value.key if isinstance(value, Fact) else summary_id(value),
        "kind": "fact" if isinstance(value, Fact) else "summary",
        "session_id": None if isinstance(value, Fact) else value.session,
        "seq": value.seq,
        "role": None,
        "content": value.value if isinstance(value, Fact) else value.text,
        "speaker": None,
        "created_at": format_time(written_at(value)),
        "score": found.score,
        "scores": _scores(found, explain),
        "tier": found.tier,
    }
    if isinstance(value, Fact):
        shown |= {"key": value.key, "entity_class": value.entity_class}
    if value.expires_at is not None:
        shown["expires_at"] = format_time(value.expires_at)
    return shown


def _scores(found: Result, explain: bool) -> dict[str, float]:
    return {arm: added for arm, added in zip(ARMS, found.added, strict=False) if added or explain}


def shown_relevances(found: Relevances, texts: Sequence[str] | None, top_n: int | None) -> dict[str, Any]:
    """`texts`: the documents, where they are wanted back."""
    scores = found.scores.tolist()
    best_first = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:top_n]
    results = [
        {"index": index, "relevance_score": scores[index]}
        | ({} if texts is None else {"document": {"text": texts[index]}})
        for index in best_first
    ]
    return {"model": found.model, "results": results, "usage": {"total_tokens": found.tokens}}


def shown_erasure(erasure: Erasure, stuck: bool, backups: Sequence[tuple[str, int]] | None = ()) -> dict[str, Any]:
    """`stuck`: its shard's files cannot be rewritten. It is tried again, so that what has failed may still be done.

    `backups`: None where their place has not answered yet.
    """
    holding = None if backups is None else [{"id": one, "expires_at": format_time(until)} for one, until in backups]
    return {
        "erasure_id": erasure.id,
        "state": "failed" if stuck and erasure.completed_at is None else erasure.state,
        "counts": erasure.counts,
        "requested_at": format_time(erasure.requested_at),
        "completed_at": None if erasure.completed_at is None else format_time(erasure.completed_at),
        "backups": holding,
    }


def shown_span(span: tuple[int, int] | None) -> dict[str, str] | None:
    return None if span is None else {"from": format_time(span[0]), "until": format_time(span[1])}


def shown_backup(one: Shown, whole: bool) -> dict[str, Any]:
    """`whole`: with sizes and reasons."""
    shown: dict[str, Any] = {
        "id": one.begun.id,
        "kind": one.begun.kind,
        "state": one.state,
        "begun_at": format_time(one.begun.begun_at),
        "finished_at": None if one.finished is None else format_time(one.finished.finished_at),
        "expires_at": None if one.expires_at is None else format_time(one.expires_at),
    }
    if not whole:
        return shown
    shown["base"] = one.begun.base
    if (done := one.finished) is not None:
        shown |= {"bytes": done.total_bytes, "own_bytes": done.own_bytes, "reachable": shown_span(done.reachable)}
    if (progress := one.progress) is not None:
        shown |= {"copied_bytes": progress.copied_bytes, "planned_bytes": progress.planned_bytes}
        shown |= {"shards": progress.shards, "error": progress.error}
    return shown


def shown_query(rewritten: str, keywords: Sequence[str], window: TimeWindow | None) -> dict[str, Any]:
    """What a query was taken for."""
    return {"rewritten": rewritten, "keywords": keywords, "time_window": _shown_window(window)}


def _shown_window(window: TimeWindow | None) -> dict[str, str | None] | None:
    """Its ends have the offsets that hold there."""
    if window is None:
        return None
    return {
        "start": None if window.start is None else window.start.isoformat(),
        "end": None if window.end is None else window.end.isoformat(),
    }
