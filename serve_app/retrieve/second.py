"""The second stage: the turns that the first one ranks highest are looked at closely, and put in a better order.

Rerankers run one after another, each with the scores that stood before it; the last one that answers decides. Promises
that a late or failing one costs its own opinion alone and is named, that nothing is dropped or added, and the same
order for the same clues: scores are rounded to 1e-4, and of equal ones the newer turn comes first.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.breaker import Breaker
from serve_app.errors import Overloaded
from serve_app.ports import Reranker, Shortlist
from serve_app.remembered import Remembered
from serve_app.retrieve.found import Found, Judged, Why
from serve_app.retrieve.fuse import SCORE_STEPS
from serve_app.retrieve.question import Question
from serve_app.retrieve.remembered import ORDERS_MAX, Opinions, digest_of
from serve_app.retrieve.shortlist import Clues, shortlist_of

DEADLINE_S: Final = 0.25
"""What one reranker has, unless it is configured otherwise; the caller's own deadline may come before."""

FAULTS_MAX, REST_S = 3, 2.0
"""A model that gave nothing so often in a row is left alone for so long, unless told otherwise; then one search tries
it.
"""

FAIR_S: Final = 0.05
"""A search with less time than that says nothing about the model."""

FEATURES_KIND: Final = "features"
"""Names what all rerankers need: it can fail or be late as they can."""

Kind = Literal["late", "ranker", "model"]
Scores = NDArray[np.float64]

_log = logging.getLogger(__name__)


