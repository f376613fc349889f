"""Several scores of one user's turns become one ranking. Pure functions on arrays, nothing remembered.

Every array is indexed by ordinal. Each arm is scaled to 0..1 per query over all turns that are
there, so that the weights mean the same for every query; filters come after, so that a filtered
search is the unfiltered one with the other turns left out: none of the rest is lost or reordered.
A turn whose vector is not there yet is judged by its words alone.

Scores are rounded to 1e-4, and of equal ones the newer turn (larger ordinal) comes first, so that
the last bits of a vector, which depend on the batch it was embedded in, decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import Mode
from serve_app.retrieve.expand import NamedDate

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]

SCORE_STEPS: Final = 10_000
"""Scores are whole numbers of 1 / SCORE_STEPS."""

ARMS: Final = ("dense", "dense_window", "bm25", "bm25_window", "code", "speaker", "date")
"""Columns of `Ranking.parts`, in the order of the weights."""

_OWN_SHARE: Final = 0.5
"""What a turn's own vector counts in its dense window; each neighbour counts half of the rest."""

_SPREAD_MIN: Final = 0.02
"""Vectors' scores that lie closer together than this say nothing: scaling would only magnify their noise."""

_WEIGHT_MIN: Final = 1e-6
"""Below this an arm counts as switched off."""


class FusionWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each arm counts. The first four sum to 1; the others come on top where the query gives cause.

    `code` is as much as both dense arms together: of many look-alikes of an id that a query names,
    the turn with the very id comes first however alike the vectors find the others.
    """

    dense: float = 0.3
    dense_window: float = 0.2
    bm25: float = 0.25
    bm25_window: float = 0.25
    code: float = 0.5
    speaker: float = 0.05
    date: float = 0.1


class Evidence(NamedTuple):
    """What is known about each turn for one query; all of shape (n,)."""

    own: Floats
    """BM25 of the turn's own terms; above 0 exactly where it holds a term of the query."""
    window: Floats
    """BM25 of the turn with its neighbours."""
    previous: Ints
    following: Ints
    eligible: Mask
    """Turns that may be results: alive, not expired, and satisfying every filter."""
    dense: Floats | None = None
    """Inner products with the query's vector, NaN where a turn has no vector (yet)."""
    code: Floats | None = None
    """Share of the query's codes that the turn holds, 0 to 1."""
    speaker: Floats | None = None
    """1 where the query names the turn's speaker, else 0."""
    date: Floats | None = None
    """Share of the date in the query that is the turn's date, 0 to 1."""


class Ranking(NamedTuple):
    """The best turns, best first."""

    ordinals: Ints
    """Shape (k,)."""
    scores: Floats
    """Shape (k,), rounded."""
    parts: Floats
    """Shape (k, len(ARMS)): what each arm added to the score."""


def rank(evidence: Evidence, mode: Mode, k: int, weights: FusionWeights) -> Ranking:
    """The k best eligible turns.

    Lexical mode gives only turns that hold a term of the query, dense mode only those with a vector,
    hybrid any: a filter's matches are complete even where nothing in them resembles the query.
    """
    parts = _parts(evidence, _of_mode(weights, mode))
    steps = np.rint(parts.sum(axis=0) * SCORE_STEPS).astype(np.int64)
    chosen = _best(steps, np.flatnonzero(_candidates(evidence, mode)), k)
    return Ranking(chosen.astype(np.int32), (steps[chosen] / SCORE_STEPS).astype(np.float32), parts[:, chosen].T)


def dense_window(dense: Floats, previous: Ints, following: Ints) -> Floats:
    """Score of the weighted mean of a turn's vector and its neighbours', from their scores alone.

    The inner product is linear, so this is exact but for the mean's length. A neighbour that is
    missing or has no vector leaves its share to the others; without any vector it is NaN.
    """
    padded = np.append(dense, np.float32(np.nan))
    around = np.stack([padded[:-1], padded[previous], padded[following]])
    side = (1 - _OWN_SHARE) / 2
    shares = np.array([[_OWN_SHARE], [side], [side]], np.float32) * ~np.isnan(around)
    with np.errstate(invalid="ignore"):
        return np.asarray((np.nan_to_num(around) * shares).sum(axis=0) / shares.sum(axis=0), np.float32)


