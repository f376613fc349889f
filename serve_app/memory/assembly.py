"""From an owner's block to the inputs of a context: the state as of one moment, and what retrieval finds in it.

Everything that a context depends on is gathered here, so that packing it is pure. Where the store
cannot be read, or not in time, the context is made of what memory, the log's tail or the caller has, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from serve_app.context.candidates import Dropped
from serve_app.context.exchanges import any_linked, linked
from serve_app.context.inputs import ContextInputs, Standing
from serve_app.context.layout import Layout
from serve_app.context.window import Context, build_context
from serve_app.core import Degradation, Fact, Level, Summary, Turn
from serve_app.errors import StorageTrouble
from serve_app.memory import reading
from serve_app.memory.deadlines import NO_HURRY, Plan
from serve_app.memory.expansion import HISTORY_TURNS, SAID_CHARACTERS_MAX, Resolved
from serve_app.memory.histories import Histories, timed
from serve_app.memory.reading import Memories, Older, Partners
from serve_app.memory.requests import AsOf, ContextRequest
from serve_app.memory.timing import Stages
from serve_app.ports import EncodedQuery, Tokenizer
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.found import Answer, Found
from serve_app.retrieve.question import Question
from serve_app.retrieve.search import search
from serve_app.retrieve.second import SecondStage
from serve_app.stores.block import Block
from serve_app.stores.guard import patient_until
from serve_app.write.shard import Shard

NOW = float("-inf")
"""As a time to wait until: no table is waited for."""

TOKENS_A_HIT = 40
HITS_MIN, HITS_MAX = 10, 100
"""Turns that a context retrieves: about as many as its budget could show, within bounds."""


class Moment(msgspec.Struct, frozen=True):
    """`now` is what the answer is about; what has expired by `expiry` is left out. `versions` name the code,
    `compressor` that of the summaries that are shown, where there are some by it.
    """

    now: int
    expiry: int
    versions: tuple[str, ...]
    compressor: str = ""


class Assembled(msgspec.Struct, frozen=True):
    """Inputs of a context as of `seq`, the session's turns that lie before them, and what search found for it."""

    inputs: ContextInputs
    seq: int
    older: Older = Older()
    summary_due: bool = False
    found: tuple[Found, ...] = ()
    search: Answer = Answer([], asked=frozenset())


class Retrieval(msgspec.Struct, frozen=True):
    """What retrieval works with: the query as it is understood, its vectors, who judges what they find, until when."""

    resolved: Resolved
    encoded: EncodedQuery | None
    second: SecondStage | None = None
    plan: Plan = NO_HURRY


class Packing(msgspec.Struct, frozen=True):
    """What a context is packed by. `histories` sum up a conversation that was sent along, where it does not fit."""

    layout: Layout
    tokenizer: Tokenizer
    histories: Histories

    def context(self, state: Assembled, sent: bool) -> Context:
        """Raises QueryExceedsBudget, SystemExceedsBudget."""
        pack = self.histories.context if sent else build_context
        return with_older(pack(state.inputs, self.layout, self.tokenizer), state.older)


class Answered(msgspec.Struct, frozen=True):
    """A finished context with the turns before its window in `dropped`, as of `seq`."""

    context: Context
    seq: int
    summary_due: bool
    found: tuple[Found, ...]
    search: Answer


def answer(
    shard: Shard,
    owner: str,
    request: ContextRequest,
    retrieval: Retrieval,
    reasons: tuple[str, ...],
    moment: Moment,
    packing: Packing,
    stages: Stages,
) -> Answered:
    """All of a context that computes, in one call: read, retrieve, pack.

    Raises QueryExceedsBudget, SystemExceedsBudget.
    """
    stages.mark("queue")
    state = assemble(shard, owner, request, retrieval, reasons, moment)
    stages.mark_two("retrieve", "rerank", state.search.second_s)
    context = packing.context(state, sent=request.history is not None)
    stages.mark("pack")
    return Answered(context, state.seq, state.summary_due, state.found, state.search)


def assemble(
    shard: Shard,
    owner: str,
    request: ContextRequest,
    retrieval: Retrieval,
    reasons: tuple[str, ...],
    moment: Moment,
) -> Assembled:
    """Never raises for a store that does not answer: then only what the caller sent is there, and is shown."""
    try:
        with patient_until(retrieval.plan.retrieve):
            return _stored(shard, owner, request, retrieval, reasons, moment)
    except StorageTrouble as error:
        return _sent_alone(shard, request, (*reasons, f"store: {error.reason}"), moment)


