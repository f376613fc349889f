"""How a turn is written out for the indexes: its words together with who said them, and on which day.

Pure. What `contextual_text` gives is part of an embedding version's name (`TEMPLATE`): another form
is another version.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final

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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


def contextual_text(speaker: str | None, role: str, created_at_us: int, offset_minutes: int, text: str) -> str:
    """`Caroline (8 May 2023): text`; the role stands where no speaker is named."""
    day = local_date(created_at_us, offset_minutes)
    return f"{speaker or role} ({day.day} {MONTHS[day.month - 1]} {day.year}): {text}"


def local_date(at_us: int, offset_minutes: int) -> date:
    """The day on the sender's calendar; instants beyond the years 1 to 9999 give the nearest day in them."""
    try:
        return (_EPOCH + timedelta(microseconds=at_us) + timedelta(minutes=offset_minutes)).date()
    except OverflowError:
        return (_FIRST if at_us < 0 else _LAST).date()


def day_number(at_us: int, offset_minutes: int) -> int:
    """The same day as one integer, 20230508: what `fuse` compares with a date named in a query."""
    day = local_date(at_us, offset_minutes)
    return day.year * 10_000 + day.month * 100 + day.day
