"""Finding turns of one owner: hot first, warm where hot cannot answer, cold where it is asked for.

Plain functions on a block (its lock is taken here); who calls them decides on which thread
(`Memory._read`). What is asked stands in a frozen `Question`; its vector was computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import Tier, Turn
from serve_app.errors import StorageTrouble
from serve_app.ports import EncodedQuery
from serve_app.retrieve.conditions import matched_paths
from serve_app.retrieve.expand import NO_DATE, NamedDate, named_date
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.fuse import Evidence, Ranking, date_match, rank, speaker_match
from serve_app.retrieve.naming import entity_match, entity_match_of, named_in
from serve_app.retrieve.question import Question
from serve_app.stores.block import Block
from serve_app.stores.lexical import LexicalIndex
from serve_app.stores.packing import turn_text
from serve_app.stores.terms import QueryTerms, code_terms, index_terms, query_terms, read_query
from serve_app.stores.views import day_number
from serve_app.stores.wanted import Wanted

WARM_CANDIDATES = 100
"""Turns that each arm of the tables contributes at least, where there are so many."""

QUERIES_REMEMBERED = 2_048
QUERY_CHARACTERS_REMEMBERED = 500
"""Queries whose words are remembered, and how long they may be: some megabytes in all."""

UNKNOWN = float("nan")
"""The inner product of a turn whose vector is not at hand."""

HOT_ANSWERS = 0.45
"""Where fewer turns than are wanted reach this inner product, hot has too little that is close: warm is asked too."""

BOTH: frozenset[Tier] = frozenset({"hot", "warm"})

TERMS_LOOKED_FOR = 64
"""Distinct terms of a query that hot is checked for, first ones first: each costs a walk over the block."""


class Found(msgspec.Struct, frozen=True):
    """A result: the turn, its fused score, where it was found, and what each of `ARMS` added.

    `matched`: where its data meet the conditions on them, if there are any.
    """

    turn: Turn
    score: float
    tier: Tier
    added: Sequence[float] = ()
    matched: tuple[str, ...] | None = None


class Answer(msgspec.Struct, frozen=True):
    """Results, best first, and why they may not be all: a stage that did not answer is named."""

    found: list[Found]
    reasons: tuple[str, ...] = ()
    asked: frozenset[Tier] = frozenset({"hot"})
    """The tiers that were looked into."""
    loaded: bool = False
    """The owner's memory had to be loaded from the tables for it."""
    named: tuple[str, ...] = ()
    """The keys of the entities that the query names."""


class WarmTable(Protocol):
    """What search asks of the warm tables. Each may raise StorageTrouble."""

    def nearest(self, owner: str, query: NDArray[np.float32], k: int, wanted: Wanted) -> list[tuple[Turn, float]]: ...

    def not_naming(self, owner: str, keys: Collection[str]) -> set[int]: ...

    def matching(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted) -> list[tuple[Turn, float]]: ...


class Unfolded(NamedTuple):
    """What of an owner's turns the table does not know yet."""

    turns: Mapping[int, Turn]
    """By seq: those that it does not hold, or not in their latest state."""
    moved: Sequence[int] = ()
    """Seqs of those that have left the hot tier."""


def _all_folded(owner: str) -> Unfolded:
    return Unfolded({})


def _none_cold(block: Block, question: Question) -> list[Turn]:
    return []


def search(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Callable[[str, Sequence[int]], list[Turn]],
    unfolded: Callable[[str], Unfolded] = _all_folded,
    cold: Callable[[Block, Question], list[Turn]] = _none_cold,
) -> Answer:
    """The best turns of an owner. `older(owner, seqs)` reads turns whose content is not resident.

    `cold` is asked where the question names the tier, for those that it may want, see `retrieve/cold.py`.
    """
    if "cold" in question.tiers:
        return _with_cold(block, question, encoded, table, older, unfolded, cold)
    hot = _hot(block, question, encoded)
    if _hot_answers(block, question, hot):
        return Answer(_with_paths(hot.found[: question.k], question), named=hot.named)
    try:
        warm = _warm_turns(block, question, encoded, table, older, unfolded)
    except StorageTrouble as error:  # what memory holds is given all the same
        return Answer(_with_paths(hot.found[: question.k], question), (f"warm: {error.code}",), BOTH, named=hot.named)
    return Answer(_with_paths(_merged(hot, warm, question, encoded), question), asked=BOTH, named=hot.named)


