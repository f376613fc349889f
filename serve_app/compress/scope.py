"""How far a cue reaches: what is only supposed, and what is said of people who take no part. Pure.

A cue stands in one clause and means more: a supposition holds to the end of its sentence and in the next one that goes
on with it, and what is said of somebody goes on until the speaker comes back to themselves or to the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from serve_app.compress.statements import PRONOUN, Clause

Outside = Literal["hypothetical", "third_person"]


def outside(clauses: Sequence[Clause]) -> list[Outside | None]:
    """Of each clause why it says nothing of what is so here, or None."""
    supposed = _supposed(clauses)
    others = _People().outsiders(clauses)
    return [
        "hypothetical" if dream else "third_person" if other else None
        for dream, other in zip(supposed, others, strict=True)
    ]


def _sentences(clauses: Sequence[Clause]) -> Iterator[list[Clause]]:
    for _, group in groupby(clauses, key=lambda clause: clause.sentence):
        yield list(group)


# ---------------------------------------------------------------- suppositions


def _supposed(clauses: Sequence[Clause]) -> list[bool]:
    found: list[bool] = []
    before: tuple[int, bool] = (-1, False)
    for sentence in _sentences(clauses):
        turn, dreamt = before
        goes_on = dreamt and turn == sentence[0].turn and "continues" in sentence[0].signals
        marks = _supposed_in(sentence, goes_on)
        if "unreal" in sentence[0].signals and len(sentence) == 1 and found and turn == sentence[0].turn:
            found[-1] = True  # "Only joking." takes back what stands before it
        found += marks
        before = (sentence[0].turn, marks[-1])
    return found


def _supposed_in(sentence: Sequence[Clause], goes_on: bool) -> list[bool]:
    signals = [clause.signals for clause in sentence]
    unreal = any("unreal" in one for one in signals)
    starts = [place for place, one in enumerate(signals) if "hypothetical" in one]
    if goes_on or (unreal and not starts):
        starts = [0]
    if not starts:
        return [False] * len(sentence)
    start = starts[0]
    if not unreal and any("instructs" in one for one in signals[start:]):
        return [False] * len(sentence)
    ends = [place for place, one in enumerate(signals) if place > start and "actual" in one and "unreal" not in one]
    end = ends[0] if ends else len(sentence)
    return [start <= place < end for place in range(len(sentence))]


# ---------------------------------------------------------------- people


class _People:
    """Who takes part so far, and who was named last."""

    def __init__(self) -> None:
        self._part: set[str] = set()
        self._last = ""

    def outsiders(self, clauses: Sequence[Clause]) -> list[bool]:
        sentences = list(_sentences(clauses))
        found: list[bool] = []
        for place, sentence in enumerate(sentences):
            following = sentences[place + 1] if place + 1 < len(sentences) else []
            absent = _any(sentence, "absent") or (
                bool(following)
                and following[0].turn == sentence[0].turn
                and "absent" in following[0].signals
                and following[0].person == PRONOUN
            )
            found += self._outside_in(sentence, absent)
        return found

    def _outside_in(self, sentence: Sequence[Clause], absent: bool) -> list[bool]:
        """Runs of clauses about somebody, each with the person it is about."""
        marks = [False] * len(sentence)
        begun: int | None = None
        for place, clause in enumerate(sentence):
            named = self._named(clause)
            if named and "participant" in clause.signals and not absent:
                self._part.add(named)
            if "own" in clause.signals:
                begun = None
            elif "third_person" in clause.signals and not self._takes_part(named, absent):
                if begun is None:
                    begun = place
                if not absent and self._matters(sentence[begun:], named):
                    begun = None
            elif "participant" in clause.signals and not absent:
                begun = None
            marks[place] = begun is not None
        return marks

    def _named(self, clause: Clause) -> str:
        if clause.person and clause.person != PRONOUN:
            self._last = clause.person
        return self._last if clause.person else ""

    def _takes_part(self, named: str, absent: bool) -> bool:
        return not absent and named in self._part

    def _matters(self, run: Sequence[Clause], named: str) -> bool:
        """Whether what is said of somebody is a reason for what the speaker then asks."""
        if not named:
            return False
        later = run[1:]
        reported = "reports" in run[0].signals and any({"change", "binds"} & clause.signals for clause in run)
        asked = any({"binds", "therefore", "instructs"} & clause.signals for clause in later if not _about(clause))
        if reported or asked:
            self._part.add(named)
            return True
        return False


def _about(clause: Clause) -> bool:
    return "third_person" in clause.signals


def _any(sentence: Sequence[Clause], signal: str) -> bool:
    return any(signal in clause.signals for clause in sentence)
