"""The entities of a text, a turn, a query: every rule in one order, each name once. Bounded in text and in names."""

from __future__ import annotations

import logging
import re
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from serve_app.core import Turn
from serve_app.entities import codes, dates, han, latin, words
from serve_app.entities.fields import in_data
from serve_app.entities.values import NAME_CHARACTERS_MAX, Entity, entity, folded, key_of
from serve_app.kept import Entry, Kept

_log = logging.getLogger(__name__)

TEXT_CHARACTERS_MAX: Final = 32_768
"""Names are looked for in so much of a text from its beginning."""

ENTITIES_A_TURN_MAX: Final = 128
"""The first ones of a turn that names more."""

TURNS_A_GENERATION: Final = 2_048
"""Turns whose entities are kept, twice at most, while the turns live: as many as a fold is late by."""

NAMES_REMEMBERED: Final = 1_024
"""Names that callers filter by whose keys are kept: they come from requests, not from stored turns."""

_ANY_DIGIT: Final = re.compile(r"\d")
_HAN_MONTH: Final = "月"
_PLACEHOLDER: Final = re.compile(r"\[[a-z0-9_]{2,20}\]")
_HAN: Final = re.compile(r"[\u3005\u30a1-\u30fa\u4e00-\u9fff]")
_CAPITAL: Final = re.compile(r"[^\W\d_a-z\u3005-\u9fff]")
_MONTH: Final = re.compile(r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|ene|abr|ago|dic)")
_DATE_KEY: Final = re.compile(r"[\d/-]+")
"""A date is written in many ways: of its key alone nothing can be told."""

_TAKEN: Final = "\x01"
"""Stands in place of what one rule has taken, so that the next one does not see it."""


def in_turn(turn: Turn) -> tuple[Entity, ...]:
    """What a turn names: in its content, in its data under keys of ids and names, and who says it.

    As it stands: whoever wants it without what has expired asks for `turn.at(now)`.
    """
    return _recognised.of(turn).entities


class _Recognised(Entry[Turn]):
    """Once for memory and for the fold that follows; it goes with the turn."""

    __slots__ = ("entities",)

    def __init__(self, turn: Turn, gone: Callable[[weakref.ref[Turn]], None]) -> None:
        super().__init__(turn, gone)
        try:
            self.entities = _first_of(_of_turn(turn))
        except Exception as error:  # noqa: BLE001 - it runs in the writer: a rule that fails costs names, not a shard
            _log.error("a rule for entities failed: %s at %s", type(error).__name__, _place_of(error))
            self.entities = ()


def _place_of(error: BaseException) -> str:
    """Where in the code; what an error says may quote a text."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


_recognised: Final[Kept[Turn, _Recognised]] = Kept(_Recognised, TURNS_A_GENERATION)


def named_of(turn: Turn, keys: Iterable[str]) -> set[str]:
    """Which of these a turn names: as `in_turn` would say, without looking for what surely does not stand there."""
    data = turn.data or b""
    said = folded("\n".join((turn.content, data.decode(), turn.speaker or "")))
    escaped = b"\\" in data  # what stands in them is written otherwise
    possible = {key for key in keys if escaped or key in said or _DATE_KEY.fullmatch(key)}
    return possible and possible & {one.key for one in in_turn(turn)}


def in_text(text: str) -> tuple[Entity, ...]:
    """In the order of the rules; each (key, class) once."""
    return _first_of(_of_text(text))


@lru_cache(maxsize=NAMES_REMEMBERED)
def key_named(name: str) -> str:
    """The key that a caller means by a name: dates may be written in any form that is recognised."""
    dated = list(dates.dates(name.strip()))
    whole = [one.key for one in dated if (one.start, one.end) == (0, len(name.strip()))]
    return whole[0] if whole else key_of(name)


def speaker_key(speaker: str | None) -> str:
    """The key of a speaker who is called by a name; empty for a role (`user`, `tool:search`)."""
    if speaker is None or not speaker or len(speaker) > NAME_CHARACTERS_MAX:
        return ""
    lowered = speaker.lower()
    if lowered in words.ROLES or lowered.partition(":")[0] in words.ROLES or lowered.startswith("["):
        return ""
    return entity(speaker, "person").key


Spanned = codes.Coded | dates.Dated | latin.Taken


def _of_turn(turn: Turn) -> Iterator[Entity]:
    if turn.content:
        yield from _of_text(turn.content)
    if turn.data is not None:
        yield from in_data(turn.data)
    if key := speaker_key(turn.speaker):
        yield entity(turn.speaker or "", "person", key)


def _first_of(found: Iterable[Entity]) -> tuple[Entity, ...]:
    distinct: dict[tuple[str, str], Entity] = {}
    for one in found:
        if one.key and len(one.key) <= NAME_CHARACTERS_MAX:
            distinct.setdefault((one.key, one.kind), one)
            if len(distinct) == ENTITIES_A_TURN_MAX:
                break
    return tuple(distinct.values())


def _of_text(text: str) -> Iterator[Entity]:
    text = text[:TEXT_CHARACTERS_MAX]
    if "[" in text:
        text = _PLACEHOLDER.sub(_TAKEN, text)
    if "@" in text or "://" in text or "www." in text:
        found = list(codes.addresses(text))
        yield from (entity(one.name, one.kind) for one in found)
        text = _without(text, found)
    if '"' in text or "“" in text:
        titled = list(latin.titles(text))
        yield from (entity(one.name, one.kind) for one in titled)
        text = _without(text, titled)
    if _ANY_DIGIT.search(text) or _HAN_MONTH in text:
        dated = list(dates.dates(text)) if _may_date(text) else []
        yield from (entity(text[one.start : one.end], "date", one.key) for one in dated)
        text = _without(text, dated)
        named = list(latin.numbered(text))
        yield from (entity(one.name, one.kind) for one in named)
        text = _without(text, named)
        ordered = list(codes.orders(text))
        yield from (entity(one.name, one.kind) for one in ordered)
        text = _without(text, ordered)
        coded = list(codes.codes(text))
        yield from (entity(one.name, one.kind) for one in coded)
        text = _without(text, coded)
    if _CAPITAL.search(text):
        yield from latin.names(text)
    if not text.isascii() and _HAN.search(text):
        yield from han.names(text)


def _may_date(text: str) -> bool:
    return _HAN_MONTH in text or "-" in text or "/" in text or "." in text or _MONTH.search(text) is not None


def _without(text: str, found: Iterable[Spanned]) -> str:
    """With what was found taken out, each by a sign that is in no name."""
    at = 0
    kept: list[str] = []
    for one in sorted(found, key=lambda one: (one.start, -one.end)):
        if one.start >= at:
            kept += [text[at : one.start], _TAKEN]
            at = one.end
    return "".join((*kept, text[at:])) if kept else text
