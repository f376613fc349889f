"""The words around a number that say what it is: the nearest one before it decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

REACH = 40
"""Characters before a number in which its cue is looked for."""

SHORT_WORD_REACH = 2
"""A cue of one character says something about what stands right after it only."""

CJK_WORD_MAX = 5

Cues = Mapping[str, bool]
"""Words in lower case: True for those that speak for a reading, False for those that speak against it."""


def cues(speaking_for: str, speaking_against: str = "") -> Cues:
    """Of two lists of words."""
    return dict.fromkeys(speaking_for.split(), True) | dict.fromkeys(speaking_against.split(), False)


_WORD = re.compile(r"[^\W\d_\u2e80-\uffff]+|[^\W\d_\x00-\u2e7f]+")
_END = re.compile(r"[。！？!?；;]|(?<![:：])\n|\. ")
_COMMA = re.compile(r"[,，]")
_ABBREVIATION = re.compile(r"\b(?:no|nr|nos|num|núm|tel|tfno|ph|mob|ext|cel|móv|pass|acct|ref)$", re.IGNORECASE)
"""A stop after one of these ends no sentence."""


class Cue(NamedTuple):
    speaks_for: bool
    distance: int
    """Characters between the cue and the number."""
    beyond_comma: bool


def nearest(text: str, at: int, cues: Cues) -> Cue | None:
    """The last cue before `at` in the same sentence. Costs some microseconds at most, whatever the text."""
    window = text[max(0, at - REACH) : at]
    if _WORD.search(window) is None:
        return None
    words = list(_WORD.finditer(window, _sentence_start(window)))
    for word in reversed(words):
        found = _cue(word.group(), word.end(), len(window), cues)
        if found is not None:
            speaks_for, end = found
            return Cue(speaks_for, len(window) - end, _COMMA.search(window, end) is not None)
    return None


def _sentence_start(window: str) -> int:
    start = 0
    for end in _END.finditer(window):
        if end.group() == ". " and _ABBREVIATION.search(window, 0, end.start()):
            continue
        if end.end() < len(window):
            start = end.end()
    return start


def _cue(word: str, end: int, at: int, cues: Cues) -> tuple[bool, int] | None:
    """What the word says, and where it ends: a whole one, or the last known one in a run without blanks."""
    if word[0] < "\u2e80":
        found = cues.get(word.lower())
        return None if found is None else (found, end)
    for stop in range(len(word), 0, -1):
        least = 1 if at - (end - len(word) + stop) <= SHORT_WORD_REACH else 2
        for size in range(min(CJK_WORD_MAX, stop), least - 1, -1):
            found = cues.get(word[stop - size : stop])
            if found is not None:
                return found, end - len(word) + stop
    return None
