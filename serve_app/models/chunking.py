"""Where a long text is cut so that a model of limited length reads all of it. Pure.

Promises that every piece is a verbatim substring, that the first begins where the text begins, that
the last ends where it ends, and that neighbours overlap by a few words, so that a statement which
falls on a cut stands whole in one of them. Beyond PIECES_MAX the pieces are spread evenly over the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["OVERLAP_TOKENS", "PIECES_MAX", "pieces"]

PIECES_MAX = 256
"""Vectors of one text: about 60,000 tokens at 256 a piece. Longer texts are sampled, head and tail kept."""

OVERLAP_TOKENS = 24
"""Tokens that two neighbours share, and up to as many again to reach the start of a word: a clause, not a paragraph.
Never more than a quarter of a piece."""


def pieces(text: str, spans: Sequence[tuple[int, int]], words: Sequence[int | None], room: int) -> list[str]:
    """`text` as pieces of at most `room` tokens each; `[text]` where it fits.

    `spans` holds the (start, end) characters of each token and `words` the word that it is part of,
    as a fast tokenizer gives them.
    """
    if len(spans) <= room:
        return [text]
    cuts = _spread(_cuts(words, room))
    begins = [0, *(spans[begin][0] for begin, _ in cuts[1:])]
    ends = [*(spans[end - 1][1] for _, end in cuts[:-1]), len(text)]
    return [text[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _cuts(words: Sequence[int | None], room: int) -> list[tuple[int, int]]:
    """Half-open ranges of tokens that cover all of them, each at most `room` long, in order."""
    overlap = min(OVERLAP_TOKENS, room // 4)
    begin, cuts = 0, []
    while begin + room < len(words):
        end = _word_start(words, begin + room, floor=begin + room // 2)
        cuts.append((begin, end))
        begin = _word_start(words, end - overlap, floor=end - 2 * overlap)
    return [*cuts, (begin, len(words))]


def _word_start(words: Sequence[int | None], at: int, floor: int) -> int:
    """The start of the word that token `at` is part of; `at` itself where the word is longer than to `floor`."""
    start = at
    while start > floor and words[start] == words[start - 1]:
        start -= 1
    return start if start > floor else at


def _spread(cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if len(cuts) <= PIECES_MAX:
        return cuts
    return [cuts[at] for at in np.linspace(0, len(cuts) - 1, PIECES_MAX).astype(int)]
