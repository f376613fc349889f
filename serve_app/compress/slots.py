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

FITS = {
    "near_size": 1.9,
    "points": 1.8,
    "own": 1.8,
    "withdrawal": 1.6,
    "subject_changed": 1.2,
    "kind": 1.1,
    "replacement": 1.0,
    "flips": 0.9,
    "alone": 0.9,
    "replacement_near": 0.8,
    "bare": 0.7,
    "denied": 0.6,
    "change": 0.5,
    "recent": 0.5,
    "subject": 0.4,
    "changed": 0.4,
    "worth": 0.3,
    "unit": 0.3,
    "far": 0.3,
    "withdrawal_near": 0.2,
    "old_worth": 0.2,
    "past": 0.1,
    "near": -0.1,
    "change_near": -0.1,
    "like_kind": -0.2,
    "question": -0.2,
    "unheard": -0.2,
    "repeated": -0.2,
    "old_unheard": -0.2,
    "no_word": -0.3,
    "same": -0.3,
    "told": -0.8,
    "no_value": -0.9,
    "quiet": -1.8,
    "far_size": -2.0,
}
"""What each sign adds to how well a later clause fits an earlier one that it may end: the weights of a logistic
regression on labelled dialogues in five languages, rounded."""

FITS_FROM = 4.9
"""Fit from which a clause ends the one that it fits best."""

FITS_TOO_FROM = 6.4
"""Fit from which it ends others beside that one."""

SIZES_NEAR = 4.0
"""Amounts within this ratio are values of one thing more likely."""
SIZES_FAR = 12.0

FLIP_WEIGHT_MIN = 0.6
OWN_MAX, NEAR_MAX, FAR_MAX, WORTH_MAX = 2.5, 2.0, 2.0, 6.0

WORDS_UNCHANGED_MIN = 2
"""Words that a clause shares with one that it replaces without sounding like a change."""

LIVE_WORTH_MIN = 1.0
"""Of less worth nothing is replaced, unless the assistant takes it down."""

CANDIDATES_MAX = 400
"""Earlier clauses that are looked at, the newest."""

_LIKE = {
    frozenset(pair)
    for pair in (
        ("money", "number"),
        ("count", "number"),
        ("size", "number"),
        ("duration", "number"),
        ("percent", "number"),
        ("time", "number"),
        ("often", "count"),
        ("often", "number"),
    )
}

