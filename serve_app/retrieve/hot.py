"""The first stage over one owner's block: every resident turn judged by words, by vector, by name and by day.

The block's lock is held while its columns are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.ports import EncodedQuery
from serve_app.retrieve.boosts import boosts_of
from serve_app.retrieve.expand import NamedDate, named_date
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.found import UNKNOWN, Found, found_of
from serve_app.retrieve.fuse import Evidence, rank, speaker_match
from serve_app.retrieve.naming import entity_match, named_in
from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import RERANKED_MAX, Hot, clues_of
from serve_app.stores.block import Block
from serve_app.stores.columns import Columns
from serve_app.stores.terms import QueryTerms, read_query

CANDIDATES = 100
"""Turns that hot contributes at least where others are ranked beside them."""

QUERIES_REMEMBERED = 2_048
QUERY_CHARACTERS_REMEMBERED = 500
"""Queries whose words are remembered, and how long they may be: some megabytes in all."""


def hot_turns(block: Block, question: Question, encoded: EncodedQuery | None) -> Hot:
    with block.lock:
        n = block.columns.until(question.as_of)
        k = question.k if block.complete else max(question.k, CANDIDATES)
        k = max(k, RERANKED_MAX) if question.rerank else k
        eligible = _eligible(block, question, n)
        if not question.query.strip():
            return _newest(block, eligible, k, question.now)
        dense = None
        if encoded is not None:
            dense = block.dense(encoded.version, encoded.vector, n, question.as_of, encoded.products)
        entities = named_in(question.query, block.columns, n)
        evidence = _evidence(block, question, n, eligible, dense, entities)
        ranking = rank(evidence, question.mode, k, question.weights, exhaustive=question.exhaustive)
        turns = [block.turns[block.columns.seqs[ordinal]].at(question.now) for ordinal in ranking.ordinals.tolist()]
        clues = clues_of(block, question, encoded, evidence, ranking) if question.rerank else None
    inner = [UNKNOWN] * len(turns) if dense is None else dense[ranking.ordinals].tolist()
    return Hot(found_of(turns, ranking, ["hot"] * len(turns)), inner, clues, entities)


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


def _newest(block: Block, eligible: NDArray[np.bool_], k: int, now: int) -> Hot:
    """Without a query the newest matches come first."""
    newest = np.flatnonzero(eligible)[::-1][:k]
    turns = [block.turns[block.columns.seqs[ordinal]].at(now) for ordinal in newest.tolist()]
    found = [Found(turn, 0.0, "hot") for turn in turns]
    return Hot(found, [UNKNOWN] * len(found))


def _evidence(
    block: Block,
    question: Question,
    n: int,
    eligible: NDArray[np.bool_],
    dense: NDArray[np.float32] | None,
    entities: Sequence[str],
) -> Evidence:
    terms, named = read_words(question.query)
    boosts = boosts_of(_Resident(block.columns, n), question, terms, named, entities)
    own, window = block.columns.lexical.scores(terms.wanted, n)
    links = block.columns.lexical.links(n)
    return Evidence(
        own=own,
        window=window,
        previous=links.previous,
        following=links.following,
        eligible=eligible,
        dense=dense,
        **boosts._asdict(),
    )


class _Resident(NamedTuple):
    """The first n turns of a block, as `boosts.Turns`."""

    columns: Columns
    n: int

    def seqs(self) -> NDArray[np.int64]:
        return np.array(self.columns.seqs[: self.n], np.int64)

    def days(self) -> NDArray[np.int32]:
        return self.columns.days(self.n)

    def times(self) -> NDArray[np.int64]:
        return self.columns.times(self.n)

    def coverage(self, codes: Sequence[str]) -> NDArray[np.float32]:
        return self.columns.lexical.coverage(codes, self.n)

    def speakers(self, terms: set[str]) -> NDArray[np.float32] | None:
        return speaker_match(terms, self.columns.speaker_terms, self.columns.speaker_of(self.n))

    def naming(self, keys: Sequence[str]) -> NDArray[np.float32] | None:
        return entity_match(keys, self.columns, self.n)


@lru_cache(maxsize=QUERIES_REMEMBERED)
def _read_once(query: str) -> tuple[QueryTerms, NamedDate]:
    return read_query(query), named_date(query)


def read_words(query: str) -> tuple[QueryTerms, NamedDate]:
    """What the words of a query are: of a short one it is remembered for who asks the same again."""
    read = _read_once if len(query) <= QUERY_CHARACTERS_REMEMBERED else _read_once.__wrapped__
    return read(query)
