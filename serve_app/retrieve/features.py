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
_NUMBER_WORD: Final = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|half|twice|hundred|thousand)\b|[一二两三四五六七八九十百千万半]",
    re.I,
)
_WHEN_SAID: Final = re.compile(
    r"\b(?:today|tomorrow|yesterday|tonight|ago|last|next|this (?:morning|week|weekend|month|year)|since|monday|tuesday|"
    r"wednesday|thursday|friday|saturday|sunday|january|february|march|april|may|june|july|august|september|october|"
    r"november|december|weekend|\d{1,2}(?:am|pm|:\d\d|st|nd|rd|th))\b|[今明昨前后後]天|[上下这這]个?[周週月星]|[周週]|星期|"
    r"礼拜|月|[号號日]|[点點]|去年|今年|明年",
    re.I,
)
_CLOSING: Final = " \n\t\"'”’」）)*_。.!！~～…"
_QUESTION_ENDS: Final = ("?", "？", "吗", "嗎", "呢")
_ASKS_WHEN: Final = re.compile(
    r"\b(?:when|what (?:date|day|time|month|year)|how (?:long|many days|many weeks|recently))\b|什么时候|什麼時候|几点|"
    r"幾點|哪天|哪一天|何时|何時|几号|幾號|多久|星期几|星期幾|哪年|哪个月|哪個月",
    re.I,
)
_ASKS_NUMBER: Final = re.compile(
    r"\b(?:how (?:much|many|old|far|big|tall|heavy)|number|price|cost|code|total|amount)\b|多少|几[个個]|幾[个個]|多大|"
    r"多高|价|價|编号|編號|号码|號碼|密码|密碼",
    re.I,
)
_ASKS_NEWEST: Final = re.compile(
    r"\b(?:now|current|currently|latest|still|these days|at the moment|new|final|finally|ended up|settled)\b|现在|現在|目前|"
    r"最新|最后|最後|最终|最終|如今|还是|還是|眼下",
    re.I,
)
_ASKS_FIRST: Final = re.compile(
    r"\b(?:first|original|originally|initially|before|used to)\b|原来|原來|最初|一开始|之前|以前", re.I
)
_ASKS_SELF: Final = re.compile(r"\b(?:i|i'm|i've|my|me|mine|we|our)\b|[我咱]", re.I)
_ASKS_YOU: Final = re.compile(r"\b(?:you|your)\b|[你您]", re.I)


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
    "has_number_word",
    "says_when",
    "is_user",
    "is_assistant",
    "is_tool",
    "is_said",
    "after_question",
    "before_question",
    "opens_session",
    "turns_ago",
    "days_ago",
    "newer_than",
    "asks_when",
    "asks_number",
    "asks_newest",
    "asks_first",
    "asks_self",
    "asks_you",
    "query_length",
    "query_unspaced",
    "list_size",
)
"""The columns of a row, in order."""


def rows(
    evidence: Evidence, ranking: Ranking, turn_of: Callable[[int], Turn | None], asked: Asked, late: Late | None
) -> Rows:
    """One row a candidate of `ranking`, in its order. `turn_of`: the turn with an ordinal, None where it is not here."""
    at = ranking.ordinals
    turns = [turn_of(ordinal) for ordinal in at.tolist()]
    columns: Columns = {"list_size": len(at)}
    columns |= _of_first_stage(evidence, ranking)
    columns |= _of_late(late, evidence, at)
    columns |= _of_texts(turns, asked)
    columns |= _of_places(turns, evidence, at, turn_of, asked.now)
    columns |= _of_query(asked.query)
    columns |= _of_sessions(columns, [turn.session if turn else "" for turn in turns])
    columns |= _of_newness(columns, at)
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
        alone = ("late_least", "late_reverse", "late_rank", "late_before", "late_after")
        return dict.fromkeys([f"late_{name}{end}" for name in names for end in ("", "_behind")] + [*alone], np.nan)
    columns: Columns = {}
    for name in names:
        found: Floats = getattr(late, name)[at]
        columns |= {f"late_{name}": found, f"late_{name}_behind": found - np.fmax.reduce(found, initial=-1.0)}
    columns |= {"late_least": late.least[at], "late_reverse": late.reverse[at]}
    columns["late_before"], columns["late_after"] = _of_neighbours(late.weighted, evidence, at)
    weighted = late.weighted[at]
    rank = np.empty(len(at), np.float32)
    rank[np.argsort(-np.nan_to_num(weighted, nan=-1.0), kind="stable")] = np.arange(len(at))
    return columns | {"late_rank": rank}


