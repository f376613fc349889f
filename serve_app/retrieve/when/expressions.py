"""What expressions mean, whatever the language: each function turns numbers and a clock into a `Meaning`.

The languages (`english.py`, `chinese.py`, `japanese.py`, `spanish.py`) only say which words name which of these.
The conventions are those of docs/expansion.md. All times are readings of the asker's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Final, NamedTuple

from serve_app.retrieve.when import periods
from serve_app.retrieve.when.periods import ONE_DAY, ONE_WEEK, Grain, Span

FEW: Final = 5
"""What "a few" and its likes are taken for."""

JUST_NOW: Final = timedelta(minutes=30)
AROUND: Final = timedelta(days=3)
NEVER: Final = datetime.max  # noqa: DTZ901 - local, like all here
SOME_YEAR: Final = 2020
"""One that every holiday comes in."""

LEAP_YEARS_APART_MAX: Final = 8
"""Years to look back for a date that not every year has."""

YEARLY: Final = frozenset({Grain.YEAR})
WEEKLY: Final = frozenset({Grain.WEEK})
MONTHLY: Final = frozenset({Grain.MONTH})
DAILY: Final = frozenset({Grain.DAY})

PARTS: Final = {"dawn": (0, 6), "morning": (6, 12), "noon": (11, 14), "afternoon": (12, 18), "evening": (18, 24)}
"""Hours of the parts of a day."""

Place = Callable[[Span], Span | None]


class Clock(NamedTuple):
    """The asker's clock, and how they write: `order` is that of a numeric date whose year is not written first."""

    now: datetime
    future: bool = False
    """The wording looks ahead: what recurs is the next one, not the last."""
    order: str = "dmy"

    @property
    def today(self) -> date:
        return self.now.date()


class Meaning(NamedTuple):
    """What one expression says. `span` is None where it says nothing by itself, like the morning of a day."""

    span: Span | None
    grain: Grain
    within: Place | None = None
    """Where it lies inside something longer that is named beside it."""
    hosts: frozenset[Grain] = frozenset()
    """What that may be."""
    again: Callable[[int], Span] | None = None
    """Where it recurs and nothing says which one is meant: so many later than `span`."""
    weak: bool = False
    """The words may mean something else: it counts only beside a preposition or another expression."""
    bare: bool = False
    """It counts only together with something that lies in it, like the end of the month."""
    vague: bool = False


def day(clock: Clock, ahead: int) -> Meaning:
    return Meaning(periods.days(clock.today + ahead * ONE_DAY), Grain.DAY)


def week(clock: Clock, ahead: int) -> Meaning:
    return Meaning(periods.week(clock.today + ahead * ONE_WEEK), Grain.WEEK)


def month(clock: Clock, ahead: int) -> Meaning:
    return Meaning(periods.months(clock.now.year, clock.now.month + ahead), Grain.MONTH)


def year(clock: Clock, ahead: int) -> Meaning:
    return Meaning(periods.year_of(clock.now.year + ahead), Grain.YEAR)


def calendar_year(number: int, *, weak: bool = False) -> Meaning:
    return Meaning(periods.year_of(number), Grain.YEAR, weak=weak)