class Ordered(NamedTuple):
    """The turns in their new order, what became of each reranker, and how long all of it took."""

    found: list[Found]
    judged: tuple[Judged, ...] = ()
    seconds: float = 0.0

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is missing of the stage."""
        return tuple(dict.fromkeys(f"rerank: {one.result}" for one in self.judged if one.result != "ok"))


class RerankMeter(Protocol):
    def reranked(self, kind: str, result: str, seconds: float) -> None:
        """One reranker was asked for one search."""
        ...


class SecondStage:
    """The configured rerankers, asked in this order. Safe for threads as far as they are."""

    def __init__(
        self,
        rerankers: Mapping[Kind, Reranker],
        meter: RerankMeter | None = None,
        deadline_s: float = DEADLINE_S,
        late: bool = True,
        rest_s: float = REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`late`: whether anybody looks at tokens."""
        self.late = late
        self._rerankers = rerankers
        self._meter = meter
        self._deadline_s = deadline_s
        self._clock = clock
        self._rest_s = rest_s
        self._remembered: Remembered[Opinions] = Remembered(ORDERS_MAX)
        self.breaker = Breaker("reranker", FAULTS_MAX, rest_s, clock)
        """Of the model: the others compute on the thread that asks them."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self._rerankers.values())

    def apart(self, deadline_s: float | None = None, meter: RerankMeter | None = None) -> SecondStage:
        """The same rerankers for who asks in the background: not counted with the others, not remembered, with faults
        of their own. Without a deadline of its own it has that of searches.
        """
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        return SecondStage(self._rerankers, meter, limit_s, self.late, self._rest_s, self._clock)

    def ordered(self, found: Sequence[Found], clues: Clues | None, question: Question) -> Ordered:
        """`found`: the first stage's, best first, of whose beginning the clues are."""
        if clues is None or not len(clues.ranking.ordinals) or not self._rerankers:
            return Ordered(list(found))
        began = self._clock()
        digest = None if clues.applied_seq is None or question.explain else digest_of(clues, question)
        if digest is not None and (known := self._remembered.get(digest)) is not None:
            placed = _placed(found, list(known.values())[-1], clues.ranking.ordinals, None)
            return Ordered(placed, self._again(known), self._clock() - began)
        shortlist, judged = self._shortlist(clues, question)
        by: dict[str, Scores] = {}
        if shortlist is not None:
            by, judged = self._opinions(shortlist, question)
        for one in judged:
            self._tell(one)
        if shortlist is None or not by:
            return Ordered(list(found), judged, self._clock() - began)
        if digest is not None and all(one.result == "ok" for one in judged):
            self._remembered.put(digest, by)
        whys = self._whys(shortlist, by) if question.explain else None
        placed = _placed(found, list(by.values())[-1], clues.ranking.ordinals, whys)
        return Ordered(placed, judged, self._clock() - began)

    def _again(self, known: Opinions) -> tuple[Judged, ...]:
        """Who judged, though not now."""
        return tuple(Judged(kind, one.name, "ok", 0.0) for kind, one in self._rerankers.items() if kind in known)

    def _shortlist(self, clues: Clues, question: Question) -> tuple[Shortlist | None, tuple[Judged, ...]]:
        began = self._clock()
        if question.deadline is not None and began >= question.deadline:
            return None, (Judged(FEATURES_KIND, "", "deadline", 0.0),)
        try:
            return shortlist_of(clues, question), ()
        except Exception as error:  # noqa: BLE001 - a defect here costs the order, not the answer; it is named
            _log.warning("the second stage failed: %s", type(error).__name__)  # its text may quote a turn
            return None, (Judged(FEATURES_KIND, "", "failed", self._clock() - began),)

    def _opinions(self, shortlist: Shortlist, question: Question) -> tuple[dict[str, Scores], tuple[Judged, ...]]:
        """The scores of each that answered, by kind; each sees those of the one before."""
        by: dict[str, Scores] = {}
        judged: list[Judged] = []
        for kind, reranker in self._rerankers.items():
            one, scores = self._opinion(kind, reranker, shortlist, question)
            judged.append(one)
            if scores is not None:
                by[kind] = scores
                shortlist = shortlist._replace(scores=scores)
        return by, tuple(judged)

    def _opinion(
        self, kind: str, reranker: Reranker, shortlist: Shortlist, question: Question
    ) -> tuple[Judged, Scores | None]:
        began = self._clock()
        deadline = began + self._deadline_s
        if question.deadline is not None:
            deadline = min(deadline, question.deadline)
        if kind == "model" and not self.breaker.admit():
            return Judged(kind, reranker.name, "left_alone", 0.0), None
        result: Literal["ok", "deadline", "failed", "overloaded"] = "ok"
        scores: Scores | None = None
        try:
            if began >= deadline:
                raise TimeoutError
            scores = _checked(reranker.scores(shortlist, deadline), len(shortlist.scores))
        except TimeoutError:
            result = "deadline"
        except Overloaded:
            result = "overloaded"
        except Exception as error:  # noqa: BLE001 - whatever a model throws: the order before it stands, and it is named
            _log.warning("reranker %s failed: %s", kind, type(error).__name__)  # its text may quote a turn
            result = "failed"
        if kind == "model":
            self._note(result, deadline - began >= FAIR_S)
        return Judged(kind, reranker.name, result, self._clock() - began), scores

    def _note(self, result: str, had_time: bool) -> None:
        """What an outcome says about the model."""
        if result == "ok":
            self.breaker.succeeded()
        elif result == "failed" or (result == "deadline" and had_time):
            self.breaker.failed()
        else:
            self.breaker.released()

    def _whys(self, shortlist: Shortlist, by: Mapping[str, Scores]) -> list[Why]:
        deciding = self._rerankers[list(by)[-1]]  # type: ignore[index]
        added = deciding.contributions(shortlist)
        return [
            Why(
                rank=place + 1,
                score=float(shortlist.scores[place]),
                by={kind: float(scores[place]) for kind, scores in by.items()},
                features=_row(shortlist, place),
                contributions={name: float(column[place]) for name, column in added.items()},
            )
            for place in range(len(shortlist.scores))
        ]

    def _tell(self, judged: Judged) -> None:
        if self._meter is not None:
            self._meter.reranked(judged.kind, judged.result, judged.seconds)


def _checked(scores: Scores, n: int) -> Scores:
    """Raises ValueError for what is no score for each."""
    if scores.shape != (n,) or not np.isfinite(scores).all():
        raise ValueError("a reranker must give one finite score a text")
    return scores


def _placed(
    found: Sequence[Found], scores: Scores, ordinals: NDArray[np.int32], whys: Sequence[Why] | None
) -> list[Found]:
    """The judged ones by their scores, and then the others as they were, none with a higher score."""
    n = len(ordinals)
    steps = np.rint(scores * SCORE_STEPS).astype(np.int64)
    order = np.lexsort((ordinals, steps))[::-1].tolist()
    rounded = (steps / SCORE_STEPS).tolist()
    judged = [
        msgspec.structs.replace(found[place], score=rounded[place], why=whys[place] if whys else None)
        for place in order
    ]
    lowest = judged[-1].score
    behind = [msgspec.structs.replace(one, score=min(one.score, lowest)) for one in found[n:]]
    return judged + behind


def _row(shortlist: Shortlist, place: int) -> dict[str, float | None]:
    row = shortlist.features[place].tolist()
    return {name: None if math.isnan(value) else value for name, value in zip(shortlist.names, row, strict=True)}
