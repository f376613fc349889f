"""Between the API's words and the core's: turns in and out, facts, summaries, receipts. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from serve_app.api.schemas import CONTENT_BYTES_MAX, EditTurnIn, FactIn, FiltersIn, TurnIn
from serve_app.api.times import parse_time
from serve_app.core import Receipt, ToolCall, Turn
from serve_app.errors import InvalidReceipt, InvalidRequest, NotSupported
from serve_app.retrieve.filters import Filters, same
from serve_app.write.operations import NewTurn


def new_turn(turn: TurnIn, place: str) -> NewTurn:
    """Raises InvalidRequest that names `place`, NotSupported for fields of features that are not built yet."""
    if turn.field_ttl:
        raise NotSupported(f"{place}.field_ttl: times to live of single fields are not supported yet")
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
    )


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
    created_at = now if new.created_at is None else new.created_at
    return Turn(
        id=new.id or f"history-{index}",
        session="",
        role=new.role,
        content=new.content,
        seq=index + 1,
        rev=index + 1,
        arrived_at=created_at,
        created_at=created_at,
        offset_minutes=new.offset_minutes,
        speaker=new.speaker,
        tool_calls=new.tool_calls,
        tool_call_id=new.tool_call_id,
        tool_name=new.tool_name,
        data=new.data,
        metadata=new.metadata,
    )


def expiry(fact: FactIn) -> int | UnsetType | None:
    """When a fact ends, None for never, where the caller says so. Raises InvalidRequest."""
    if fact.expires_at is UNSET or fact.expires_at is None:
        return fact.expires_at
    if fact.ttl_seconds is not None:
        raise InvalidRequest("a fact has ttl_seconds or expires_at, not both")
    return parse_time(fact.expires_at, "expires_at")[0]


def filters(given: FiltersIn | None, session: str | None) -> Filters:
    """Raises InvalidRequest for times without offset, NotSupported for filters that are not built yet."""
    if given is None:
        return Filters(session=session)
    if given.data:
        raise NotSupported("filters.data: filters by values inside data are not supported yet")
    if given.entities:
        raise NotSupported("filters.entities: entities are not supported yet")
    return Filters(
        session=session,
        roles=frozenset(given.roles or ()),
        kinds=frozenset(given.kinds or ("turn",)),
        start=None if given.from_ is None else parse_time(given.from_, "filters.from")[0],
        end=None if given.to is None else parse_time(given.to, "filters.to")[0],
        tool_name=given.tool_name,
        metadata=given.metadata or {},
    )


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
