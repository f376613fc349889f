"""Which statement takes the place of which: the same kind of value on the same subject, or a withdrawal. Pure.

A fold over the clauses in order. A later clause ends the earlier ones that it fits well enough: both name a value of
one kind and unit, they share words that few clauses have, the later one sounds like a change, and the assistant takes
it for one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from serve_app.compress.statements import Clause, Value
from serve_app.compress.verdicts import Judged
from serve_app.compress.worths import EXACT
from serve_app.core import Turn

FITS_FROM = 3.0
"""Score from which a clause ends the one that it fits best."""

FITS_TOO_FROM = 4.0
"""Score from which it ends others beside that one, if they are as like to it as LIKENESS_TOO_MIN."""
LIKENESS_TOO_MIN = 0.75

KIND_FIT = 1.0
LIKE_KIND_FIT = 0.7
UNIT_FIT = 1.0
BARE_FIT = 0.25
SIZE_FIT = 0.4
"""Amounts within SIZES_NEAR of each other are values of one thing more likely."""
SIZES_NEAR = 4.0
SIZES_FAR = 12.0
SIZE_MISFIT = -0.75

CHANGE_FIT = 1.25
REPLACEMENT_FIT = 2.0
CHANGE_NEAR_FIT = 0.75
CHANGED_FIT = 1.0
REPEATED_FIT = 0.75
UNHEARD_FIT = -1.25
OLD_UNHEARD_FIT = -0.75
ALONE_FIT = 0.75
WITHDRAWAL_FIT = 1.75
LIKENESS_MAX = 2.5

NEAR_SHARE = 0.5
FAR_SHARE = 0.25

LIKENESS_ALONE_MIN = 0.9
LIKENESS_WITHDRAWN_MIN = 0.4
"""Without values to compare, so much likeness is the least."""

LIKENESS_UNHEARD_MIN = 0.7
"""For what the assistant does not take down, and for what a tool says."""

WORDS_UNCHANGED_MIN = 2
"""Words that a clause shares with one that it replaces without sounding like a change."""

LIVE_WORTH_MIN = 1.0
"""Of less worth nothing replaces anything or is replaced, unless the assistant takes it down."""

CANDIDATES_MAX = 400
"""Earlier clauses that are looked at, the newest."""

_LIKE = {
    frozenset(pair)
    for pair in (("money", "number"), ("count", "number"), ("time", "number"), ("often", "count"), ("often", "number"))
}

_CHANGES = {"change", "replacement", "withdrawal"}


class Topic(NamedTuple):
    """What a clause is about: its own words, and those around it, which count less."""

    own: frozenset[str]
    near: frozenset[str]


class Fold(NamedTuple):
    ended: dict[int, int]
    """Number of a clause -> number of the turn that replaced or withdrew it."""
    promoted: frozenset[int]
    """Clauses that replaced another and bind for that alone."""


def fold(turns: Sequence[Turn], clauses: Sequence[Clause], judged: Judged) -> Fold:
    """What the conversation, read to its end, ended."""
    scene = _Scene(turns, clauses, judged)
    ended: dict[int, int] = {}
    promoted: set[int] = set()
    live: list[int] = []
    for number, clause in enumerate(clauses):
        if not scene.counts(number):
            continue
        for old in scene.replaced(number, live[-CANDIDATES_MAX:]) if scene.may_replace(number) else ():
            promoted.add(number)
            for gone in scene.sentence_of(old):
                ended.setdefault(gone, clause.turn)
                if gone in live:
                    live.remove(gone)
        live.append(number)
    return Fold(ended, frozenset(one for one in promoted if one not in ended and scene.says_something(one)))


class _Scene:
    """A conversation as the fold sees it."""

    def __init__(self, turns: Sequence[Turn], clauses: Sequence[Clause], judged: Judged) -> None:
        self._turns, self._clauses, self._judged = turns, clauses, judged
        self._sentences: dict[int, list[int]] = {}
        self._turn_words: dict[int, set[str]] = {}
        self._turn_signals: dict[int, set[str]] = {}
        self._turn_amounts: dict[int, set[str]] = {}
        for number, clause in enumerate(clauses):
            self._sentences.setdefault(clause.sentence, []).append(number)
            self._turn_words.setdefault(clause.turn, set()).update(clause.words)
            self._turn_signals.setdefault(clause.turn, set()).update(clause.signals)
            self._turn_amounts.setdefault(clause.turn, set()).update(value.amount for value in clause.values)
        counts = Counter(word for clause in clauses for word in clause.words)
        self._rarity = {word: 1.5 / (1 + math.log2((1 + count) / 2)) for word, count in counts.items()}
        self._topics = [self._topic(number) for number in range(len(clauses))]

    def _topic(self, number: int) -> Topic:
        clause = self._clauses[number]
        heard = self._judged.heard[clause.turn]
        near = self._turn_words[clause.turn] | {value.kind for value in clause.values} | heard.words | heard.asked_words
        if self._told_before(clause, {value.amount for value in clause.values}):
            near |= self._turn_words[clause.turn - 1]
        return Topic(clause.words, frozenset(near))

    def counts(self, number: int) -> bool:
        """Whether a clause may be replaced."""
        clause = self._clauses[number]
        if self._judged.verdicts[number] in ("hypothetical", "third_person", "question"):
            return False
        if self._turns[clause.turn].role != "user":
            return self._judged.verdicts[number] == "active" or (bool(clause.values) and self._accepted(clause.turn))
        return bool(clause.values) or self._judged.worths[number] >= LIVE_WORTH_MIN or self.taken(clause)

    def may_replace(self, number: int) -> bool:
        """Whether a clause may replace: what nobody heard has to say so itself."""
        clause = self._clauses[number]
        if self._turns[clause.turn].role == "assistant":
            return False
        return self.taken(clause) or bool(_CHANGES & self._turn_signals[clause.turn])

    def taken(self, clause: Clause) -> bool:
        """Whether the assistant takes it down or repeats some of it, or the user accepts what a tool says."""
        if self._turns[clause.turn].role != "user":
            return self._turns[clause.turn].role == "tool" and self._accepted(clause.turn)
        heard = self._judged.heard[clause.turn]
        amounts = {value.amount for value in clause.values}
        words = self._turn_words[clause.turn] if _CHANGES & clause.signals else clause.words
        return heard.acknowledged or heard.changed or bool(heard.words & words or heard.amounts & amounts)

    def _accepted(self, turn: int) -> bool:
        """Whether the user says yes to what an assistant or a tool just said."""
        for later in range(turn + 1, min(turn + 3, len(self._turns))):
            if self._turns[later].role == "user":
                return "confirmation" in self._turn_signals.get(later, set())
        return False

    def says_something(self, number: int) -> bool:
        """Whether what replaced another is worth an entry: not a mere `never mind`."""
        clause = self._clauses[number]
        return bool(clause.values) or ("withdrawal" not in clause.signals and len(clause.words) > 1)

    def sentence_of(self, old: int) -> Iterator[int]:
        """The clause and what of its sentence says nothing without it."""
        ended = self._clauses[old]
        kinds = {value.kind for value in ended.values}
        for number in self._sentences[ended.sentence]:
            clause = self._clauses[number]
            stands = clause.values or {"implicit", "literal"} & clause.signals or len(clause.words) > 3
            exact = any(value.kind in EXACT and value.kind not in kinds for value in clause.values)
            if number == old or not (
                exact or (stands and {"binds", "implicit", "literal", "directive", "refusal"} & clause.signals)
            ):
                yield number

    def replaced(self, number: int, live: Sequence[int]) -> list[int]:
        """The earlier clauses that this one ends."""
        new = self._clauses[number]
        amounts = {value.amount for value in new.values}
        earlier = [
            old
            for old in live
            if self._clauses[old].turn < new.turn and not self._accepts(new, amounts, self._clauses[old].turn)
        ]
        scored = sorted(((self._fits(number, old, earlier), old) for old in earlier), reverse=True)
        best = [old for fits, old in scored[:1] if fits >= FITS_FROM]
        return best + [
            old for fits, old in scored[1:] if fits >= FITS_TOO_FROM and self._likeness(number, old) >= LIKENESS_TOO_MIN
        ]

    def _accepts(self, new: Clause, amounts: set[str], turn: int) -> bool:
        """Whether it repeats what the assistant or a tool said in that turn, and so ends nothing of it."""
        if self._turns[turn].role == "user":
            return False
        return new.turn - turn <= 2 or bool(amounts & self._turn_amounts.get(turn, set()))

    def _fits(self, number: int, old: int, earlier: Sequence[int]) -> float:
        new, before = self._clauses[number], self._clauses[old]
        likeness = self._likeness(number, old)
        kind = _kind(new.values, before.values)
        change = self._change(new)
        if not self.taken(before):
            change += OLD_UNHEARD_FIT
        if not (self.taken(new) and self._turns[new.turn].role == "user") and likeness < LIKENESS_UNHEARD_MIN:
            return 0.0
        if change <= 0 and len(new.words & before.words) < WORDS_UNCHANGED_MIN:
            return 0.0
        if kind < KIND_FIT and likeness < LIKENESS_WITHDRAWN_MIN and "replacement" not in new.signals:
            return 0.0
        if kind:
            alone = sum(_kind(new.values, self._clauses[one].values) > 0 for one in earlier) == 1
            return kind + likeness + change + (ALONE_FIT if alone else 0.0)
        if "withdrawal" in new.signals:
            return likeness + change + WITHDRAWAL_FIT if likeness >= LIKENESS_WITHDRAWN_MIN else 0.0
        return likeness + change if likeness >= LIKENESS_ALONE_MIN and change > 0 else 0.0

    def _change(self, new: Clause) -> float:
        """How much it sounds like a change, and is taken for one."""
        heard = self._judged.heard[new.turn]
        amounts = {value.amount for value in new.values}
        change = CHANGED_FIT if heard.changed else 0.0
        if "replacement" in new.signals:
            change += REPLACEMENT_FIT
        elif {"change", "withdrawal"} & new.signals:
            change += CHANGE_FIT
        elif "replacement" in self._turn_signals[new.turn] or self._told_before(new, amounts):
            change += CHANGE_FIT
        elif "change" in self._turn_signals[new.turn]:
            change += CHANGE_NEAR_FIT
        if amounts & heard.amounts:
            return change + REPEATED_FIT
        return change if self.taken(new) else change + UNHEARD_FIT

    def _told_before(self, new: Clause, amounts: set[str]) -> bool:
        """Whether the turn before, of the assistant or a tool, told of a change to one of these amounts."""
        before = new.turn - 1
        if before < 0 or self._turns[before].role == "user":
            return False
        signals = self._turn_signals.get(before, set())
        return bool({"change", "changed"} & signals and amounts & self._turn_amounts.get(before, set()))

    def _likeness(self, number: int, old: int) -> float:
        new, before = self._topics[number], self._topics[old]
        own = new.own & before.own
        near = ((new.near & before.own) | (new.own & before.near)) - own
        far = (new.near & before.near) - own - near
        shares = ((own, 1.0), (near, NEAR_SHARE), (far, FAR_SHARE))
        return min(LIKENESS_MAX, sum(share * self._weight(words) for words, share in shares))

    def _weight(self, words: frozenset[str]) -> float:
        return sum(self._rarity.get(word, 0.5) for word in sorted(words))


def _kind(new: Sequence[Value], old: Sequence[Value]) -> float:
    """How well two lists of values match in kind; nothing where the later one says nothing new."""
    if all(any(_same(one, other) for other in old) for one in new):
        return 0.0
    return max(0.0, max((_pair(one, other) for one in new for other in old), default=0.0))


def _same(new: Value, old: Value) -> bool:
    one, other = set(new.amount.split()), set(old.amount.split())
    return one <= other or other <= one


def _pair(new: Value, old: Value) -> float:
    if _same(new, old):
        return 0.0
    size = _size(new.amount, old.amount)
    if new.kind != old.kind:
        return LIKE_KIND_FIT + size if frozenset({new.kind, old.kind}) in _LIKE else 0.0
    units = set(new.unit.split()) - _PER, set(old.unit.split()) - _PER
    if units[0] & units[1]:
        return KIND_FIT + UNIT_FIT + size
    if new.unit and old.unit:
        return 0.0
    return KIND_FIT + size + (0.0 if new.unit or old.unit else BARE_FIT)


_PER = {"a", "per", "al", "por"}


def _size(new: str, old: str) -> float:
    try:
        one, other = float(new), float(old)
    except ValueError:
        return 0.0
    if not one or not other:
        return 0.0
    ratio = max(one / other, other / one)
    return SIZE_FIT if ratio <= SIZES_NEAR else SIZE_MISFIT if ratio > SIZES_FAR else 0.0