def _named(block: Block, query: str) -> tuple[str, ...]:
    with block.lock:
        return named_in(query, block.columns)


def _with_paths(found: list[Found], question: Question) -> list[Found]:
    conditions = question.filters.data
    if not conditions:
        return found
    return [msgspec.structs.replace(one, matched=matched_paths(conditions, one.turn, question.work)) for one in found]


def _with_cold(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Callable[[str, Sequence[int]], list[Turn]],
    unfolded: Callable[[str], Unfolded],
    cold: Callable[[Block, Question], list[Turn]],
) -> Answer:
    """Cold turns, alone or beside the others; they have no vectors and are judged by their words."""
    others = question.tiers - {"cold"}
    hot, warm, reasons = _Hot([], [], _named(block, question.query)), [], []
    asked: set[Tier] = {"cold"}
    if others:
        asked.add("hot")
        hot = _hot(block, question, encoded)
    try:
        if others and not _hot_answers(block, question, hot):
            asked.add("warm")
            warm = _warm_turns(block, question, encoded, table, older, unfolded)
    except StorageTrouble as error:
        reasons.append(f"warm: {error.code}")
    found: list[Turn] = []
    try:
        found = cold(block, question)
    except StorageTrouble as error:
        reasons.append(f"cold: {error.code}")
    if found and others and question.mode == "dense" and not question.exhaustive:
        reasons.append("cold: found by words only, which mode dense leaves out")
    if not others:
        question = msgspec.structs.replace(question, mode="lexical" if question.mode == "lexical" else "hybrid")
    ranked = _merged(hot, warm, question, encoded, found)
    return Answer(_with_paths(ranked, question), tuple(reasons), frozenset(asked), named=hot.named)


class _Hot(NamedTuple):
    """The block's own best, their inner products with the query (NaN where not known), and whom that names."""

    found: list[Found]
    inner: list[float]
    named: tuple[str, ...] = ()


def _hot(block: Block, question: Question, encoded: EncodedQuery | None) -> _Hot:
    with block.lock:
        n = block.columns.until(question.as_of)
        k = question.k if block.complete else max(question.k, WARM_CANDIDATES)
        eligible = _eligible(block, question, n)
        if not question.query.strip():
            return _newest(block, eligible, k, question.now)
        dense = None if encoded is None else block.dense(encoded.vector, n, question.as_of)
        named = named_in(question.query, block.columns)
        evidence = _evidence(block, question.query, n, eligible, dense, named)
        ranking = rank(evidence, question.mode, k, question.weights, exhaustive=question.exhaustive)
        turns = [block.turns[block.columns.seqs[ordinal]].at(question.now) for ordinal in ranking.ordinals.tolist()]
    inner = [UNKNOWN] * len(turns) if dense is None else dense[ranking.ordinals].tolist()
    return _Hot(_found(turns, ranking, ["hot"] * len(turns)), inner, named)


def _eligible(block: Block, question: Question, n: int) -> NDArray[np.bool_]:
    """Alive, within the filters, not expired."""
    alive = block.columns.alive(n)
    if question.filters.narrow:
        admitted = np.zeros(n, np.bool_)
        for turn in _looked_at(block, question.filters, n):
            ordinal = block.columns.ordinal(turn.seq)
            if ordinal < n and question.filters.admit(turn, question.now, question.work):
                admitted[ordinal] = True
        alive &= admitted
    for seq, expires_at in block.expiring.items():
        if expires_at <= question.now and (ordinal := block.columns.ordinal(seq)) < n:
            alive[ordinal] = False
    return alive


def _looked_at(block: Block, filters: Filters, n: int) -> list[Turn]:
    """The turns that the filters may let through, as far as the block's indexes tell."""
    if not filters.entities:
        return _within_session(block, filters.session)
    seqs = (block.columns.seqs[ordinal] for ordinal in block.columns.entities.holding_all(filters.entities, n))
    return [block.turns[seq] for seq in seqs]


