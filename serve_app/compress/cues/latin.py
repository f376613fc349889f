"""What the tables of languages in Latin script share: amounts, dates and codes as values, stems of words. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

NUMBER = r"(?<!\d)(?<!\d[.,])(?:\d{1,3}(?:,\d{3})++(?!\d)(?:\.\d++)?|\d++(?:[.,]\d++)*+)"
"""Possessive: a long run of digits is gone through once."""
STEM_CHARS_MIN = 3

FUNCTION_WORDS = frozenset(
    "the is it and of for with my we you be are was to in on at this that an by from or not but so he she they his her "
    "el la los las de del que con por para una uno es en se su al lo mi sus mis nos pero como muy ya hay".split()
)
"""Of all languages that share the script: a text that does not tell its language is read with more than one table."""

_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")


def either(words: str) -> str:
    """A pattern for one of these words, the longest first; a low line stands for a space."""
    return "|".join(
        re.escape(word).replace("_", "[ -]") for word in sorted(set(words.split()), key=lambda word: (-len(word), word))
    )


def values(
    n: str,
    *,
    counted: str,
    month: str,
    weekday: str,
    ordinal: str,
    money: str,
    clock: str,
    clock_words: str,
    before_clock: str,
    duration: str,
    often: str,
    relative_day: str,
    not_counted: str,
    choices: Mapping[str, str],
    address: str,
    goal: str,
    called: str,
) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Patterns of values, of folded text; the surest first."""
    kinds = [
        ("code", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,24}){1,4}|https?://\S{1,200}|#\w{2,32}"),
        (
            "goal",
            rf"\b(?:{goal}) (?P<n>(?!(?:me|us|him|her|them|you)\b)[^\W\d_][\w'-]{{1,24}}(?: (?!(?:on|by|before|after|at|until|every"
            rf"|and|so|for|in|as|instead|please|antes|cada|por|para|y)\b)[\w'-]{{1,24}}){{0,3}})",
        ),
        ("address", rf"\b(?:{address})"),
        (
            "name",
            rf"\b(?:{called}) (?P<n>(?!{n}|(?:a|an|the|not|by|off|in|on|for|me|it|un|una|el|la|en"
            rf"|de)\b)[^\W\d_][\w'-]{{1,30}})",
        ),
        ("date", r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b"),
        (
            "date",
            rf"\b(?:{month} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?\b|\d{{1,2}}(?:st|nd|rd|th)?(?: of"
            rf"| de)? {month}(?!\w))",
        ),
        ("date", rf"\b{month} \d{{4}}\b"),
        ("date", rf"\b{ordinal}"),
        ("money", rf"(?P<unit>[£$€¥]) ?(?P<n>{n})(?: ?(?:k|m|million|thousand)\b)?"),
        ("money", rf"(?P<n>{n}) ?(?P<unit>{money}|[£$€¥])(?!\w)"),
        ("percent", rf"(?P<n>{n}) ?(?P<unit>%|percent|per cent|por ciento)"),
        (
            "time",
            rf"\b\d{{1,2}}[:h]\d\d(?!\d)(?: ?(?:{clock}))?|\b\d{{1,2}}\.\d\d ?(?:{clock})|\b\d{{1,2}} ?(?:{clock})|\b(?:{clock_words})\b",
        ),
        (
            "size",
            rf"(?P<n>{n})[ -]?(?P<unit>mm|cm|m|km|kg|kilos?|g|mg|mcg|ml|l|lb|lbs|oz|ft|feet|foot|inch(?:es)?"
            rf"|miles?|gb|mb|kb|tb|kw|kwh|w|v|bpm|ms|px|mph|dpi|litres?|liters?|litros?|metros?|kilómetros?"
            rf"|gramos?|grams?|degrees?|grados?|°c?)(?!\w)(?: (?P<dim>wide|long|high|deep|tall|thick|across))?",
        ),
        ("phone", r"(?<![\d+])(?:\+\d{1,3}[ -]?)?\(?0?\d{2,4}\)?[ -]\d{3,4}[ -]?\d{3,4}(?!\d)"),
        (
            "version",
            r"(?<![\w.])(?P<unit>(?!(?:to|is|at|of|on|be|stay|with|by|and|or|than|about|over|under|only|for|from|in|the|costs?|around)\b)[a-z][a-z+#-]{1,20}) "
            r"(?:v|version )?(?P<n>\d{1,3}\.\d{1,3}(?:\.\d{1,4}){0,2})(?![\w.]*\w)",
        ),
        ("duration", rf"\b(?P<n>half|quarter|media)(?: of)?(?: an?)? (?P<unit>{duration}|hora)\b"),
        ("duration", rf"(?P<n>{counted})[ -]?(?P<unit>{duration})\b"),
        (
            "code",
            r"(?<![\w/-])(?=[\w/-]{0,40}\d)(?=[\w/-]{0,40}[a-z])(?!\d{1,4}(?:st|nd|rd|th|am|pm|k"
            r"|s)\b)[\w/-]{4,40}(?![\w/-])|\b[a-z]{2,4} \d{3}(?: \d{3}){1,3}\b|\b\d{6,}\b|(?<![\d+])\+?\d[\d ()-]{7,18}\d",
        ),
        ("often", rf"\b(?:{often})\b"),
        (
            "time",
            rf"\b(?:{before_clock}) (?P<n>\d{{1,2}})(?![\d.,:%]*\w| ?(?:{duration}|{money}|people|guests|points?|percent|[a-z]{{4,}}s)\b)",
        ),
        ("count", rf"(?P<n>{counted}) (?:of|de) (?P<unit>us|you|nosotros|vosotros)\b"),
        (
            "count",
            rf"(?<![\w.])(?P<n>{counted})(?P<unit>(?: (?!(?:{not_counted})\b)[^\W\d_]{{3,20}}){{1,3}}(?: (?:a"
            rf"|per|al|por) [^\W\d_]{{3,8}})?)(?!\w)",
        ),
        (
            "number",
            rf"(?<![\w.-])(?P<n>{n})(?: (?:a|per|each|every|al|por|cada) (?P<unit>day|week|month|year|night"
            rf"|head|person|día|semana|mes|año|noche|persona))?(?![\w-])",
        ),
        ("day", rf"\b(?:{weekday}|{relative_day})\b"),
    ]
    named = "|".join(rf"(?P<{kind}>{either(words)})" for kind, words in choices.items())
    kinds.append(("", rf"(?<!\ba )(?<!\bper )(?<!\beach )\b(?:{named})\b"))
    return tuple((kind, re.compile(pattern)) for kind, pattern in kinds)


def stems(stop: Iterable[str], same: Mapping[str, str], endings: Sequence[str]) -> Callable[[str], frozenset[str]]:
    """A function from folded text to the stems of its content words, those that mean the same as one."""
    stop_words = FUNCTION_WORDS.union(stop)

    def stem(word: str) -> str:
        for ending in endings:
            if word.endswith(ending) and len(word) - len(ending) >= STEM_CHARS_MIN:
                return word[: -len(ending)]
        return word

    merged = {stem(name): name for name in same.values()} | {name: name for name in same.values()}
    merged |= {stem(word): name for word, name in same.items()} | dict(same)

    def words(folded: str) -> frozenset[str]:
        found = (word.removesuffix("'s") for word in _WORD.findall(folded) if word not in stop_words)
        plain = (word for word in found if len(word) > 1 and word not in stop_words and not word.isdigit())
        return frozenset(merged.get(word) or merged.get(stem(word)) or stem(word) for word in plain)

    return words
