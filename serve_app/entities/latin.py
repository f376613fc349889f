"""Proper names of scripts with capitals: runs of capitalised words, and what stands beside them tells their class.

A capital at the beginning of a sentence is no evidence by itself: there a run loses what is a common word, and a single
word counts where it stands elsewhere in the text, too, or where it is no common word and a verb follows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from serve_app.entities import words
from serve_app.entities.values import NAME_CHARACTERS_MAX, Entity, EntityClass, entity

WORDS_A_NAME_MAX: Final = 6

_UPPER: Final = "".join(chr(point) for point in range(0x41, 0x0530) if unicodedata.category(chr(point)) == "Lu")
_LINK: Final = r"(?:(?:of|the|de|del|della|da|di|du|la|las|los|van|von|der|den|bin|al|y|&|and) ){1,2}"
_MODEL: Final = r"(?:\s+(?:[A-Za-z]{0,4}\d[\w-]{0,8}|Pro|Max|Plus|Mini|Ultra|Air|SE))+(?![\w.,:%€$£°/-]*\d)(?![\w%])"
_STOP: Final = r"(?:(?:(?<=\b[A-Z])|(?<=\b[DMJS][rst])|(?<=\bMrs)|(?<=\bProf))\.)?"
"""Of an abbreviation: any other full stop ends a sentence."""


class _Forms(NamedTuple):
    """What names look like in one alphabet."""

    run: re.Pattern[str]
    numbered: re.Pattern[str]
    humped: re.Pattern[str]


def _forms(upper: str, letter: str) -> _Forms:
    """A capital is looked for first, and what stands before it after that: the other way round costs each letter."""
    rest = rf"(?:{letter}|['’&.-](?={letter}))*+"
    word = rf"[{upper}](?<![\w'’][{upper}]){rest}"
    humped = rf"(?<![\w'’])[a-z]{{1,2}}[A-Z]{letter}++"
    return _Forms(
        run=re.compile(rf"{word}(?:{_STOP}[ \u00a0](?:{_LINK})?{word}){{0,7}}"),
        numbered=re.compile(rf"((?:{word}|{humped})(?: (?:{word}|{humped})){{0,2}}?)({_MODEL})"),
        humped=re.compile(humped),
    )


_ASCII: Final = _forms("A-Z", "[A-Za-z]")
_ANY: Final = _forms(_UPPER, r"[^\W\d_\u3005-\u9fff\uac00-\ud7ff]")
_HUMP: Final = re.compile("[a-z][A-Z]")
_QUOTED: Final = re.compile(rf'(?<!\w)["“]([{_UPPER}\d][^"“”\n]{{1,78}})["”](?!\w)')
_BEFORE: Final = re.compile(r"(?:([^\W\d_][\w'’]*)[ \u00a0]+)?([^\W\d_][\w'’]*)\.?,?[ \u00a0]+$")
_AFTER: Final = re.compile(r"[ \u00a0]+([a-z]+)")
_ENDS_SENTENCE: Final = frozenset('.!?…:;\n•*#>|"“(。！？：；「『')
_LOOKED_BACK: Final = 40
_ADDRESSING: Final = words.PERSON_TITLES | words.GREETINGS
_SMALL_WORDS: Final = frozenset(["of", "the", "a", "an", "and", "in", "on", "at", "to", "for", "de", "la", "el", "y"])


class Taken(NamedTuple):
    """Where a name stands that is taken as a whole."""

    start: int
    end: int
    kind: EntityClass
    name: str


def numbered(text: str) -> Iterator[Taken]:
    """Products with the number of their model: `iPhone 15 Pro`, `Galaxy S24`."""
    for match in _of(text).numbered.finditer(text):
        first, last = match[1].split()[0].lower(), match[1].split()[-1]
        model = match[2].split()
        if first in words.NEVER or _common(first) or _is_pronoun(first):
            continue
        if not model[0].isdigit() or (len(model[0]) <= 2 and (len(model) > 1 or last[1:] != last[1:].lower())):
            yield Taken(match.start(), match.end(), "product", match[0])


def names(text: str) -> Iterator[Entity]:
    """In the order in which they stand."""
    forms = _of(text)
    if _HUMP.search(text):
        yield from (entity(match[0], "product") for match in forms.humped.finditer(text))
    runs = [run for run in forms.run.finditer(text) if not _empty(run[0])]
    if not runs or _shouted(text, runs):
        return
    middle = {word for run in runs if not _begins_sentence(text, run.start()) for word in map(_bare, run[0].split())}
    for run in runs:
        yield from _of_run(text, run, middle)


def _empty(run: str) -> bool:
    """Most capitalised words are none: `I`, `The`, `It's`."""
    lowered = run.lower()
    return lowered in words.NEVER or (" " not in run and (_bare(lowered) in words.NEVER or _is_pronoun(lowered)))


def _of(text: str) -> _Forms:
    return _ASCII if text.isascii() else _ANY


def titles(text: str) -> Iterator[Taken]:
    """What stands in quotes and is capitalised like a title: of two words at least."""
    for match in _QUOTED.finditer(text):
        inner = match[1].rstrip(" ,.")
        spelt = inner.split()
        capital = all(word[0].isupper() or word[0].isdigit() or word in _SMALL_WORDS for word in spelt)
        if 2 <= len(spelt) <= 8 and capital and inner[-1].isalnum():
            yield Taken(match.start(), match.end(), "product", inner)


def _shouted(text: str, runs: Sequence[re.Match[str]]) -> bool:
    """Where all is in capitals, capitals say nothing."""
    capitals = sum(len(run[0]) for run in runs if run[0].isupper())
    return capitals > 20 and capitals * 2 > len(text)


def _begins_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - _LOOKED_BACK) : start].rstrip(" \u00a0'‘-–—_[\x01")
    if not before:
        return start <= _LOOKED_BACK or text[:start].isspace()
    return before[-1] in _ENDS_SENTENCE


def _of_run(text: str, run: re.Match[str], middle: set[str]) -> Iterator[Entity]:
    opens, place = _begins_sentence(text, run.start()), run.start()
    spelt = [word for one in run[0].split() if (word := one.rstrip("'’.-") or one)]
    titled, end = "", len(spelt)
    while spelt and _leads_nowhere(spelt, lowered := spelt[0].lower(), opens):
        titled = lowered if lowered in _ADDRESSING else ""
        spelt, opens = spelt[1:], False
    whole = len(spelt) == end
    for title, part in _parts(spelt):
        titled = title or titled
        if name := _single(text, run, part[0], opens, middle, titled) if len(part) == 1 else " ".join(part):
            yield entity(name, "person" if titled else _kind(text, part, place if whole else None))
        opens, whole, titled = False, False, ""


def _bare(word: str) -> str:
    """Without the possessive."""
    return word[:-2] if word.endswith(("'s", "’s", "'S", "’S")) else word


def _leads_nowhere(spelt: Sequence[str], lowered: str, opens: bool) -> bool:
    """Whether the first word of a run is none of the name's."""
    lowered = _bare(lowered)
    if len(spelt) > 1 and lowered in words.OPENERS:
        return False
    if lowered in words.NEVER or lowered in words.PERSON_TITLES or _is_pronoun(lowered) or lowered in words.GREETINGS:
        return True
    return opens and len(spelt) > 1 and (_common(lowered) or lowered.endswith(words.NO_NAME_ENDINGS))


