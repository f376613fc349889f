"""What each route does: read the request, ask the memory, show the answer. No policy lives here."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from serve_app.api import convert
from serve_app.api.auth import KeyFile, Principal
from serve_app.api.http import NDJSON, BodyDecoder, Request, Response, json_response
from serve_app.api.schemas import (
    ID_CHARACTERS_MAX,
    PAGE_TURNS_MAX,
    AppendTurnsIn,
    ContextIn,
    EditTurnIn,
    EmbeddingsIn,
    FactIn,
    KeyIn,
    MaintenanceIn,
    SearchIn,
)
from serve_app.api.times import format_time, parse_time
from serve_app.context.window import Context
from serve_app.core import Owner
from serve_app.errors import Forbidden, InvalidRequest, NotSupported
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator
from serve_app.memory.requests import ContextRequest, SearchRequest
from serve_app.models.batching import EmbedService
from serve_app.ports import Embedder
from serve_app.retrieve.search import Found

_append = BodyDecoder(AppendTurnsIn)
_edit = BodyDecoder(EditTurnIn)
_search = BodyDecoder(SearchIn)
_context = BodyDecoder(ContextIn)
_fact = BodyDecoder(FactIn)
_embeddings = BodyDecoder(EmbeddingsIn)
_key = BodyDecoder(KeyIn)
_maintenance = BodyDecoder(MaintenanceIn)

EXPORT_PAGE_TURNS = 500
PAGE_TURNS_DEFAULT = 100


class Routes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(
        self, memory: Memory, operator: Operator, keys: KeyFile, encoder: EmbedService, embedder: Embedder
    ) -> None:
        self._memory = memory
        self._operator = operator
        self._keys = keys
        self._encoder = encoder
        self._embedder = embedder

    # ---- turns and sessions

    async def append_turns(self, who: Principal, request: Request) -> Response:
        body: AppendTurnsIn = _append(request.body)
        owner = _owner(who, body.user_id)
        turns = [convert.new_turn(turn, f"turns[{index}]") for index, turn in enumerate(body.turns)]
        session = _identifier(request.path[0], "session_id")
        answer = await self._memory.append(owner, session, turns, body.wait == "indexed", _seconds(body.deadline_ms))
        shown: dict[str, Any] = {
            "session_id": session,
            "receipt": str(answer.receipt),
            "results": [msgspec.to_builtins(result) for result in answer.results],
        }
        if answer.indexed is not None:
            shown["index_state"] = "indexed" if answer.indexed else "pending"
        return json_response(shown, 202 if answer.indexed is False else 201)

    async def list_turns(self, who: Principal, request: Request) -> Response:
        query = _parameters(request, "user_id", "limit", "after_seq")
        owner = _owner(who, query.get("user_id"))
        limit = _integer(query, "limit", PAGE_TURNS_DEFAULT, 1, PAGE_TURNS_MAX)
        after = _integer(query, "after_seq", -1, -1, 2**62)
        page = await self._memory.page(owner, _identifier(request.path[0], "session_id"), after, limit)
        turns = [convert.shown_turn(turn) for turn in page.turns]
        return json_response({"turns": turns, "next_after_seq": page.next_after_seq})

    async def list_sessions(self, who: Principal, request: Request) -> Response:
        query = _parameters(request, "user_id")
        lines = await self._memory.sessions(_owner(who, query.get("user_id")))
        shown = [{"session_id": one.session, "turns": one.turns, "last_at": format_time(one.last_at)} for one in lines]
        return json_response({"sessions": shown})

    async def delete_session(self, who: Principal, request: Request) -> Response:
        query = _parameters(request, "user_id")
        owner = _owner(who, query.get("user_id"))
        deleted, receipt = await self._memory.delete_session(owner, _identifier(request.path[0], "session_id"))
        return json_response({"deleted": deleted, "receipt": str(receipt)})

    async def get_turn(self, who: Principal, request: Request) -> Response:
        owner, session, turn_id = _turn_address(who, request)
        return json_response(convert.shown_turn(await self._memory.turn(owner, session, turn_id)))

    async def edit_turn(self, who: Principal, request: Request) -> Response:
        owner, session, turn_id = _turn_address(who, request)
        body: EditTurnIn = _edit(request.body)
        convert.require_edit(body)
        turn, receipt = await self._memory.edit(owner, session, turn_id, body.content, body.metadata)
        return json_response(convert.shown_turn(turn) | {"receipt": str(receipt)})

    async def delete_turn(self, who: Principal, request: Request) -> Response:
        deleted, receipt = await self._memory.delete_turn(*_turn_address(who, request))
        return json_response({"deleted": deleted, "receipt": str(receipt)})

    # ---- context and search

    async def context(self, who: Principal, request: Request) -> Response:
        body: ContextIn = _context(request.body)
        owner = _owner(who, body.user_id)
        answer = await self._memory.context(owner, context_request(body), body.layout)
        shown = _shown_context(answer.context)
        receipt = str(answer.as_of)
        shown |= {"as_of": receipt, "receipt": receipt, "now": body.now or format_time(answer.now)}
        return json_response(shown | {"tokenizer": answer.tokenizer, "timings_ms": answer.timings_ms})

    async def search(self, who: Principal, request: Request) -> Response:
        body: SearchIn = _search(request.body)
        owner = _owner(who, body.user_id)
        answer = await self._memory.search(owner, search_request(body))
        return json_response(
            {
                "results": [_shown_found(found, body.explain) for found in answer.found],
                "query": {"rewritten": answer.rewritten, "keywords": answer.keywords, "time_window": None},
                "degradation": answer.degradation,
                "receipt": str(answer.receipt),
                "timings_ms": answer.timings_ms,
            }
        )

    # ---- facts and summaries

    async def put_fact(self, who: Principal, request: Request) -> Response:
        owner, key = _owner(who, request.path[0]), _identifier(request.path[1], "key")
        body: FactIn = _fact(request.body)
        fact, receipt = await self._memory.put_fact(owner, key, body.value, body.entity_class, body.ttl_seconds)
        return json_response(convert.shown_fact(fact) | {"receipt": str(receipt)})

    async def get_fact(self, who: Principal, request: Request) -> Response:
        owner, key = _owner(who, request.path[0]), _identifier(request.path[1], "key")
        return json_response(convert.shown_fact(await self._memory.fact(owner, key)))

    async def list_facts(self, who: Principal, request: Request) -> Response:
        facts = await self._memory.facts(_owner(who, request.path[0]))
        return json_response({"facts": [convert.shown_fact(fact) for fact in facts]})

    async def delete_fact(self, who: Principal, request: Request) -> Response:
        owner, key = _owner(who, request.path[0]), _identifier(request.path[1], "key")
        deleted, receipt = await self._memory.delete_fact(owner, key)
        return json_response({"deleted": deleted, "receipt": str(receipt)})

    async def get_summary(self, who: Principal, request: Request) -> Response:
        owner = _owner(who, _parameters(request, "user_id").get("user_id"))
        summary = await self._memory.summary(owner, _identifier(request.path[0], "session_id"))
        return json_response(convert.shown_summary(summary))

    async def refresh_summary(self, who: Principal, request: Request) -> Response:
        owner = _owner(who, _parameters(request, "user_id").get("user_id"))
        session = _identifier(request.path[0], "session_id")
        made = await self._memory.refresh_summary(owner, session)
        summary = made or await self._memory.summary(owner, session)
        return json_response(convert.shown_summary(summary))

    # ---- users

    async def export(self, who: Principal, request: Request) -> Response:
        """Every turn and fact of a user, one JSON object a line."""
        owner = _owner(who, request.path[0])
        lines: list[dict[str, Any]] = []
        for session in await self._memory.sessions(owner):
            after: int | None = -1
            while after is not None:
                page = await self._memory.page(owner, session.session, after, EXPORT_PAGE_TURNS)
                lines += [{"kind": "turn", "user_id": owner.user} | convert.shown_turn(turn) for turn in page.turns]
                after = page.next_after_seq
        facts = await self._memory.facts(owner)
        lines += [{"kind": "fact", "user_id": owner.user} | convert.shown_fact(fact) for fact in facts]
        return Response(200, b"".join(msgspec.json.encode(line) + b"\n" for line in lines), NDJSON)

    async def erase_user(self, who: Principal, request: Request) -> Response:
        erasure = await self._memory.erase(_owner(who, request.path[0]))
        self._operator.nudge()
        return json_response({"erasure_id": erasure.id}, 202)

    async def get_erasure(self, who: Principal, request: Request) -> Response:
        erasure = self._memory.erasure(who.tenant, request.path[0])
        done = None if erasure.completed_at is None else format_time(erasure.completed_at)
        requested = format_time(erasure.requested_at)
        shown = {"erasure_id": erasure.id, "state": erasure.state, "counts": erasure.counts}
        return json_response(shown | {"requested_at": requested, "completed_at": done})

    # ---- models

    async def embeddings(self, who: Principal, request: Request) -> Response:
        body: EmbeddingsIn = _embeddings(request.body)
        version = self._embedder.version
        if body.model not in (None, version.name, version.model):
            raise InvalidRequest(f"model: the active version is {version.name!r}")
        if body.dimensions not in (None, version.dimension):
            raise NotSupported(f"dimensions: this version has {version.dimension}")
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = await asyncio.wrap_future(self._encoder.passages(texts))
        tokens = await self._operator.count_tokens(texts)
        rows = [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json_response({"object": "list", "model": version.name, "data": rows, "usage": usage})

    # ---- operations

    async def stats(self, who: Principal, request: Request) -> Response:
        return json_response({"shards": await self._operator.stats(), "version": self._embedder.version.name})

    async def maintain(self, who: Principal, request: Request) -> Response:
        body: MaintenanceIn = _maintenance(request.body)
        if body.action not in ("fold", "compact"):
            raise NotSupported(f"action: {body.action!r} is not supported yet")
        done = await self._operator.maintain(body.action, body.shard)
        return json_response({"action": body.action, "shards": done})

    async def create_key(self, who: Principal, request: Request) -> Response:
        body: KeyIn = _key(request.body)
        tenant = body.tenant or who.tenant
        if who.role != "operator" and (tenant != who.tenant or body.role == "operator"):
            raise Forbidden("an admin makes keys of its own tenant, and no operator keys")
        key_id, key = await asyncio.to_thread(self._keys.create, tenant=tenant, role=body.role, user=body.user_id)
        return json_response({"key_id": key_id, "key": key, "tenant": tenant, "role": body.role}, 201)

    async def list_keys(self, who: Principal, request: Request) -> Response:
        records = self._keys.records(None if who.role == "operator" else who.tenant)
        shown = [{"key_id": one.key_id, "tenant": one.tenant, "role": one.role, "user_id": one.user} for one in records]
        return json_response({"keys": shown})

    async def delete_key(self, who: Principal, request: Request) -> Response:
        tenant = None if who.role == "operator" else who.tenant
        await asyncio.to_thread(self._keys.revoke, request.path[0], tenant)
        return json_response({"deleted": 1})


def context_request(body: ContextIn) -> ContextRequest:
    """Raises InvalidRequest where fields exclude each other or do not parse."""
    if body.session_id is not None and body.history is not None:
        raise InvalidRequest("session_id and history exclude each other")
    if body.scope == "session" and body.session_id is None and body.history is None:
        raise InvalidRequest("scope: a session needs a session_id")
    now = None if body.now is None else parse_time(body.now, "now")[0]
    as_of_seq, as_of_time = _as_of(body.as_of)
    history = None
    if body.history is not None:
        history = tuple(
            convert.passing_turn(turn, f"history[{index}]", index, now or 0) for index, turn in enumerate(body.history)
        )
    return ContextRequest(
        query=body.query,
        budget_tokens=body.budget_tokens,
        session=body.session_id,
        history=history,
        system=body.system,
        notes=tuple(body.facts or ()),
        whole_user=body.scope == "user",
        format=body.format,
        tokenizer=body.tokenizer,
        now=now,
        as_of_seq=as_of_seq,
        as_of_time=as_of_time,
        min_receipt=None if body.min_receipt is None else convert.receipt(body.min_receipt),
        deadline_s=_seconds(body.deadline_ms),
    )


def search_request(body: SearchIn) -> SearchRequest:
    if not body.query.strip() and body.filters is None and body.session_id is None:
        raise InvalidRequest("query: without a query there must be filters")
    now = None if body.now is None else parse_time(body.now, "now")[0]
    if body.filters is not None and body.filters.kinds not in (None, ["turn"]):
        raise NotSupported("filters.kinds: only turns can be searched yet")
    history = tuple(
        convert.passing_turn(turn, f"history[{index}]", index, now or 0)
        for index, turn in enumerate(body.history or ())
    )
    return SearchRequest(
        query=body.query,
        k=body.k,
        mode=body.mode,
        now=now,
        filters=convert.filters(body.filters, body.session_id),
        tiers=frozenset(body.tiers or ("hot", "warm")),
        history=history,
        min_receipt=None if body.min_receipt is None else convert.receipt(body.min_receipt),
        deadline_s=_seconds(body.deadline_ms),
    )


def _as_of(given: str | int | None) -> tuple[int | None, int | None]:
    """(seq, None) or (None, time)."""
    if given is None:
        return None, None
    if isinstance(given, int):
        return given, None
    if "T" in given.upper():
        return None, parse_time(given, "as_of")[0]
    return convert.receipt(given).seq if ":" in given else convert.receipt(f"0:{given}").seq, None


def _shown_context(context: Context) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "context_id": context.context_id,
        "messages": context.messages,
        "zones": context.zones,
        "total_tokens": context.total_tokens,
        "budget_tokens": context.budget_tokens,
        "stable_prefix_tokens": context.stable_prefix_tokens,
        "dropped": context.dropped,
        "retrieved": [
            msgspec.to_builtins(one) | {"created_at": format_time(one.created_at)} for one in context.retrieved
        ],
        "summary": None if context.summary is None else convert.shown_summary(context.summary),
        "degradation": context.degradation,
    }
    if context.system is not None:
        shown["system"] = context.system
    if context.text is not None:
        shown["text"] = context.text
    return shown


def _shown_found(found: Found, explain: bool) -> dict[str, Any]:
    shown = convert.shown_turn(found.turn)
    parts = found.parts if explain else {arm: part for arm, part in found.parts.items() if part}
    scores = {arm: round(part, 4) for arm, part in parts.items()}
    return shown | {"kind": "turn", "score": round(found.score, 4), "scores": scores, "tier": found.tier}


def _encoded(vector: np.ndarray[Any, Any], encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(number) for number in vector]


def _owner(who: Principal, user: str | None) -> Owner:
    """Whose memory this request may touch: the key's tenant, and a user that the key allows."""
    owner = Owner(who.tenant, _identifier(user, "user_id"))
    who.require_user(owner.user)
    return owner


def _turn_address(who: Principal, request: Request) -> tuple[Owner, str, str]:
    query = _parameters(request, "user_id", "session_id")
    owner = _owner(who, query.get("user_id"))
    session = _identifier(query.get("session_id"), "session_id")
    return owner, session, _identifier(request.path[0], "turn_id")


def _identifier(text: str | None, name: str) -> str:
    if text is None:
        raise InvalidRequest(f"{name} is missing")
    if not 1 <= len(text) <= ID_CHARACTERS_MAX or any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in text):
        raise InvalidRequest(f"{name}: an id has 1-{ID_CHARACTERS_MAX} characters, none a control character")
    return text


def _parameters(request: Request, *known: str) -> Mapping[str, str]:
    unknown = set(request.query) - set(known)
    if unknown:
        raise InvalidRequest(f"unknown query parameter: {sorted(unknown)[0][:64]}")
    return request.query


def _integer(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError as error:
        raise InvalidRequest(f"{name}: a whole number is needed") from error
    if not least <= value <= most:
        raise InvalidRequest(f"{name}: from {least} to {most}")
    return value


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
