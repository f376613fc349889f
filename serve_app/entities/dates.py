"""Dates that a text writes out, with or without their year. Relative ones are not entities: they name no day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from serve_app.scripts import AS_ASCII

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "january jan enero",
            "february feb febrero",
            "march mar marzo",
            "april apr abril",
            "may mayo",
            "june jun junio",
            "july jul julio",
            "august aug agosto",
            "september sept sep septiembre setiembre",
            "october oct octubre",
            "november nov noviembre",
            "december dec diciembre",
        ),
        1,
    )
    for name in names.split()
}
_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_HAN_DIGITS: Final = {sign: value for value, sign in enumerate("〇一二三四五六七八九十")} | {"零": 0}

_DAY_FIRST: Final = re.compile(
    rf"(?P<d>[0-3]?\d)(?:st|nd|rd|th)?(?:\s+(?:of|de))?\s+(?P<m>{_MONTH})\b\.?(?:,?(?:\s+(?:de|del))?\s+(?P<y>(?:19|20)\d\d)\b)?",
    re.I,
)
_MONTH_BEFORE: Final = re.compile(rf"\b(?P<m>{_MONTH})\b\.?,?\s+(?:(?:of|de|del)\s+)?$", re.I)
_DAY_AFTER: Final = re.compile(
    r"(?P<d>[0-3]?\d)(?:st|nd|rd|th)?\b(?!:)(?:,?\s+(?P<y>(?:19|20)\d\d)\b)?|(?P<only>(?:19|20)\d\d)\b", re.I
)
_DIGITS: Final = re.compile(r"(?<![\w.,:/-])\d+")
_BEFORE_CHARACTERS: Final = 24
"""A month is looked for in so much text before a number: numbers are rare, and so they are looked for first."""

_ISO: Final = re.compile(
    r"(?<![\w.-])(?P<y>(?:19|20)\d\d)([-/.])(?P<m>[01]?\d)\2(?P<d>[0-3]?\d)"
    r"(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?(?![\w:])|(?![\w-]|\.\d))"
)
"""With the time of day that may follow: that is no code."""

_SLASHED: Final = re.compile(r"(?<![\w./-])(?P<a>[0-3]?\d)/(?P<b>[0-3]?\d)(?:/(?P<y>(?:19|20)?\d\d))?(?![\w/-]|\.\d)")
_HAN: Final = re.compile(
    r"(?:(?P<y>(?:19|20)\d\d|[〇零一二三四五六七八九]{4})\s?年\s?)?(?P<m>[01]?\d|[一二三四五六七八九十]{1,2})\s?月\s?"
    r"(?P<d>[0-3]?\d|[一二三四五六七八九十廿]{1,3})\s?[日号號]"
    r"|(?P<y2>(?:19|20)\d\d)\s?年\s?(?P<m2>[01]?\d)\s?月"
)
_FRACTIONS: Final = frozenset({(1, 2), (1, 3), (2, 3), (1, 4), (3, 4), (1, 5), (24, 7), (9, 11)})


class Dated(NamedTuple):
    """Where a date stands in a text, and its key: ISO 8601 as far as it is known, `--05-08` without a year."""

    start: int
    end: int
    key: str


def dates(text: str) -> Iterator[Dated]:
    """In order of their forms; two never overlap where the text is written sensibly."""
    for match in _ISO.finditer(text):
        yield from _dated(match, int(match["y"]), int(match["m"]), int(match["d"]))
    yield from _written(text)
    if "/" in text:
        yield from _slashed(text)
    if "月" in text:
        for match in _HAN.finditer(text):
            year, month = _number(match["y"] or match["y2"]), _number(match["m"] or match["m2"])
            yield from _dated(match, year, month, _number(match["d"]))


def _written(text: str) -> Iterator[Dated]:
    """With the name of the month, on either side of the number."""
    end = 0
    if not text.isascii():
        text = text.translate(AS_ASCII)
    for digits in _DIGITS.finditer(text):
        start = digits.start()
        if start < end:
            continue
        if (day := _DAY_FIRST.match(text, start)) is not None:
            found = _dated(day, int(day["y"] or 0), _MONTHS[day["m"].lower()], int(day["d"]))
        else:
            before = text[max(0, start - _BEFORE_CHARACTERS) : start]
            month, day = _MONTH_BEFORE.search(before), _DAY_AFTER.match(text, start)
            if month is None or day is None:
                continue
            year, begins = int(day["y"] or day["only"] or 0), start - len(before) + month.start()
            found = _dated(day, year, _MONTHS[month["m"].lower()], int(day["d"] or 0), begins)
        for one in found:
            end = one.end
            yield one


def _slashed(text: str) -> Iterator[Dated]:
    """Which is the month may be open: then the key is what is written."""
    for match in _SLASHED.finditer(text):
        first, second = int(match["a"]), int(match["b"])
        if match["y"] is None and (first, second) in _FRACTIONS:
            continue
        if not (1 <= min(first, second) <= 12 and max(first, second) <= 31):
            continue
        year = 0 if match["y"] is None else int(match["y"]) + (2000 if len(match["y"]) == 2 else 0)
        if first > 12 or second > 12:
            yield from _dated(match, year, min(first, second), max(first, second))
        else:
            yield Dated(match.start(), match.end(), f"{first}/{second}" + (f"/{year}" if year else ""))


def _dated(match: re.Match[str], year: int, month: int, day: int, start: int | None = None) -> Iterator[Dated]:
    """`start` where it begins before what matched."""
    if 1 <= month <= 12 and day <= 31 and (day or year):
        parts = [f"{year:04}" if year else "-", f"{month:02}", *([f"{day:02}"] if day else [])]
        yield Dated(match.start() if start is None else start, match.end(), "-".join(parts))


def _number(text: str | None) -> int:
    """Of Arabic or Chinese digits: 29, 二十九, 十, 二〇二三; 0 for nothing, and for what is no number."""
    if not text or text.isdecimal():
        return int(text or 0)
    text = text.replace("廿", "二十")
    if "十" not in text or len(text) == 4:
        return int("".join(str(_HAN_DIGITS[sign] % 10) for sign in text))
    tens, _, ones = text.partition("十")
    if len(tens) > 1 or len(ones) > 1:
        return 0
    return (_HAN_DIGITS[tens] if tens else 1) * 10 + (_HAN_DIGITS[ones] if ones else 0)