def _of_texts(turns: Sequence[Turn | None], asked: Asked) -> Columns:
    """What kind of text each candidate is."""
    said = frozenset(asked.said)
    facts = [(np.nan,) * 5 if turn is None else _facts(turn.text[:TEXT_CHARACTERS_MAX]) for turn in turns]
    names = ("length", "is_question", "has_digit", "has_number_word", "says_when")
    columns: Columns = {name: np.array([fact[place] for fact in facts], np.float32) for place, name in enumerate(names)}
    for role in ("user", "assistant", "tool"):
        columns[f"is_{role}"] = np.array([turn is not None and turn.role == role for turn in turns], np.float32)
    columns["is_said"] = np.array([turn is not None and turn.text in said for turn in turns], np.float32)
    return columns


def _facts(text: str) -> tuple[float, ...]:
    return (
        math.log1p(len(text.encode())),
        float(_asks(text)),
        float(_DIGIT.search(text) is not None),
        float(_NUMBER_WORD.search(text) is not None),
        float(_WHEN_SAID.search(text) is not None),
    )


def _of_places(
    turns: Sequence[Turn | None],
    evidence: Evidence,
    at: Ints,
    turn_of: Callable[[int], Turn | None],
    now: int,
) -> Columns:
    """Where each stands in its session, and what stands beside it."""
    before = [turn_of(place) if place >= 0 else None for place in evidence.previous[at].tolist()]
    after = [turn_of(place) if place >= 0 else None for place in evidence.following[at].tolist()]
    newest = int(np.flatnonzero(evidence.eligible)[-1]) if evidence.eligible.any() else 0
    return {
        "after_question": np.array([turn is not None and _asks(turn.text) for turn in before], np.float32),
        "before_question": np.array([turn is not None and _asks(turn.text) for turn in after], np.float32),
        "opens_session": (evidence.previous[at] < 0).astype(np.float32),
        "turns_ago": np.log1p(np.maximum(newest - at, 0)),
        "days_ago": np.array(
            [np.nan if turn is None else math.log1p(max(now - turn.created_at, 0) / _DAY_US) for turn in turns],
            np.float32,
        ),
    }


def _asks(text: str) -> bool:
    return text[-TAIL_CHARACTERS:].rstrip(_CLOSING).endswith(_QUESTION_ENDS)


def _of_query(query: str) -> Columns:
    """The same in all rows: what the other columns mean depends on it."""
    return {
        "asks_when": float(_ASKS_WHEN.search(query) is not None),
        "asks_number": float(_ASKS_NUMBER.search(query) is not None),
        "asks_newest": float(_ASKS_NEWEST.search(query) is not None),
        "asks_first": float(_ASKS_FIRST.search(query) is not None),
        "asks_self": float(_ASKS_SELF.search(query) is not None),
        "asks_you": float(_ASKS_YOU.search(query) is not None),
        "query_length": math.log1p(len(query_terms(query))),
        "query_unspaced": float(bool(unspaced_runs(query))),
    }


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


def _of_neighbours(scores: Floats, evidence: Evidence, at: Ints) -> tuple[Floats, Floats]:
    padded = np.append(scores, np.float32(np.nan))
    return padded[evidence.previous[at]], padded[evidence.following[at]]


def _share_of_best(scores: Floats) -> Floats:
    return np.asarray(scores / max(float(scores.max(initial=0.0)), 1e-6), np.float32)


def _between(scores: Floats) -> Floats:
    low, high = np.fmin.reduce(scores, initial=np.inf), np.fmax.reduce(scores, initial=-np.inf)
    return np.asarray((scores - low) / max(float(high - low), 1e-6), np.float32)