def smaller_answer(
    shard: Shard,
    owner: str,
    request: ContextRequest,
    reasons: tuple[str, ...],
    moment: Moment,
    packing: Packing,
    stages: Stages,
) -> Answered:
    """In place of `answer`, where that would come too late: waits for no table and no model. Raises as it does."""
    block = shard.resident(owner)
    try:
        if block is None:
            state = _of_tail(shard, owner, request, (*reasons, "store: deadline"), moment)
        else:
            state = _remembered(shard, block, request, (*reasons, "retrieve: deadline"), moment, "summary_only")
    except StorageTrouble as error:
        state = _sent_alone(shard, request, (*reasons, f"store: {error.reason}"), moment)
    context = packing.context(state, sent=False)  # to sum up what was sent may be what took too long
    stages.mark("smaller")
    return Answered(context, state.seq, state.summary_due, state.found, state.search)


def _of_tail(shard: Shard, owner: str, request: ContextRequest, reasons: tuple[str, ...], moment: Moment) -> Assembled:
    """What the caller sent, or the log holds that is in no table yet. Raises StorageTrouble."""
    return _remembered(shard, shard.tail_block(owner), request, reasons, moment, "recent_only")


def _remembered(
    shard: Shard, block: Block, request: ContextRequest, reasons: tuple[str, ...], moment: Moment, level: Level
) -> Assembled:
    """Of what this block holds all but what retrieval would find. Raises StorageTrouble."""
    with patient_until(NOW):
        as_of = reading.seq_asked(shard, block, request.as_of)
        state, turns = _state(shard, block, request, as_of, moment)
        partners = _partners(shard, block, turns, (), state.seq, moment.expiry)
    if level == "recent_only" and not turns:
        level = "system_only"
    degradation = Degradation(level, _once(*reasons, *state.reasons, *partners.reasons))
    return _assembled(request, moment, degradation, state, turns, partners, Answer([], asked=frozenset()))


def _sent_alone(shard: Shard, request: ContextRequest, reasons: tuple[str, ...], moment: Moment) -> Assembled:
    """What the caller sent."""
    level: Level = "system_only" if request.history is None else "recent_only"
    inputs = _inputs(request, moment, Degradation(level, _once(*reasons)), turns=_sent(request, moment))
    return Assembled(inputs, shard.applied_seq)


def _stored(
    shard: Shard,
    owner: str,
    request: ContextRequest,
    retrieval: Retrieval,
    reasons: tuple[str, ...],
    moment: Moment,
) -> Assembled:
    loaded = not shard.holds(owner)
    with patient_until(retrieval.plan.load):
        block, missing = shard.block_or_tail(owner)
    if missing:
        return _of_tail(shard, owner, request, (*reasons, *missing), moment)
    resolved = retrieval.resolved
    as_of = reading.seq_asked(shard, block, request.as_of) if resolved.seq is None else resolved.seq
    state, turns = _state(shard, block, request, as_of, moment)
    question = _question(request, retrieval, state.seq, moment, turns)
    unfolded, archive = partial(reading.unfolded, shard), shard.archives.of(owner)
    answer = search(
        block,
        question,
        retrieval.encoded,
        shard.reads,
        shard.turns,
        unfolded,
        second=retrieval.second,
        archive=archive,
    )
    if loaded or resolved.loaded:
        answer = msgspec.structs.replace(answer, loaded=True)
    found, reasons = answer.found, (*reasons, *state.reasons, *answer.reasons)
    if state.changed_since:
        reasons = (*reasons, "as_of: something was edited or erased since")
    if state.forgotten_since:
        reasons = (*reasons, "as_of: facts or summaries of then are not kept any more")
    if request.as_of != AsOf() and reading.expired_between(
        block, request.session, state.seq, moment.now, moment.expiry, moment.compressor
    ):
        reasons = (*reasons, "as_of: something has expired since")
    if request.as_of != AsOf() and block.total_turns > len(block.turns):
        reasons = (*reasons, "as_of: older turns are not in memory; what is retrieved may differ")
    partners = _partners(shard, block, turns, found, state.seq, moment.expiry)
    degradation = Degradation("full", _once(*reasons, *partners.reasons))
    return _assembled(request, moment, degradation, state, turns, partners, answer)


