"""Turns whose content is not in memory: when the tables are asked, and which of what they give is believed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.core import TimeWindow, Turn
from serve_app.errors import StorageTrouble
from serve_app.ports import TOKEN_DIMENSION, EncodedQuery, Tokens
from serve_app.retrieve.found import UNKNOWN
from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import Hot
from serve_app.stores.block import Block, SessionIndex
from serve_app.stores.parts import parts
from serve_app.stores.terms import query_terms
from serve_app.stores.wanted import Wanted

WARM_CANDIDATES = 100
"""Turns that each arm of the tables contributes at least, where there are so many."""

HOT_ANSWERS = 0.45
"""Where fewer turns than are wanted reach this inner product, hot has too little that is close: warm is asked too."""

TERMS_LOOKED_FOR = 64
"""Distinct terms of a query that hot is checked for, first ones first: each costs a walk over the block."""

READ_AT_ONCE = 1_000
"""Turns that are read at a time where the newest matches are looked for."""

ReadTokens = Callable[[Sequence[int]], Mapping[int, Tokens]]

Older = Callable[[str, Sequence[int]], list[Turn]]
"""Reads turns of an owner, by seq, whose content is not resident."""


class WarmTable(Protocol):
    """What search asks of the warm tables. Each may raise StorageTrouble."""

    def nearest(
        self, owner: str, query: NDArray[np.float32], k: int, wanted: Wanted, version: str
    ) -> list[tuple[Turn, float]]: ...

    def not_naming(self, owner: str, keys: Collection[str]) -> set[int]: ...

    def matching(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted) -> list[tuple[Turn, float]]: ...

    def tokens(self, owner: str, version: str, seqs: Sequence[int]) -> dict[int, bytes]: ...


class Unfolded(NamedTuple):
    """What of an owner's turns the table does not know yet."""

    turns: Mapping[int, Turn]
    """By seq: those that it does not hold, or not in their latest state."""
    moved: Sequence[int] = ()
    """Seqs of those that have left the hot tier."""


def all_folded(owner: str) -> Unfolded:
    return Unfolded({})


def hot_answers(block: Block, question: Question, hot: Hot) -> bool:
    """Whether the block holds all there is, or enough that is close and every word that is looked for."""
    if "warm" not in question.tiers or block.complete:
        return True
    if question.filters.narrow or not question.query.strip():
        return False
    if question.window is not None and _reaches_back(block, question.window):
        return False
    close = sum(inner >= HOT_ANSWERS for inner in hot.inner)
    return close >= question.k and not _lacks_a_term(block, question.query)


def _reaches_back(block: Block, window: TimeWindow) -> bool:
    """Whether the window begins before the oldest resident turn was said: then others may lie in it."""
    with block.lock:
        oldest = min((turn.created_at for turn in block.turns.values()), default=None)
    return oldest is None or window.bounds[0] < oldest


def _lacks_a_term(block: Block, query: str) -> bool:
    """A word that stands in no resident turn may stand in one that has left."""
    terms = islice(dict.fromkeys(query_terms(query)), TERMS_LOOKED_FOR)
    with block.lock:
        return any(not block.columns.lexical.coverage([term]).any() for term in terms)


def warm_turns(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Older,
    unfolded: Callable[[str], Unfolded],
) -> list[tuple[Turn, float]]:
    """Turns that are not resident, with their inner product (NaN where it is not known)."""
    if question.filters.narrow or not question.query.strip():
        seqs = _not_resident(block, question)
        if seqs and question.filters.entities:
            seqs = _possible(block.key, seqs, question.filters.entities, table, unfolded)
        return [(turn.at(question.now), UNKNOWN) for turn in _matches(block, question, seqs, older)]
    tail, k = unfolded(block.key), max(question.k, WARM_CANDIDATES)
    wanted = _wanted(block, question, tail.moved)
    latest = {seq: (turn, UNKNOWN) for seq, turn in tail.turns.items()}
    match = table.matching(block.key, query_terms(question.query), k, wanted)
    near = [] if encoded is None else table.nearest(block.key, encoded.vector, k, wanted, encoded.version)
    found = {turn.seq: (turn, UNKNOWN) for turn, _ in match} | {turn.seq: (turn, inner) for turn, inner in near}
    pairs = (found | latest).values()
    return [(turn.at(question.now), inner) for turn, inner in pairs if _admitted(block, question, turn)]


def _matches(block: Block, question: Question, seqs: Sequence[int], older: Older) -> list[Turn]:
    """Those of these turns that are admitted; without a query no more than the newest k are wanted.

    Raises what `Work.spend` raises: a turn that is read counts as one value.
    """
    found: list[Turn] = []
    for part in parts(sorted(seqs, reverse=True), READ_AT_ONCE):
        question.work.spend(len(part))
        found += [turn for turn in older(block.key, part) if _admitted(block, question, turn)]
        if len(found) >= question.k and not question.query.strip():
            break
    return found


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


def _not_resident(block: Block, question: Question) -> list[int]:
    """Those that the filters may let through, as far as session, time and seq tell."""
    session = question.filters.session
    with block.lock:
        sessions = block.sessions.values() if session is None else filter(None, [block.sessions.get(session)])
        return [
            seq
            for index in sessions
            for seq in block.moved.without_cold(_then(index, question))
            if seq not in block.turns
        ]


def _then(index: SessionIndex, question: Question) -> list[int]:
    """Seqs of the session's turns that lie within the filters' times, and were there by then."""
    start, end, last = question.filters.start, question.filters.end, question.as_of
    if start is None and end is None and last is None:
        return index.seqs
    return [
        seq
        for seq, at in zip(index.seqs, index.times, strict=True)
        if (start is None or at >= start) and (end is None or at < end) and (last is None or seq <= last)
    ]


def _admitted(block: Block, question: Question, turn: Turn) -> bool:
    """Owner and liveness are looked up again: the tables lag behind what was erased."""
    elsewhere = turn.seq in block.turns or block.moved.is_cold(turn.seq)
    return block.holds(turn) and not elsewhere and question.admits(turn)


def token_reader(block: Block, encoded: EncodedQuery | None, table: WarmTable) -> ReadTokens:
    """Reads the tokens of turns that are not resident, by seq; where the table does not answer there are none."""

    def read(seqs: Sequence[int]) -> dict[int, Tokens]:
        if encoded is None or encoded.tokens is None or not seqs:
            return {}
        try:
            packed = table.tokens(block.key, encoded.version, seqs)
        except StorageTrouble:  # whoever was found is judged by what else is known
            return {}
        return {seq: np.frombuffer(one, np.int8).reshape(-1, TOKEN_DIMENSION) for seq, one in packed.items()}

    return read
