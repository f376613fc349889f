"""Turns of several tiers ranked together, by statistics over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Tier, Turn
from serve_app.ports import EncodedQuery, Tokens
from serve_app.retrieve.expand import named_date
from serve_app.retrieve.found import UNKNOWN, Found, found_of
from serve_app.retrieve.fuse import Evidence, date_match, moment_match, rank
from serve_app.retrieve.naming import entity_match_of
from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import RERANKED_MAX, Hot, Ranked, clues_beside
from serve_app.retrieve.warm import ReadTokens
from serve_app.stores.lexical import LexicalIndex
from serve_app.stores.packing import turn_text
from serve_app.stores.terms import code_terms, index_terms, query_terms
from serve_app.stores.views import day_number


def merged(
    hot: Hot,
    warm: Sequence[tuple[Turn, float]],
    question: Question,
    encoded: EncodedQuery | None,
    read_tokens: ReadTokens,
    cold: Sequence[Turn] = (),
) -> Ranked:
    """The best k of all tiers; cold turns have no vectors. `read_tokens` is asked for those that are judged again."""
    tiers: dict[int, Tier] = {found.turn.seq: "hot" for found in hot.found}
    tiers.update({turn.seq: "warm" for turn, _ in warm})
    tiers.update({turn.seq: "cold" for turn in cold})
    warm = [*warm, *((turn, UNKNOWN) for turn in cold)]
    turns = {found.turn.seq: found.turn for found in hot.found} | {turn.seq: turn for turn, _ in warm}
    ordered = [turns[seq] for seq in sorted(turns)]
    if not question.query.strip():
        newest = ordered[::-1][: question.k]
        return Ranked([Found(turn, 0.0, tiers[turn.seq]) for turn in newest])
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
        echo=_echo(ordered, question.drawn_from),
        entity=entity_match_of(hot.entities, ordered),
        moment=moment_match(question.window, np.array([turn.created_at for turn in ordered], np.int64)),
    )
    k = max(question.k, RERANKED_MAX) if question.rerank else question.k
    ranking = rank(evidence, question.mode, k, question.weights, exhaustive=question.exhaustive)
    chosen = [ordered[ordinal] for ordinal in ranking.ordinals.tolist()]
    clues = None
    if question.rerank:
        tokens: Mapping[int, Tokens] = {} if hot.clues is None else hot.clues.tokens_by_seq()
        if question.late:
            ahead = [turn.seq for turn in chosen[:RERANKED_MAX]]
            tokens = {**tokens, **read_tokens([seq for seq in ahead if tiers[seq] == "warm"])}
        clues = clues_beside(question, encoded, evidence, ranking, ordered, scratch, tokens)
    return Ranked(found_of(chosen, ranking, [tiers[turn.seq] for turn in chosen]), clues)


def _echo(turns: Sequence[Turn], drawn_from: frozenset[int]) -> NDArray[np.float32] | None:
    return np.array([turn.seq in drawn_from for turn in turns], np.float32) if drawn_from else None


def _known_dense(ordered: Sequence[Turn], hot: Hot, warm: Sequence[tuple[Turn, float]]) -> NDArray[np.float32]:
    known = {turn.seq: inner for turn, inner in warm}
    known |= {found.turn.seq: inner for found, inner in zip(hot.found, hot.inner, strict=True)}
    return np.array([known[turn.seq] for turn in ordered], np.float32)


def _days(turns: Sequence[Turn]) -> NDArray[np.int32]:
    return np.array([day_number(turn.created_at, turn.offset_minutes) for turn in turns], np.int32)
