"""What a model's answer is held against: the source that it was given. Sentences that it does not bear out go. Pure.

A sentence stays if it is a statement (no refusal, no instruction, no talk about the task), says most of it in words of
the source, names no number, code, date or name that is not there, and does not turn round what the source says.
Nothing that a summary must not say stays either, and nothing is said twice.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Final, NamedTuple

from serve_app.compress.sentences import sentences
from serve_app.compress.vocabulary import vocabulary

ANSWER_CHARS_MAX = 40_000
"""Of a longer answer, the beginning."""

SENTENCES_MAX = 200

WORDS_MAX = 4_000

KNOWN_SHARE = 0.5
"""Of a sentence's words, how many the source must have."""

SAME_SHARE = 0.7
"""Of what must not be said, how many of its words make a sentence say it; of a sentence, how many make it say the same
as a statement.
"""

LOOP_WORDS_MIN, LOOP_SHARE = 12, 0.4
"""A sentence of so many words of which fewer are distinct goes round in circles."""

_FENCE: Final = re.compile(r"^[ \t]*`{3,}.*$", re.MULTILINE)
_LEAD: Final = re.compile(r"^\W{0,4}(?:\d{4}-)?\d\d-\d\d [^:]{1,80}: ")
"""Of a line of the source."""

_MARK: Final = re.compile(
    r"^(?:[-*•·#>]+|\d{1,2}[.)、])\s+|^\**(?:summary|resumen|摘要|总结|要約)\**\s*[:：]\s*", re.IGNORECASE
)
_TALK: Final = (
    r"\bas an? (?:ai|language|assistant)",
    r"\bi(?:'m| am) (?:sorry|unable|not able|just an? |an ai)",
    r"\bi (?:can't|cannot|can not) (?:help|assist|provide|summari|comply|do|fulfil|answer|create)",
    r"\bi apologi[sz]e|\blo siento\b|\bno puedo (?:ayudar|resumir)",
    r"^(?:sure|certainly|of course|okay|here(?:'s| is| are)|below is|the following is|claro|aquí (?:está|tienes))\b",
    r"(?:ignore|disregard|forget) (?:(?:all|any|the|your|previous|prior|above) )+(?:instructions|messages|rules)",
    r"\b(?:system prompt|the (?:transcript|draft|prompt|conversation above))\b",
    r"^(?:system|assistant|user|instructions?)\s*[:：]",
    r"<\|?/?\w{2,20}\|?>|\[/?inst\]|^[\[{}\]<]",
    r"抱歉|对不起|對不起|无法(?:提供|协助|帮助|总结|回答|满足)|作为(?:一个|一名)?(?:ai|人工智能|语言模型|助手)",
    r"以下是|^好的[，,]|忽略(?:以上|之前|前面|所有)",
    r"申し訳|できかねます|以下は|要約します",
)
"""Of the model's own: refusals, courtesies, talk about its task, marks of its dialogue, instructions."""

_NO_STATEMENT: Final = re.compile("|".join(_TALK), re.IGNORECASE)
_SPEAKERS: Final = frozenset({"user", "assist", "speaker", "usuario", "用户", "助手"})
"""As a model calls those who say `I`."""
_CLAUSE_END: Final = re.compile(r"[\n;；。！？!?、，]|[,.:](?=\s)|\b(?:but|pero)\b|但")
_DIGITS: Final = re.compile(r"\d+")
_CODE: Final = re.compile(r"[^\W_]*\d[\w./:-]*[^\W_]|[^\W_]+[-/]?\d+")
_MEASURE: Final = re.compile(r"[\d.,:/-]+[^\W\d_]{0,3}")
_THOUSANDS: Final = re.compile(r"(?<=\d)[,\u00a0\u202f](?=\d{3}(?!\d))")
_HAN_NUMBER: Final = re.compile(r"[零〇一二两三四五六七八九十百千万亿]{2,}")
_ISO: Final = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_MONTHS: Final = (
    "january february march april may june july august september october november december",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
)
_WEEKDAYS: Final = (
    "monday tuesday wednesday thursday friday saturday sunday",
    "lunes martes miércoles jueves viernes sábado domingo",
)
_CALENDAR: Final = frozenset(" ".join((*_MONTHS, *_WEEKDAYS)).split()) - {"may"}
_NAME: Final = re.compile(r"(?<=[^\W_] )(?!I\b)[A-ZÁÉÍÓÚÑ][\w'’-]+|(?<=[,;:] )(?!I\b)[A-ZÁÉÍÓÚÑ][\w'’-]+")
_NEGATION: Final = re.compile(
    r"\b(?:no|not|never|none|nothing|without|cannot|nor|refus\w+|reject\w+|declin\w+|avoid\w*)\b|n't\b"
    r"|\b(?:nunca|jamás|sin|tampoco|ningun\w*|nada)\b"
    r"|[不没沒别別勿未非無无禁拒]|ない|ません|ぬ\b|ず\b",
    re.IGNORECASE,
)


