"""What a ranker is told of each candidate: one row of named columns, the same in training and in a search.

Pure. `rows` takes what the first stage knew (`fuse.Evidence`), its list, late interaction where there is any, and
plain facts of the turns. What is not known is NaN, never a guess. Columns are compared within one query, so most
are relative: to the best of all turns, to the best of the list, to the turns around.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.core import SECOND_US, Turn
from serve_app.retrieve.fuse import Evidence, Ranking, dense_window
from serve_app.retrieve.late import Late
from serve_app.stores.terms import query_terms, unspaced_runs

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Rows = NDArray[np.float32]
"""Shape (candidates, len(FEATURES))."""

TEXT_CHARACTERS_MAX: Final = 4_096
"""Of a longer turn, so much is looked at for what kind of text it is."""

TAIL_CHARACTERS: Final = 32
"""The end of a turn, by which it is a question or not."""

_DAY_US: Final = 24 * 3600 * SECOND_US
_BEST: Final = 10
"""How many of the list's first the newness of a candidate is judged among."""

_DIGIT: Final = re.compile(r"\d")
_CLOSING: Final = " \n\t\"'”’」）)*_。.!！~～…"
_QUESTION_ENDS: Final = ("?", "？", "吗", "嗎", "呢")


def of_late(name: str) -> bool:
    """Whether a column is NaN where there are no tokens."""
    return name.startswith("late_") or name in ("window_apart", "window_rank", "session_late")


def of_dense(name: str) -> bool:
    """Whether a column is NaN where there are no vectors."""
    return name.startswith("dense") or name == "session_dense"


class Asked(NamedTuple):
    """What is known of the query beside the evidence."""

    query: str
    """As it is searched, after the rewrite."""
    now: int
    said: tuple[str, ...] = ()
    """Texts of the turns that it follows, where it was asked in a conversation."""


FEATURES: Final = (
    "first_rank",
    "fused",
    "fused_behind",
    "dense",
    "dense_scaled",
    "dense_window",
    "dense_window_scaled",
    "dense_before",
    "dense_after",
    "bm25",
    "bm25_scaled",
    "bm25_window",
    "bm25_window_scaled",
    "bm25_before",
    "bm25_after",
    "code",
    "speaker",
    "speaker_named",
    "date",
    "moment",
    "entity",
    "late_plain",
    "late_plain_behind",
    "late_weighted",
    "late_weighted_behind",
    "late_window",
    "late_window_behind",
    "late_least",
    "late_reverse",
    "late_rank",
    "late_before",
    "late_after",
    "session_fused",
    "session_dense",
    "session_late",
    "session_share",
    "length",
    "is_question",
    "has_digit",
    "is_user",
    "is_assistant",
    "is_tool",
    "is_said",
    "after_question",
    "turns_ago",
    "days_ago",
    "newer_than",
    "query_length",
    "query_unspaced",
    "fused_apart",
    "dense_apart",
    "dense_rank",
    "late_apart",
    "window_apart",
    "window_rank",
    "bm25_apart",
    "bm25_rank",
)
"""The columns of a row, in order."""


def rows(
    evidence: Evidence, ranking: Ranking, turn_of: Callable[[int], Turn | None], asked: Asked, late: Late | None
) -> Rows:
    """One row a candidate of `ranking`, in its order. `turn_of` gives a turn by ordinal, None where it is not here."""
    at = ranking.ordinals
    turns = [turn_of(ordinal) for ordinal in at.tolist()]
    columns = _of_first_stage(evidence, ranking)
    columns |= _of_late(late, evidence, at)
    columns |= _of_turns(turns, asked)
    columns |= _of_places(evidence, at, turn_of)
    columns |= _of_query(asked.query)
    columns |= _of_sessions(columns, [turn.session if turn else "" for turn in turns])
    columns |= _of_newness(columns, at)
    columns |= _within_list(columns, len(at))
    table = np.full((len(at), len(FEATURES)), np.nan, np.float32)
    for place, name in enumerate(FEATURES):
        table[:, place] = columns[name]
    return table


Columns = dict[str, NDArray[Any] | float]


def _of_first_stage(evidence: Evidence, ranking: Ranking) -> Columns:
    at, fused = ranking.ordinals, ranking.scores.astype(np.float32)
    columns: Columns = {
        "first_rank": np.arange(len(at)),
        "fused": fused,
        "fused_behind": fused - fused.max(initial=0.0),
        "bm25": evidence.own[at],
        "bm25_scaled": _share_of_best(evidence.own)[at],
        "bm25_window": evidence.window[at],
        "bm25_window_scaled": _share_of_best(evidence.window)[at],
    }
    beside = _share_of_best(evidence.own)
    columns["bm25_before"], columns["bm25_after"] = _of_neighbours(beside, evidence, at)
    for name in ("code", "speaker", "date", "moment", "entity"):
        found: Floats | None = getattr(evidence, name, None)
        columns[name] = np.nan if found is None else found[at]
    columns["speaker_named"] = float(evidence.speaker is not None)
    dense = evidence.dense
    if dense is None:
        lacking = ("dense", "dense_scaled", "dense_window", "dense_window_scaled", "dense_before", "dense_after")
        return columns | dict.fromkeys(lacking, np.nan)
    around = dense_window(dense, evidence.previous, evidence.following)
    columns |= {"dense": dense[at], "dense_scaled": _between(dense)[at]}
    columns |= {"dense_window": around[at], "dense_window_scaled": _between(around)[at]}
    columns["dense_before"], columns["dense_after"] = _of_neighbours(dense, evidence, at)
    return columns


