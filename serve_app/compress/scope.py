"""How far a cue reaches: what is only supposed, and what is said of people who take no part. Pure.

A cue stands in one clause and means more: a supposition holds to the end of its sentence and in the next one that goes
on with it, and what is said of somebody goes on until the speaker comes back to themselves or to the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

from serve_app.compress.statements import PRONOUN, Clause
from serve_app.compress.worths import Heard
from serve_app.core import Turn

Outside = Literal["hypothetical", "third_person"]
Sentence = list[Clause]


def outside(turns: Sequence[Turn], clauses: Sequence[Clause], took: Mapping[int, Heard]) -> list[Outside | None]:
    """Of each clause why it says nothing of what is so here, or None."""
    found: list[Outside | None] = []
    people = _People()
    for turn, group in groupby(clauses, key=lambda clause: clause.turn):
        sentences = [list(part) for _, part in groupby(group, key=lambda clause: clause.sentence)]
        if turns[turn].role not in ("user", "assistant"):
            found += [None for sentence in sentences for _ in sentence]
            continue
        supposed = _supposed(sentences)
        others = people.outsiders(sentences, took[turn])
        found += [
            "hypothetical" if dream else "third_person" if other else None
            for dream, other in zip(supposed, others, strict=True)
        ]
    return found


# ---------------------------------------------------------------- suppositions


def _supposed(sentences: Sequence[Sentence]) -> list[bool]:
    found: list[list[bool]] = []
    for sentence in sentences:
        goes_on = bool(found) and found[-1][-1] and "continues" in sentence[0].signals
        if found and len(sentence) == 1 and _taken_back(sentence[0]):
            found[-1] = [True] * len(found[-1])
        found.append(_supposed_in(sentence, goes_on))
    return [mark for marks in found for mark in marks]


def _supposed_in(sentence: Sentence, goes_on: bool) -> list[bool]:
    signals = [clause.signals for clause in sentence]
    unreal = any("unreal" in one for one in signals)
    starts = [place for place, one in enumerate(signals) if "hypothetical" in one]
    if goes_on or any(_taken_back(clause) for clause in sentence):
        starts = [0]
    if not starts:
        return [False] * len(sentence)
    start = starts[0]
    while start and "continues" in signals[start - 1]:
        start -= 1
    if not unreal and any("instructs" in one for one in signals[start:]):
        return [False] * len(sentence)
    ends = [place for place, one in enumerate(signals) if place > start and "actual" in one and "unreal" not in one]
    end = ends[0] if ends else len(sentence)
    return [start <= place < end for place in range(len(sentence))]


def _taken_back(clause: Clause) -> bool:
    """Only joking: takes back what stands before it."""
    return {"hypothetical", "unreal"} <= clause.signals


# ---------------------------------------------------------------- people

_OWN_MATTER = frozenset(("own", "directive", "instructs", "participant"))


class _People:
    """Who takes part so far, and who was named last, as words."""

    def __init__(self) -> None:
        self._part: set[str] = set()
        self._last: frozenset[str] = frozenset()

    def outsiders(self, sentences: Sequence[Sentence], heard: Heard) -> list[bool]:
        """The clauses of one turn that are about somebody who takes no part."""
        found: list[bool] = []
        for place, sentence in enumerate(sentences):
            following = sentences[place + 1][:1] if place + 1 < len(sentences) else []
            near = [*sentence, *(clause for clause in following if clause.who)]
            absent = heard.dismissed or any("absent" in clause.signals for clause in near)
            running = bool(found) and found[-1] and _goes_on(sentence[0])
            strange = "outsider" in sentence[0].signals and not _taken(sentence, heard)
            found += self._outside_in(sentence, absent, running, strange)
        return found

    def _outside_in(self, sentence: Sentence, absent: bool, running: bool, strange: bool) -> list[bool]:
        marks: list[bool] = []
        for place, clause in enumerate(sentence):
            named = self._named(clause)
            if "participant" in clause.signals and not absent:
                self._part |= named
                running = False
            elif "third_person" in clause.signals or (absent and clause.who and "own" not in clause.signals):
                joins = any("participant" in later.signals for later in sentence[place:])
                self._part |= named if joins and not absent else set()
                running = absent or not (named & self._part or self._matters(sentence[place:], named))
            elif strange and place == 0:
                running = True
            elif {"own", "directive", "instructs"} & clause.signals and "absent" not in clause.signals:
                running = False
            marks.append(running)
        return marks

    def _named(self, clause: Clause) -> frozenset[str]:
        if clause.who == PRONOUN:
            return self._last
        named = frozenset(word for word in clause.words if word in clause.who)
        self._last = named or self._last
        return named

    def _matters(self, run: Sequence[Clause], named: frozenset[str]) -> bool:
        """Whether what is said of somebody is a reason for what the speaker then asks, or their word a rule."""
        if not named:
            return False
        called = any(value.kind == "name" for value in run[0].values)
        reported = "reports" in run[0].signals and any(
            {"change", "replacement", "binds"} & clause.signals for clause in run
        )
        later = [clause for clause in _until_contrast(run[1:]) if "third_person" not in clause.signals]
        if (
            called
            or reported
            or any({"binds", "therefore", "instructs", "directive", "change"} & clause.signals for clause in later)
        ):
            self._part |= named
            return True
        return False


def _until_contrast(run: Sequence[Clause]) -> Iterator[Clause]:
    """The clauses up to where the speaker comes to themselves, unless as a consequence: `I'm the one who ...`."""
    for clause in run:
        if "own" in clause.signals and not {"therefore", "directive"} & clause.signals:
            return
        yield clause


def _taken(sentence: Sentence, heard: Heard) -> bool:
    """Whether the assistant takes something of it down; where nobody answers it may have been."""
    if heard.dismissed or heard.unheard:
        return heard.unheard
    amounts = {value.amount for clause in sentence for value in clause.values}
    echoed = any(clause.words & heard.words for clause in sentence)
    return heard.acknowledged or heard.changed or echoed or bool(amounts & heard.amounts)


def _goes_on(clause: Clause) -> bool:
    """Whether a sentence after another person's matter is still about them."""
    if "absent" in clause.signals and not clause.values:
        return True
    return not _OWN_MATTER & clause.signals and (not clause.values or "subjectless" in clause.signals)