def _is_pronoun(lowered: str) -> bool:
    return lowered[:2] in ("i'", "i’") or lowered.endswith(
        ("n't", "n’t", "'ll", "’ll", "'re", "’re", "'ve", "’ve", "'d")
    )


def _common(lowered: str) -> bool:
    if lowered in words.COMMON:
        return True
    stems = (
        lowered[: -len(ending)]
        for ending in ("s", "es", "d", "ed", "r", "er", "ing", "ly", "y")
        if lowered.endswith(ending)
    )
    return any(stem in words.COMMON or f"{stem}e" in words.COMMON for stem in stems if len(stem) > 2)


def _parts(spelt: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """A run falls apart at words that are in no name, and loses links at its ends. Each with the title before it."""
    part: list[str] = []
    title = ""
    for word in [*spelt, "and"]:
        lowered = word.lower()
        if lowered not in words.LINKS and (lowered in words.NEVER or (lowered in words.PERSON_TITLES and not part)):
            yield from ((title, one) for one in _cut(part))
            title, part = (lowered if lowered in words.PERSON_TITLES else ""), []
        else:
            part.append(_bare(word))
            if part[-1] != word:  # a possessive ends a name
                yield from ((title, one) for one in _cut(part))
                title, part = "", []


def _cut(part: list[str]) -> Iterator[list[str]]:
    while part and part[-1].lower() in words.LINKS:
        part = part[:-1]
    while part and part[0] in words.LINKS:
        part = part[1:]
    if part and len(part) <= WORDS_A_NAME_MAX and len(" ".join(part)) <= NAME_CHARACTERS_MAX:
        yield part


def _single(text: str, run: re.Match[str], word: str, opens: bool, middle: set[str], titled: str) -> str:
    """The word, where it is a name; else nothing."""
    lowered = word.lower()
    if len(word) < 2 or lowered in words.NEVER or _is_pronoun(lowered):
        return ""
    if titled in words.PERSON_TITLES:
        return word
    if word.isupper():
        return word if len(word) > 2 and not _common(lowered) else ""
    if not opens or word in middle:
        return word if len(word) > 2 or not _common(lowered) else ""
    if lowered in words.PLACES:
        return word
    if _common(lowered) or lowered.endswith(words.NO_NAME_ENDINGS) or len(word) < 3:
        return ""
    after = _AFTER.match(text, run.end())
    verb = after is not None and (after[1] in words.VERBS or (len(after[1]) > 3 and after[1].endswith(("s", "ed"))))
    return word if verb or run[0].endswith(("'s", "’s")) else ""


def _kind(text: str, part: Sequence[str], start: int | None) -> EntityClass:
    """`start`: where the name stands, if nothing of the run before it was left out."""
    first, last = part[0].lower(), part[-1].lower()
    if " ".join(part).lower() in words.PLACES:
        return "place"
    if len(part) > 1:
        if last in words.PLACE_AFTER or first in words.PLACE_OPENERS:
            return "place"
        if last in words.ORGANISATION_AFTER or first in words.ORGANISATION_OPENERS:
            return "organisation"
    before = None if start is None else _BEFORE.search(text, max(0, start - _LOOKED_BACK), start)
    if before is not None:
        near, far = before[2].lower(), (before[1] or "").lower()
        if near in words.RELATIONS or near in words.GREETINGS or near in words.PERSON_TITLES:
            return "person"
        if f"{far} {near}" in words.ORGANISATION_BEFORE:
            return "organisation"
        if near in words.PLACE_BEFORE and not part[0].isupper():
            return "place"
    return "name"