def quarter(clock: Clock, ahead: int) -> Meaning:
    return Meaning(periods.quarter(clock.now.year, (clock.now.month + 2) // 3 + ahead), Grain.QUARTER)


def half(clock: Clock, ahead: int) -> Meaning:
    return Meaning(periods.half(clock.now.year, (clock.now.month + 5) // 6 + ahead), Grain.HALF)


def every_year(clock: Clock, grain: Grain, of_year: Callable[[int], Span], *, weak: bool = False) -> Meaning:
    """What comes once a year: the last one that has begun, or the next where the wording looks ahead.

    `of_year` raises ValueError for a year that has none.
    """
    begun = (one for one in _years_from(clock.now.year + 1, -1) if _begins(of_year, one) <= clock.now)
    chosen = next(begun, None)
    if chosen is None:
        raise ValueError("no such day")
    if clock.future and of_year(chosen).end <= clock.now:
        chosen = next((one for one in _years_from(chosen + 1, 1) if _begins(of_year, one) != NEVER), chosen)
    return Meaning(
        of_year(chosen),
        grain,
        within=lambda host: of_year(host.start.year),
        hosts=YEARLY,
        again=lambda count: of_year(chosen + count),
        weak=weak,
    )


def _years_from(first: int, step: int) -> range:
    return range(first, first + step * (LEAP_YEARS_APART_MAX + 2), step)


def _begins(of_year: Callable[[int], Span], chosen: int) -> datetime:
    span = _or_none(of_year, chosen)
    return NEVER if span is None else span.start


def _or_none(of_year: Callable[[int], Span], chosen: int) -> Span | None:
    try:
        return of_year(chosen)
    except (ValueError, OverflowError):
        return None


def nth_of_these(meaning: Meaning, clock: Clock, ahead: int) -> Meaning:
    """The one before (-1), the current (0) or the next (1) of what comes once a year.

    The one before has ended; the current one holds `now`, or is the one of this year.
    """
    if meaning.again is None:
        return meaning
    around = [span for count in range(-3, 4) if (span := _or_none(meaning.again, count)) is not None]
    if ahead < 0:
        span = max((one for one in around if one.end <= clock.now), default=None)
    elif ahead > 0:
        span = min((one for one in around if one.start > clock.now), default=None)
    else:
        span = min(around, key=lambda one: _distance(one, clock.now))
    return Meaning(span, meaning.grain)


def _distance(span: Span, now: datetime) -> timedelta:
    return max(span.start - now, now - span.end, timedelta())


def named_month(clock: Clock, number: int, *, weak: bool = False) -> Meaning:
    return every_year(clock, Grain.MONTH, lambda chosen: periods.months(chosen, number), weak=weak)


def named_quarter(clock: Clock, number: int, *, weak: bool = False) -> Meaning:
    return every_year(clock, Grain.QUARTER, lambda chosen: periods.quarter(chosen, number), weak=weak)


def named_half(clock: Clock, number: int, *, weak: bool = False) -> Meaning:
    return every_year(clock, Grain.HALF, lambda chosen: periods.half(chosen, number), weak=weak)


def holiday(clock: Clock, of_year: Callable[[int], Span], *, ahead: int | None = None) -> Meaning:
    """The last one that has begun, or the last, this or the next one."""
    some = of_year(SOME_YEAR)
    single = some.end - some.start == ONE_DAY
    found = every_year(clock, Grain.DAY if single else Grain.DAYS, of_year)
    return found if ahead is None else nth_of_these(found, clock, ahead)


def season(clock: Clock, first_month: int) -> Meaning:
    return every_year(clock, Grain.SEASON, lambda chosen: periods.season(chosen, first_month))


def of_month(clock: Clock, number: int, first: int, last: int | None = None, year: int | None = None) -> Meaning:
    """A day of a named month, or the days from one to another."""
    count = (last or first) - first + 1
    if count < 1:
        raise ValueError("it ends before it begins")

    def of_year(chosen: int) -> Span:
        date(chosen, number, last or first)
        return periods.days(date(chosen, number, first), count)

    grain = Grain.DAY if count == 1 else Grain.DAYS
    return every_year(clock, grain, of_year) if year is None else Meaning(of_year(year), grain)


def month_of_year(year: int, number: int) -> Meaning:
    if not 1 <= number <= 12:
        raise ValueError("no such month")
    return Meaning(periods.months(year, number), Grain.MONTH)


def day_of_month(clock: Clock, number: int, last: int | None = None, *, weak: bool = False) -> Meaning:
    """The latest such day that is not after today (or the next one after it), unless a month stands beside it."""
    count = (last or number) - number + 1
    if count < 1 or not 1 <= number <= 31:
        raise ValueError("no such day")
    first = clock.now.year * 12 + clock.now.month - 1

    def within(host: Span) -> Span:
        date(host.start.year, host.start.month, last or number)
        return periods.days(date(host.start.year, host.start.month, number), count)

    def of_count(chosen: int) -> Span:
        return within(periods.months(chosen // 12, chosen % 12 + 1))

    steps = range(first, first + 13) if clock.future else range(first, first - 13, -1)
    placed = ((chosen, _or_none(of_count, chosen)) for chosen in steps)
    fitting = (
        (chosen, span)
        for chosen, span in placed
        if span is not None and (span.end > clock.now if clock.future else span.start <= clock.now)
    )
    chosen, span = next(fitting, (0, None))
    if span is None:
        raise ValueError("no such day")
    grain = Grain.DAY if count == 1 else Grain.DAYS
    return Meaning(span, grain, within, MONTHLY, lambda later: of_count(chosen + later), weak)


def weekday(clock: Clock, number: int, *, ahead: int | None = None, last: int | None = None) -> Meaning:
    """A day of the week `ahead`, or the most recent one strictly before today (or the next after it)."""
    count = (number if last is None else last) - number + 1

    def within(host: Span) -> Span:
        return periods.days(periods.week(host.first_day).first_day + number * ONE_DAY, count)

    if ahead is not None:
        return Meaning(within(periods.week(clock.today + ahead * ONE_WEEK)), Grain.DAY)
    passed = (clock.today.weekday() - number - 1) % 7 + 1
    first = clock.today + (7 - passed % 7 if clock.future else -passed) * ONE_DAY

    def again(later: int) -> Span:
        return periods.days(first + later * ONE_WEEK, count)

    return Meaning(again(0), Grain.DAY, within, WEEKLY, again)


def weekend(clock: Clock, ahead: int | None = None, *, weak: bool = False) -> Meaning:
    """Saturday and Sunday of a week; by itself the most recent that has begun (or the next to come)."""

    def within(host: Span) -> Span:
        return periods.days(periods.week(host.first_day).first_day + 5 * ONE_DAY, 2)

    if ahead is None:
        ahead = 0 if clock.future or clock.today.weekday() >= 5 else -1
    span = within(periods.week(clock.today + ahead * ONE_WEEK))
    return Meaning(span, Grain.DAYS, within, WEEKLY, weak=weak)


def nth_week(nth: int, *, weekend: bool) -> Meaning:
    """The nth (-1: the last) seven days of a month that is named beside it, or its nth Saturday and Sunday."""

    def within(host: Span) -> Span:
        if weekend:
            return periods.days(periods.nth_weekday(host.start.year, host.start.month, 5, nth), 2)
        start = host.end - ONE_WEEK if nth < 0 else host.start + (nth - 1) * ONE_WEEK
        return Span(start, min(start + ONE_WEEK, host.end))

    return Meaning(None, Grain.DAYS, within, MONTHLY)


def nth_weekday(nth: int, weekday: int) -> Meaning:
    """The nth (-1: the last) of this weekday in a month that is named beside it."""

    def within(host: Span) -> Span:
        on = periods.nth_weekday(host.start.year, host.start.month, weekday, nth)
        if on.month != host.start.month:
            raise ValueError("no such day")
        return periods.days(on)

    return Meaning(None, Grain.DAY, within, MONTHLY)


def beside(weekly: Meaning, day: Span, *, before: bool) -> Meaning:
    """The weekday or weekend that comes next before or after a day."""
    assert weekly.within is not None
    here = weekly.within(periods.week(day.first_day))
    assert here is not None
    if before and here.end > day.start:
        here = Span(here.start - ONE_WEEK, here.end - ONE_WEEK)
    if not before and here.start < day.end:
        here = Span(here.start + ONE_WEEK, here.end + ONE_WEEK)
    return Meaning(here, weekly.grain)


def part(name: str) -> Meaning:
    """A part of a day: of one that is named beside it."""
    first, last = PARTS[name]
    return Meaning(None, Grain.PART, lambda host: hours(host.first_day, first, last), DAILY)


def part_of(clock: Clock, ahead: int, name: str) -> Meaning:
    """A part of a day that one word names with its day, like tonight."""
    return Meaning(hours(clock.today + ahead * ONE_DAY, *PARTS[name]), Grain.PART)


def hours(on: date, first: int, last: int) -> Span:
    start = periods.midnight(on)
    return Span(start + timedelta(hours=first), start + timedelta(hours=last))


def clock_time(hour: int, minute: int) -> Meaning:
    """Half an hour around a time of day, of a day that is named beside it."""
    at = time(hour % 24, minute)
    half_hour = timedelta(minutes=30)

    def within(host: Span) -> Span:
        moment = datetime.combine(host.first_day, at)
        return Span(moment - half_hour, moment + half_hour)

    return Meaning(None, Grain.MOMENT, within, DAILY)


def stretch(which: str) -> Meaning:
    """The `early`, `middle`, `late`, `end`, `third` ... part of what is named beside it."""
    hosts = frozenset({Grain.YEAR, Grain.MONTH, Grain.WEEK, Grain.QUARTER, Grain.SEASON, Grain.HALF, Grain.DAYS})
    return Meaning(None, Grain.DAYS, lambda host: _stretch(which, host), hosts)


def _stretch(which: str, host: Span) -> Span | None:
    length = (host.end - host.start).days
    if length > 300:
        return _of_year(which, host)
    if 28 <= length <= 31:
        return _of_month(which, host)
    third = max(1, length // 3)
    if which in ("early", "begin"):
        return Span(host.start, host.start + third * ONE_DAY)
    if which in ("late", "end"):
        return Span(host.end - third * ONE_DAY, host.end)
    return Span(host.start + third * ONE_DAY, host.end - third * ONE_DAY)


def _of_month(which: str, host: Span) -> Span | None:
    first = host.start
    bounds = {"early": (1, 7), "begin": (1, 7), "first": (1, 10), "middle": (11, 20)}
    if which in bounds:
        start, last = bounds[which]
        return Span(first + (start - 1) * ONE_DAY, first + last * ONE_DAY)
    return Span(host.end - 7 * ONE_DAY if which == "end" else first + 20 * ONE_DAY, host.end)


def _of_year(which: str, host: Span) -> Span | None:
    bounds = {"begin": (1, 1), "early": (1, 3), "middle": (6, 2), "late": (10, 3), "end": (12, 1)}
    if which not in bounds:
        return None
    return periods.months(host.start.year, *bounds[which])


UNITS: Final = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": ONE_DAY, "week": ONE_WEEK}
MONTHS_OF: Final = {"month": 1, "quarter": 3, "year": 12}


def ago(clock: Clock, count: float, unit: str, *, exact: bool = False, vague: bool = False) -> Meaning:
    """So many units before now (after it where negative): the calendar's own day, week, month or year there."""
    if unit in ("minute", "hour"):
        return _moment(clock.now - count * UNITS[unit], timedelta(hours=1) <= abs(count) * UNITS[unit], vague)
    if unit in MONTHS_OF:
        moment = periods.months_before(clock.now, round(count * MONTHS_OF[unit]))
        if exact:
            return Meaning(periods.days(moment.date()), Grain.DAY)
        if unit == "year" and count == int(count):
            return Meaning(periods.year_of(moment.year), Grain.YEAR, vague=vague)
        return Meaning(periods.months(moment.year, moment.month), Grain.MONTH, vague=vague)
    on = (clock.now - count * UNITS[unit]).date()
    if unit == "day" or exact:
        return Meaning(periods.days(on), Grain.DAY, vague=vague)
    return Meaning(periods.week(on), Grain.WEEK, vague=vague)


def between_ago(clock: Clock, more: float, less: float, unit: str) -> Meaning:
    """`two or three days ago`."""
    far, near = ago(clock, max(more, less), unit).span, ago(clock, min(more, less), unit).span
    assert far is not None
    assert near is not None
    return Meaning(Span(far.start, near.end), Grain.DAYS, vague=True)


def _moment(at: datetime, hours_away: bool, vague: bool) -> Meaning:
    reach = timedelta(minutes=30 if hours_away else 15)
    return Meaning(Span(at - reach, at + reach), Grain.MOMENT, vague=vague)


def rolling(clock: Clock, count: float, unit: str, *, vague: bool = False) -> Meaning:
    """The last so many units up to now; the next ones where negative. In readings of the clock."""
    if unit in MONTHS_OF:
        other = periods.months_before(clock.now, round(count * MONTHS_OF[unit]))
    else:
        other = clock.now - count * UNITS[unit]
    return Meaning(Span(min(other, clock.now), max(other, clock.now)), Grain.DAYS, vague=vague)


def just_now(clock: Clock) -> Meaning:
    return Meaning(Span(clock.now - JUST_NOW, clock.now), Grain.MOMENT)


def so_far(clock: Clock, host: Meaning) -> Meaning:
    """Of a week, month or year that is not over: what has passed."""
    assert host.span is not None
    return Meaning(Span(host.span.start, clock.now), Grain.DAYS)


def yet_to_come(clock: Clock, host: Meaning) -> Meaning:
    assert host.span is not None
    return Meaning(Span(clock.now, host.span.end), Grain.DAYS)
