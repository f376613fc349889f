"""Dates in digits, the same in every language but for the order of their parts."""

from __future__ import annotations

import re
from typing import Final

from serve_app.retrieve.when import expressions as ex
from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.language import rule

Match = re.Match[str]

_LONG_YEAR: Final = r"(?<![A-Za-z0-9_.-])(?P<year>(?:19|20)\d\d)"
_END: Final = r"(?![A-Za-z0-9_/-]|\.\d)"


def _iso(match: Match, clock: Clock) -> Meaning:
    return ex.of_month(clock, int(match["m"]), int(match["d"]), year=int(match["year"]))


def _iso_month(match: Match, clock: Clock) -> Meaning:
    return ex.month_of_year(int(match["year"]), int(match["m"]))


def _ordered(match: Match, clock: Clock) -> Meaning:
    """`5/7/2023`, `7.5.23`: in the order of the locale. A year of four digits at the end leaves two orders."""
    numbers = [int(match[name]) for name in ("a", "b", "c")]
    order = clock.order
    if len(match["c"]) == 4:
        order = "mdy" if clock.order == "mdy" and match["sep"] == "/" else "dmy"
    part = dict(zip(order, numbers, strict=True))
    if part["m"] > 12 and order != "ymd":
        part["m"], part["d"] = part["d"], part["m"]
    year = part["y"] if part["y"] > 99 else 2000 + part["y"]
    return ex.of_month(clock, part["m"], part["d"], year=year)


def _without_year(match: Match, clock: Clock) -> Meaning:
    """`3/5` is weak: it may be a fraction."""
    first, second = int(match["a"]), int(match["b"])
    month, day = (second, first) if clock.order == "dmy" and second <= 12 else (first, second)
    return ex.of_month(clock, month, day)._replace(weak=True)


RULES: Final = (
    rule(_LONG_YEAR + r"(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})" + _END, _iso),
    rule(_LONG_YEAR + r"[-/](?P<m>0\d|1[0-2])" + _END, _iso_month),
    rule(
        r"(?<![A-Za-z0-9_.$€£/-])(?P<a>\d{1,2})(?P<sep>[/.-])(?P<b>\d{1,2})(?P=sep)(?P<c>\d{4}|\d\d)" + _END, _ordered
    ),
)

WITHOUT_YEAR: Final = rule(
    r"(?<![A-Za-z0-9_/.-])(?P<a>\d{1,2})/(?P<b>\d{1,2})(?![A-Za-z0-9_/%.-])"
    r"(?! (?:of|cup|tea|table|inch|full|done|pound))",
    _without_year,
)
