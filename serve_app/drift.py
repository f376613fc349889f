"""How far two summaries of one history lie from each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

WORDS_MAX = 2_000
"""Of each text; what comes behind them is not compared, so that the cost has a bound."""


def distance(one: str, other: str) -> float:
    """The edit distance by words (by characters where there are no spaces), over the longer length: 0 the same, 1
    nothing in common.
    """
    if one == other:
        return 0.0
    first, second = _words(one), _words(other)
    return _edits(first, second) / max(len(first), len(second), 1)


def _words(text: str) -> list[str]:
    """Characters beyond ASCII are words of their own."""
    spaced = "".join(f" {letter} " if letter > "\x7f" else letter for letter in text)
    return spaced.split()[:WORDS_MAX]


def _edits(first: Sequence[str], second: Sequence[str]) -> int:
    """Insertions, deletions and replacements, row by row (Wagner and Fischer)."""
    above = list(range(len(second) + 1))
    for row, word in enumerate(first, 1):
        here = [row]
        for column, other in enumerate(second, 1):
            here.append(min(above[column] + 1, here[-1] + 1, above[column - 1] + (word != other)))
        above = here
    return above[-1]
