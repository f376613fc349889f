"""From a query to the window of time that it names: find expressions, join them, choose one.

Deterministic, without a model: the same query at the same time gives the same window. What it does not know it leaves
alone: a window that is wrong hides what is looked for, one that is missing only helps nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Final

from serve_app.core import TimeWindow
from serve_app.retrieve.when import joining
from serve_app.retrieve.when.chinese import CHINESE, simplified
from serve_app.retrieve.when.english import ENGLISH
from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.japanese import JAPANESE
from serve_app.retrieve.when.joining import Mention
from serve_app.retrieve.when.language import Language, Rule
from serve_app.retrieve.when.spanish import SPANISH
from serve_app.retrieve.when.zones import local_now, located, zone_of
from serve_app.scripts import AS_ASCII

READ_CHARACTERS_MAX: Final = 400
"""Of a longer query so much is read, its beginning: it is read on the event loop, in a millisecond or so."""

MENTIONS_MAX: Final = 16
"""Of more expressions in a query the first ones count: each pair may be a range, which takes a while to settle."""

MASK: Final = "\ufffc"

_WIDE: Final = {0xFF10 + digit: 0x30 + digit for digit in range(10)} | {ord("："): ":", ord("／"): "/", ord("－"): "-"}
"""Full-width digits and signs of dates, as their usual form."""

_USUAL: Final = _WIDE | AS_ASCII

_LATIN: Final = re.compile("[A-Za-z]")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA: Final = re.compile("[\u3041-\u30ff]")


def asked_at(instant: int, offset_minutes: int = 0, tz: str | None = None, locale: str | None = None) -> datetime:
    """The instant in the asker's zone. Raises OverflowError at the ends of time."""
    return local_now(instant, zone_of(tz, locale, offset_minutes, instant))


def read_window(
    query: str, instant: int, offset_minutes: int = 0, tz: str | None = None, locale: str | None = None
) -> TimeWindow | None:
    """The window that a query names at this instant (microseconds since the epoch), or None.

    The zone is `tz`, else what `zone_of` makes of the locale and the offset. A query that names several times has the
    first one that lies in the past.
    """
    try:
        aware = asked_at(instant, offset_minutes, tz, locale)
    except (OverflowError, ValueError):  # too near to the ends of time
        return None
    zone = aware.tzinfo
    assert zone is not None
    now = aware.replace(tzinfo=None)
    readings = read(query, now, locale)
    chosen = next((one for one in readings if one.start is None or one.start <= now), None)
    chosen = chosen or next(iter(readings), None)
    return None if chosen is None else _located(chosen, zone, aware)


def read(query: str, now: datetime, locale: str | None = None) -> list[joining.Reading]:
    """All times that a query names, each in readings of the asker's clock, in the order of the text."""
    text = query[:READ_CHARACTERS_MAX].translate(_USUAL)
    readings: list[joining.Reading] = []
    for language in _languages(text, locale):
        readings += _in_language(text, language, now, locale)
    return readings


def _languages(text: str, locale: str | None) -> list[Language]:
    """Those that the script allows, the likelier first.

    Kana, a word that Chinese does not have, or a Japanese locale makes Han characters Japanese.
    """
    tag = (locale or "").lower()
    chosen = []
    if _HAN.search(text) or _KANA.search(text):
        japanese = _KANA.search(text) or _JAPANESE_WORDS.search(text) or tag.startswith("ja")
        chosen.append(JAPANESE if japanese else CHINESE)
    if _LATIN.search(text) or not chosen:
        words = _SPANISH_WORDS.search(text)
        if words or tag.startswith("es"):
            chosen.append(SPANISH)
        if not (words and tag.startswith("es")):
            chosen.append(ENGLISH)
    return chosen


def _in_language(text: str, language: Language, now: datetime, locale: str | None) -> list[joining.Reading]:
    if language is CHINESE:
        text = simplified(text)
    lowered, digits = text.lower(), bool(_DIGIT.search(text))
    rules = [rule for rule in language.rules if rule.may_match(lowered, digits)]
    if not rules:
        return []
    text = language.masked.sub(lambda match: MASK * len(match[0]), text)
    future = bool(language.future.search(text)) and not language.past.search(text)
    clock = Clock(now, future, _order_of(locale))
    return joining.joined(text, _mentions(text, rules, clock)[:MENTIONS_MAX], language, clock)


def _mentions(text: str, rules: Sequence[Rule], clock: Clock) -> list[Mention]:
    """What the rules find, in the order of the text; where two want the same words the earlier rule has them."""
    taken = bytearray(len(text))
    found: list[Mention] = []
    for rule in rules:
        for match in rule.words.finditer(text):
            start, end = match.span()
            if start == end or any(taken[start:end]):
                continue
            try:
                meaning: Meaning | None = rule.build(match, clock)
            except (ValueError, OverflowError):
                continue
            if meaning is not None:
                found.append(Mention(start, end, meaning))
                taken[start:end] = b"\x01" * (end - start)
    return sorted(found, key=lambda one: one.start)


def _order_of(locale: str | None) -> str:
    """How a numeric date is written there: by day, by month, or by year first."""
    tag = (locale or "en-US").replace("_", "-").lower()
    language, _, region = tag.partition("-")
    if language in ("zh", "ja", "ko", "hu", "lt", "mn"):
        return "ymd"
    return "mdy" if region.rpartition("-")[2] in _MONTH_FIRST else "dmy"


_DIGIT: Final = re.compile(r"\d")
_MONTH_FIRST: Final = frozenset({"us", "ph", "pr", "gu", "fm", "pw", "as", "mh", "mp", "vi", ""})
_JAPANESE_WORDS: Final = re.compile("一昨[日年]|先々?[週月]|来[週月]|今週|[今昨]晩|明後日|[月火水木金土日]曜")
_SPANISH_WORDS: Final = re.compile(
    r"[¿¡ñ]|\b(?:qué|cuánto|cuándo|dónde|quién|cómo|hace|hoy|ayer|anteayer|anoche|desde|hasta|enero|febrero|marzo|abril|"
    r"(?:de|en|y) mayo|junio|julio|agosto|septiembre|setiembre|octubre|noviembre|diciembre|lunes|martes|mi[ée]rcoles|"
    r"jueves|viernes|s[áa]bado|domingo|semanas?|meses|pasad[oa]s?|[úu]ltim[oa]s|pr[óo]xim[oa]s?|verano|invierno|"
    r"navidad)\b",
    re.I,
)


def _located(reading: joining.Reading, zone: tzinfo, now: datetime) -> TimeWindow | None:
    """The reading with offsets. What ends (or begins) now does so at that very instant, whatever the clock reads."""
    here = now.replace(tzinfo=None)
    start = None if reading.start is None else now if reading.start == here else located(reading.start, zone)
    end = None if reading.end is None else now if reading.end == here else located(reading.end, zone)
    if start is not None and end is not None and start >= end:
        return None
    return TimeWindow(start, end, certain=not reading.vague)
