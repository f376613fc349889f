"""Which statement takes the place of which: the same kind of value on the same subject, or a withdrawal. Pure.

A fold over the clauses in order. A later clause ends the earlier one that it fits best, where it fits well enough:
both name a value of one kind and unit, they share words that few statements share, the later one sounds like a change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from serve_app.compress.statements import Clause, Value
from serve_app.compress.verdicts import Judged
from serve_app.core import Turn

FITS_FROM = 3.0
"""Score from which a clause ends another."""

KIND_WORTH = 1.0
UNIT_WORTH = 0.75
CHANGE_WORTH = 1.25
CHANGED_WORTH = 1.25
WORD_WORTH_MAX = 2.5
ALONE_WORTH = 0.75
WITHDRAWAL_WORTH = 1.5

CANDIDATES_MAX = 400
"""Earlier clauses that are looked at, the newest."""


class Topic(NamedTuple):
    """What a clause is about: its own words, and those around it, which count half."""

    own: frozenset[str]
    near: frozenset[str]


class Fold(NamedTuple):
    ended: dict[int, int]
    """Number of a clause -> number of the turn that replaced or withdrew it."""
    promoted: frozenset[int]
    """Clauses that replaced another and bind for that alone."""


def fold(turns: Sequence[Turn], clauses: Sequence[Clause], judged: Judged) -> Fold:
    """What the conversation, read to its end, ended."""
    topics = _topics(clauses, judged)
    rarity = _rarity(topics)
    ended: dict[int, int] = {}
    promoted: set[int] = set()
    live: list[int] = []
    for number, clause in enumerate(clauses):
        role = turns[clause.turn].role
        if role != "user" or judged.verdicts[number] in ("hypothetical", "third_person"):
            continue
        for old in _replaced(number, clauses, judged, topics, rarity, live[-CANDIDATES_MAX:]):
            ended[old] = clause.turn
            live.remove(old)
            promoted.add(number)
        if clause.values or judged.verdicts[number] in ("active", "soft"):
            live.append(number)
    return Fold(ended, frozenset(promoted - set(ended)))


def _topics(clauses: Sequence[Clause], judged: Judged) -> list[Topic]:
    sentences: dict[int, set[str]] = {}
    for clause in clauses:
        sentences.setdefault(clause.sentence, set()).update(clause.words)
    return [
        Topic(
            clause.words,
            frozenset(sentences[clause.sentence])
            | judged.heard[clause.turn].words
            | judged.heard[clause.turn].asked_words,
        )
        for clause in clauses
    ]


def _rarity(topics: Sequence[Topic]) -> Mapping[str, float]:
    """How much sharing a word says: little where many clauses have it."""
    counts = Counter(word for topic in topics for word in topic.own)
    return {word: 1.5 / (1 + math.log2(max(1, count) / 2 + 0.5)) for word, count in counts.items()}


def _replaced(
    number: int,
    clauses: Sequence[Clause],
    judged: Judged,
    topics: Sequence[Topic],
    rarity: Mapping[str, float],
    live: Sequence[int],
) -> Iterable[int]:
    """The earlier clauses that this one ends: the best, and whatever else its turn said in one breath with that."""
    earlier = [old for old in live if clauses[old].turn < clauses[number].turn]
    scored = [(_fits(number, old, clauses, judged, topics, rarity, earlier), old) for old in earlier]
    best = max(scored, default=(0.0, -1))
    return [best[1]] if best[0] >= FITS_FROM else []


def _fits(
    number: int,
    old: int,
    clauses: Sequence[Clause],
    judged: Judged,
    topics: Sequence[Topic],
    rarity: Mapping[str, float],
    earlier: Sequence[int],
) -> float:
    new, before = clauses[number], clauses[old]
    likeness = _likeness(topics[number], topics[old], rarity)
    kind = _kind(new.values, before.values)
    heard = judged.heard[new.turn]
    score = min(likeness, WORD_WORTH_MAX)
    score += CHANGE_WORTH * ("change" in new.signals) + CHANGED_WORTH * heard.changed
    if "withdrawal" in new.signals:
        score += WITHDRAWAL_WORTH if likeness > 0 else 0.0
    elif kind == 0.0:
        return 0.0 if likeness < 1.0 or not ("change" in new.signals or heard.changed) else score
    if kind:
        alone = sum(_kind(new.values, clauses[one].values) > 0 for one in earlier) == 1
        score += kind + (ALONE_WORTH if alone else 0.0)
    return score


def _likeness(new: Topic, old: Topic, rarity: Mapping[str, float]) -> float:
    own = new.own & old.own
    near = (new.near & old.own) | (new.own & old.near)
    return sum(rarity.get(word, 1.0) for word in sorted(own)) + sum(
        rarity.get(word, 1.0) / 2 for word in sorted(near - own)
    )


def _kind(new: Sequence[Value], old: Sequence[Value]) -> float:
    """How well two lists of values match in kind; nothing where they say the same."""
    if {(value.kind, value.amount) for value in new} == {(value.kind, value.amount) for value in old}:
        return 0.0
    return max((_pair(one, other) for one in new for other in old), default=0.0)


_LIKE = {frozenset({"money", "number"}), frozenset({"count", "number"}), frozenset({"time", "number"})}


def _pair(new: Value, old: Value) -> float:
    if new.amount == old.amount:
        return 0.0
    if new.kind == old.kind:
        if new.unit == old.unit:
            return KIND_WORTH + (UNIT_WORTH if new.unit else 0.25)
        return KIND_WORTH if not (new.unit and old.unit) else 0.0
    return KIND_WORTH * 0.6 if frozenset({new.kind, old.kind}) in _LIKE else 0.0