_CHANGES = {"change", "replacement", "withdrawal"}
_SIGNS_OF_CHANGE = {
    "change",
    "replacement",
    "change_near",
    "replacement_near",
    "told",
    "withdrawal",
    "changed",
    "flips",
}


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
        self._values = [self._as_heard(clause) for clause in clauses]
        self._taken_turns = sorted(
            {clause.turn for clause in clauses if turns[clause.turn].role == "user" and self.taken(clause)}
        )
        self._topics = [self._topic(number) for number in range(len(clauses))]

    def _topic(self, number: int) -> Topic:
        clause = self._clauses[number]
        heard = self._judged.heard[clause.turn]
        near = self._turn_words[clause.turn] | {value.kind for value in clause.values} | heard.words | heard.asked_words
        if self._told_before(clause, {value.amount for value in clause.values}):
            near |= self._turn_words[clause.turn - 1]
        return Topic(clause.words, frozenset(near))

    def _as_heard(self, clause: Clause) -> tuple[Value, ...]:
        """Its values, and what the assistant takes a bare number for: `380` of `380 grams, noted`."""
        bare = {value.amount for value in clause.values if value.kind == "number"}
        told = (value for value in self._judged.heard[clause.turn].values if value.kind != "number")
        return clause.values + tuple(value for value in told if value.amount in bare)

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
        return [old for place, (fits, old) in enumerate(scored) if fits >= (FITS_TOO_FROM if place else FITS_FROM)]

    def _accepts(self, new: Clause, amounts: set[str], turn: int) -> bool:
        """Whether it repeats what the assistant or a tool said in that turn, and so ends nothing of it."""
        if self._turns[turn].role == "user":
            return False
        return new.turn - turn <= 2 or bool(amounts & self._turn_amounts.get(turn, set()))

    def _fits(self, number: int, old: int, earlier: Sequence[int]) -> float:
        signs = self.signs(number, old, earlier)
        if "stranger" in signs and "points" not in signs:
            return 0.0
        return round(sum(FITS.get(sign, 0.0) * signs[sign] for sign in sorted(signs)), 4)

    def signs(self, number: int, old: int, earlier: Sequence[int]) -> dict[str, float]:
        """What speaks for and against that a clause ends an earlier one; none where they have nothing in common."""
        new, before = self._clauses[number], self._clauses[old]
        values = _match(self._values[number], self._values[old])
        words = self._shared(number, old)
        signs = values | words | self._change(new) | self._odds(number, old)
        if self._flips(number, old):
            signs["flips"] = 1.0
        matches = "kind" in values or "like_kind" in values
        if matches:
            alone = sum("kind" in _match(self._values[number], self._values[one]) for one in earlier) == 1
            signs["alone"] = float(alone and "kind" in values)
        else:
            signs["no_value"] = 1.0
        if "own" not in words and "near" not in words:
            signs["no_word"] = 1.0
            signs |= {} if matches else {"stranger": 1.0}
        elif matches:
            signs["subject"] = 1.0
        changes = _SIGNS_OF_CHANGE & {sign for sign, weight in signs.items() if weight}
        if (
            {"withdrawal", "withdrawal_near"} & signs.keys()
            and signs["recent"]
            and self._judged.heard[new.turn].changed
        ):
            signs["points"] = 1.0
        if not changes:
            signs["quiet"] = 1.0
        elif "own" in words and not matches:
            signs["subject_changed"] = 1.0
        if "flips" in signs and ("changed" in signs or "withdrawal" in signs):
            signs["denied"] = 1.0
        return signs

    def _odds(self, number: int, old: int) -> dict[str, float]:
        new, before = self._clauses[number], self._clauses[old]
        return {
            "recent": float(before.turn == self._last_taken(new.turn)),
            "unheard": float(not self.taken(new)),
            "old_unheard": float(not self.taken(before)),
            "worth": max(-WORTH_MAX, min(WORTH_MAX, self._judged.worths[number])),
            "old_worth": max(-WORTH_MAX, min(WORTH_MAX, self._judged.worths[old])),
            "past": float("past" in new.signals),
            "question": float("question" in new.signals),
        }

    def _change(self, new: Clause) -> dict[str, float]:
        """How much it sounds like a change, and is taken for one."""
        heard = self._judged.heard[new.turn]
        amounts = {value.amount for value in new.values}
        turn = self._turn_signals[new.turn]
        own = "replacement" if "replacement" in new.signals else "change" if "change" in new.signals else ""
        near = "" if own else "replacement" if "replacement" in turn else "change" if "change" in turn else ""
        signs = {
            own: 1.0,
            f"{near}_near": 1.0,
            "told": float(self._told_before(new, amounts)),
            "changed": float(heard.changed),
            "acknowledged": float(heard.acknowledged),
            "repeated": float(bool(amounts & heard.amounts)),
        }
        if "withdrawal" in new.signals:
            signs["withdrawal"] = 1.0
        elif "withdrawal" in turn:
            signs["withdrawal_near"] = 1.0
        return {sign: weight for sign, weight in signs.items() if weight and sign not in ("", "_near")}

    def _shared(self, number: int, old: int) -> dict[str, float]:
        """The words in common, by how close to the two clauses they stand."""
        new, before = self._topics[number], self._topics[old]
        own = new.own & before.own
        near = ((new.near & before.own) | (new.own & before.near)) - own
        far = (new.near & before.near) - own - near
        shared = (("own", own, OWN_MAX), ("near", near, NEAR_MAX), ("far", far, FAR_MAX))
        return {sign: min(most, self._weight(words)) for sign, words, most in shared if words}

    def _flips(self, number: int, old: int) -> bool:
        """Whether one says no to what the other says yes to."""
        new, before = self._clauses[number], self._clauses[old]
        if self._denies(number) == self._denies(old):
            return False
        return self._weight(new.words & before.words) >= FLIP_WEIGHT_MIN

    def _denies(self, number: int) -> bool:
        sentence = self._sentences[self._clauses[number].sentence]
        return any("negative" in self._clauses[one].signals for one in sentence)

    def _last_taken(self, turn: int) -> int:
        """The last turn before with something that the assistant took down."""
        return max((one for one in self._taken_turns if one < turn), default=-1)

    def _told_before(self, new: Clause, amounts: set[str]) -> bool:
        """Whether the turn before, of the assistant or a tool, told of a change to one of these amounts."""
        before = new.turn - 1
        if before < 0 or self._turns[before].role == "user":
            return False
        signals = self._turn_signals.get(before, set())
        return bool({"change", "changed"} & signals and amounts & self._turn_amounts.get(before, set()))

    def _weight(self, words: frozenset[str]) -> float:
        return sum(self._rarity.get(word, 0.5) for word in sorted(words))


def _match(new: Sequence[Value], old: Sequence[Value]) -> dict[str, float]:
    """How two lists of values match: the best pair that says something new."""
    if new and all(any(_same(one, other) for other in old) for one in new):
        return {"same": 1.0}
    pairs = [_pair(one, other) for one in new for other in old]
    return max(pairs, key=lambda signs: (len(signs), sorted(signs)), default={})


def _same(new: Value, old: Value) -> bool:
    one, other = set(new.amount.split()), set(old.amount.split())
    return one <= other or other <= one


def _pair(new: Value, old: Value) -> dict[str, float]:
    if _same(new, old):
        return {}
    if new.kind != old.kind:
        return {"like_kind": 1.0} | _size(new, old) if frozenset({new.kind, old.kind}) in _LIKE else {}
    units = set(new.unit.split()) - _PER, set(old.unit.split()) - _PER
    if units[0] & units[1]:
        return {"kind": 1.0, "unit": 1.0} | _size(new, old)
    if new.unit and old.unit:
        return {}
    return {"kind": 1.0} | ({} if new.unit or old.unit else {"bare": 1.0}) | _size(new, old)


_PER = {"a", "per", "al", "por"}


def _size(new: Value, old: Value) -> dict[str, float]:
    try:
        one, other = float(new.amount), float(old.amount)
    except ValueError:
        return {}
    if one <= 0 or other <= 0:
        return {}
    ratio = max(one / other, other / one)
    return {"near_size": 1.0} if ratio <= SIZES_NEAR else {"far_size": 1.0} if ratio > SIZES_FAR else {}