def _within_session(block: Block, session: str | None) -> list[Turn]:
    if session is None:
        return list(block.turns.values())
    index = block.sessions.get(session)
    return [block.turns[seq] for seq in index.seqs if seq in block.turns] if index else []


def _newest(block: Block, eligible: NDArray[np.bool_], k: int, now: int) -> _Hot:
    """Without a query the newest matches come first."""
    newest = np.flatnonzero(eligible)[::-1][:k]
    turns = [block.turns[block.columns.seqs[ordinal]].at(now) for ordinal in newest.tolist()]
    found = [Found(turn, 0.0, "hot") for turn in turns]
    return _Hot(found, [UNKNOWN] * len(found))


def _evidence(
    block: Block,
    query: str,
    n: int,
    eligible: NDArray[np.bool_],
    dense: NDArray[np.float32] | None,
    entities: Sequence[str],
) -> Evidence:
    terms, named = _read(query)
    own, window = block.columns.lexical.scores(terms.wanted, n)
    links = block.columns.lexical.links(n)
    return Evidence(
        own=own,
        window=window,
        previous=links.previous,
        following=links.following,
        eligible=eligible,
        dense=dense,
        code=block.columns.lexical.coverage(terms.codes, n) if terms.codes else None,
        speaker=speaker_match(set(terms.said), block.columns.speaker_terms, block.columns.speaker_of(n)),
        date=None if named == NO_DATE else date_match(named, block.columns.days(n)),
        entity=entity_match(entities, block.columns, n),
    )


@lru_cache(maxsize=QUERIES_REMEMBERED)
def _read_once(query: str) -> tuple[QueryTerms, NamedDate]:
    return read_query(query), named_date(query)


def _read(query: str) -> tuple[QueryTerms, NamedDate]:
    """What the words of a query are: of a short one it is remembered for who asks the same again."""
    read = _read_once if len(query) <= QUERY_CHARACTERS_REMEMBERED else _read_once.__wrapped__
    return read(query)


def _found(turns: Sequence[Turn], ranking: Ranking, tiers: Sequence[Tier]) -> list[Found]:
    return [
        Found(turn, score, tier, added)
        for turn, score, added, tier in zip(turns, ranking.scores.tolist(), ranking.parts.tolist(), tiers, strict=True)
    ]


def _hot_answers(block: Block, question: Question, hot: _Hot) -> bool:
    """Whether the block holds all there is, or enough that is close and every word that is looked for."""
    if "warm" not in question.tiers or block.complete:
        return True
    if question.filters.narrow or not question.query.strip():
        return False
    close = sum(inner >= HOT_ANSWERS for inner in hot.inner)
    return close >= question.k and not _lacks_a_term(block, question.query)


def _lacks_a_term(block: Block, query: str) -> bool:
    """A word that stands in no resident turn may stand in one that has left."""
    terms = islice(dict.fromkeys(query_terms(query)), TERMS_LOOKED_FOR)
    with block.lock:
        return any(not block.columns.lexical.coverage([term]).any() for term in terms)


def _warm_turns(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Callable[[str, Sequence[int]], list[Turn]],
    unfolded: Callable[[str], Unfolded],
) -> list[tuple[Turn, float]]:
    """Turns that are not resident, with their inner product (NaN where it is not known)."""
    if question.filters.narrow or not question.query.strip():
        seqs = _not_resident(block, question.filters.session)
        if seqs and question.filters.entities:
            seqs = _possible(block.key, seqs, question.filters.entities, table, unfolded)
        turns = older(block.key, seqs)
        return [(turn.at(question.now), UNKNOWN) for turn in turns if _admitted(block, question, turn)]
    tail, k = unfolded(block.key), max(question.k, WARM_CANDIDATES)
    wanted = _wanted(block, question, tail.moved)
    latest = {seq: (turn, UNKNOWN) for seq, turn in tail.turns.items()}
    match = table.matching(block.key, query_terms(question.query), k, wanted)
    near = [] if encoded is None else table.nearest(block.key, encoded.vector, k, wanted)
    found = {turn.seq: (turn, UNKNOWN) for turn, _ in match} | {turn.seq: (turn, inner) for turn, inner in near}
    pairs = (found | latest).values()
    return [(turn.at(question.now), inner) for turn, inner in pairs if _admitted(block, question, turn)]


