"""A conversation as the ledger's fold sees it: what each clause is about, and how it was taken. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from serve_app.compress.statements import Clause, Value
from serve_app.compress.verdicts import Judged
from serve_app.compress.worths import EXACT
from serve_app.core import Turn

LIVE_WORTH_MIN = 1.0
"""Of less worth nothing is replaced, unless the assistant takes it down, and nothing replaces that does not say so."""

NEAR_CLAUSES = 8
"""Clauses before and after whose words stand near."""

CHANGES = frozenset(("change", "replacement", "withdrawal"))
ANSWER_WORDS_MAX = 3
"""Content words of a plan that is named and no more."""

WORTH_MAX = 6.0
"""More, of either sign, says nothing more of a replacement."""

_LASTING = frozenset(("lasting", "implicit"))
_SURE_CHANGES = frozenset(("replacement", "withdrawal"))

_BINDING = frozenset(("binds", "implicit", "literal", "directive", "refusal"))
_NO_WORDS: frozenset[str] = frozenset()
_NO_NUMBERS = range(0)


class Scene:
    """Read-only. Clauses are named by their numbers."""

    def __init__(self, turns: Sequence[Turn], clauses: Sequence[Clause], judged: Judged) -> None:
        self.turns, self.clauses, self.judged = turns, clauses, judged
        self._sentences: dict[int, list[int]] = {}
        self._numbers: dict[int, range] = {}
        self._changes: dict[int, dict[str, float]] = {}
        self._near: dict[int, frozenset[str]] = {}
        self._told: dict[int, frozenset[str]] = {}
        self._before: dict[int, tuple[int, int]] = {}
        self._standing: dict[int, dict[str, float]] = {}
        self._turn_words: dict[int, set[str]] = {}
        self._turn_signals: dict[int, set[str]] = {}
        self._turn_amounts: dict[int, set[str]] = {}
        for number, clause in enumerate(clauses):
            self._sentences.setdefault(clause.sentence, []).append(number)
            self._numbers.setdefault(clause.turn, range(number, number))
            self._numbers[clause.turn] = range(self._numbers[clause.turn].start, number + 1)
            self._turn_words.setdefault(clause.turn, set()).update(clause.words)
            self._turn_signals.setdefault(clause.turn, set()).update(clause.signals)
            self._turn_amounts.setdefault(clause.turn, set()).update(value.amount for value in clause.values)
        counts = Counter(word for clause in clauses for word in clause.words)
        self._rarity = {word: 1.5 / (1 + math.log2((1 + count) / 2)) for word, count in counts.items()}
        self.taken = [self._is_taken(clause) for clause in clauses]
        self.values = [self._as_heard(clause) for clause in clauses]
        self._taken_turns = sorted(
            {
                clause.turn
                for clause, taken in zip(clauses, self.taken, strict=True)
                if taken and turns[clause.turn].role == "user"
            }
        )

    def counts(self, number: int) -> bool:
        """Whether a clause may be replaced."""
        clause = self.clauses[number]
        if self.judged.verdicts[number] in ("hypothetical", "third_person", "question"):
            return False
        if self.turns[clause.turn].role != "user":
            return self.judged.verdicts[number] == "active" or (bool(clause.values) and self._accepted(clause.turn))
        return bool(clause.values) or self.judged.worths[number] >= LIVE_WORTH_MIN or self.taken[number]

    def may_replace(self, number: int) -> bool:
        """Whether a clause may replace: what nobody heard has to say so itself."""
        clause = self.clauses[number]
        if self.turns[clause.turn].role == "assistant":
            return False
        if self.judged.worths[number] < LIVE_WORTH_MIN and not (
            self.judged.heard[clause.turn].changed or self.judged.heard[clause.turn].removed
        ):
            return bool(_SURE_CHANGES & clause.signals)
        return self.taken[number] or bool(CHANGES & self._turn_signals[clause.turn])

    def says_something(self, number: int) -> bool:
        """Whether what replaced another is worth an entry: not a mere `never mind`."""
        clause = self.clauses[number]
        return bool(clause.values) or len(clause.words) > (2 if "withdrawal" in clause.signals else 1)

    def falls_with(self, old: int) -> Iterator[int]:
        """The clause and what of its sentence says nothing without it."""
        ended = self.clauses[old]
        kinds = {value.kind for value in ended.values}
        for number in self._sentences[ended.sentence]:
            clause = self.clauses[number]
            stands = clause.values or {"implicit", "literal"} & clause.signals or len(clause.words) > 3
            exact = any(value.kind in EXACT and value.kind not in kinds for value in clause.values)
            if number == old or not (exact or (stands and _BINDING & clause.signals)):
                yield number

    def accepts(self, number: int, turn: int) -> bool:
        """Whether a clause repeats what the assistant or a tool said in that turn, and so ends nothing of it."""
        if self.turns[turn].role == "user":
            return False
        new = self.clauses[number]
        return new.turn - turn <= 2 or any(value.amount in self._turn_amounts[turn] for value in new.values)

    def before(self, turn: int) -> tuple[int, int]:
        """The last turn before with something that the assistant took down, and the user's last; -1 for none."""
        if turn not in self._before:
            self._before[turn] = self._last_taken(turn), self._user_before(turn)
        return self._before[turn]

    def _last_taken(self, turn: int) -> int:
        place = bisect_left(self._taken_turns, turn)
        return self._taken_turns[place - 1] if place else -1

    def clauses_of(self, turn: int) -> range:
        """The numbers of a turn's clauses."""
        return self._numbers.get(turn, _NO_NUMBERS)

    def near(self, number: int) -> frozenset[str]:
        """The words around a clause: of its turn, of what it answers, of how it is taken; and its kinds of values."""
        if number not in self._near:
            self._near[number] = self._words_near(number)
        return self._near[number]

    def _words_near(self, number: int) -> frozenset[str]:
        clause = self.clauses[number]
        heard = self.judged.heard[clause.turn]
        around = (one for one in self.clauses[max(0, number - NEAR_CLAUSES) : number + NEAR_CLAUSES + 1])
        words = (one.words for one in around if one.turn == clause.turn)
        told = self._turn_words[clause.turn - 1] if self.told_before(number) else _NO_WORDS
        return (
            heard.words.union(*words, heard.asked_words, (value.kind for value in clause.values), told) - clause.words
        )

    def is_answer(self, number: int) -> bool:
        """Whether a clause is a plan of a few words, chosen when the assistant asked."""
        clause = self.clauses[number]
        exact = any(value.kind in EXACT for value in clause.values)
        return (
            self.judged.heard[clause.turn].asked
            and len(self._turn_words[clause.turn]) <= ANSWER_WORDS_MAX
            and not exact
        )

    def turn_words(self, turn: int) -> Set[str]:
        """The content words of a turn."""
        return self._turn_words[turn]

    def is_lone(self, number: int) -> bool:
        """Whether its turn is one sentence."""
        around = self.clauses_of(self.clauses[number].turn)
        return self.clauses[around[0]].sentence == self.clauses[around[-1]].sentence

    def is_reasoned(self, number: int) -> bool:
        """Whether its turn tells before it of what happened, was said or is not to be."""
        clause = self.clauses[number]
        before = range(self.clauses_of(clause.turn)[0], number)
        return any({"past", "reports", "negative"} & self.clauses[one].signals for one in before)

    def _user_before(self, turn: int) -> int:
        return next((one for one in range(turn - 1, max(-1, turn - 4), -1) if self.turns[one].role == "user"), -1)

    def told(self, number: int) -> frozenset[str]:
        """The words of a clause and of how the assistant takes it."""
        if number not in self._told:
            clause = self.clauses[number]
            self._told[number] = clause.words | self.judged.heard[clause.turn].words
        return self._told[number]

    def repeated(self, number: int) -> bool:
        """Whether the assistant repeats a value of it."""
        clause = self.clauses[number]
        return any(value.amount in self.judged.heard[clause.turn].amounts for value in clause.values)

    def change(self, number: int) -> Mapping[str, float]:
        """How much a clause sounds like a change, and is taken for one."""
        if number not in self._changes:
            self._changes[number] = self._change(number)
        return self._changes[number]

    def _change(self, number: int) -> dict[str, float]:
        new = self.clauses[number]
        heard, turn = self.judged.heard[new.turn], self._turn_signals[new.turn]
        own = "replacement" if "replacement" in new.signals else "change" if "change" in new.signals else ""
        near = "" if own else "replacement" if "replacement" in turn else "change" if "change" in turn else ""
        signs = {
            own: bool(own),
            f"{near}_near": bool(near),
            "told": self.told_before(number),
            "changed": heard.changed,
            "removed": heard.removed,
            "repeated": self.repeated(number),
            "withdrawal": "withdrawal" in new.signals,
            "withdrawal_near": "withdrawal" not in new.signals and "withdrawal" in turn,
            "worth": self._worth(number),
            "concluded": heard.concluded,
            "briefly": heard.briefly and (bool(heard.words & new.words) or self.repeated(number)),
            "exact": any(any(map(str.isdigit, value.amount)) for value in self.values[number]),
            "adds": "adds" in new.signals,
            "lasting": bool(_LASTING & new.signals),
            "soft": self.judged.verdicts[number] == "soft",
            "follows": "therefore" in turn,
            "reasoned": self.is_reasoned(number),
            "new_lone": self.is_lone(number),
            "after": self.clauses[self.clauses_of(new.turn)[0]].sentence < new.sentence,
        }
        return {sign: float(holds) for sign, holds in signs.items() if holds}

    def standing(self, old: int) -> Mapping[str, float]:
        """What an earlier clause says by itself for and against being ended."""
        if old not in self._standing:
            self._standing[old] = self._stands(old)
        return self._standing[old]

    def _stands(self, old: int) -> dict[str, float]:
        before = self.clauses[old]
        signs = {
            "old_repeated": self.repeated(old),
            "old_lasting": bool(_LASTING & before.signals),
            "old_reminder": "reminder" in before.signals,
            "old_active": self.judged.verdicts[old] == "active",
            "old_exact": any(any(map(str.isdigit, value.amount)) for value in self.values[old]),
            "old_denies": self.denies(old),
            "lone": self.is_lone(old),
            "old_worth": self._worth(old),
        }
        return {sign: float(holds) for sign, holds in signs.items() if holds}

    def _worth(self, number: int) -> float:
        return max(-WORTH_MAX, min(WORTH_MAX, self.judged.worths[number]))

    def told_before(self, number: int) -> bool:
        """Whether the turn before, of the assistant or a tool, told of a change to one of its amounts."""
        new = self.clauses[number]
        before = new.turn - 1
        if before < 0 or self.turns[before].role == "user" or not new.values:
            return False
        changes = {"change", "changed"} & self._turn_signals.get(before, set())
        return bool(changes) and any(value.amount in self._turn_amounts[before] for value in new.values)

    def denies(self, number: int) -> bool:
        """Whether the sentence says no."""
        sentence = self._sentences[self.clauses[number].sentence]
        return any("negative" in self.clauses[one].signals for one in sentence)

    def weight(self, words: Set[str]) -> float:
        """What sharing these words says: little where many clauses have them."""
        return math.fsum([self._rarity.get(word, 0.5) for word in words])

    def _is_taken(self, clause: Clause) -> bool:
        """Whether the assistant takes it down or repeats some of it, or the user accepts what a tool says."""
        if self.turns[clause.turn].role != "user":
            return self.turns[clause.turn].role == "tool" and self._accepted(clause.turn)
        heard = self.judged.heard[clause.turn]
        words = self._turn_words[clause.turn] if CHANGES & clause.signals else clause.words
        repeated = bool(heard.words & words) or any(value.amount in heard.amounts for value in clause.values)
        return heard.acknowledged or heard.changed or heard.removed or repeated

    def _accepted(self, turn: int) -> bool:
        """Whether the user says yes to what an assistant or a tool just said."""
        for later in range(turn + 1, min(turn + 3, len(self.turns))):
            if self.turns[later].role == "user":
                return "confirmation" in self._turn_signals.get(later, set())
        return False

    def _as_heard(self, clause: Clause) -> tuple[Value, ...]:
        """Its values, and what the assistant takes a bare number for: `380` of `380 grams, noted`."""
        if self.turns[clause.turn].role == "tool":
            return tuple(value for value in clause.values if value.kind != "number")
        bare = {value.amount for value in clause.values if value.kind == "number"}
        if not bare:
            return clause.values
        told = (value for value in self.judged.heard[clause.turn].values if value.kind != "number")
        return clause.values + tuple(value for value in told if value.amount in bare)
