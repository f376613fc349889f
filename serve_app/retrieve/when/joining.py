"""Expressions that stand together: `the evening of 3 May`, `from March to May`, `since last week`, `三天前到昨天`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from serve_app.retrieve.when.expressions import AROUND, WEEKLY, Clock, Meaning, beside
from serve_app.retrieve.when.language import Language
from serve_app.retrieve.when.periods import Grain, Span, week

LEAD_CHARACTERS: Final = 24
"""So much of what stands before or after an expression is looked at."""

RECURS_MAX: Final = 60
"""So many weeks, months or years the end of a range is looked for after its start."""

RELATIONS: Final = ("since", "before", "until", "after", "around", "week", "range", "within")
"""Groups of `Language.lead` and `trail`. `within` says nothing but that a time follows."""


class Mention(NamedTuple):
    """An expression where it stands in the text."""

    start: int
    end: int
    meaning: Meaning


class Reading(NamedTuple):
    """What a query says of time; None for an open end."""

    start: datetime | None
    end: datetime | None
    vague: bool


def joined(text: str, found: list[Mention], language: Language, clock: Clock) -> list[Reading]:
    """Readings in the order of the text."""
    mentions = _nested(text, found, language)
    readings: list[Reading] = []
    at = 0
    while at < len(mentions):
        one, following = mentions[at], mentions[at + 1] if at + 1 < len(mentions) else None
        span = None if following is None else _range(text, one, following, language)
        if span is not None:
            assert following is not None
            readings.append(Reading(span.start, span.end, one.meaning.vague or following.meaning.vague))
            at += 2
            continue
        reading = _alone(text, one, language, clock)
        if reading is not None:
            readings.append(reading)
        at += 1
    return readings


def _nested(text: str, found: list[Mention], language: Language) -> list[Mention]:
    """Neighbours of which one lies inside the other become one."""
    mentions = list(found)
    at = 0
    while at + 1 < len(mentions):
        merged = _one_in_other(text, mentions[at], mentions[at + 1], language)
        if merged is None:
            at += 1
            continue
        mentions[at : at + 2] = [merged]
        at = max(0, at - 1)
    return mentions


def _one_in_other(text: str, left: Mention, right: Mention, language: Language) -> Mention | None:
    gap = text[left.end : right.start]
    apart = language.apart and language.apart.fullmatch(gap)
    if apart and left.meaning.hosts == WEEKLY and right.meaning.grain is Grain.DAY and right.meaning.span is not None:
        placed = beside(left.meaning, right.meaning.span, before=apart["before"] is not None)
        return Mention(left.start, right.end, placed)
    if not language.filler.fullmatch(gap):
        return None
    same_day = _same_day(left.meaning, right.meaning)
    if same_day is not None:
        return Mention(left.start, right.end, same_day)
    for inner, outer in ((left.meaning, right.meaning), (right.meaning, left.meaning)):
        if outer.grain in inner.hosts and inner.within is not None:
            meaning = _inside(inner, outer)
            return None if meaning is None else Mention(left.start, right.end, meaning)
    return None


def _same_day(left: Meaning, right: Meaning) -> Meaning | None:
    """`Friday, 7 March`: the weekday says nothing more."""
    if left.grain is not Grain.DAY or right.grain is not Grain.DAY:
        return None
    if left.hosts == WEEKLY and right.hosts != WEEKLY:
        return right
    return left if right.hosts == WEEKLY and left.hosts != WEEKLY else None


def _inside(inner: Meaning, outer: Meaning) -> Meaning | None:
    place, outer_place, outer_again = inner.within, outer.within, outer.again
    assert place is not None

    def within(host: Span) -> Span | None:
        there = None if outer_place is None else outer_place(host)
        return None if there is None else place(there)

    def again(count: int) -> Span:
        assert outer_again is not None
        span = place(outer_again(count))
        if span is None:
            raise ValueError("no such time")
        return span

    try:
        span = None if outer.span is None else place(outer.span)
    except (ValueError, OverflowError):
        return None
    if span is None and outer_place is None:
        return None
    vague = inner.vague or outer.vague
    recurs = None if outer_again is None else again
    placed = None if outer_place is None else within
    return Meaning(span, inner.grain, placed, outer.hosts, recurs, vague=vague)


def _range(text: str, left: Mention, right: Mention, language: Language) -> Span | None:
    """From one expression to the other, where words join them."""
    if not language.joint.fullmatch(text[left.end : right.start]):
        return None
    relation = _relation(text, left, right, language)
    if relation not in ("range", "since") and left.meaning.grain is not right.meaning.grain:
        return None
    return _from_to(left.meaning, right.meaning)


def _from_to(first: Meaning, last: Meaning) -> Span | None:
    """The end is the first such time after the start; a start without a year takes that of the end."""
    start, end = first.span, last.span
    if start is not None and last.again is not None:
        end = next(
            (span for span in _repeated(last, range(-RECURS_MAX, RECURS_MAX)) if span.start >= start.start), None
        )
    elif end is not None and first.again is not None:
        start = next((span for span in _repeated(first, range(1, -RECURS_MAX, -1)) if span.start < end.start), None)
    if start is None or end is None or start.start >= end.end:
        return None
    return Span(start.start, end.end)


def _repeated(meaning: Meaning, counts: range) -> Iterator[Span]:
    assert meaning.again is not None
    for count in counts:
        with suppress(ValueError, OverflowError):
            yield meaning.again(count)


def _relation(text: str, left: Mention, right: Mention, language: Language) -> str:
    """What the words before and after say of an expression: one of RELATIONS, or nothing."""
    trail = language.trail.match(text[right.end : right.end + LEAD_CHARACTERS])
    if trail is not None and trail.lastgroup not in (None, "within"):
        return str(trail.lastgroup)
    lead = language.lead.search(text[max(0, left.start - LEAD_CHARACTERS) : left.start])
    return str((lead and lead.lastgroup) or (trail and trail.lastgroup) or "")


def _alone(text: str, one: Mention, language: Language, clock: Clock) -> Reading | None:
    """An expression with what is said of it: since, before, until, after or around it, or in it."""
    span, meaning = one.meaning.span, one.meaning
    relation = _relation(text, one, one, language)
    if span is None or span.start == span.end or meaning.bare or (meaning.weak and not relation):
        return None
    if relation in ("since", "after"):
        under_way = span.start <= clock.now < span.end  # "after March" said in March means this very one
        start = span.start if relation == "since" or under_way else span.end
        return Reading(start, clock.now if start < clock.now else None, meaning.vague)
    if relation in ("before", "until"):
        return Reading(None, span.start if relation == "before" else span.end, meaning.vague)
    if relation == "week":
        span = week(span.first_day)
    if relation == "around" and meaning.grain in (Grain.DAY, Grain.DAYS):
        return Reading(span.start - AROUND, span.end + AROUND, meaning.vague)
    return Reading(span.start, span.end, meaning.vague)