def _possible(
    owner: str, seqs: list[int], entities: Collection[str], table: WarmTable, unfolded: Callable[[str], Unfolded]
) -> list[int]:
    """Those of these turns that may name the entities: the table tells of most, but not of their latest edits."""
    latest = unfolded(owner).turns  # looked at first: what is folded meanwhile is in the table
    lacking = table.not_naming(owner, entities)
    return [seq for seq in seqs if seq in latest or seq not in lacking]


def _wanted(block: Block, question: Question, moved: Sequence[int]) -> Wanted:
    with block.lock:
        first = next(iter(block.turns), None)
    return Wanted(partial(_admitted, block, question), question.k, first, moved, question.as_of)


def _not_resident(block: Block, session: str | None) -> list[int]:
    with block.lock:
        sessions = block.sessions.values() if session is None else filter(None, [block.sessions.get(session)])
        return [seq for index in sessions for seq in block.moved.without_cold(index.seqs) if seq not in block.turns]


def _admitted(block: Block, question: Question, turn: Turn) -> bool:
    """Owner and liveness are looked up again: the tables lag behind what was erased."""
    elsewhere = turn.seq in block.turns or block.moved.is_cold(turn.seq)
    return block.holds(turn) and not elsewhere and question.admits(turn)


def _merged(
    hot: _Hot,
    warm: Sequence[tuple[Turn, float]],
    question: Question,
    encoded: EncodedQuery | None,
    cold: Sequence[Turn] = (),
) -> list[Found]:
    """All tiers ranked together, by statistics over all of them."""
    tiers: dict[int, Tier] = {found.turn.seq: "hot" for found in hot.found}
    tiers.update({turn.seq: "warm" for turn, _ in warm})
    tiers.update({turn.seq: "cold" for turn in cold})
    warm = [*warm, *((turn, UNKNOWN) for turn in cold)]
    turns = {found.turn.seq: found.turn for found in hot.found} | {turn.seq: turn for turn, _ in warm}
    ordered = [turns[seq] for seq in sorted(turns)]
    if not question.query.strip():
        newest = ordered[::-1][: question.k]
        return [Found(turn, 0.0, tiers[turn.seq]) for turn in newest]
    scratch, terms, codes = LexicalIndex(), query_terms(question.query), code_terms(question.query)
    for turn in ordered:
        scratch.append(index_terms(turn_text(turn)), -1)
    own, window = scratch.scores(terms)
    links = scratch.links()
    evidence = Evidence(
        own=own,
        window=window,
        previous=links.previous,
        following=links.following,
        eligible=np.ones(len(ordered), np.bool_),
        dense=None if encoded is None else _known_dense(ordered, hot, warm),
        code=scratch.coverage(codes) if codes else None,
        date=date_match(named_date(question.query), _days(ordered)),
        entity=entity_match_of(hot.named, ordered),
    )
    ranking = rank(evidence, question.mode, question.k, question.weights, exhaustive=question.exhaustive)
    chosen = [ordered[ordinal] for ordinal in ranking.ordinals.tolist()]
    return _found(chosen, ranking, [tiers[turn.seq] for turn in chosen])


def _known_dense(ordered: Sequence[Turn], hot: _Hot, warm: Sequence[tuple[Turn, float]]) -> NDArray[np.float32]:
    known = {turn.seq: inner for turn, inner in warm}
    known |= {found.turn.seq: inner for found, inner in zip(hot.found, hot.inner, strict=True)}
    return np.array([known[turn.seq] for turn in ordered], np.float32)


def _days(turns: Sequence[Turn]) -> NDArray[np.int32]:
    return np.array([day_number(turn.created_at, turn.offset_minutes) for turn in turns], np.int32)
