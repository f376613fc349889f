"""One query of the past under both sides of a change: asked twice, judged, and turned into numbers."""

from __future__ import annotations

import logging
from typing import Final, Literal, NamedTuple

from serve_app.errors import StorageTrouble
from serve_app.memory.serving import Served
from serve_app.migrate.asking import Answered, Asking, Then
from serve_app.migrate.judge import Judge
from serve_app.migrate.reach import Listed, Told, told
from serve_app.migrate.sampling import Historical, script_of
from serve_app.retrieve.query_types import query_type

_log = logging.getLogger(__name__)

Result = Literal["told", "gone", "small", "lacking", "unjudged"]

TEXT_POOLED: Final = 4_096
"""Characters of a turn that a judge is given."""


class Sides(NamedTuple):
    """What is compared. `alone`: whether vectors alone are asked, too, which is idle where both sides have the same."""

    base: Served
    target: Served
    alone: bool = True


class Outcome(NamedTuple):
    """What became of a query, and for each side whether its answer lacked something."""

    result: Result
    told: Told | None = None
    lacked: tuple[bool, bool] = (False, False)


class Pairs:
    """Blocking; safe for threads."""

    def __init__(self, asking: Asking, judge: Judge) -> None:
        self._asking = asking
        self.judge = judge

    def compared(self, query: Historical, sides: Sides, k: int) -> Outcome:
        try:
            then = self._asking.then(query)
        except StorageTrouble:
            return Outcome("lacking", None, (True, True))
        if then is None:
            return Outcome("gone")
        base, target = (self._asking.ask(query, then, side, k) for side in (sides.base, sides.target))
        lacked = bool(base.reasons), bool(target.reasons)
        if any(lacked):
            return Outcome("lacking", None, lacked)
        if min(base.candidates, target.candidates) <= k:
            return Outcome("small")
        alone: tuple[Answered, Answered] | None = None
        if sides.alone:
            alone = self._ask_alone(query, then, sides.base, k), self._ask_alone(query, then, sides.target, k)
        return self._judged(query, then, base, target, alone, k)

    def _ask_alone(self, query: Historical, then: Then, side: Served, k: int) -> Answered:
        return self._asking.ask(query, then, side, k, "dense")

    def _judged(
        self,
        query: Historical,
        then: Then,
        base: Answered,
        target: Answered,
        alone: tuple[Answered, Answered] | None,
        k: int,
    ) -> Outcome:
        relevant = by_words = then.gold
        if not relevant:
            pool = base.texts | target.texts
            try:
                relevant = self.judge.relevant(query.text, pool, (base.opinions, target.opinions))
                if alone is not None:
                    by_words = self.judge.relevant_alone(query.text, pool | alone[0].texts | alone[1].texts)
            except Exception as error:  # noqa: BLE001 - whatever a model throws: this query is judged by nobody
                _log.warning("a judge failed: %s", type(error).__name__)  # its text may quote a turn
                return Outcome("unjudged")
        if not relevant:
            return Outcome("unjudged")
        found = (alone[0].seqs, alone[1].seqs) if alone is not None and by_words else (None, None)
        lists = (
            Listed(base.seqs, found[0], base.seconds, base.candidates),
            Listed(target.seqs, found[1], target.seconds, target.candidates),
        )
        category = query_type(query.text, None)
        script = script_of(query.text)
        return Outcome("told", told(query.owner.tenant, query.source, script, category, lists, relevant, by_words, k))
