"""Several scores of one user's turns become one ranking. Pure functions on arrays, nothing remembered.

Every array is indexed by ordinal. Each arm is scaled to 0..1 per query over all turns that are
there, so that the weights mean the same for every query; filters come after, so that a filtered
search is the unfiltered one with the other turns left out: none of the rest is lost or reordered.
A turn whose vector is not there yet is judged by its words alone.

Scores are rounded to 1e-4, and of equal ones the newer turn (larger ordinal) comes first, so that
the last bits of a vector, which depend on the batch it was embedded in, decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import Mode, TimeWindow
from serve_app.retrieve.expand import NO_DATE, NamedDate

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Places = NDArray[np.intp]
Mask = NDArray[np.bool_]

SCORE_STEPS: Final = 10_000
"""Scores are whole numbers of 1 / SCORE_STEPS."""

ARMS: Final = ("dense", "dense_window", "bm25", "bm25_window", "code", "speaker", "date", "window", "echo", "entity")
"""Columns of `Ranking.parts`, in the order of the weights."""

OWN_SHARE: Final = 0.5
"""What a turn's own vector counts in its dense window; each neighbour counts half of the rest."""

_SPREAD_MIN: Final = 0.02
"""Vectors' scores that lie closer together than this say nothing: scaling would only magnify their noise."""

_SCORE_MIN: Final = np.finfo(np.float32).tiny
"""A score below it is none: it could not be divided by."""

VAGUE_SHARE: Final = 0.5
"""What a window that a query only hints at counts of one that it names."""

MODES_REMEMBERED: Final = 16
"""Weights by mode that are kept ready."""

_WEIGHT_MIN: Final = 1e-6
"""Below this an arm counts as switched off."""


class FusionWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each arm counts. The first four sum to 1; the others come on top where the query gives cause.

    `entity` only decides between turns that are about as good: a name is a word, which BM25 knows already.
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
    window: float = 0.1
    echo: float = -0.5
    entity: float = 0.015


class Evidence(NamedTuple):
    """What is known about each turn for one query; all of shape (n,)."""

    own: Floats
    """BM25 of the turn's own terms; above 0 exactly where it holds a term of the query."""
    window: Floats
    """BM25 of the turn with its neighbours."""
    previous: Places
    following: Places
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
    echo: Floats | None = None
    """1 where the query's rewrite took its words from the turn, else 0: it is like the query whatever that asks."""
    moment: Floats | None = None
    """How much the turn lies in the query's window of time, 0 to 1; half of it where the query only hints at one."""
    entity: Floats | None = None
    """Share of the entities that the query names that the turn names, too, 0 to 1."""
    newer: NDArray[np.int64] | None = None
    """How many of the owner's turns came after each, where its ordinal does not tell: only some turns are judged."""


class Ranking(NamedTuple):
    """The best turns, best first."""

    ordinals: Ints
    """Shape (k,)."""
    scores: NDArray[np.float64]
    """Shape (k,), rounded."""
    parts: NDArray[np.float64]
    """Shape (k, len(ARMS)), rounded: what each arm added to the score."""


def rank(evidence: Evidence, mode: Mode, k: int, weights: FusionWeights, *, exhaustive: bool = False) -> Ranking:
    """The k best eligible turns.

    Lexical mode gives only turns that hold a term of the query, dense mode only those with a vector,
    hybrid any. `exhaustive`: any in every mode, so that the matches of a filter are complete even where nothing in
    them resembles the query.
    """
    arms = _arms(evidence, of_mode(weights, mode))
    total = np.zeros(len(evidence.own), np.float32)
    for added in arms.values():
        total += added
    steps = np.rint(total * SCORE_STEPS).astype(np.int64)
    chosen = _best(steps, np.flatnonzero(_candidates(evidence, "hybrid" if exhaustive else mode)), k)
    parts = np.zeros((len(chosen), len(ARMS)))
    for arm, added in arms.items():
        parts[:, ARMS.index(arm)] = added[chosen]
    return Ranking(chosen.astype(np.int32), steps[chosen] / SCORE_STEPS, np.rint(parts * SCORE_STEPS) / SCORE_STEPS)


def dense_window(dense: Floats, previous: Places, following: Places) -> Floats:
    """Score of the weighted mean of a turn's vector and its neighbours', from their scores alone.

    The inner product is linear, so this is exact but for the mean's length. A neighbour that is
    missing or has no vector leaves its share to the others; without any vector it is NaN.
    """
    side = np.float32((1 - OWN_SHARE) / 2)
    lacking = np.isnan(dense)
    if not lacking.any():
        known = np.append(dense, np.float32(0))  # the last one stands for an absent neighbour
        there = OWN_SHARE + side * ((previous >= 0).astype(np.float32) + (following >= 0))
        return np.asarray((OWN_SHARE * dense + side * (known[previous] + known[following])) / there, np.float32)
    known, present = np.append(np.nan_to_num(dense), np.float32(0)), np.append(~lacking, False).astype(np.float32)
    score = OWN_SHARE * known[:-1] + side * (known[previous] + known[following])
    share = OWN_SHARE * present[:-1] + side * (present[previous] + present[following])
    with np.errstate(invalid="ignore"):
        return np.asarray(score / share, np.float32)


