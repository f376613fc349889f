"""Finding turns of a large user: all of them are ranked at once, resident or not, by statistics over all.

Words are scored exactly. Vectors are scored roughly first; what may be among the best by all that is known, with its
neighbours, is scored to a thousandth, and the ranking is that of `fuse.rank` over those. The turns that set its scales
(the best by each arm, and about the worst by the vectors) are among them, so that it is the ranking over all, up to
roundings and to what the rough look overlooks (docs/measurements.md has the share).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import EncodedQuery
from serve_app.retrieve.boosts import Boosts, boosted, boosts_of
from serve_app.retrieve.expand import NamedDate
from serve_app.retrieve.fuse import OWN_SHARE, Evidence, Floats, FusionWeights, Mask, Ranking, of_mode, rank
from serve_app.retrieve.naming import entity_match
from serve_app.retrieve.question import Question
from serve_app.stores.block import Block
from serve_app.stores.field import Field, distinct
from serve_app.stores.terms import QueryTerms

CANDIDATES_A_RESULT: Final = 4

SAMPLED: Final = 4_096
"""Scores that show about where the best begin, so that the others need not be sorted: many of them are equal."""

_SPREAD: Final = 0.02
"""As in `fuse.py`."""


class Breadth(NamedTuple):
    """How many turns are looked at more closely: more cost time in proportion (docs/measurements.md)."""

    rough: int = 1_024
    """Of each volume so many that are best by their vectors' codes; of any other turn only the words count."""
    candidates: int = 512
    """Turns that are ranked, with their neighbours; at least `CANDIDATES_A_RESULT` times the results."""
    extremes: int = 16
    """Of each arm so many of the best, and of the vectors of the worst, are ranked for the scales' sake."""


BREADTH: Final = Breadth()


class Chosen(NamedTuple):
    """The ranking is one of places among the `seqs`, ascending: the candidates, and turns around them."""

    seqs: NDArray[np.int64]
    evidence: Evidence
    ranking: Ranking


class _Words(NamedTuple):
    """Arms that need no vector, shape (n,) each."""

    own: Floats
    window: Floats
    boosts: Boosts


def ranked(
    block: Block,
    field: Field,
    question: Question,
    encoded: EncodedQuery | None,
    terms: QueryTerms,
    named: NamedDate,
    entities: Sequence[str] = (),
    breadth: Breadth = BREADTH,
) -> Chosen:
    """More than are asked for, as some may have expired. Under the block's lock."""
    own, window = field.scores(terms.wanted)
    words = _Words(own, window, boosts_of(_All(field), question, terms, named, entities))
    eligible = field.alive.copy()
    if question.as_of is not None:
        eligible &= field.seqs <= question.as_of
    dense = encoded if question.mode != "lexical" else None
    newest = np.empty(0, np.float32)
    if dense is not None:  # exactly, of the turns after the volumes
        newest = block.dense(dense.version, dense.vector, len(field.columns.seqs), None)[field.first :]
    rough = None if dense is None else _rough(field, dense, newest, breadth)
    chosen = _candidates(field, words, rough, eligible, question, breadth)
    around = _with_neighbours(field, chosen)
    inner = None if dense is None else _inner(field, dense, newest, around)
    evidence = _evidence(field, words, around, _among(around, chosen) & eligible[around], inner)
    last = int(np.flatnonzero(eligible)[-1:].sum())
    evidence = evidence._replace(newer=np.maximum(last - around, 0))
    ranking = rank(evidence, question.mode, len(chosen), question.weights)
    return Chosen(field.seqs[around], evidence, ranking)


class _All(NamedTuple):
    """All turns of the user, as `boosts.Turns`."""

    field: Field

    def seqs(self) -> NDArray[np.int64]:
        return self.field.seqs

    def days(self) -> NDArray[np.int32]:
        return self.field.days()

    def times(self) -> NDArray[np.int64]:
        return self.field.times()

    def coverage(self, codes: Sequence[str]) -> Floats:
        return self.field.coverage(codes)

    def speakers(self, terms: set[str]) -> Floats | None:
        return self.field.speakers(terms)

    def naming(self, keys: Sequence[str]) -> Floats | None:
        return entity_match(keys, self.field, self.field.size)


# ---- vectors


class _Rough(NamedTuple):
    """What the first look at the vectors finds."""

    ordinals: NDArray[np.int64]
    """Turns that may be alike, each once."""
    scores: Floats
    """About their inner products."""
    floor: float
    """About the most that any other turn's is."""
    worst: NDArray[np.int64]
    """About the least alike turns."""


def _rough(field: Field, encoded: EncodedQuery, newest: Floats, breadth: Breadth) -> _Rough:
    ordinals, scores, worst, floor = [], [], [], -np.inf
    for start, volume in zip(field.base.starts, field.base.volumes, strict=True):
        held = volume.vectors.get(encoded.version)
        if held is None or not len(held.rough):
            continue
        look = held.rough.look(encoded.vector, breadth.rough, breadth.extremes)
        ordinals.append(held.turns[look.best] + start)
        scores.append(look.scores)
        worst.append(held.turns[look.worst] + start)
        if len(look.best) < len(held.rough):
            floor = max(floor, float(look.scores.min()))
    ordinals.append(np.flatnonzero(~np.isnan(newest)) + field.start)
    scores.append(newest[~np.isnan(newest)])
    worst.append(ordinals[-1][np.argsort(scores[-1])[: breadth.extremes]])
    return _Rough(*_best_parts(np.concatenate(ordinals), np.concatenate(scores)), floor, np.concatenate(worst))


