"""What each route does: read the request, ask the memory, show the answer. No policy lives here."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np

from serve_app.api import asking, convert, showing
from serve_app.api.asking import seconds
from serve_app.api.auth import Principal
from serve_app.api.export import exported
from serve_app.api.http import LARGE_BODY_BYTES, NDJSON, BodyDecoder, Request, Response, json_response
from serve_app.api.ids import identifier, integer
from serve_app.api.schemas import (
    PAGE_ENTITIES_DEFAULT,
    PAGE_ENTITIES_MAX,
    PAGE_TURNS_MAX,
    AppendTurnsIn,
    CompressIn,
    ContextIn,
    EditTurnIn,
    EmbeddingsIn,
    ExpandIn,
    FactIn,
    RedactIn,
    RerankIn,
    SearchIn,
    TurnIn,
)
from serve_app.api.times import format_time, parse_time
from serve_app.core import Degradation, Owner
from serve_app.errors import NotSupported, StorageTrouble
from serve_app.memory.compressing import Compressing
from serve_app.memory.golden import GoldenSets
from serve_app.memory.memory import Memory
from serve_app.memory.operator import Operator
from serve_app.memory.timing import Stages
from serve_app.ports import Vectors
from serve_app.privacy.redact import redact
from serve_app.write.operations import NewTurn

S = TypeVar("S")
T = TypeVar("T")

_append = BodyDecoder(AppendTurnsIn)
_edit = BodyDecoder(EditTurnIn)
_search = BodyDecoder(SearchIn)
_expand = BodyDecoder(ExpandIn)
_context = BodyDecoder(ContextIn)
_compress = BodyDecoder(CompressIn)
_fact = BodyDecoder(FactIn)
_redact = BodyDecoder(RedactIn)
_rerank = BodyDecoder(RerankIn)
_embeddings = BodyDecoder(EmbeddingsIn)

FOUND_SHOWN_AT_ONCE = 100
"""More results of a search are written out on a thread."""

REDACTED_AT_ONCE_BYTES = 8 << 10
"""A longer text is redacted on a thread."""

VECTORS_SHOWN_AT_ONCE = 8
"""More vectors are written out on a thread."""

PAGE_TURNS_DEFAULT = 100


class Routes:
    """The handlers. Each takes the principal and the request, and gives a response or raises."""

    def __init__(self, memory: Memory, compressing: Compressing, operator: Operator, golden: GoldenSets) -> None:
        self._memory = memory
        self._compressing = compressing
        self._golden = golden
        self._operator = operator

    # ---- turns and sessions

    async def append_turns(self, who: Principal, request: Request) -> Response:
        body = await _append(request.body)
        owner = _owner(who, body.user_id)
        turns = await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, _new_turns, body.turns)
        session = identifier(request.path[0], "session_id")
        answer = await self._memory.append(owner, session, turns, body.wait == "indexed", seconds(body.deadline_ms))
        shown: dict[str, Any] = {
            "session_id": session,
            "receipt": str(answer.receipt),
            "results": [msgspec.to_builtins(result) for result in answer.results],
        }
        if answer.indexed is not None:
            shown["index_state"] = "indexed" if answer.indexed else "pending"
        return json_response(shown, 202 if answer.indexed is False else 201)

    async def list_turns(self, who: Principal, request: Request) -> Response:
        owner = _owner(who, request.query.get("user_id"))
        limit = integer(request.query, "limit", PAGE_TURNS_DEFAULT, 1, PAGE_TURNS_MAX)
        after = integer(request.query, "after_seq", -1, -1, 2**62)
        page = await self._memory.page(owner, identifier(request.path[0], "session_id"), after, limit)
        turns = [showing.shown_turn(turn) for turn in page.turns]
        return json_response({"turns": turns, "next_after_seq": page.next_after_seq})

    async def list_sessions(self, who: Principal, request: Request) -> Response:
        lines = await self._memory.sessions(_owner(who, request.query.get("user_id")))
        shown = [{"session_id": one.session, "turns": one.turns, "last_at": format_time(one.last_at)} for one in lines]
        return json_response({"sessions": shown})

    async def delete_session(self, who: Principal, request: Request) -> Response:
        owner = _owner(who, request.query.get("user_id"))
        deleted, receipt = await self._memory.delete_session(owner, identifier(request.path[0], "session_id"))
        return json_response({"deleted": deleted, "receipt": str(receipt)})

    async def get_turn(self, who: Principal, request: Request) -> Response:
        owner, session, turn_id = _turn_address(who, request)
        return json_response(showing.shown_turn(await self._memory.turn(owner, session, turn_id)))

    async def edit_turn(self, who: Principal, request: Request) -> Response:
        owner, session, turn_id = _turn_address(who, request)
        body = await _edit(request.body)
        convert.require_edit(body)
        turn, receipt = await self._memory.edit(owner, session, turn_id, body.content, body.metadata)
        return json_response(showing.edited_turn(turn, receipt))

    async def delete_turn(self, who: Principal, request: Request) -> Response:
        deleted, receipt = await self._memory.delete_turn(*_turn_address(who, request))
        return json_response({"deleted": deleted, "receipt": str(receipt)})

    # ---- context and search

    async def context(self, who: Principal, request: Request) -> Response:
        body = await _context(request.body)
        owner = _owner(who, body.user_id)
        asked = await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, asking.context_request, body)
        stages = _begun(request)
        answer = await self._memory.context(owner, asked, stages)
        shown = showing.shown_context(answer.context, answer.found if body.explain else ())
        as_of = asking.moment_text(answer.as_of, answer.revision, answer.epoch)
        shown |= {"as_of": as_of, "receipt": str(answer.as_of), "now": body.now or format_time(answer.now)}
        shown["layout"] = showing.shown_choice(answer.layout, answer.revision, answer.query_type)
        if answer.explained is not None:
            shown["explain"] = showing.shown_explained(answer.explained)
        return json_response(shown | {"tokenizer": answer.tokenizer, "timings_ms": stages.finish()})

    async def search(self, who: Principal, request: Request) -> Response:
        body = await _search(request.body)
        owner = _owner(who, body.user_id)
        asked = await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, asking.search_request, body)
        stages = _begun(request)
        answer = await self._memory.search(owner, asked, stages)
        many = len(answer.found) > FOUND_SHOWN_AT_ONCE
        results = await _off_the_loop_if(many, partial(showing.shown_results, explain=body.explain), answer.found)
        stages.mark("render")
        shown = {
            "results": results,
            "query": showing.shown_query(answer.rewritten, answer.keywords, answer.window),
            "degradation": answer.degradation,
            "receipt": str(answer.receipt),
        }
        if answer.explained is not None:
            shown["explain"] = showing.shown_explained(answer.explained)
        search_id = self._golden.searches.note(owner, answer.rewritten, asked.now, answer.drawn_from)
        if search_id is not None:
            shown["search_id"] = search_id
        return json_response(shown | {"timings_ms": stages.finish()})

    async def expand(self, who: Principal, request: Request) -> Response:
        """Stateless: what search would make of a query."""
        body = await _expand(request.body)
        asked = await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, asking.expand_request, body)
        found, reasons = await self._memory.expand(who.tenant, asked)
        shown = showing.shown_query(found.query, found.keywords, found.window)
        return json_response(shown | {"degradation": Degradation("full", reasons)})

    # ---- facts and summaries

    async def put_fact(self, who: Principal, request: Request) -> Response:
        owner, key = _owner(who, request.path[0]), identifier(request.path[1], "key")
        body = await _fact(request.body)
        life = body.ttl_seconds, convert.expiry(body)
        fact, receipt = await self._memory.put_fact(owner, key, body.value, body.entity_class, *life)
        return json_response(showing.shown_fact(fact) | {"receipt": str(receipt)})

    async def get_fact(self, who: Principal, request: Request) -> Response:
        owner, key = _owner(who, request.path[0]), identifier(request.path[1], "key")
        return json_response(showing.shown_fact(await self._memory.fact(owner, key)))

    async def list_facts(self, who: Principal, request: Request) -> Response:
        facts = await self._memory.facts(_owner(who, request.path[0]))
        return json_response({"facts": [showing.shown_fact(fact) for fact in facts]})

    async def list_entities(self, who: Principal, request: Request) -> Response:
        """What the user's turns name, the most often named first, a page at a time."""
        owner, asked = _owner(who, request.path[0]), request.query
        limit = integer(asked, "limit", PAGE_ENTITIES_DEFAULT, 1, PAGE_ENTITIES_MAX)
        kind = convert.entity_class(asked.get("class"))
        page = await self._memory.entities(owner, kind, asked.get("prefix") or "", asked.get("after"), limit)
        lives = {kind: self._memory.life_of(who.tenant, kind) for kind in {line.kind for line in page.lines}}
        lines = [showing.shown_entity(line, *lives[line.kind]) for line in page.lines]
        return json_response({"entities": lines} | ({"next": page.next} if page.next else {}))

    async def delete_fact(self, who: Principal, request: Request) -> Response:
        owner, key = _owner(who, request.path[0]), identifier(request.path[1], "key")
        deleted, receipt = await self._memory.delete_fact(owner, key)
        return json_response({"deleted": deleted, "receipt": str(receipt)})

    async def get_summary(self, who: Principal, request: Request) -> Response:
        owner = _owner(who, request.query.get("user_id"))
        summary = await self._memory.summary(owner, identifier(request.path[0], "session_id"))
        return json_response(showing.shown_summary(summary))

    async def refresh_summary(self, who: Principal, request: Request) -> Response:
        owner = _owner(who, request.query.get("user_id"))
        session = identifier(request.path[0], "session_id")
        made = await self._memory.refresh_summary(owner, session)
        summary = made or await self._memory.summary(owner, session)
        return json_response(showing.shown_summary(summary) | {"receipt": str(self._memory.receipt(owner))})

    async def compress(self, who: Principal, request: Request) -> Response:
        """Stateless: a summary of the turns in the body."""
        body = await _compress(request.body)
        turns = await _off_the_loop_if(len(request.body) > LARGE_BODY_BYTES, convert.compressed_turns, body)
        now = None if body.now is None else parse_time(body.now, "now")[0]
        made = await self._compressing.of(who.tenant, turns, body.target_tokens, now, body.tokenizer)
        return json_response(showing.shown_compressed(made))

    # ---- users

    async def export(self, who: Principal, request: Request) -> Response:
        """Everything held about a user, one JSON object a line."""
        return Response(200, b"", NDJSON, pieces=exported(self._memory, self._golden, _owner(who, request.path[0])))

    async def erase_user(self, who: Principal, request: Request) -> Response:
        erasure, receipt = await self._memory.erase(_owner(who, request.path[0]))
        self._operator.nudge()
        return json_response({"erasure_id": erasure.id, "receipt": str(receipt)}, 202)

    async def get_erasure(self, who: Principal, request: Request) -> Response:
        erasure, shard = self._memory.erasure(who.tenant, who.user, request.path[0])
        backups: Sequence[tuple[str, int]] | None = None
        with suppress(StorageTrouble):  # nobody can say then which there are; the receipt says the rest
            backups = await asyncio.to_thread(self._operator.backups_holding, erasure.completed_at)
        return json_response(showing.shown_erasure(erasure, self._operator.stuck(shard), backups))

    # ---- texts and models

    async def redact(self, who: Principal, request: Request) -> Response:
        """Stateless: what a policy would take out of this text, and where that stands in it, in code points."""
        body = await _redact(request.body)
        large = len(request.body) > REDACTED_AT_ONCE_BYTES
        clean = await _off_the_loop_if(large, partial(redact, level=body.policy), body.text)
        return json_response({"text": clean.text, "spans": [span._asdict() for span in clean.spans]})

    async def embeddings(self, who: Principal, request: Request) -> Response:
        body = await _embeddings(request.body)
        version = self._memory.encoder.version(body.model)
        if body.dimensions not in (None, version.dimension):
            raise NotSupported(f"dimensions: this version has {version.dimension}")
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors, tokens = await self._memory.encoder.passages(texts, version)
        many = len(texts) > VECTORS_SHOWN_AT_ONCE
        rows = await _off_the_loop_if(many, partial(_embedding_rows, encoding=body.encoding_format), vectors)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json_response({"object": "list", "model": version.name, "data": rows, "usage": usage})

    async def rerank(self, who: Principal, request: Request) -> Response:
        """Stateless: documents of the caller's in order for a query, best first, and of equal ones as they came."""
        body = await _rerank(request.body)
        texts = convert.documents(body)
        found = await self._memory.relevance.of(body.query, texts, body.model)
        return json_response(showing.shown_relevances(found, texts if body.return_documents else None, body.top_n))


