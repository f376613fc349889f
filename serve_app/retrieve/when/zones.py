"""From local clock readings to instants: which zone a query is asked in, and what its clock changes do to a span."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ZONES_REMEMBERED: Final = 256
"""Regions whose zones are kept; there are about 250."""

_REGION: Final = re.compile(r"[-_]([A-Za-z]{2})(?:[-_.@].*)?$")
"""Of a language tag: `en-US`, `zh_Hant_HK`."""


def zone_of(tz: str | None, locale: str | None, offset_minutes: int, instant: int) -> tzinfo:
    """The zone a request is made in, by its IANA name.

    Without a name it is the offset of the request's time; and where the locale names a region that has a zone with this
    offset at this time, it is that zone, so that clock changes are known.
    """
    if tz is not None:
        return ZoneInfo(tz)
    fixed = timezone(timedelta(minutes=offset_minutes))
    found = _REGION.search(locale or "")
    if found is None:
        return fixed
    moment, offset = local_now(instant, UTC), fixed.utcoffset(None)
    return next((zone for zone in _zones_of(found[1].upper()) if moment.astimezone(zone).utcoffset() == offset), fixed)


def local_now(instant: int, zone: tzinfo) -> datetime:
    """Microseconds since the epoch as a reading of the zone's clock. Raises OverflowError at the ends of time."""
    return (EPOCH + timedelta(microseconds=instant)).astimezone(zone)


def located(reading: datetime, zone: tzinfo) -> datetime:
    """A reading of the clock with the offset that holds then.

    One that the clock jumps over is the instant that it would be by the offset after the jump.
    """
    there = reading.replace(tzinfo=zone)
    again = there.astimezone(UTC).astimezone(zone)
    if again.replace(tzinfo=None) == reading:
        return there
    return reading.replace(tzinfo=zone, fold=1).astimezone(UTC).astimezone(zone)


@lru_cache(maxsize=ZONES_REMEMBERED)
def _zones_of(region: str) -> tuple[ZoneInfo, ...]:
    """The zones of a region (ISO 3166): in the order of the IANA table, but first those whose clocks change.

    Of two zones with one offset more people live in the one with clock changes: Los Angeles, not Phoenix.
    """
    table = resources.files("tzdata").joinpath("zoneinfo", "zone.tab").read_text("utf-8")
    rows = (line.split("\t") for line in table.splitlines() if not line.startswith("#"))
    zones = [ZoneInfo(row[2]) for row in rows if row[0] == region]
    return tuple(sorted(zones, key=_steady))


def _steady(zone: ZoneInfo) -> bool:
    january, july = (datetime(2025, month, 1, tzinfo=zone).utcoffset() for month in (1, 7))
    return january == july
