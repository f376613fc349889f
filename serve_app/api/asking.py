"""What a body asks of the memory: its fields checked against each other and turned into a request. Pure."""

from __future__ import annotations

import re

import msgspec

from serve_app.api import convert
from serve_app.api.schemas import ContextIn, ExpandIn, SearchIn, TurnIn
from serve_app.api.times import parse_time, require_zone
from serve_app.core import Receipt, Turn
from serve_app.errors import InvalidRequest
from serve_app.memory.requests import Asked, AsOf, ContextRequest, ExpandRequest, LayoutWish, SearchRequest

UNTIMED = 0
"""When a turn of a context's history was said that comes without a time: the memory gives it one."""

_REVISION = re.compile("([0-9]{1,9})(?:~([0-9]{1,9}))?")


def context_request(body: ContextIn) -> ContextRequest:
    """Raises InvalidRequest where fields exclude each other or do not parse."""
    if body.session_id is not None and body.history is not None:
        raise InvalidRequest("session_id and history exclude each other")
    if body.scope == "session" and body.session_id is None and body.history is None:
        raise InvalidRequest("scope: a session needs a session_id")
    now, offset = (None, 0) if body.now is None else parse_time(body.now, "now")
    history = None if body.history is None else _conversation(body.history)
    return ContextRequest(
        query=body.query,
        budget_tokens=body.budget_tokens,
        session=body.session_id,
        history=history,
        system=body.system,
        notes=tuple(body.facts or ()),
        layout=LayoutWish(body.layout, body.model, body.user_tier, body.query_type),
        whole_user=body.scope == "user",
        format=body.format,
        tokenizer=body.tokenizer,
        now=now,
        asked=Asked(offset),
        as_of=moment(body.as_of),
        min_receipt=None if body.min_receipt is None else convert.receipt(body.min_receipt),
        deadline_s=seconds(body.deadline_ms),
        explain=body.explain,
    )


def search_request(body: SearchIn) -> SearchRequest:
    zone = require_zone(body.tz)
    if not body.query.strip() and body.filters is None and body.session_id is None:
        raise InvalidRequest("query: without a query there must be filters")
    now, offset = (None, 0) if body.now is None else parse_time(body.now, "now")
    return SearchRequest(
        query=body.query,
        k=body.k,
        mode=body.mode,
        now=now,
        filters=convert.filters(body.filters, body.session_id),
        tiers=frozenset(body.tiers or ("hot", "warm")),
        history=_history(body.history, now or 0),
        asked=Asked(offset, zone),
        min_receipt=None if body.min_receipt is None else convert.receipt(body.min_receipt),
        deadline_s=seconds(body.deadline_ms),
        rerank=body.rerank,
        explain=body.explain,
    )


def expand_request(body: ExpandIn) -> ExpandRequest:
    zone = require_zone(body.tz)
    if not body.query.strip():
        raise InvalidRequest("query: it is empty")
    now, offset = parse_time(body.now, "now")
    return ExpandRequest(body.query, now, Asked(offset, zone, body.locale), _history(body.history, now))


def _conversation(given: list[TurnIn]) -> tuple[Turn, ...]:
    """Raises InvalidRequest where two turns have one id: a context shows each turn once, and names it by its id."""
    turns = tuple(convert.passing_turn(turn, f"history[{index}]", index, UNTIMED) for index, turn in enumerate(given))
    known: dict[str, Turn] = {}
    for turn in turns:
        first = known.setdefault(turn.id, turn)
        if msgspec.structs.replace(first, seq=turn.seq, rev=turn.rev) != turn:
            here, there = turn.seq - 1, first.seq - 1
            raise InvalidRequest(f"history[{here}].id: history[{there}] has this id, too, and says something else")
    return turns


def _history(turns: list[TurnIn] | None, now: int) -> tuple[Turn, ...]:
    return tuple(convert.passing_turn(turn, f"history[{index}]", index, now) for index, turn in enumerate(turns or ()))


def moment(given: str | int | None) -> AsOf:
    """A seq, a receipt or a time; behind an `@` the revision of the layouts, behind a `~` there the epoch that served.

    Raises InvalidRequest.
    """
    if given is None:
        return AsOf()
    if isinstance(given, int):
        return AsOf(seq=given)
    state, at, revision = given.partition("@")
    read = _REVISION.fullmatch(revision) if at else None
    if at and read is None:
        raise InvalidRequest("as_of: behind the @ stands the revision of the layouts, a whole number")
    number, epoch = (None if read is None or read[part] is None else int(read[part]) for part in (1, 2))
    if "T" in state.upper():
        return AsOf(time=parse_time(state, "as_of")[0], revision=number, epoch=epoch)
    if ":" not in state:
        return AsOf(seq=convert.receipt(f"0:{state}").seq, revision=number, epoch=epoch)
    receipt = convert.receipt(state)
    return AsOf(seq=receipt.seq, shard=receipt.shard, revision=number, epoch=epoch)


def moment_text(as_of: Receipt, revision: int, epoch: int | None = None) -> str:
    """What `moment` reads. Where layouts were never tuned and the seq tells what served, that is a plain receipt."""
    if epoch is not None:
        return f"{as_of}@{revision}~{epoch}"
    return f"{as_of}@{revision}" if revision else str(as_of)


def seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
