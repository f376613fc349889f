"""Parts of a summary put together under a target: the best that fit, in reading order, one line a source. Pure.

Never over its target. Counts tokens of no more parts than could stand in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from serve_app.ports import Tokenizer

MISSES_MAX = 32
"""Parts in a row that do not fit, after which the text is full."""

FIT_ROUNDS_MAX = 4
"""Times that a choice is made for another number of tokens, since joined parts cost more or less than their sum."""

LEFT_OVER_MAX = 6
"""Tokens that a choice may leave over."""

FILLED_SHARE = 0.85
"""Of the target, up to which there is room for what is worth little: beside much that binds it would be in the way."""

WORD_CHARACTERS_MAX = 32

NO_TURN = -1
"""The seq of a line that quotes no single turn: no turn has it."""

_STOPPED = re.compile(r"[.!?。！？…][\"'”’」』）)]*$")
_CJK_END = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]$")
_ENDS = " .!?。！？…,;:，；："
_LOOSE_END = " ,;:，；：、-–—"
_WORD = re.compile("[^\\s\u2e80-\uffff]|[\\d\uff0c\uff0e零〇一二三四五六七八九十百千万亿萬億两兩点點半]")
"""What stands for nothing without what is beside it: of Chinese and Japanese the numbers alone."""
_LIKE_A_NAME = re.compile(r"[^:：]{0,80}(?::\s|：)")
"""What begins so would pass for somebody's words."""


class Line(NamedTuple):
    """What the parts of one line have in common; lines are read in this order."""

    turn: int
    """The number of the turn that it quotes, or of the first that it tells of."""
    quotes: bool
    """A model's text stands before the quotes of the turn that it begins with."""
    seq: int
    """Of the turn that it quotes, or NO_TURN."""


class Lead(NamedTuple):
    """What a line begins with, as far as it has to be said."""

    date: str
    """Left out where the line before has it. Empty: said by nothing."""
    name: str
    unnamed: bool = False
    """Whether it goes without the name, since that is who speaks where nobody is named."""


class Part(NamedTuple):
    """A piece of text that stands in a summary whole or not at all: `line` and `start` say where."""

    line: Line
    start: int
    after: int
    """Where what follows in its source begins: a part that starts there goes on with it as the source does."""
    gap: str
    """What stands between it and that."""
    text: str
    lead: Lead


class Written(NamedTuple):
    """A line as it stands in the text, and the date that it leaves out."""

    text: str
    undated: str = ""


class Composition(NamedTuple):
    """The text and its tokens; of each line rank, turn and the date that it leaves out. The line with rank 0 is cut
    last.
    """

    text: str
    tokens: int
    ranks: tuple[int, ...]
    line_seqs: tuple[int, ...]
    line_dates: tuple[str, ...]


def most_of(target: int) -> int:
    """Parts of which any text under the target is chosen: each takes a token at least, and its space."""
    return target // 2 + MISSES_MAX


def composed(
    best_first: Sequence[Part], target: int, tokenizer: Tokenizer, fillers: Sequence[Part] = ()
) -> Composition:
    """As many of the best parts as fit, then of the fillers; where not even one does, the beginning of the best."""
    lines = _fitting(best_first, fillers, target, tokenizer)
    best_first = [*best_first, *fillers]
    if not lines and best_first:
        lines = _begun(best_first[0], target, tokenizer)
    return _composition(lines, best_first, tokenizer)


def _begun(part: Part, target: int, tokenizer: Tokenizer) -> dict[Line, Written]:
    """The beginning of a part, no word or number of it cut: half of 5000 is 500. Nothing where only its lead fits."""
    [(line, written)] = _lines([part]).items()
    cut = _in_whole_words(tokenizer.truncate(written.text, target), written.text)
    return {line: Written(cut)} if len(cut) > len(written.text) - len(part.text) else {}


def _in_whole_words(cut: str, text: str) -> str:
    """This beginning of the text, without the word that it ends in the middle of; what is longer is no word."""
    end = len(cut)
    if _WORD.match(text, end):
        least = max(0, end - WORD_CHARACTERS_MAX)
        while end > least and _WORD.match(text, end - 1):
            end -= 1
    found = end == 0 or not _WORD.match(text, end - 1)
    return (cut[:end] if found else cut).rstrip()