class _Said(NamedTuple):
    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool


class Evidence:
    """A source, and what must not be said though it, or another part of the conversation, says it."""

    def __init__(self, source: str, barred: Iterable[str] = ()) -> None:
        folded = _folded(source)
        self._folded = folded
        self._words = frozenset(vocabulary(source, WORDS_MAX))
        self._numbers = _numbers(folded)
        self._days = frozenset(_days(folded)) | {word for word in _CALENDAR if word in folded}
        self._clauses = [_said(one) for one in _CLAUSE_END.split(source)]
        said = [_said(one) for one in barred]
        self._barred = [one for one in said if len(one.words) + len(one.numbers) > 1 and not self._also_holds(one)]

    def borne_out(self, answer: str) -> tuple[str, ...]:
        """The sentences of the answer that may stand, in their order."""
        seen: set[str] = set()
        kept: list[str] = []
        for sentence in _statements(answer):
            key = sentence.casefold()
            if key not in seen and self._stands(sentence):
                kept.append(sentence)
            seen.add(key)
            if len(kept) == SENTENCES_MAX:
                break
        return tuple(kept)

    def _stands(self, sentence: str) -> bool:
        folded, said = _folded(sentence), _said(sentence)
        return (
            bool(said.words)
            and not _NO_STATEMENT.search(folded)
            and not _loops(folded)
            and len(said.words & self._words) >= KNOWN_SHARE * len(said.words)
            and said.numbers <= self._numbers
            and self._knows_names(sentence, folded)
            and not self._turned_round(said)
            and not any(_says(said, one) for one in self._barred)
        )

    def _knows_names(self, sentence: str, folded: str) -> bool:
        """Codes, days, written numbers and names are all in the source."""
        written = [*_codes(folded), *_HAN_NUMBER.findall(folded), *map(_folded, _NAME.findall(sentence))]
        days = {word for word in re.findall(r"[^\W\d_]+", folded) if word in _CALENDAR}
        return days <= self._days and all(one in self._folded or one in self._days for one in written)

    def _turned_round(self, said: _Said) -> bool:
        """Whether the clause most like it says the opposite."""
        alike = [(len(said.words & one.words), one) for one in self._clauses]
        most = max((shared for shared, _ in alike), default=0)
        if most < SAME_SHARE * len(said.words):
            return False
        return all(one.negated != said.negated for shared, one in alike if shared == most)

    def _also_holds(self, barred: _Said) -> bool:
        """Whether the source says as much in other, rightful words: then nothing can tell the two apart."""
        return any(_says(one, barred) for one in self._clauses)


def _says(said: _Said, other: _Said) -> bool:
    return other.numbers <= said.numbers and len(other.words & said.words) >= SAME_SHARE * len(other.words)


def _said(text: str) -> _Said:
    folded = _folded(text)
    return _Said(frozenset(vocabulary(text, WORDS_MAX)) - _SPEAKERS, _numbers(folded), bool(_NEGATION.search(folded)))


def _statements(answer: str) -> Iterator[str]:
    """The sentences of an answer: fences, JSON around them, bullets, headings and control characters taken off."""
    text = _FENCE.sub("", answer[:ANSWER_CHARS_MAX])
    for line in "\n".join(_unwrapped(text)).split("\n"):
        bare = "".join(one for one in line if one == "\t" or unicodedata.category(one)[0] != "C")
        yield from sentences(_MARK.sub("", _LEAD.sub("", bare.strip())).strip("*_ "))


def _unwrapped(text: str) -> Sequence[str]:
    """The strings of an answer that is JSON, else the answer."""
    if text.lstrip()[:1] not in ("{", "["):
        return [text]
    try:
        return list(_strings(json.loads(text)))
    except (ValueError, RecursionError):
        return [text]


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, dict):
        yield from _strings(list(value.values()))


def _folded(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).replace("’", "'").casefold()
    return _THOUSANDS.sub("", folded)


def _numbers(folded: str) -> frozenset[str]:
    return frozenset(digits.lstrip("0") or "0" for digits in _DIGITS.findall(folded))


def _codes(folded: str) -> list[str]:
    return [code for code in _CODE.findall(folded) if not _MEASURE.fullmatch(code)]


def _days(folded: str) -> Iterator[str]:
    """How the dates of the source may be written out."""
    for year, month, day in _ISO.findall(folded):
        try:
            found = date(int(year), int(month), int(day))
        except ValueError:
            continue
        yield from (names.split()[found.month - 1] for names in _MONTHS)
        yield from (names.split()[found.weekday()] for names in _WEEKDAYS)


def _loops(folded: str) -> bool:
    words = folded.split() if " " in folded.strip() else [folded[at : at + 2] for at in range(0, len(folded), 2)]
    return len(words) >= LOOP_WORDS_MIN and len(set(words)) < LOOP_SHARE * len(words)