def _state(
    shard: Shard, block: Block, request: ContextRequest, as_of: int | None, moment: Moment
) -> tuple[Memories, tuple[Turn, ...]]:
    """What is remembered, and the conversation: the session's turns, or those that the caller sent along."""
    state = reading.memories(
        shard,
        block,
        request.session,
        as_of,
        moment.expiry,
        request.whole_user,
        request.notes,
        compressor=moment.compressor,
    )
    return state, state.turns if request.history is None else _sent(request, moment)


def _assembled(
    request: ContextRequest,
    moment: Moment,
    degradation: Degradation,
    state: Memories,
    turns: tuple[Turn, ...],
    partners: Partners,
    answer: Answer,
) -> Assembled:
    found = tuple(answer.found)
    inputs = _inputs(
        request,
        moment,
        degradation,
        facts=state.facts,
        standing=state.standing,
        summary=state.summary,
        turns=turns,
        hits=found,
        partners=partners.turns,
    )
    return Assembled(inputs, state.seq, state.older, state.summary_due, found, answer)


def _once(*reasons: str) -> tuple[str, ...]:
    """What is looked at twice may lack twice."""
    return tuple(dict.fromkeys(reasons))


def _sent(request: ContextRequest, moment: Moment) -> tuple[Turn, ...]:
    """The turns that the caller sent along, as far as they have not expired."""
    return tuple(timed(turn, moment.now) for turn in reading.living(request.history or (), moment.expiry))


def _partners(
    shard: Shard, block: Block, turns: Sequence[Turn], found: Sequence[Found], seq: int, expiry: int
) -> Partners:
    """Most turns belong to no tool exchange, and then nothing is looked up."""
    both = (*turns, *[one.turn for one in found])
    return reading.partners(shard, block, list(filter(linked, both)), seq, expiry) if any_linked(both) else Partners()


def _question(
    request: ContextRequest, retrieval: Retrieval, seq: int, moment: Moment, turns: Sequence[Turn]
) -> Question:
    """`turns`: what was said in this session, oldest first."""
    dense, resolved = retrieval.encoded is not None, retrieval.resolved
    return Question(
        query=resolved.query,
        mode="hybrid" if dense else "lexical",
        k=min(HITS_MAX, max(HITS_MIN, request.budget_tokens // TOKENS_A_HIT)),
        now=moment.expiry,
        as_of=seq,
        filters=Filters() if request.whole_user else Filters(session=request.session or ""),
        window=resolved.window,
        drawn_from=resolved.drawn_from,
        resembling=True,
        rerank=dense and retrieval.second is not None,
        late=retrieval.second is not None and retrieval.second.late,
        asked_at=moment.now,
        said=tuple(turn.text[:SAID_CHARACTERS_MAX] for turn in turns[-HISTORY_TURNS:]),
        deadline=retrieval.plan.rerank,
        explain=request.explain,
    )


def _inputs(
    request: ContextRequest,
    moment: Moment,
    degradation: Degradation,
    *,
    facts: tuple[Fact, ...] = (),
    standing: tuple[Standing, ...] = (),
    summary: Summary | None = None,
    turns: tuple[Turn, ...],
    hits: tuple[Found, ...] = (),
    partners: tuple[Turn, ...] = (),
) -> ContextInputs:
    """What the caller sent, beside what is remembered."""
    return ContextInputs(
        session=request.session or "",
        query=request.query,
        budget_tokens=request.budget_tokens,
        now=moment.now,
        system=request.system,
        facts=facts,
        standing=standing,
        notes=request.notes,
        summary=summary,
        turns=turns,
        hits=hits,
        partners=partners,
        format=request.format,
        versions=moment.versions,
        degradation=degradation,
    )


def with_older(context: Context, older: Older) -> Context:
    """Turns before the window are among those retrieved, in the summary that is shown, or listed as left out; so are
    cold ones, of which the summary may know nothing.
    """
    if not older.seqs:
        return context
    covered = context.summary
    span = (0, -1) if covered is None else (covered.first_seq, covered.last_seq)
    retrieved = {one.seq for one in context.retrieved}
    lost = [
        Dropped("recent", turn_id, "cold" if seq in older.cold else "beyond_window")
        for turn_id, seq in older.beyond(*span)
        if seq not in retrieved
    ]
    return msgspec.structs.replace(context, dropped=(*lost, *context.dropped)) if lost else context