def _best_parts(ordinals: NDArray[np.int64], scores: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Each turn once, with the score of its best part. Given in order, the parts of a turn side by side."""
    starts = np.flatnonzero(np.append(True, ordinals[1:] != ordinals[:-1])) if len(ordinals) else ordinals
    return (
        (ordinals, scores) if len(starts) == len(ordinals) else (ordinals[starts], np.maximum.reduceat(scores, starts))
    )


def _inner(field: Field, encoded: EncodedQuery, newest: Floats, ordinals: NDArray[np.int64]) -> Floats:
    """Of these turns, ascending, to about a thousandth; NaN where a turn has no vector (yet)."""
    found = np.full(len(ordinals), np.nan, np.float32)
    for start, volume in zip(field.base.starts, field.base.volumes, strict=True):
        held = volume.vectors.get(encoded.version)
        if held is None:
            continue
        low, high = np.searchsorted(ordinals, (start, start + len(volume.seqs)))
        wanted = ordinals[low:high] - start
        first, last = np.searchsorted(held.turns, wanted), np.searchsorted(held.turns, wanted, "right")
        parts = last - first
        for part in range(int(parts.max(initial=0))):
            has = np.flatnonzero(parts > part)
            scores = held.rough.scores(encoded.vector, first[has] + part)
            found[low + has] = np.fmax(found[low + has], scores)
    if field.base.muted is not None:
        old = ordinals < field.start
        found[old] = np.where(field.base.muted[ordinals[old]], np.nan, found[old])
    late = ordinals >= field.start
    found[late] = newest[ordinals[late] - field.start]
    return found


# ---- candidates


def _candidates(
    field: Field, words: _Words, rough: _Rough | None, eligible: Mask, question: Question, breadth: Breadth
) -> NDArray[np.int64]:
    """Those that may be among the best by all arms, ascending, and those that set the scales."""
    weights = of_mode(question.weights, question.mode)
    total = np.zeros(field.size + 1, np.float32)  # the last one stands for no neighbour
    total[:-1] = _over_best(words.own, weights.bm25) + _over_best(words.window, weights.bm25_window)
    scaling = [_top(words.own, breadth.extremes), _top(words.window, breadth.extremes)]
    for arm, weight in boosted(weights, words.boosts):
        total[:-1] += weight * arm
    if rough is not None:
        scaling += [rough.ordinals[_top(rough.scores, breadth.extremes)], rough.worst]
        _add_rough(total, field, rough, weights)
    total = total[:-1]
    total[~eligible] = -np.inf
    if question.mode == "lexical":
        total[words.own <= 0] = -np.inf
    best = _top(total, max(breadth.candidates, CANDIDATES_A_RESULT * question.k))
    return distinct(np.concatenate((best[total[best] > -np.inf], *scaling)))


def _add_rough(total: Floats, field: Field, rough: _Rough, weights: FusionWeights) -> None:
    """What each turn's vector may add to its own total, and to those of its neighbours, over what the floor adds."""
    if not len(rough.scores):
        return
    scale = max(float(rough.scores.max() - rough.scores.min()), _SPREAD)
    above = np.maximum(rough.scores - max(rough.floor, float(rough.scores.min())), 0) / scale
    total[rough.ordinals] += (weights.dense + OWN_SHARE * weights.dense_window) * above
    beside = np.float32((1 - OWN_SHARE) / 2 * weights.dense_window) * above
    for near in (field.previous[rough.ordinals], field.following[rough.ordinals]):
        total[near] += beside  # a turn is before, or after, one other at most


def _over_best(scores: Floats, weight: float) -> Floats:
    best = float(scores.max(initial=0.0))
    return scores * np.float32(weight / best) if best > 0 else scores


def _top(scores: Floats, k: int) -> NDArray[np.int64]:
    """Ordinals of about the k largest. Of many that are equal, as zeros are, those at the cut-off may lack."""
    if len(scores) <= k:
        return np.arange(len(scores))
    sample = np.sort(scores[:: max(1, len(scores) // SAMPLED)])
    pivot = sample[max(0, len(sample) - 1 - 2 * -(-k * len(sample) // len(scores)))]
    above = np.flatnonzero(scores > pivot)
    if len(above) < k:
        above = np.flatnonzero(scores >= pivot)
    return above if len(above) <= k else above[np.argpartition(scores[above], len(above) - k)[len(above) - k :]]


def _among(around: NDArray[np.int64], chosen: NDArray[np.int64]) -> Mask:
    mask = np.zeros(len(around), np.bool_)
    mask[np.searchsorted(around, chosen)] = True
    return mask


def _with_neighbours(field: Field, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """With the turns before and after each and those beside these, so that their windows are whole."""
    near = chosen
    for _ in range(2):
        beside = np.concatenate((near, field.previous[near], field.following[near]))
        near = distinct(beside[beside < field.size])
    return near


def _evidence(field: Field, words: _Words, around: NDArray[np.int64], eligible: Mask, inner: Floats | None) -> Evidence:
    return Evidence(
        own=words.own[around],
        window=words.window[around],
        previous=_places(around, field.previous[around], field.size),
        following=_places(around, field.following[around], field.size),
        eligible=eligible,
        dense=inner,
        **{arm: None if felt is None else felt[around] for arm, felt in words.boosts._asdict().items()},
    )


def _places(around: NDArray[np.int64], wanted: NDArray[np.int64], absent: int) -> NDArray[np.intp]:
    places = np.searchsorted(around, wanted)
    there = (wanted != absent) & (around[np.minimum(places, len(around) - 1)] == wanted)
    return np.where(there, places, -1)