def _of_late(late: Late | None, evidence: Evidence, at: Ints) -> Columns:
    names = ("plain", "weighted", "window")
    if late is None:
        alone = ("late_least", "late_reverse", "late_before", "late_after")
        return dict.fromkeys([f"late_{name}{end}" for name in names for end in ("", "_behind")] + [*alone], np.nan)
    columns: Columns = {}
    for name in names:
        found: Floats = getattr(late, name)[at]
        columns |= {f"late_{name}": found, f"late_{name}_behind": found - np.fmax.reduce(found, initial=-1.0)}
    columns |= {"late_least": late.least[at], "late_reverse": late.reverse[at]}
    columns["late_before"], columns["late_after"] = _of_neighbours(late.weighted, evidence, at)
    return columns


def _of_turns(turns: Sequence[Turn | None], asked: Asked) -> Columns:
    """What each candidate is by itself."""
    said = frozenset(asked.said)
    facts = [_unknown_turn if turn is None else _facts(turn, asked.now, said) for turn in turns]
    table = np.array(facts, np.float32).reshape(len(turns), len(_FACTS))
    return {name: table[:, place] for place, name in enumerate(_FACTS)}


_FACTS: Final = ("length", "is_question", "has_digit", "is_user", "is_assistant", "is_tool", "is_said", "days_ago")
_unknown_turn: Final = (np.nan,) * len(_FACTS)


def _facts(turn: Turn, now: int, said: frozenset[str]) -> tuple[float, ...]:
    text = turn.text
    seen = text[:TEXT_CHARACTERS_MAX]
    return (
        math.log1p(len(seen) if seen.isascii() else len(seen.encode(errors="replace"))),
        _asks(text),
        _DIGIT.search(seen) is not None,
        turn.role == "user",
        turn.role == "assistant",
        turn.role == "tool",
        text in said,
        math.log1p(max(now - turn.created_at, 0) / _DAY_US),
    )


def _of_places(evidence: Evidence, at: Ints, turn_of: Callable[[int], Turn | None]) -> Columns:
    """Where each candidate stands: an answer follows a question, and what was said last was mostly not asked for."""
    before = [turn_of(place) if place >= 0 else None for place in evidence.previous[at].tolist()]
    return {
        "after_question": np.array([turn is not None and _asks(turn.text) for turn in before], np.float32),
        "turns_ago": np.log1p(_newer(evidence, at)),
    }


def _newer(evidence: Evidence, at: Ints) -> NDArray[np.int64]:
    if evidence.newer is not None:
        return evidence.newer[at]
    later = np.count_nonzero(evidence.eligible) - np.cumsum(evidence.eligible)  # ordinals of deleted turns do not count
    return later[at]


def _asks(text: str) -> bool:
    return text[-TAIL_CHARACTERS:].rstrip(_CLOSING).endswith(_QUESTION_ENDS)


def _of_query(query: str) -> Columns:
    """The same in all rows: what the other columns mean depends on it."""
    return {"query_length": math.log1p(len(query_terms(query))), "query_unspaced": bool(unspaced_runs(query))}


def _of_sessions(columns: Columns, sessions: Sequence[str]) -> Columns:
    """How good the candidates of a session are together: what is asked for mostly lies among its like."""
    number = {session: place for place, session in enumerate(dict.fromkeys(sessions))}
    of = np.array([number[session] for session in sessions], np.intp)
    found: Columns = {"session_share": np.bincount(of, minlength=1)[of] / max(len(of), 1)}
    for name, column in (("session_fused", "fused"), ("session_dense", "dense"), ("session_late", "late_weighted")):
        best = np.full(max(len(number), 1), np.nan, np.float32)
        np.fmax.at(best, of, np.broadcast_to(np.asarray(columns[column], np.float32), of.shape))
        found[name] = best[of] - np.fmax.reduce(best, initial=-np.inf) if len(of) else best[of]
    return found


def _of_newness(columns: Columns, at: Ints) -> Columns:
    """How many of the list's best are older: of several values of one thing the newest is mostly meant."""
    best = np.sort(at[:_BEST])
    return {"newer_than": np.searchsorted(best, at) / max(len(best), 1)}


_COMPARED: Final = (
    ("fused", "fused"),
    ("dense", "dense"),
    ("late", "late_weighted"),
    ("window", "late_window"),
    ("bm25", "bm25"),
)


def _within_list(columns: Columns, n: int) -> Columns:
    """How far each stands out in this list: spreads differ from query to query, encoder to encoder."""
    found: Columns = {}
    for name, column in _COMPARED:
        values = np.broadcast_to(np.asarray(columns[column], np.float32), (n,))
        found |= {f"{name}_apart": np.nan, f"{name}_rank": np.nan}
        known = values[~np.isnan(values)]
        if len(known):
            spread = max(float(known.std()), 1e-6)
            found[f"{name}_apart"] = (values - known.mean()) / spread
            found[f"{name}_rank"] = np.log1p(np.searchsorted(np.sort(-known), -values))
    return found


def _of_neighbours(scores: Floats, evidence: Evidence, at: Ints) -> tuple[Floats, Floats]:
    padded = np.append(scores, np.float32(np.nan))
    return padded[evidence.previous[at]], padded[evidence.following[at]]


def _share_of_best(scores: Floats) -> Floats:
    return np.asarray(scores / max(float(scores.max(initial=0.0)), 1e-6), np.float32)


def _between(scores: Floats) -> Floats:
    low, high = np.fmin.reduce(scores, initial=np.inf), np.fmax.reduce(scores, initial=-np.inf)
    return np.asarray((scores - low) / max(float(high - low), 1e-6), np.float32)
