"""Which of the turns that two sides found answer a query, where nobody has said so. Favours neither side.

Both sides' results are pooled, as in evaluations of retrieval (Spärck Jones and van Rijsbergen 1975), and the pool is
put in order by somebody who is on no side: the configured cross-encoder, which reads the texts alone. Without one words
count half (BM25 over the pool, which knows no version) and the late interaction of each version a quarter, all by rank
within the pool: what a version favours of its own finds, the other one favours of its own, and words decide. What
vectors alone found is judged by words alone, since each version would only praise itself. Pure but for the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from serve_app.stores.lexical import NO_TURN, LexicalIndex
from serve_app.stores.terms import index_terms, query_terms

Scores = NDArray[np.float64]

RELEVANT: Final = 3
"""So many of a pool, the first by the judge, count as answers; more where the last of them are judged alike."""

WORDS_SHARE: Final = 0.5

WAIT_S: Final = 10.0
"""For the cross-encoder to judge one pool."""

TEXT_CHARACTERS: Final = 4_096
"""So much of each turn is read."""


class Model(Protocol):
    """A cross-encoder."""

    @property
    def name(self) -> str: ...

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Scores]: ...


class Judge:
    """`in_force` gives the cross-encoder that searches are judged by at the moment, if any."""

    def __init__(self, in_force: Callable[[], Model | None] = lambda: None) -> None:
        self._in_force = in_force

    @property
    def _model(self) -> Model | None:
        return self._in_force()

    @property
    def name(self) -> str:
        return "words and late interaction" if self._model is None else self._model.name

    def relevant(self, query: str, pool: Mapping[int, str], opinions: Sequence[Mapping[int, float]]) -> frozenset[int]:
        """Of a pool of texts by seq; `opinions`: of each version, by seq, of those that it looked at.

        Empty where nothing can be told apart. Raises what the model raises.
        """
        seqs = list(pool)
        if self._model is not None:
            return _first(seqs, self._asked(self._model, query, pool))
        return _first(seqs, by_opinions(query, pool, opinions))

    def relevant_alone(self, query: str, pool: Mapping[int, str]) -> frozenset[int]:
        """The same for what vectors alone found, without anybody's vectors."""
        if self._model is not None:
            return _first(list(pool), self._asked(self._model, query, pool))
        scores = by_words(query, pool)
        sharing = {seq for seq, score in zip(pool, scores.tolist(), strict=True) if score > 0}
        return _first(list(pool), scores) & sharing

    def _asked(self, model: Model, query: str, pool: Mapping[int, str]) -> Scores:
        texts = [text[:TEXT_CHARACTERS] for text in pool.values()]
        deadline = time.monotonic() + WAIT_S
        return model.ask(query, texts, deadline).result(WAIT_S) if texts else np.zeros(0)


def by_words(query: str, pool: Mapping[int, str]) -> Scores:
    """BM25 of each text among those of the pool; 0 for one that shares no word with the query."""
    index = LexicalIndex()
    for text in pool.values():
        index.append(index_terms(text[:TEXT_CHARACTERS]), NO_TURN)
    own, _ = index.scores(query_terms(query))
    return own.astype(np.float64)


def by_opinions(query: str, pool: Mapping[int, str], opinions: Sequence[Mapping[int, float]]) -> Scores:
    """Words and versions, each by rank within the pool. What a version has not looked at is its last."""
    score = WORDS_SHARE * _ranked(by_words(query, pool))
    for opinion in opinions:
        of_version = np.array([opinion.get(seq, -np.inf) for seq in pool])
        score += (1 - WORDS_SHARE) / len(opinions) * _ranked(of_version)
    return score


def _ranked(scores: Scores) -> Scores:
    """From 0 for the last to 1 for the first; equal ones share the mean of their places. All equal: 0."""
    if len(scores) < 2 or (scores == scores[0]).all():
        return np.zeros(len(scores))
    below = (scores[:, None] > scores[None, :]).sum(axis=1)
    equal = (scores[:, None] == scores[None, :]).sum(axis=1) - 1
    return np.asarray((below + equal / 2) / (len(scores) - 1), np.float64)


def _first(seqs: Sequence[int], scores: Scores) -> frozenset[int]:
    """The best, none where all are judged alike."""
    if not len(seqs) or (len(seqs) > 1 and (scores == scores[0]).all()):
        return frozenset()
    least = np.sort(scores)[::-1][min(RELEVANT, len(scores)) - 1]
    return frozenset(seq for seq, score in zip(seqs, scores.tolist(), strict=True) if score >= least)
