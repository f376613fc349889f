"""Turns of several tiers ranked together, by statistics over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Tier, Turn
from serve_app.ports import EncodedQuery, Tokens
from serve_app.retrieve.boosts import boosts_of
from serve_app.retrieve.found import UNKNOWN, Found, found_of
from serve_app.retrieve.fuse import Evidence, rank, speaker_match
from serve_app.retrieve.hot import read_words
from serve_app.retrieve.naming import entity_match_of
from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import RERANKED_MAX, Hot, Ranked, clues_beside
from serve_app.retrieve.warm import ReadTokens
from serve_app.stores.columns import NO_SPEAKER
from serve_app.stores.lexical import LexicalIndex
from serve_app.stores.packing import turn_text
from serve_app.stores.terms import index_terms
from serve_app.stores.views import day_number

Newer = Callable[[Sequence[int]], NDArray[np.int64]]
"""Says of each of these seqs, ascending, how many of the turns that are judged by came after it."""


def merged(
    hot: Hot,
    warm: Sequence[tuple[Turn, float]],
    question: Question,
    encoded: EncodedQuery | None,
    read_tokens: ReadTokens,
    newer: Newer,
    cold: Sequence[Turn] = (),
) -> Ranked:
    """The best k of all tiers; cold turns have no vectors. `read_tokens` is asked for those that are judged again.

    `newer` tells how many of the owner's turns came after each of these.
    """
    tiers: dict[int, Tier] = {found.turn.seq: "hot" for found in hot.found}
    tiers.update({turn.seq: "warm" for turn, _ in warm})
    tiers.update({turn.seq: "cold" for turn in cold})
    warm = [*warm, *((turn, UNKNOWN) for turn in cold)]
    turns = {found.turn.seq: found.turn for found in hot.found} | {turn.seq: turn for turn, _ in warm}
    ordered = [turns[seq] for seq in sorted(turns)]
    if not question.query.strip():
        newest = ordered[::-1][: question.k]
        return Ranked([Found(turn, 0.0, tiers[turn.seq]) for turn in newest], entities=hot.entities)
    scratch, (terms, named) = LexicalIndex(), read_words(question.query)
    for turn in ordered:
        scratch.append(index_terms(turn_text(turn)), -1)
    own, window = scratch.scores(terms.wanted)
    links = scratch.links()
    evidence = Evidence(
        own=own,
        window=window,
        previous=links.previous,
        following=links.following,
        eligible=np.ones(len(ordered), np.bool_),
        dense=None if encoded is None else _known_dense(ordered, hot, warm),
        **boosts_of(_Gathered(ordered, scratch), question, terms, named, hot.entities)._asdict(),
        newer=newer([turn.seq for turn in ordered]),
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
    return Ranked(found_of(chosen, ranking, [tiers[turn.seq] for turn in chosen]), clues, hot.entities)


class _Gathered(NamedTuple):
    """A list of turns and the index of their words, as `boosts.Turns`."""

    turns: Sequence[Turn]
    lexical: LexicalIndex

    def seqs(self) -> NDArray[np.int64]:
        return np.array([turn.seq for turn in self.turns], np.int64)

    def days(self) -> NDArray[np.int32]:
        return np.array([day_number(turn.created_at, turn.offset_minutes) for turn in self.turns], np.int32)

    def times(self) -> NDArray[np.int64]:
        return np.array([turn.created_at for turn in self.turns], np.int64)

    def coverage(self, codes: Sequence[str]) -> NDArray[np.float32]:
        return self.lexical.coverage(codes)

    def speakers(self, terms: set[str]) -> NDArray[np.float32] | None:
        names = list(dict.fromkeys(turn.speaker for turn in self.turns if turn.speaker is not None))
        place: dict[str | None, int] = {name: at for at, name in enumerate(names)}
        of = np.array([place.get(turn.speaker, NO_SPEAKER) for turn in self.turns], np.int32)
        return speaker_match(terms, [frozenset(index_terms(name)) for name in names], of)

    def naming(self, keys: Sequence[str]) -> NDArray[np.float32] | None:
        return entity_match_of(keys, self.turns)


def _known_dense(ordered: Sequence[Turn], hot: Hot, warm: Sequence[tuple[Turn, float]]) -> NDArray[np.float32]:
    known = {turn.seq: inner for turn, inner in warm}
    known |= {found.turn.seq: inner for found, inner in zip(hot.found, hot.inner, strict=True)}
    return np.array([known[turn.seq] for turn in ordered], np.float32)
