"""Between the API's words and the core's: turns in and out, facts, summaries, receipts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from serve_app.api.schemas import (
    COMPRESS_CHARACTERS_MAX,
    CONTENT_BYTES_MAX,
    RERANK_CHARACTERS_MAX,
    CompressIn,
    EditTurnIn,
    FactIn,
    FiltersIn,
    RerankIn,
    TurnIn,
)
from serve_app.api.times import parse_time
from serve_app.core import Receipt, ToolCall, Turn
from serve_app.entities.recognise import key_named
from serve_app.entities.values import CLASSES, EntityClass
from serve_app.errors import InvalidReceipt, InvalidRequest, NotSupported
from serve_app.paths import same, steps_of, values
from serve_app.retrieve.conditions import cheapest_first, condition
from serve_app.retrieve.filters import Filters
from serve_app.write.operations import FieldLife, NewTurn


def new_turn(turn: TurnIn, place: str) -> NewTurn:
    """Raises InvalidRequest that names `place`, NotSupported for fields of features that are not built yet."""
    data = None if turn.data is UNSET else msgspec.json.encode(turn.data)
    content = turn.content or ""
    if data is not None and content and _is_the_same_json(content, turn.data):
        content = ""  # it is rendered from the data
    if not content and data is None:
        raise InvalidRequest(f"{place}.content: a turn needs a content or data")
    if len(content.encode()) + len(data or b"") > CONTENT_BYTES_MAX:
        raise InvalidRequest(f"{place}: a turn has at most {CONTENT_BYTES_MAX} bytes")
    created_at, offset = (None, 0) if turn.created_at is None else parse_time(turn.created_at, f"{place}.created_at")
    _require_packable(turn.metadata, f"{place}.metadata")
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in turn.tool_calls or ())
    _require_packable([call.arguments for call in calls], f"{place}.tool_calls")
    return NewTurn(
        role=turn.role,
        content=content,
        id=turn.id,
        created_at=created_at,
        offset_minutes=offset,
        speaker=turn.speaker,
        tool_calls=calls,
        tool_call_id=turn.tool_call_id,
        tool_name=turn.tool_name,
        data=data,
        metadata=turn.metadata,
        ttl_seconds=turn.ttl_seconds,
        field_lives=_field_lives(turn, f"{place}.field_ttl") if turn.field_ttl else (),
    )


def documents(body: RerankIn) -> list[str]:
    """Raises InvalidRequest where there is nothing to look for, or too much to read."""
    if not body.query.strip():
        raise InvalidRequest("query: there is nothing to look for")
    texts = [one if isinstance(one, str) else one.text for one in body.documents]
    if sum(map(len, texts)) > RERANK_CHARACTERS_MAX:
        raise InvalidRequest(f"documents: at most {RERANK_CHARACTERS_MAX} characters in all")
    return texts


def compressed_turns(body: CompressIn) -> list[NewTurn]:
    """Raises InvalidRequest like `new_turn`, and where there is too much to read."""
    turns = [new_turn(turn, f"turns[{index}]") for index, turn in enumerate(body.turns)]
    if sum(len(turn.content) + len(turn.data or b"") for turn in turns) > COMPRESS_CHARACTERS_MAX:
        raise InvalidRequest(f"turns: at most {COMPRESS_CHARACTERS_MAX} characters in all")
    return turns


def _field_lives(turn: TurnIn, place: str) -> tuple[FieldLife, ...]:
    """Those of fields that are there. Raises InvalidRequest for what is no path, and where there is no data."""
    if turn.data is UNSET:
        raise InvalidRequest(f"{place}: only fields of `data` have times to live of their own")
    lives = [(path, life, steps_of(path)) for path, life in (turn.field_ttl or {}).items()]
    return tuple(FieldLife(path, life) for path, life, steps in lives if values(turn.data, steps))


def _is_the_same_json(content: str, data: Any) -> bool:
    try:
        return same(msgspec.json.decode(content), data)
    except (msgspec.DecodeError, RecursionError):  # no JSON, or nested so deeply that it is not the data
        return False


def _require_packable(value: Any, place: str) -> None:
    """Numbers of any size are exact in `data`; elsewhere they end at 64 bits."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError as error:
        raise InvalidRequest(f"{place}: integers beyond 64 bits are kept in `data` only") from error


def passing_turn(turn: TurnIn, place: str, index: int, now: int) -> Turn:
    """A turn of an inline history: never stored, but otherwise like one."""
    new = new_turn(turn, place)
    if new.classed:
        raise NotSupported(f"{place}.field_ttl: entity classes are for stored turns; here say the seconds")
    return new.passing(new.id or f"history-{index}", index + 1, now)


def expiry(fact: FactIn) -> int | UnsetType | None:
    """When a fact ends, None for never, where the caller says so. Raises InvalidRequest."""
    if fact.expires_at is UNSET or fact.expires_at is None:
        return fact.expires_at
    if fact.ttl_seconds is not None:
        raise InvalidRequest("a fact has ttl_seconds or expires_at, not both")
    return parse_time(fact.expires_at, "expires_at")[0]


def filters(given: FiltersIn | None, session: str | None) -> Filters:
    """Raises InvalidRequest for times without offset, paths that are none, names that name nothing."""
    if given is None:
        return Filters(session=session)
    return Filters(
        session=session,
        roles=frozenset(given.roles or ()),
        kinds=frozenset(given.kinds or ("turn",)),
        start=None if given.from_ is None else parse_time(given.from_, "filters.from")[0],
        end=None if given.to is None else parse_time(given.to, "filters.to")[0],
        tool_name=given.tool_name,
        metadata=given.metadata or {},
        entities=_entity_keys(given.entities or ()),
        data=cheapest_first([condition(one.path, one.op, one.value) for one in given.data or ()]),
    )


def entity_class(name: str | None) -> EntityClass | None:
    """Raises InvalidRequest for one that there is not."""
    if name is not None and name not in CLASSES:
        raise InvalidRequest(f"class: one of {', '.join(CLASSES)}")
    return name


def _entity_keys(names: Sequence[str]) -> frozenset[str]:
    """Raises InvalidRequest for what can be no name."""
    keys = {name: key_named(name) for name in names}
    if empty := [name for name, key in keys.items() if not key]:
        raise InvalidRequest(f"filters.entities: {empty[0]!r} names nothing")
    return frozenset(keys.values())


def receipt(text: str) -> Receipt:
    """Raises InvalidReceipt where the text is no receipt."""
    shard, _, seq = text.partition(":")
    if not (shard.isascii() and shard.isdigit() and seq.isascii() and seq.isdigit() and len(text) <= 40):
        raise InvalidReceipt("this is no receipt")
    return Receipt(int(shard), int(seq))


def require_edit(edit: EditTurnIn) -> None:
    """An edit changes something, and leaves no turn empty."""
    if edit.content is None and edit.metadata is None:
        raise InvalidRequest("an edit has a content or metadata")
    if edit.content == "" or len((edit.content or "").encode()) > CONTENT_BYTES_MAX:
        raise InvalidRequest(f"content: from 1 to {CONTENT_BYTES_MAX} bytes")
    _require_packable(edit.metadata, "metadata")
