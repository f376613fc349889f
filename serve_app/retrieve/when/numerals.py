"""Numbers as four languages write them out, as far as they count days, months and years."""

from __future__ import annotations

import re
from typing import Final

from serve_app.retrieve.when.expressions import FEW

_ENGLISH_WORDS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_SPANISH_WORDS: Final = (
    "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
    "dieciocho diecinueve veinte"
)
_ENGLISH: Final = {word: number for number, word in enumerate(_ENGLISH_WORDS.split())} | {
    "a": 1, "an": 1, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90, "hundred": 100,
    "couple": 2, "few": FEW, "several": FEW, "half": 0.5,
}  # fmt: skip
_SPANISH: Final = {word: number for number, word in enumerate(_SPANISH_WORDS.split())} | {
    "un": 1, "una": 1, "treinta": 30, "cuarenta": 40, "sesenta": 60, "noventa": 90, "cien": 100, "par": 2,
    "unos": FEW, "unas": FEW, "pocos": FEW, "pocas": FEW, "varios": FEW, "varias": FEW, "medio": 0.5, "media": 0.5,
}  # fmt: skip
ENGLISH_ORDINALS: Final = {
    word: number
    for number, word in enumerate(
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth"],
        1,
    )
} | {"twenty-first": 21, "twenty-second": 22, "twenty-third": 23, "twenty-fourth": 24, "twenty-fifth": 25,
     "twenty-sixth": 26, "twenty-seventh": 27, "twenty-eighth": 28, "twenty-ninth": 29, "thirtieth": 30,
     "thirty-first": 31}  # fmt: skip

_HAN_DIGITS: Final = {digit: number for number, digit in enumerate("零一二三四五六七八九")} | {
    "〇": 0, "○": 0, "两": 2, "俩": 2, "元": 1, "廿": 20,
}  # fmt: skip
_HAN_PLACES: Final = {"十": 10, "百": 100, "千": 1000}
VAGUE: Final = frozenset("几数") | {
    "few",
    "several",
    "unos",
    "unas",
    "pocos",
    "pocas",
    "varios",
    "varias",
    "couple",
    "par",
}


def english(words: str) -> float:
    return _of_words(words.lower(), _ENGLISH)


def spanish(words: str) -> float:
    return _of_words(words.lower(), _SPANISH)


def _of_words(words: str, known: dict[str, float]) -> float:
    """The number in `three`, `twenty-four`, `a couple of`. Raises ValueError for other words."""
    if words.strip().isdecimal():
        return int(words)
    parts = [part for part in re.split(r"[\s-]+", words) if part and part not in ("of", "the", "de", "y")]
    if not parts or any(part not in known for part in parts):
        raise ValueError(f"no number: {words!r}")
    if len(parts) > 1 and parts[0] in ("a", "un", "una"):
        parts = parts[1:]
    return sum(known[part] for part in parts)


def han(text: str) -> float:
    """The number in `3`, `三`, `二十一`, `二〇二三`, `半`, `几`. Raises ValueError for other text."""
    if text.isdecimal():
        return int(text)
    if text == "半":
        return 0.5
    if text in ("几", "数"):
        return FEW
    if all(character in _HAN_DIGITS for character in text) and text:
        return int("".join(str(_HAN_DIGITS[character]) for character in text))
    total, digit = 0, 0
    for character in text:
        if character in _HAN_PLACES:
            total += (digit or 1) * _HAN_PLACES[character]
            digit = 0
        elif character in _HAN_DIGITS:
            digit = _HAN_DIGITS[character]
        else:
            raise ValueError(f"no number: {text!r}")
    return total + digit
