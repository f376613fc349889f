"""The memory of all owners, as the API sees it: append, read, search, build a context, forget.

Each method reads as the algorithm. Waiting is done on the event loop; what blocks, or computes for
more than about a millisecond, runs in a bounded pool. A fault of a read path becomes a smaller answer
that says so, as long as anything can still be given; writes are durable or refused.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from serve_app.context.tokens import tokenizer_of
from serve_app.core import Degradation, Fact, Owner, Receipt, Summary, Turn
from serve_app.entities.values import EntityClass
from serve_app.errors import (
    InvalidReceipt,
    NotFound,
    ReceiptNotReached,
    StorageTrouble,
    StoreLate,
)
from serve_app.layouts import Layouts
from serve_app.memory import entities, reading
from serve_app.memory.assembly import Answered, Moment, Packing, Retrieval, answer, smaller_answer
from serve_app.memory.deadlines import Plan, Shares
from serve_app.memory.due import SummaryOptions
from serve_app.memory.encoding import Encoding
from serve_app.memory.entities import EntityPage
from serve_app.memory.expansion import (
    Resolved,
    Understanding,
    Understood,
    as_it_came,
    by_rules,
    goes_on,
    resolved,
    resolved_as_of,
    stands_alone,
)
from serve_app.memory.histories import Histories
from serve_app.memory.hot_shards import HotShards
from serve_app.memory.layouts import MOMENT_UNKNOWN, LayoutsThen, choose, layouts_then, needs_moment
from serve_app.memory.pools import Pools, Reads
from serve_app.memory.reading import SessionLine, SessionPage, living
from serve_app.memory.redacting import Redacting
from serve_app.memory.refresher import Refresher
from serve_app.memory.relevance import Relevance
from serve_app.memory.requests import (
    Appended,
    AsOf,
    ContextAnswer,
    ContextRequest,
    ExpandRequest,
    SearchAnswer,
    SearchRequest,
)
from serve_app.memory.retrievals import Retrievals
from serve_app.memory.searching import Size, found_at_hand, found_in, mode_of
from serve_app.memory.serving import Served, Serving
from serve_app.memory.timing import Stages
from serve_app.placement import shard_of
from serve_app.policies import Policies, TtlPolicy
from serve_app.ports import EncodedQuery, Tokenizer
from serve_app.records import Erasure
from serve_app.retrieve.found import Answer
from serve_app.retrieve.question import Question
from serve_app.retrieve.statements import Result
from serve_app.retrieve.work import Work
from serve_app.stores.block import TURNS_RESIDENT_MAX
from serve_app.stores.rows import pseudonym
from serve_app.write.commit import Operation, ShardWriter
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import DeleteFact, PutFact
from serve_app.write.indexer import Indexer
from serve_app.write.operations import AppendTurns, DeleteSession, DeleteTurn, EditTurn, NewTurn
from serve_app.write.redaction import repeats
from serve_app.write.shard import Shard
from serve_app.write.shown import Shown

T = TypeVar("T")
Positive = Annotated[float, Meta(gt=0, le=60)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]

POLL_S = 0.003
"""How often a read that waits for a receipt or for vectors looks again."""

THREADS_MAX = 256

TOKENS_A_RESULT = 80
"""Tokens of a context's budget that cost about as much as one result of a search."""

ONLY_COLD = frozenset({"cold"})


class MemoryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds and defaults of the service's own. Times in seconds."""

    turns_resident: Annotated[int, Meta(ge=1)] = 200_000
    owner_turns_resident: Annotated[int, Meta(ge=1)] = TURNS_RESIDENT_MAX
    threads: Annotated[int, Meta(ge=1, le=THREADS_MAX)] = 4
    store_threads: Annotated[int, Meta(ge=1, le=THREADS_MAX)] = 8
    tokenizer: str = "o200k_base"
    receipt_wait_s: Seconds = 2.0
    index_wait_s: Seconds = 30.0
    vector_wait_s: Seconds = 5.0
    deadline_s: Positive = 10.0
    """Of a search or context that names none."""
    write_wait_s: Positive = 10.0
    """For the log to take a write that names no deadline."""
    store_wait_s: Positive = 3.0
    """For what is only in the tables, where no smaller answer would do: a page, a write of a user not in memory."""
    rest_s: Positive = 2.0
    """A model or table that failed or hung again and again is left alone for so long, then one request tries it."""
    shares: Shares = Shares()
    summary: SummaryOptions = SummaryOptions()


