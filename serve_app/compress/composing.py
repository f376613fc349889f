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

NO_TURN = -1
"""The seq of a line that quotes no single turn: no turn has it."""

_STOPPED = re.compile(r"[.!?。！？…][\"'”’」』）)]*$")
_CJK_END = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]$")
_ENDS = " .!?。！？…,;:，；："
_LOOSE_END = " ,;:，；：、-–—"


class Line(NamedTuple):
    """What the parts of one line have in common; lines are read in this order."""

    turn: int
    """The number of the turn that it quotes, or of the first that it tells of."""
    quotes: bool
    """A model's text stands before the quotes of the turn that it begins with."""
    seq: int
    """Of the turn that it quotes, or NO_TURN."""


class Part(NamedTuple):
    """A piece of text that stands in a summary whole or not at all: `line` and `start` say where."""

    line: Line
    start: int
    after: int
    """Where what follows in its source begins: a part that starts there goes on with it as the source does."""
    gap: str
    """What stands between it and that."""
    text: str
    lead: str
    """What its line begins with."""


class Composition(NamedTuple):
    """The text and its tokens; of each line rank and turn. The line with rank 0 is cut last."""

    text: str
    tokens: int
    ranks: tuple[int, ...]
    line_seqs: tuple[int, ...]


def composed(best_first: Sequence[Part], target: int, tokenizer: Tokenizer) -> Composition:
    """As many of the best parts as fit; where not even one does, the beginning of the best."""
    lines = _fitting(best_first, target, tokenizer)
    if not lines:
        lines = {line: tokenizer.truncate(text, target) for line, text in _lines(best_first[:1]).items()}
    return _composition(lines, best_first, tokenizer)


def _fitting(best_first: Sequence[Part], target: int, tokenizer: Tokenizer) -> dict[Line, str]:
    """What a choice leaves over, since joined parts cost less than their sum, is given to the next; what it exceeds
    the target by is taken from it.
    """
    fitting: dict[Line, str] = {}
    room = target
    for _ in range(FIT_ROUNDS_MAX):
        lines = _lines(_chosen(best_first, room, tokenizer.count))
        left = target - tokenizer.count("\n".join(lines.values()))
        if lines and left >= 0:
            fitting = lines
        if (left < 0 and fitting) or 0 <= left < LEFT_OVER_MAX:
            break
        room += left or -1
    return fitting


def as_quoted(parts: Iterable[Part], quotes: Sequence[Part]) -> list[Part]:
    """The parts, those that repeat a quote word for word as that quote: it says who said so, and when."""
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
    return "\n".join(_lines(sorted(parts)).values())


def _composition(lines: Mapping[Line, str], best_first: Sequence[Part], tokenizer: Tokenizer) -> Composition:
    """A line is ranked by its best part."""
    order = dict.fromkeys(part.line for part in best_first if part.line in lines)
    ranks = {line: rank for rank, line in enumerate(order)}
    text = "\n".join(lines.values())
    seqs = tuple(line.seq for line in lines)
    return Composition(text, tokenizer.count(text), tuple(ranks[line] for line in lines), seqs)


def _chosen(best_first: Iterable[Part], room: int, count: Callable[[str], int]) -> list[Part]:
    """The best parts of at most `room` tokens, their line's beginning paid once; in reading order."""
    chosen: list[Part] = []
    begun: set[Line] = set()
    misses = 0
    for part in best_first:
        cost = 1 + count(part.text)  # one for the space or line break before it
        cost += 0 if part.line in begun else count(part.lead)
        if cost > room:
            misses += 1
            if misses == MISSES_MAX:
                break
            continue
        misses = 0
        room -= cost
        begun.add(part.line)
        chosen.append(part)
    return sorted(chosen)


def _lines(chosen: Iterable[Part]) -> dict[Line, str]:
    """The texts of the lines, in reading order."""
    lines: dict[Line, list[Part]] = {}
    for part in chosen:
        lines.setdefault(part.line, []).append(part)
    return {line: f"{parts[0].lead} {_joined(parts)}" for line, parts in lines.items()}


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
