"""Cold turns in a search: found by their words, where the caller asks for the tier. A context never does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from serve_app.core import Turn
from serve_app.retrieve.question import Question
from serve_app.stores.block import Block
from serve_app.stores.packing import turn_text
from serve_app.stores.terms import index_terms, query_terms
from serve_app.stores.wanted import Wanted

COLD_CANDIDATES = 100
"""Turns that the cold table contributes at least, where there are so many."""


class ColdStore(Protocol):
    """What search asks of the cold table. May raise StorageTrouble."""

    def find(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted) -> list[Turn]: ...


def cold_turns(
    block: Block,
    question: Question,
    table: ColdStore,
    read: Callable[[str, Sequence[int]], list[Turn]],
    leaving: Callable[[str], Sequence[int]],
) -> list[Turn]:
    """The owner's cold turns that the question may want, unranked.

    `read(owner, seqs)` gives turns wherever they lie, `leaving(owner)` the seqs of those on the way to the cold table.
    """
    if not block.moved.cold:
        return []
    if question.filters.narrow or not question.query.strip():
        found = read(block.key, _cold_seqs(block, question.filters.session))
    else:
        terms = query_terms(question.query)
        wanted = Wanted(partial(_admitted, block, question), question.k, until=question.as_of)
        found = table.find(block.key, terms, max(question.k, COLD_CANDIDATES), wanted)
        found += [turn for turn in read(block.key, leaving(block.key)) if _holds_any(turn, terms)]
    each = {turn.seq: turn for turn in found}.values()
    return [turn.at(question.now) for turn in each if _admitted(block, question, turn)]


def _holds_any(turn: Turn, terms: Sequence[str]) -> bool:
    return not set(terms).isdisjoint(index_terms(turn_text(turn)))


def _cold_seqs(block: Block, session: str | None) -> list[int]:
    with block.lock:
        sessions = block.sessions.values() if session is None else filter(None, [block.sessions.get(session)])
        return [seq for index in sessions for seq in index.seqs if block.moved.is_cold(seq)]


def _admitted(block: Block, question: Question, turn: Turn) -> bool:
    """Owner and liveness are looked up again: the table lags behind what was erased."""
    return block.holds(turn) and block.moved.is_cold(turn.seq) and question.admits(turn)
