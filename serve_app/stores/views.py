"""How a turn is written out for the indexes: its words together with who said them, and on which day.

Pure. What `contextual_text` gives is part of an embedding version's name (`TEMPLATE`): another form
is another version.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Final

from serve_app.core import SECOND_US

TEMPLATE: Final = "{speaker} ({day} {month} {year}): {text}"

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)

DAYS_REMEMBERED_MAX: Final = 1_024
"""Turns come by the thousand a day: how a day is written is worked out once."""

_MINUTE_US: Final = 60 * SECOND_US
_DAY_US: Final = 24 * 60 * _MINUTE_US
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY: Final = date.min.toordinal()
_LAST_DAY: Final = date.max.toordinal()


def contextual_text(speaker: str | None, role: str, created_at_us: int, offset_minutes: int, text: str) -> str:
    """`Caroline (8 May 2023): text`; the role stands where no speaker is named."""
    return f"{speaker or role} ({_written_day(_day(created_at_us, offset_minutes))}): {text}"


def day_number(at_us: int, offset_minutes: int) -> int:
    """The day on the sender's calendar as one integer, 20230508: what `fuse` compares with a date named in a query.

    Instants beyond the years 1 to 9999 give the nearest day in them.
    """
    return _numbered_day(_day(at_us, offset_minutes))


def _day(at_us: int, offset_minutes: int) -> int:
    """Days since 31 December of the year 0, as `date.fromordinal` counts them."""
    day = (at_us + offset_minutes * _MINUTE_US) // _DAY_US + _EPOCH_DAY
    return min(max(day, _FIRST_DAY), _LAST_DAY)


@lru_cache(DAYS_REMEMBERED_MAX)
def _written_day(day: int) -> str:
    on = date.fromordinal(day)
    return f"{on.day} {MONTHS[on.month - 1]} {on.year}"


@lru_cache(DAYS_REMEMBERED_MAX)
def _numbered_day(day: int) -> int:
    on = date.fromordinal(day)
    return on.year * 10_000 + on.month * 100 + on.day
