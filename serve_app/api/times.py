"""RFC 3339 times: text to microseconds since the epoch and the sender's offset, and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, lru_cache
from importlib import resources

from serve_app.errors import InvalidRequest

TIMES_REMEMBERED = 16_384
"""Instants whose text is kept: those of turns that are found again and again."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.I | re.A)
_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)
_FIRST_INSTANT = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_INSTANT = (_LAST - _EPOCH) // _MICROSECOND


def parse_time(text: str, field: str) -> tuple[int, int]:
    """(microseconds since the epoch, offset in minutes). Raises InvalidRequest, naming `field`."""
    if not _RFC3339.fullmatch(text):
        raise InvalidRequest(f"{field}: a time reads like 2024-05-06T07:08:09+02:00, with its offset")
    try:
        moment = datetime.fromisoformat(_six_digits(text.upper()))
        instant = (moment - _EPOCH) // _MICROSECOND
        if not _FIRST_INSTANT <= instant <= _LAST_INSTANT:
            raise ValueError("it lies outside the years 1 to 9999")
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"{field}: no such time: {error}") from error
    offset = moment.utcoffset() or timedelta()
    return instant, offset // timedelta(minutes=1)


def require_zone(name: str | None) -> str | None:
    """The name. Raises InvalidRequest where there is no time zone of this name."""
    if name is None:
        return None
    if name not in _zone_names():
        raise InvalidRequest("tz: a time zone is named as in the IANA database, like Europe/Madrid")
    return name


@cache
def _zone_names() -> frozenset[str]:
    """Of the IANA database. What a host keeps beside them, like `localtime`, means another thing elsewhere."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def _six_digits(text: str) -> str:
    """Digits beyond microseconds are cut."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)


@lru_cache(maxsize=TIMES_REMEMBERED)
def format_time(instant: int, offset_minutes: int = 0) -> str:
    """The instant as text, in the given offset where that has such a date, else in UTC.

    An end of life beyond the year 9999 is shown as its last instant.
    """
    moment = _LAST if instant > _LAST_INSTANT else _EPOCH + timedelta(microseconds=instant)
    try:
        local = moment.astimezone(timezone(timedelta(minutes=offset_minutes)))
    except OverflowError:
        local = moment
    return local.isoformat().replace("+00:00", "Z")
