"""What the second stage is given: the turns that the first one ranks highest, with all that is known of them.

`clues_of` gathers while the owner's block is locked, and only takes hold of things; `shortlist_of` computes, with no
lock held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.core import SECOND_US, Turn
from serve_app.ports import EncodedQuery, Shortlist, Tokens
from serve_app.retrieve.features import FEATURES, Asked, rows
from serve_app.retrieve.found import Found
from serve_app.retrieve.fuse import Evidence, Ranking
from serve_app.retrieve.late import Late, around, late_scores, token_weights
from serve_app.retrieve.question import Question
from serve_app.stores.block import Block
from serve_app.stores.bm25 import Links
from serve_app.stores.lexical import LexicalIndex
from serve_app.stores.packing import turn_text

RERANKED_MAX = 100
"""Turns that the second stage puts in order; those behind them keep the order of the first."""

HOUR_US = 3_600 * SECOND_US

NO_TURNS: Mapping[int, Turn] = {}


class TokenClues(NamedTuple):
    """The tokens of the query and of the turns around the candidates, of one version."""

    query: Tokens
    weights: NDArray[np.float32]
    at: NDArray[np.int32]
    tokens: Tokens
    offsets: NDArray[np.int64]


class Clues(NamedTuple):
    """`turns` by ordinal: the candidates and those before and after them, as far as they are at hand."""

    evidence: Evidence
    ranking: Ranking
    turns: Mapping[int, Turn] = NO_TURNS
    tokens: TokenClues | None = None
    version: str | None = None
    """Whose vectors the evidence is of."""
    owner: str = ""
    applied_seq: int | None = None
    """The state of the owner's memory, where the clues are of it alone."""

    @property
    def links(self) -> Links:
        return Links(self.evidence.previous, self.evidence.following)

    def tokens_by_seq(self) -> Mapping[int, Tokens]:
        """Of the turns whose tokens are here."""
        if self.tokens is None:
            return {}
        at, (first, *ends) = self.tokens.at.tolist(), self.tokens.offsets.tolist()
        spans = zip(at, [first, *ends[:-1]], ends, strict=True)
        return {
            self.turns[ordinal].seq: self.tokens.tokens[start:end]
            for ordinal, start, end in spans
            if end > start and ordinal in self.turns
        }

    @property
    def candidates(self) -> int:
        """Turns that the first stage chose from."""
        return int(np.count_nonzero(self.evidence.eligible))


class Ranked(NamedTuple):
    """What a first stage gives: its best turns, best first; clues on those ahead where they are to be judged again."""

    found: list[Found]
    clues: Clues | None = None
    entities: tuple[str, ...] = ()
    """The keys of those that the query names."""


class Hot(NamedTuple):
    """The same of a block, with the turns' inner products with the query (NaN where not known)."""

    found: list[Found]
    inner: list[float]
    clues: Clues | None = None
    entities: tuple[str, ...] = ()
    """The keys of those that the query names."""


def head(ranking: Ranking) -> Ranking:
    return Ranking(ranking.ordinals[:RERANKED_MAX], ranking.scores[:RERANKED_MAX], ranking.parts[:RERANKED_MAX])


def clues_of(
    block: Block, question: Question, encoded: EncodedQuery | None, evidence: Evidence, ranking: Ranking
) -> Clues:
    """Of resident turns. The block is locked."""
    version = None if encoded is None else encoded.version
    clues = Clues(evidence, head(ranking), version=version, owner=block.key, applied_seq=block.applied_seq)
    if not len(clues.ranking.ordinals):
        return clues
    near = around(clues.ranking.ordinals, clues.links)
    seqs = [block.columns.seqs[ordinal] for ordinal in near.tolist()]
    turns = {
        ordinal: block.turns[seq].at(question.now)
        for ordinal, seq in zip(near.tolist(), seqs, strict=True)
        if seq in block.turns
    }
    clues = clues._replace(turns=turns)
    if not question.late or encoded is None or encoded.tokens is None or encoded.spans is None:
        return clues
    tokens, offsets = block.tokens(encoded.version, seqs, question.as_of)
    weights = token_weights(encoded.spans, question.query, block.columns.lexical, len(evidence.own))
    return clues._replace(tokens=TokenClues(encoded.tokens, weights, near, tokens, offsets))


def clues_beside(
    question: Question,
    encoded: EncodedQuery | None,
    evidence: Evidence,
    ranking: Ranking,
    turns: Sequence[Turn],
    lexical: LexicalIndex,
    tokens_of: Mapping[int, Tokens],
) -> Clues:
    """Of turns of several tiers, by place; `tokens_of`, by seq, those whose tokens are at hand."""
    version = None if encoded is None else encoded.version
    clues = Clues(evidence, head(ranking), dict(enumerate(turns)), version=version)
    if encoded is None or encoded.tokens is None or encoded.spans is None or not tokens_of:
        return clues
    near = around(clues.ranking.ordinals, clues.links)
    held = [tokens_of.get(turns[place].seq) for place in near.tolist()]
    sizes = [0 if one is None else len(one) for one in held]
    there = [one for one in held if one is not None]
    weights = token_weights(encoded.spans, question.query, lexical)
    flat = np.concatenate(there) if there else encoded.tokens[:0]
    return clues._replace(tokens=TokenClues(encoded.tokens, weights, near, flat, np.cumsum([0, *sizes])))


def shortlist_of(clues: Clues, question: Question) -> Shortlist:
    late = _late(clues)
    asked = Asked(question.query, asked_hour(question) * HOUR_US, question.said)
    features = rows(clues.evidence, clues.ranking, clues.turns.get, asked, late)
    ordinals = clues.ranking.ordinals
    return Shortlist(
        query=question.query,
        texts=lambda: [turn_text(clues.turns[ordinal]) for ordinal in ordinals.tolist()],
        scores=clues.ranking.scores,
        features=features,
        names=FEATURES,
    )


def asked_hour(question: Question) -> int:
    """How old a turn is counts by the hour: within it the same question is the same."""
    return question.asked_at // HOUR_US


def _late(clues: Clues) -> Late | None:
    if clues.tokens is None:
        return None
    return late_scores(*clues.tokens, clues.links)