def _fitting(
    best_first: Sequence[Part], fillers: Sequence[Part], target: int, tokenizer: Tokenizer
) -> dict[Line, Written]:
    """What a choice leaves over, since joined parts cost less than their sum, is given to the next; what it exceeds
    the target by is taken from it.
    """
    fitting: dict[Line, Written] = {}
    room = target
    for _ in range(FIT_ROUNDS_MAX):
        chosen, left = _chosen(best_first, room, tokenizer.count)
        filled, _ = _chosen(fillers, int(target * FILLED_SHARE) - room + left, tokenizer.count, chosen)
        lines = _lines(sorted([*chosen, *filled]))
        left = target - tokenizer.count(_text(lines))
        if lines and left >= 0:
            fitting = lines
        if (left < 0 and fitting) or 0 <= left < LEFT_OVER_MAX:
            break
        room += left or -1
    return fitting


def as_quoted(parts: Iterable[Part], quotes: Sequence[Part]) -> list[Part]:
    """The parts, those that repeat a quote word for word as that quote: it says who said so, and when."""
    parts = list(parts)
    if not parts:
        return []
    texts: dict[Line, list[Part]] = {}
    for quote in quotes:
        texts.setdefault(quote.line, []).append(quote)
    lines = [(_joined(sorted(of_line)).casefold(), of_line) for of_line in texts.values()]
    return [found for part in parts for found in _repeated(part, lines) or [part]]


def _repeated(part: Part, lines: Sequence[tuple[str, Sequence[Part]]]) -> list[Part]:
    text = part.text.casefold().rstrip(_ENDS)
    for line, quotes in lines:
        if text in line:
            return sorted(
                quote
                for quote in quotes
                if quote.text.casefold().rstrip(_ENDS) in text or text in quote.text.casefold()
            )
    return []


def new_to(given: Iterable[Part], parts: Iterable[Part]) -> list[Part]:
    """Those of the parts that say something else than the given ones."""
    texts = {part.text.casefold() for part in given}
    return [part for part in parts if part.text.casefold() not in texts]


def whole(parts: Iterable[Part]) -> str:
    """The text of all parts."""
    return _text(_lines(sorted(parts)))


def _text(lines: Mapping[Line, Written]) -> str:
    return "\n".join(written.text for written in lines.values())


def _composition(lines: Mapping[Line, Written], best_first: Sequence[Part], tokenizer: Tokenizer) -> Composition:
    """A line is ranked by its best part."""
    order = dict.fromkeys(part.line for part in best_first if part.line in lines)
    ranks = {line: rank for rank, line in enumerate(order)}
    text = _text(lines)
    seqs = tuple(line.seq for line in lines)
    dates = tuple(written.undated for written in lines.values())
    return Composition(text, tokenizer.count(text), tuple(ranks[line] for line in lines), seqs, dates)


def _chosen(
    best_first: Iterable[Part], room: int, count: Callable[[str], int], beside: Iterable[Part] = ()
) -> tuple[list[Part], int]:
    """The best parts of at most `room` tokens, each date and each line's name paid once, and the tokens left."""
    chosen: list[Part] = []
    begun = {paid for part in beside for paid in (part.line, part.lead.date)}
    misses = 0
    for part in best_first:
        cost = 1 + count(part.text)  # one for the space or line break before it
        date, name, unnamed = part.lead
        cost += 0 if date in begun else count(date)
        cost += 0 if unnamed or part.line in begun else count(name)
        if cost > room:
            misses += 1
            if misses == MISSES_MAX:
                break
            continue
        misses = 0
        room -= cost
        begun |= {part.line, date}
        chosen.append(part)
    return chosen, room


def _lines(chosen: Iterable[Part]) -> dict[Line, Written]:
    """In reading order."""
    lines: dict[Line, list[Part]] = {}
    for part in chosen:
        lines.setdefault(part.line, []).append(part)
    written: dict[Line, Written] = {}
    before = ""
    for line, parts in lines.items():
        written[line] = _written(parts[0].lead, _joined(parts), before)
        before = parts[0].lead.date
    return written


def _written(lead: Lead, said: str, before: str) -> Written:
    """After a line of the date `before`. Only a line that begins with a letter may go without its date, so that what
    begins with a digit begins with its date.
    """
    named = not lead.unnamed or not said[:1].isalpha() or _LIKE_A_NAME.match(said)
    text = f"{lead.name} {said}" if named else said
    if lead.date == before and text[:1].isalpha():
        return Written(text, lead.date)
    return Written(f"{lead.date} {text}" if lead.date else text)


def _joined(parts: Sequence[Part]) -> str:
    """Where something is left out between two parts, the first ends with a stop: they are not to be read as one."""
    texts = [
        before.text + before.gap if before.after == part.start else _stopped(before.text)
        for before, part in pairwise(parts)
    ]
    return "".join([*texts, parts[-1].text])


def _stopped(text: str) -> str:
    if _STOPPED.search(text):
        return f"{text} "
    bare = text.rstrip(_LOOSE_END)
    return f"{bare}。" if _CJK_END.search(bare) else f"{bare}. "
