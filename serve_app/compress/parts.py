"""A long conversation read part by part, so that one that goes on costs what is new and not what is old. Pure.

A part is read with what earlier ones left open: the turns that hold statements which may still be replaced, and the
last ones, which it may answer. What closed parts say is settled but for that: a later part may end it.
Parts end at fixed numbers of turns, so that reading on gives what reading from the first turn gives.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from serve_app.compress.ledger import Reading, entries_of, read
from serve_app.compress.segments import Course
from serve_app.compress.statements import Statement
from serve_app.core import Turn
from serve_app.remembered import Remembered

PART_TURNS = 64
"""Turns of one part: a conversation of so many is read as a whole."""

OPEN_TURNS_MAX = 32
"""Turns that a part takes on from earlier ones, those most worth keeping."""

ANSWERED_TURNS = 2
"""The last turns of a part, which the next one takes on whatever they say."""

OPEN_WORTH_MIN = 1.0
"""Of a statement that binds nobody, to be taken on."""


class Settled(NamedTuple):
    """What the turns before `end` say."""

    end: int
    statements: tuple[Statement, ...]
    open: tuple[int, ...]
    """Numbers of the turns that the next part takes on."""


_turn = attrgetter("turn")
_NOTHING = Settled(0, (), ())


class Digests(NamedTuple):
    """Names of turns in the states that were read: of all, and of those up to the end of each closed part."""

    whole: str
    parts: tuple[str, ...]


def digests(turns: Sequence[Turn]) -> Digests:
    """A part is closed when there is at least one turn more."""
    digest = hashlib.blake2b(digest_size=16)
    names = []
    encode, last = msgspec.msgpack.Encoder().encode, len(turns)
    for number, turn in enumerate(turns, 1):
        digest.update(encode(turn))
        if number % PART_TURNS == 0 and number < last:
            names.append(digest.hexdigest())
    return Digests(digest.hexdigest(), tuple(names))


def course_of(turns: Sequence[Turn], names: Sequence[str], kept: Remembered[Course]) -> Course:
    """The topics of these turns. `kept`: those up to the end of closed parts, by their names."""
    known = ((kept.get(names[number]), number) for number in reversed(range(len(names))))
    before, follow_from = next(((one, number + 1) for one, number in known if one is not None), (Course(), 0))
    for number, name in enumerate(names[follow_from:], follow_from + 1):
        before = before.copy().follow(turns, number * PART_TURNS)
        kept.put(name, before)
    return before.copy().follow(turns, len(turns))


def read_on(turns: Sequence[Turn], names: Sequence[str], kept: Remembered[Settled]) -> Reading:
    """The reading of these turns. `kept`: what closed parts said, by their names."""
    known = (kept.get(name) for name in reversed(names))
    settled = next((one for one in known if one is not None), _NOTHING)
    for name in names[settled.end // PART_TURNS :]:
        settled = _settled(turns, settled, settled.end + PART_TURNS)
        kept.put(name, settled)
    statements = _said(turns, settled, len(turns))
    return Reading(statements, entries_of(turns, statements))


def _settled(turns: Sequence[Turn], before: Settled, end: int) -> Settled:
    """With the turns up to `end`."""
    statements = _said(turns, before, end)
    return Settled(end, statements, tuple(_open(turns[:end], statements)))


def _said(turns: Sequence[Turn], before: Settled, end: int) -> tuple[Statement, ...]:
    """What is said up to `end`."""
    numbers = [*before.open, *range(before.end, end)]
    found = _renumbered(read([turns[number] for number in numbers]).statements, numbers, before)
    by_turn = {number: tuple(said) for number, said in groupby(found, key=_turn)}
    told = list(before.statements)
    for number in reversed(before.open):
        first, after = bisect_left(told, number, key=_turn), bisect_right(told, number, key=_turn)
        told[first:after] = _later(tuple(told[first:after]), by_turn.get(number, ()))
    return (*told, *(one for one in found if one.turn >= before.end))


def _renumbered(statements: Iterable[Statement], numbers: Sequence[int], before: Settled) -> list[Statement]:
    sentence = before.statements[-1].sentence + 1 if before.statements else 0
    return [
        msgspec.structs.replace(
            one,
            turn=numbers[one.turn],
            sentence=sentence + one.sentence,
            ended_by=None if one.ended_by is None else numbers[one.ended_by],
        )
        for one in statements
    ]


def _later(said: tuple[Statement, ...], again: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """What an earlier turn says, or says now that more of it has been ended."""
    return again if _ended(again) > _ended(said) else said


def _ended(statements: Iterable[Statement]) -> int:
    """Characters of what no longer holds."""
    return sum(one.end - one.start for one in statements if one.verdict == "superseded")


def _open(turns: Sequence[Turn], statements: Iterable[Statement]) -> Iterator[int]:
    """The turns that hold what may still be replaced, and the last ones, in order."""
    worths: dict[int, float] = {}
    for one in statements:
        if one.verdict == "active" or (one.kept and turns[one.turn].role == "user" and one.worth >= OPEN_WORTH_MIN):
            worths[one.turn] = max(one.worth, worths.get(one.turn, one.worth))
    best = sorted(worths, key=lambda number: (-worths[number], -number))[:OPEN_TURNS_MAX]
    yield from sorted({*best, *range(len(turns) - ANSWERED_TURNS, len(turns))})