def speaker_match(query: Set[str], names: Sequence[frozenset[str]], speaker_of: Ints) -> Floats | None:
    """1 where one of the terms of the speaker's name is a term of the query.

    names: terms of each distinct speaker's name; speaker_of (n,): index into names, -1 for none. None: no one of those
    who speak here is named.
    """
    named = [not name.isdisjoint(query) for name in names]
    found = np.array([*named, False], np.float32)[speaker_of] if any(named) else None
    return found if found is not None and found.any() else None


def date_match(named: NamedDate, days: Ints) -> Floats | None:
    """Share of the parts of a named date (year, month, day) that each day (20230508) has; None for no date."""
    if named == NO_DATE:
        return None
    columns = (days // 10_000, days // 100 % 100, days % 100)
    hits = [column == part for column, part in zip(columns, named, strict=True) if part is not None]
    return np.asarray(np.mean(hits, axis=0), np.float32)


def moment_match(window: TimeWindow | None, times: NDArray[np.int64]) -> Floats | None:
    """1 for each time (microseconds) in the window, 0 outside, halved where it is vague. None: no window."""
    if window is None:
        return None
    start, end = window.bounds
    inside = ((times >= start) & (times < end)).astype(np.float32)
    return inside if window.certain else inside * np.float32(VAGUE_SHARE)


@lru_cache(maxsize=MODES_REMEMBERED)
def of_mode(weights: FusionWeights, mode: Mode) -> FusionWeights:
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
        window=weights.window if lexical else 0.0,
        echo=weights.echo,
        entity=weights.entity if lexical else 0.0,
    )


def _arms(evidence: Evidence, weights: FusionWeights) -> dict[str, Floats]:
    """What each arm that counts adds to each turn, shape (n,) each; added up in this order."""
    bm25 = {
        "bm25": _over_best(evidence.own, weights.bm25),
        "bm25_window": _over_best(evidence.window, weights.bm25_window),
    }
    boosts = (
        ("code", evidence.code, weights.code),
        ("speaker", evidence.speaker, weights.speaker),
        ("date", evidence.date, weights.date),
        ("window", evidence.moment, weights.window),
        ("echo", evidence.echo, weights.echo),
        ("entity", evidence.entity, weights.entity),
    )
    kept = max(weights.bm25 + weights.bm25_window, _WEIGHT_MIN)
    lexical: dict[str, Floats] = bm25 | {arm: weight * felt for arm, felt, weight in boosts if felt is not None}
    if max(weights.dense, weights.dense_window) < _WEIGHT_MIN:
        return lexical
    dense = _dense_arms(evidence, weights, np.float32(1 / kept) * (bm25["bm25"] + bm25["bm25_window"]))
    return dense | lexical


def _dense_arms(evidence: Evidence, weights: FusionWeights, by_words: Floats) -> dict[str, Floats]:
    """A turn without a vector is judged by its words."""
    if evidence.dense is None:
        return {"dense": weights.dense * by_words, "dense_window": weights.dense_window * by_words}
    around = dense_window(evidence.dense, evidence.previous, evidence.following)
    own, window = _between_extremes(evidence.dense, weights.dense), _between_extremes(around, weights.dense_window)
    lacking = np.isnan(own)
    if lacking.any():
        own = np.where(lacking, weights.dense * by_words, own)
        window = np.where(lacking, weights.dense_window * by_words, window)
    return {"dense": own, "dense_window": window}


def _over_best(scores: Floats, weight: float) -> Floats:
    """BM25 has a true zero, so only its best is taken for 1."""
    best = scores.max(initial=0.0)
    return scores * np.float32(weight / best) if best > _SCORE_MIN else np.zeros_like(scores)


def _between_extremes(scores: Floats, weight: float) -> Floats:
    """The best becomes 1, and the worst 0 unless it is about as good. NaN stays."""
    low, high = np.fmin.reduce(scores, initial=np.inf), np.fmax.reduce(scores, initial=-np.inf)
    if high < low:  # there is none
        return scores
    steep = weight / max(float(high - low), _SPREAD_MIN)
    return scores * np.float32(steep) + np.float32(weight - steep * float(high))


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