def speaker_match(query: frozenset[str], names: Sequence[frozenset[str]], speaker_of: Ints) -> Floats:
    """1 where one of the terms of the speaker's name is a term of the query.

    names: terms of each distinct speaker's name; speaker_of (n,): index into names, -1 for none.
    """
    named = np.array([bool(query & name) for name in names] + [False], np.float32)
    return np.asarray(named[speaker_of], np.float32)


def date_match(named: NamedDate, days: Ints) -> Floats:
    """Share of the parts of a named date (year, month, day) that each day (20230508) has; 0 for no date."""
    wanted = [part for part in named if part is not None]
    if not wanted:
        return np.zeros(len(days), np.float32)
    columns = (days // 10_000, days // 100 % 100, days % 100)
    hits = [column == part for column, part in zip(columns, named, strict=True) if part is not None]
    return np.asarray(np.mean(hits, axis=0), np.float32)


def _of_mode(weights: FusionWeights, mode: Mode) -> FusionWeights:
    """The weights with the arms of the other side at 0, and those that stay summing to what they did."""
    if mode == "hybrid":
        return weights
    lexical = mode == "lexical"
    kept = weights.bm25 + weights.bm25_window if lexical else weights.dense + weights.dense_window
    if kept < _WEIGHT_MIN:
        raise ValueError(f"these weights leave nothing to rank by in {mode} mode")
    return FusionWeights(
        dense=0.0 if lexical else weights.dense / kept,
        dense_window=0.0 if lexical else weights.dense_window / kept,
        bm25=weights.bm25 / kept if lexical else 0.0,
        bm25_window=weights.bm25_window / kept if lexical else 0.0,
        code=weights.code if lexical else 0.0,
        speaker=weights.speaker if lexical else 0.0,
        date=weights.date if lexical else 0.0,
    )


def _parts(evidence: Evidence, weights: FusionWeights) -> Floats:
    """What each arm adds to each turn, shape (len(ARMS), n)."""
    lexical = [weights.bm25 * _over_best(evidence.own), weights.bm25_window * _over_best(evidence.window)]
    kept = max(weights.bm25 + weights.bm25_window, _WEIGHT_MIN)
    by_words = np.asarray((lexical[0] + lexical[1]) / kept, np.float32)
    boosts = [
        np.zeros_like(by_words) if arm is None else weight * arm
        for arm, weight in (
            (evidence.code, weights.code),
            (evidence.speaker, weights.speaker),
            (evidence.date, weights.date),
        )
    ]
    return np.stack([*_dense_parts(evidence, weights, by_words), *lexical, *boosts]).astype(np.float32)


def _dense_parts(evidence: Evidence, weights: FusionWeights, by_words: Floats) -> tuple[Floats, Floats]:
    if evidence.dense is None:
        return weights.dense * by_words, weights.dense_window * by_words
    around = dense_window(evidence.dense, evidence.previous, evidence.following)
    present = ~np.isnan(evidence.dense)
    own: Floats = np.where(present, _between_extremes(evidence.dense), by_words)
    window: Floats = np.where(present, _between_extremes(around), by_words)
    return weights.dense * own, weights.dense_window * window


def _over_best(scores: Floats) -> Floats:
    """BM25 has a true zero, so only its best is taken for 1."""
    best = scores.max(initial=0.0)
    return scores / best if best > 0 else scores


def _between_extremes(scores: Floats) -> Floats:
    """The best becomes 1, and the worst 0 unless it is about as good. NaN stays."""
    there = scores[~np.isnan(scores)]
    if not len(there):
        return scores
    low, high = there.min(), there.max()
    return np.asarray(1 - (high - scores) / max(high - low, _SPREAD_MIN), np.float32)


def _candidates(evidence: Evidence, mode: Mode) -> Mask:
    if mode == "lexical":
        return evidence.eligible & (evidence.own > 0)
    if mode == "hybrid":
        return evidence.eligible
    return np.zeros_like(evidence.eligible) if evidence.dense is None else evidence.eligible & ~np.isnan(evidence.dense)


def _best(steps: NDArray[np.int64], candidates: NDArray[np.intp], k: int) -> NDArray[np.intp]:
    """Score and ordinal in one integer: a total order, so that even a partition is deterministic."""
    keys = (steps[candidates] << 32) + candidates
    if k < len(keys):
        keep = np.argpartition(keys, len(keys) - k)[len(keys) - k :]
        keys, candidates = keys[keep], candidates[keep]
    return candidates[np.argsort(keys)[::-1]]
