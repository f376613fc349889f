"""When holidays fall: by date, by weekday, by Easter, by the Chinese calendar. Each is a function of the year."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Final

from borax.calendars.lunardate import LunarDate, TermUtils

from serve_app.retrieve.when.periods import ONE_DAY, Span, days, easter, months, nth_weekday

OfYear = Callable[[int], Span]

YEARS_REMEMBERED: Final = 1_024
"""Dates of the Chinese calendar that are kept."""


def on(month: int, day: int, count: int = 1) -> OfYear:
    return lambda year: days(date(year, month, day), count)


def the(nth: int, weekday: int, month: int, *, later: int = 0, count: int = 1) -> OfYear:
    """The nth weekday (Monday is 0) of a month, or so many days after it."""
    return lambda year: days(nth_weekday(year, month, weekday, nth) + later * ONE_DAY, count)


def from_easter(first: int, count: int = 1) -> OfYear:
    return lambda year: days(easter(year) + first * ONE_DAY, count)


def lunar(month: int, day: int, count: int = 1, *, before: int = 0) -> OfYear:
    """A day of the Chinese calendar's year that begins in `year`, or one that is so many days before it."""
    return lambda year: days(_solar(year, month, day) - before * ONE_DAY, count)


def lunar_month(month: int) -> OfYear:
    def of_year(year: int) -> Span:
        start = _solar(year, month, 1)
        following = _solar(year, month + 1, 1) if month < 12 else _solar(year + 1, 1, 1)
        return days(start, (following - start).days)

    return of_year


def solar_term(name: str) -> OfYear:
    return lambda year: days(_term(year, name))


@lru_cache(maxsize=YEARS_REMEMBERED)
def _solar(year: int, month: int, day: int) -> date:
    """Raises ValueError outside the years 1900 to 2100, which the table covers."""
    if not 1900 < year < 2100:
        raise ValueError("the Chinese calendar is known from 1901 to 2099")
    solar: date = LunarDate(year, month, day).to_solar_date()
    return solar


@lru_cache(maxsize=YEARS_REMEMBERED)
def _term(year: int, name: str) -> date:
    if not 1900 < year < 2100:
        raise ValueError("the Chinese calendar is known from 1901 to 2099")
    on: date = TermUtils.nth_term_day(year, TermUtils.name2index(name))
    return on


def thanksgiving(later: int = 0) -> OfYear:
    return the(4, 3, 11, later=later)


CHRISTMAS: Final = on(12, 25)
NEW_YEAR: Final = on(1, 1)
NEW_YEARS_EVE: Final = on(12, 31)
EASTER_WEEKEND: Final = from_easter(-2, 4)
CHINESE_NEW_YEAR: Final = lunar(1, 1, 8, before=1)
"""New Year's Eve to the seventh day: the public holiday since 2025."""
CHINESE_NEW_YEARS_EVE: Final = lunar(1, 1, before=1)
MID_AUTUMN: Final = lunar(8, 15)
DRAGON_BOAT: Final = lunar(5, 5)
SUMMER_BREAK: Final[OfYear] = lambda year: months(year, 7, 2)  # noqa: E731
WINTER_BREAK: Final[OfYear] = lambda year: Span(  # noqa: E731
    days(date(year, 1, 15)).start, days(date(year, 2, 20)).start
)
