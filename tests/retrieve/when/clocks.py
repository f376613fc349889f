"""How these tests ask: a query at a time, and the window's ends as clock readings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from serve_app.core import TimeWindow
from serve_app.retrieve.when import read_window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def window(query: str, now: str, locale: str | None = None, tz: str | None = None) -> TimeWindow | None:
    moment = datetime.fromisoformat(now)
    offset = moment.utcoffset()
    assert offset is not None
    return read_window(query, (moment - EPOCH) // timedelta(microseconds=1), offset // timedelta(minutes=1), tz, locale)


def wall(
    query: str, now: str, locale: str | None = None, tz: str | None = None
) -> tuple[str | None, str | None] | None:
    """Start and end as the asker's clock shows them, midnights as dates; None for no window."""
    found = window(query, now, locale, tz)
    return None if found is None else (_reading(found.start), _reading(found.end))


def _reading(end: datetime | None) -> str | None:
    return None if end is None else end.strftime("%Y-%m-%dT%H:%M").removesuffix("T00:00")