class Memory:
    def __init__(
        self,
        writers: Sequence[ShardWriter],
        indexer: Indexer,
        refresher: Refresher,
        encoder: Encoding,
        tokenizers: Mapping[str, Tokenizer],
        pools: Pools,
        options: MemoryOptions,
        clock: Callable[[], int],
        serving: Serving,
        policies: Policies,
        user_turns: int | None,
        retrievals: Retrievals,
        understanding: Understanding,
        relevance: Relevance,
        layouts: Layouts,
        shown: Shown,
        hot_shards: HotShards | None = None,
    ) -> None:
        """`user_turns`: how many turns one user may hold; None: no bound. `shown`: by whoever follows the shards.
        `hot_shards`: asked beside what is here.
        """
        self._writers = writers
        self._indexer = indexer
        self._refresher = refresher
        self.encoder = encoder
        self.relevance = relevance
        self._tokenizers = tokenizers
        self._reads = Reads(pools, options.store_wait_s)
        self._options = options
        self._clock = clock
        self._serving = serving
        self._policies = policies
        self._user_turns = user_turns
        self._retrievals = retrievals
        self._understanding = understanding
        self._redacting = Redacting(policies, pools.memory)
        self._layouts = layouts
        self._shown = shown
        self._hot_shards = hot_shards
        self._histories = Histories()

    # ---- writes

    async def append(
        self, owner: Owner, session: str, turns: Sequence[NewTurn], wait_indexed: bool, deadline_s: float | None
    ) -> Appended:
        """Durable when it returns; with `wait_indexed` the vectors are in the hot tier too, or `indexed` is False."""
        self._indexer.admit(owner.key)
        writer = self._writer(owner)
        if any(turn.classed for turn in turns if turn.field_lives):
            policy = self._policies.of(owner.tenant, TtlPolicy)
            turns = [turn.with_lives(policy.life_of) for turn in turns]
        clean = await self._redacting.turns(owner.tenant, turns)
        again = partial(repeats, level=clean.level)
        append = AppendTurns(owner.key, session, clean.turns, again, self._user_turns)
        results, receipt = await self._write(writer, append, None if wait_indexed else deadline_s)
        if not wait_indexed:
            return Appended(receipt, results)
        seqs = [result.seq for result in results if result.seq is not None]
        limit = self._options.index_wait_s if deadline_s is None else deadline_s
        indexed = await _until(lambda: not self._lacks(writer.shard, owner, seqs), limit)
        return Appended(Receipt(receipt.shard, writer.shard.applied_seq), results, indexed)

    def _lacks(self, shard: Shard, owner: Owner, seqs: Sequence[int]) -> bool:
        """Whether vectors of these new turns are still to come that a search of the owner's asks for."""
        if shard.pending.lacks(seqs):
            return True
        apart = shard.apart
        if apart is None or apart.version not in self._serving.of(owner.key).routing.names:
            return False
        return apart.lacks(seqs)

    async def edit(
        self, owner: Owner, session: str, turn_id: str, content: str | None, metadata: dict[str, Any] | None
    ) -> tuple[Turn, Receipt]:
        content, metadata = await self._redacting.edit(owner.tenant, content, metadata)
        return await self._change(owner, EditTurn(owner.key, session, turn_id, content, metadata))

    async def delete_turn(self, owner: Owner, session: str, turn_id: str) -> tuple[int, Receipt]:
        return await self._delete(owner, DeleteTurn(owner.key, session, turn_id))

    async def delete_session(self, owner: Owner, session: str) -> tuple[int, Receipt]:
        return await self._change(owner, DeleteSession(owner.key, session))

    async def erase(self, owner: Owner) -> tuple[Erasure, Receipt]:
        """The user is gone for every reader when this returns; the files follow, see `erasure`."""
        return await self._change(owner, EraseUser(owner.key, owner.tenant))

    def erasure(self, tenant: str, user: str | None, erasure_id: str) -> tuple[Erasure, int]:
        """An erasure of this tenant, and its shard. With `user` only one of that user is found. Raises NotFound."""
        for writer in self._writers:
            found = writer.shard.erasures.get(erasure_id)
            if found is None or found.tenant != tenant:
                continue
            if user is None or found.subject == pseudonym(Owner(tenant, user).key):
                return found, writer.shard.number
        raise NotFound("no such erasure")

    async def put_fact(
        self,
        owner: Owner,
        key: str,
        value: str,
        entity_class: str | None,
        ttl_seconds: int | None,
        expires_at: int | UnsetType | None = UNSET,
    ) -> tuple[Fact, Receipt]:
        """A time to live of its own wins over that of its entity class; a class without one is kept as a label.

        `expires_at`, if set, is when it ends, None: never.
        """
        life_s = ttl_seconds or self._policies.of(owner.tenant, TtlPolicy).life_of(entity_class or "")
        value = self._redacting.fact(owner.tenant, key, value)
        return await self._change(owner, PutFact(owner.key, key, value, entity_class, life_s, expires_at))

    async def delete_fact(self, owner: Owner, key: str) -> tuple[int, Receipt]:
        return await self._delete(owner, DeleteFact(owner.key, key))

    async def refresh_summary(self, owner: Owner, session: str) -> Summary | None:
        return await self._reads.summary(self._refresher.refresh, self._writer(owner).shard, owner.key, session)

    def receipt(self, owner: Owner) -> Receipt:
        """Of the newest write that is shown of the owner's shard."""
        shard = self._writer(owner).shard
        return Receipt(shard.number, shard.applied_seq)

    # ---- plain reads

    async def page(self, owner: Owner, session: str, after_seq: int, limit: int) -> SessionPage:
        shard = self._writer(owner).shard
        return await self._asked(owner, reading.page, shard, owner.key, session, after_seq, limit, self._clock())

    async def all_turns(self, owner: Owner) -> AsyncGenerator[list[Turn], None]:
        """Every turn of an owner as of now, oldest first, a page at a time: a page holds no more than it must."""
        shard = self._writer(owner).shard
        seqs = await self._asked(owner, reading.seqs, shard, owner.key)
        place, size = 0, reading.PAGE_TURNS_FIRST
        while place < len(seqs):
            asked = seqs[place : place + size]
            turns = await self._asked(owner, reading.turns, shard, owner.key, asked, self._clock())
            place, size = place + size, reading.next_page(size, turns)
            yield turns

    async def users(self, tenant: str, prefix: str, after: str | None, limit: int) -> tuple[list[str], bool]:
        """Users of the tenant whose ids begin so, after `after`, at most `limit`; and whether there are more."""
        start, end = reading.range_of(tenant, prefix, after)
        held = [
            await self._reads.of_stores(writer.shard.owners, start, end, limit + 1)
            for writer in self._writers
            if start < end
        ]
        users = [Owner.from_key(key).user for key in islice(heapq.merge(*held), limit + 1)]
        return users[:limit], len(users) > limit

    async def summaries(self, owner: Owner) -> list[Summary]:
        """The summaries that hold, by session."""
        shard = self._writer(owner).shard
        compressor = self._serving.of(owner.key).compressor
        return await self._asked(owner, lambda: reading.summaries(shard.block(owner.key), self._clock(), compressor))

    async def sessions(self, owner: Owner) -> list[SessionLine]:
        shard = self._writer(owner).shard
        return await self._asked(owner, lambda: reading.sessions(shard.block(owner.key), self._clock()))

    async def turn(self, owner: Owner, session: str, turn_id: str) -> Turn:
        shard = self._writer(owner).shard
        turn = await self._asked(owner, reading.one_turn, shard, owner.key, session, turn_id, self._clock())
        if turn is None:
            raise NotFound("no such turn")
        return turn

    async def facts(self, owner: Owner) -> tuple[Fact, ...]:
        return await self._asked(
            owner,
            lambda: reading.facts(self._writer(owner).shard.block(owner.key), None, self._clock()),
        )

    async def fact(self, owner: Owner, key: str) -> Fact:
        found = next((fact for fact in await self.facts(owner) if fact.key == key), None)
        if found is None:
            raise NotFound("no such fact")
        return found

    async def entities(
        self, owner: Owner, kind: EntityClass | None, prefix: str, after: str | None, limit: int
    ) -> EntityPage:
        """What the owner's turns name, the most often named first; `after`: the `next` of the page before."""
        shard = self._writer(owner).shard
        place = None if after is None else entities.place_of(after)
        return await self._asked(owner, entities.page, shard, owner.key, kind, prefix, place, limit, self._clock())

    def life_of(self, tenant: str, kind: EntityClass) -> tuple[str | None, int | None]:
        """The class of the policy `ttl` that what is of this class of entities gets, and its seconds."""
        policy = self._policies.of(tenant, TtlPolicy)
        return policy.class_of(kind), policy.life_of(kind)

    async def summary(self, owner: Owner, session: str) -> Summary:
        block = await self._asked(owner, self._writer(owner).shard.block, owner.key)
        found = block.summary_at(session, None, self._serving.of(owner.key).compressor)
        if found is None or found.expires_at <= self._clock():
            raise NotFound("this session has no summary")
        return found

    # ---- search

    async def expand(self, tenant: str, request: ExpandRequest) -> tuple[Understood, tuple[str, ...]]:
        """What a query says beyond its words, and why it may be less than could be known."""
        said = living(request.history, self._effective(request.now))
        found = by_rules(request.query, said, request.asked, request.now)
        return await self._understanding.refined(tenant, request.query, found, request.asked, request.now)

    async def _understood(
        self, shard: Shard, owner: Owner, request: SearchRequest, instant: int, expiry: int, plan: Plan
    ) -> tuple[Understood, tuple[str, ...]]:
        reasons: tuple[str, ...] = ()
        alone = by_rules(request.query, (), request.asked, instant) if stands_alone(request) else None
        if alone is None:
            asked = (shard, owner.key, request, instant, expiry)
            try:
                size = Size(request.characters, 0)
                alone = await self._reads.read(shard, owner, size, plan.expand, plan.expand, resolved, *asked)
            except (StorageTrouble, TimeoutError) as error:
                reasons = (f"store: {_reason(error)}",)
                alone = by_rules(request.query, (), request.asked, instant)
        left_s = max(0.0, plan.expand - time.monotonic()) if request.deadline_s else None
        found, doubts = await self._understanding.refined(
            owner.tenant, request.query, alone, request.asked, instant, left_s
        )
        return found, (*reasons, *doubts)

    async def search(self, owner: Owner, request: SearchRequest, stages: Stages) -> SearchAnswer:
        """Resolve the query, embed it, search hot then warm, rank."""
        started = time.monotonic()
        deadline = None if request.deadline_s is None else started + request.deadline_s
        plan = self._plan(started, request.deadline_s)
        shard = await self._reached(owner, request.min_receipt, request.deadline_s)
        served = self._serving.of(owner.key)
        instant = self._clock() if request.now is None else request.now
        now = self._effective(instant)
        understood, doubts = await self._understood(shard, owner, request, instant, now, plan)
        query = understood.query
        stages.mark("expand")
        size = Size(
            request.characters, request.k, request.filters.heavy, request.reranked, cold="cold" in request.tiers
        )
        words_alone = request.mode == "lexical" or request.tiers == ONLY_COLD or "turn" not in request.filters.kinds
        wanted = not words_alone and query.strip() != ""
        encoded, reasons = await self._encoded(shard, owner, query, False, plan, served) if wanted else (None, ())
        stages.mark("embed")
        question = Question(
            query=query,
            mode=mode_of(request, encoded is None and wanted),
            k=request.k,
            now=now,
            filters=request.filters,
            tiers=request.tiers,
            window=understood.window,
            drawn_from=understood.drawn_from,
            said=understood.said,
            work=Work(deadline),
            rerank=request.reranked and encoded is not None,
            late=served.second.late,
            asked_at=instant,
            deadline=plan.rerank,
            explain=request.explain,
            compressor=served.compressor,
        )
        found, answer = await self._found(shard, owner, size, plan, question, encoded, served, stages)
        self._serving.searched(owner, question)
        seqs = [one.turn.seq for one in answer.found]
        self._retrievals.took(shard.number, owner.key, answer, seqs, self._clock())
        degradation = Degradation("full", tuple(dict.fromkeys((*doubts, *reasons, *answer.reasons, *shard.doubts))))
        self._retrievals.gave("search", degradation)
        receipt = Receipt(shard.number, shard.applied_seq)
        stages.mark("return")
        self._retrievals.took_time(stages.ms)
        words, window = understood.keywords, understood.window
        drawn = understood.drawn_from
        return SearchAnswer(found, query, words, window, degradation, receipt, answer.explained, drawn)

    async def _found(
        self,
        shard: Shard,
        owner: Owner,
        size: Size,
        plan: Plan,
        question: Question,
        encoded: EncodedQuery | None,
        served: Served,
        stages: Stages,
    ) -> tuple[list[Result], Answer]:
        """What answers the question, or that part of it which is in memory where the whole does not come in time."""
        branch = stages.branch()
        asked = (shard, owner.key, question, encoded, served.second, branch)
        try:
            found = await self._reads.read(shard, owner, size, plan.retrieve, plan.answer, found_in, *asked)
        except TimeoutError:
            smaller = (shard, owner.key, question, encoded, stages)
            return await self._reads.smaller(found_at_hand, *smaller)
        stages.join(branch)
        return found

    def _plan(self, started: float, deadline_s: float | None) -> Plan:
        return self._options.shares.of(started, deadline_s or self._options.deadline_s)

    async def _encoded(
        self, shard: Shard, owner: Owner, text: str, solo: bool, plan: Plan, served: Served
    ) -> tuple[EncodedQuery | None, tuple[str, ...]]:
        """The query as encoded within its share of the deadline, or the reason why there is none; in what is left of
        that share a hot shard may add what it knows.
        """
        limit = min(plan.embed, time.monotonic() + self._options.vector_wait_s)
        encoded, reasons = await self.encoder.query(text, solo, limit, served.routing)
        if encoded is not None and self._hot_shards is not None:
            encoded = await self._hot_shards.given(shard.number, owner.key, encoded, plan.embed)
        return encoded, reasons

    # ---- context

    async def context(self, owner: Owner, request: ContextRequest, stages: Stages) -> ContextAnswer:
        """Resolve the query, embed it; read the state as of one moment, retrieve, and pack it under the budget."""
        tokenizer = self.tokenizer(request.tokenizer)
        started = time.monotonic()
        now = self._clock() if request.now is None else request.now
        shard = await self._reached(owner, request.min_receipt, request.deadline_s)
        if request.as_of.shard not in (None, shard.number):
            raise InvalidReceipt("as_of: this receipt was not given out for this user")
        stages.mark("wait")
        served = self._serving.of(owner.key, shard.number, request.as_of)
        moment = Moment(now, self._effective(now), served.names, served.compressor)
        plan = self._plan(started, request.deadline_s)
        understood = await self._resolved(shard, owner, request, moment, plan)
        layouts = await self._layouts_then(shard, owner, request.as_of, plan)
        chosen = choose(layouts.state, request, understood.window)
        stages.mark("expand")
        encoded, reasons = await self._encoded(shard, owner, understood.query, True, plan, served)
        stages.mark("embed")
        reasons = (*served.reasons, *layouts.reasons, *understood.reasons, *reasons, *shard.doubts)
        retrieval = Retrieval(understood, encoded, served.second, plan)
        packing = Packing(chosen.layout, tokenizer, self._histories)
        made = await self._answered(shard, owner, request, retrieval, reasons, moment, packing, stages)
        self._retrievals.gave("context", made.context.degradation)
        seqs = [one.seq for one in made.context.retrieved]
        self._retrievals.took(shard.number, owner.key, made.search, seqs, self._clock())
        if request.session is not None and made.summary_due:
            self._refresher.read(shard, owner.key, request.session)
        as_of = Receipt(shard.number, made.seq)
        stages.mark("return")
        self._retrievals.took_time(stages.ms, made.context.total_tokens)
        return ContextAnswer(
            context=made.context,
            found=made.found,
            as_of=as_of,
            now=now,
            tokenizer=tokenizer.name,
            layout=chosen.layout.name,
            revision=chosen.revision,
            query_type=chosen.query_type,
            explained=made.search.explained,
            epoch=self._serving.named(served, shard.number, made.seq),
        )

    async def _layouts_then(self, shard: Shard, owner: Owner, as_of: AsOf, plan: Plan) -> LayoutsThen:
        """The tenant's layouts at the moment that is asked for: nearly always now, and then nothing is looked up."""
        if as_of.seq is None or not needs_moment(self._layouts, owner.tenant, as_of):
            return layouts_then(self._layouts, owner.tenant, as_of)
        size = Size(0, 0, heavy=True)
        asked = (shard, owner.key, as_of.seq)
        try:
            moment = await self._reads.read(shard, owner, size, plan.load, plan.load, reading.written_at, *asked)
        except (TimeoutError, StorageTrouble):
            now = layouts_then(self._layouts, owner.tenant, AsOf())
            return LayoutsThen(now.state, (*now.reasons, MOMENT_UNKNOWN))
        return layouts_then(self._layouts, owner.tenant, as_of, moment)

    async def _answered(
        self,
        shard: Shard,
        owner: Owner,
        request: ContextRequest,
        retrieval: Retrieval,
        reasons: tuple[str, ...],
        moment: Moment,
        packing: Packing,
        stages: Stages,
    ) -> Answered:
        """The whole context, or a smaller one of what is in memory where the whole does not come in time."""
        plan, branch = retrieval.plan, stages.branch()
        # Which state that was may have to be read from a table; a conversation may have to be summed up.
        heavy = request.as_of.time is not None or bool(request.history)
        results = request.budget_tokens // TOKENS_A_RESULT
        size = Size(request.characters, results, heavy, reranked=retrieval.encoded is not None)
        asked = (shard, owner.key, request, retrieval, reasons, moment, packing, branch)
        try:
            made = await self._reads.read(shard, owner, size, plan.retrieve, plan.answer, answer, *asked)
        except TimeoutError:
            smaller = (shard, owner.key, request, reasons, moment, packing, stages)
            return await self._reads.smaller(smaller_answer, *smaller)
        stages.join(branch)
        return made

    async def _resolved(
        self, shard: Shard, owner: Owner, request: ContextRequest, moment: Moment, plan: Plan
    ) -> Resolved:
        """By rules alone. Most queries stand for themselves, and no turn is looked at for them."""
        if not goes_on(request):
            return as_it_came(request, moment.now)
        size = Size(request.characters, 0, heavy=request.as_of.time is not None)
        asked = (shard, owner.key, request, moment.now, moment.expiry)
        try:
            return await self._reads.read(shard, owner, size, plan.expand, plan.expand, resolved_as_of, *asked)
        except TimeoutError:
            return msgspec.structs.replace(as_it_came(request, moment.now), reasons=("expand: deadline",))

    # ---- shared

    async def _asked(self, owner: Owner, function: Callable[..., T], *asked: Any) -> T:
        return await self._reads.asked(self._writer(owner).shard, owner, function, *asked)

    def _writer(self, owner: Owner) -> ShardWriter:
        return self._writers[shard_of(owner, len(self._writers))]

    async def _write(
        self, writer: ShardWriter, operation: Operation, deadline_s: float | None = None
    ) -> tuple[Any, Receipt]:
        """Raises StoreLate at the deadline: what had not begun by then is not done, of the rest nobody knows."""
        await self._reads.loaded(writer.shard, operation.owner)
        try:
            async with asyncio.timeout(deadline_s or self._options.write_wait_s):
                return await writer.ask(operation)
        except TimeoutError as error:
            raise StoreLate("the store did not take this in time; it may be stored all the same") from error

    async def _change(self, owner: Owner, operation: Operation) -> tuple[Any, Receipt]:
        """Write what takes something away that was shown; it is gone for every reader when this returns or raises
        NotFound: who asks for the same again is told no sooner.
        """
        writer = self._writer(owner)
        try:
            outcome = await self._write(writer, operation)
        except NotFound:
            await self._shown.everywhere(writer.shard.number)
            raise
        await self._shown.everywhere(writer.shard.number)
        return outcome

    async def _delete(self, owner: Owner, operation: Operation) -> tuple[int, Receipt]:
        """Raises NotFound where nothing was there, or nothing that had not expired."""
        deleted, receipt = await self._change(owner, operation)
        if not deleted:
            raise NotFound("it has expired")
        return deleted, receipt

    async def _reached(self, owner: Owner, receipt: Receipt | None, deadline_s: float | None) -> Shard:
        """The owner's shard, once it shows the write that the receipt names."""
        shard = self._writer(owner).shard
        if receipt is None or (receipt.shard == shard.number and receipt.seq <= shard.applied_seq):
            return shard
        if receipt.shard != shard.number:
            raise InvalidReceipt("this receipt was not given out for this user")
        limit = self._options.receipt_wait_s if deadline_s is None else deadline_s
        if not await _until(lambda: receipt.seq <= shard.applied_seq, limit):
            raise ReceiptNotReached(f"the write {receipt} is not visible here; the newest is {shard.applied_seq}")
        return shard

    def _effective(self, now: int | None) -> int:
        """Something has expired when its time is before the later of `now` and the clock."""
        clock = self._clock()
        return clock if now is None else max(now, clock)

    def tokenizer(self, name: str | None) -> Tokenizer:
        """The default one without a name. Raises InvalidRequest for one that is not here."""
        return tokenizer_of(self._tokenizers, name or self._options.tokenizer)


def _reason(error: StorageTrouble | TimeoutError) -> str:
    return error.reason if isinstance(error, StorageTrouble) else "deadline"


async def _until(reached: Callable[[], bool], limit_s: float) -> bool:
    """Whether the condition came true within the limit."""
    deadline = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True
