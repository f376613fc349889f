"""The calendar as half-open spans of local time. Pure arithmetic on naive datetimes; zones come later (`zones.py`).

Weeks begin on Monday in every language, seasons are meteorological and northern, quarters and halves are those of the
calendar. Whatever lies outside the years 1 to 9999 raises ValueError or OverflowError.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from enum import Enum, auto
from typing import Final, NamedTuple

ONE_DAY: Final = timedelta(days=1)
ONE_WEEK: Final = timedelta(weeks=1)


class Grain(Enum):
    """How long the thing is that an expression names."""

    YEAR = auto()
    HALF = auto()
    QUARTER = auto()
    SEASON = auto()
    MONTH = auto()
    WEEK = auto()
    DAYS = auto()
    DAY = auto()
    PART = auto()
    MOMENT = auto()


class Span(NamedTuple):
    """Local clock readings: from `start` to before `end`."""

    start: datetime
    end: datetime

    @property
    def first_day(self) -> date:
        return self.start.date()


def midnight(day: date) -> datetime:
    return datetime.combine(day, time.min)


def days(first: date, count: int = 1) -> Span:
    return Span(midnight(first), midnight(first) + count * ONE_DAY)


def week(day: date) -> Span:
    """The week that holds this day."""
    return days(day - day.weekday() * ONE_DAY, 7)


def months(year: int, month: int, count: int = 1) -> Span:
    """`month` may run over: month 0 is December of the year before."""
    return Span(_first_of(year, month), _first_of(year, month + count))


def _first_of(year: int, month: int) -> datetime:
    more, index = divmod(month - 1, 12)
    return datetime(year + more, index + 1, 1)  # noqa: DTZ001 - local by design


def year_of(year: int) -> Span:
    return months(year, 1, 12)


def quarter(year: int, number: int) -> Span:
    """Of 1 to 4; runs over like months."""
    return months(year, 3 * number - 2, 3)


def half(year: int, number: int) -> Span:
    return months(year, 6 * number - 5, 6)


def season(year: int, first_month: int) -> Span:
    """Three months from 3 (spring), 6, 9 or 12: winter ends in the year after."""
    return months(year, first_month, 3)


def months_before(moment: datetime, count: int) -> datetime:
    """The same reading of the clock so many months earlier, or on the last day of a shorter month."""
    first = _first_of(moment.year, moment.month - count)
    last_day = (_first_of(first.year, first.month + 1) - ONE_DAY).day
    return moment.replace(year=first.year, month=first.month, day=min(moment.day, last_day))


def easter(year: int) -> date:
    """Easter Sunday of the Gregorian calendar (Meeus, Jones and Butcher)."""
    golden, century, rest = year % 19, year // 100, year % 100
    skipped, leap_centuries = divmod(century, 4)
    correction = (8 * century + 13) // 25
    epact = (19 * golden + century - skipped - correction + 15) % 30
    leaps, years = divmod(rest, 4)
    weekday = (32 + 2 * leap_centuries + 2 * leaps - epact - years) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def nth_weekday(year: int, month: int, weekday: int, nth: int) -> date:
    """The nth (from 1; -1: the last) of this weekday (Monday is 0) in the month."""
    if nth > 0:
        first = date(year, month, 1)
        return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))
    last = (_first_of(year, month + 1) - ONE_DAY).date()
    return last - timedelta(days=(last.weekday() - weekday) % 7)