def _begun(request: Request) -> Stages:
    """The stages of a request whose body is read and understood."""
    stages = Stages(request.started)
    stages.mark("receive")
    return stages


def _embedding_rows(vectors: Vectors, encoding: str) -> list[msgspec.Raw]:
    """Each row encoded by itself: as one call the whole would hold every other thread up."""
    rows = (
        {"object": "embedding", "index": index, "embedding": _encoded(vector, encoding)}
        for index, vector in enumerate(vectors)
    )
    return [msgspec.Raw(msgspec.json.encode(row)) for row in rows]


def _encoded(vector: np.ndarray[Any, Any], encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


def _new_turns(turns: Sequence[TurnIn]) -> list[NewTurn]:
    return [convert.new_turn(turn, f"turns[{index}]") for index, turn in enumerate(turns)]


async def _off_the_loop_if(large: bool, read: Callable[[S], T], body: S) -> T:
    """Checking a large body takes long enough to hold up everybody else."""
    return await asyncio.to_thread(read, body) if large else read(body)


def _owner(who: Principal, user: str | None) -> Owner:
    """Whose memory this request may touch: the key's tenant, and a user that the key allows."""
    owner = Owner(who.tenant, identifier(user, "user_id"))
    who.require_user(owner.user)
    return owner


def _turn_address(who: Principal, request: Request) -> tuple[Owner, str, str]:
    owner = _owner(who, request.query.get("user_id"))
    session = identifier(request.query.get("session_id"), "session_id")
    return owner, session, identifier(request.path[0], "turn_id")
