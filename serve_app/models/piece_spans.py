"""Where the pieces of a SentencePiece tokenizer stand in the text that they were made of. Pure.

Such a tokenizer first normalises (NFKC, one space for any white space, each space written as `▁`, one before the text)
and gives pieces of the result, not places. Here the text is normalised once more, character by character, with
the place of each; where that is not what the tokenizer made of it, no piece has a place.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from serve_app.ports import Spans

__all__ = ["UNKNOWN", "piece_spans"]

SPACE, UNKNOWN = "▁", "<unk>"
"""How the tokenizer writes a space, and a character that no piece has."""


def piece_spans(text: str, pieces: Sequence[str]) -> Spans:
    """Of the text's pieces, or the first of them, in order; (0, 0) for one that is white space alone."""
    normal = list(_normalised(text))
    spans = np.zeros((len(pieces), 2), np.int32)
    at = 0
    for number, piece in enumerate(pieces):
        covered = normal[at : at + (1 if piece == UNKNOWN else len(piece))]
        if piece != UNKNOWN and "".join(character for character, _, _ in covered) != piece:
            return np.zeros_like(spans)
        at += len(covered)
        places = [(begin, end) for character, begin, end in covered if character != SPACE]
        if places:
            spans[number] = places[0][0], places[-1][1]
    return spans


def _normalised(text: str) -> Iterator[tuple[str, int, int]]:
    """Each character of the normalised text, and where in the text that stands which it is made of."""
    spaced = True
    yield SPACE, 0, 0
    for begin, end in _clusters(text):
        for character in unicodedata.normalize("NFKC", text[begin:end]):
            if not character.isspace():
                yield character, begin, end
                spaced = False
            elif not spaced:
                yield SPACE, begin, end
                spaced = True


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Characters with the marks that combine with them."""
    begin = 0
    for at in range(1, len(text) + 1):
        if at == len(text) or not unicodedata.combining(text[at]):
            yield begin, at
            begin = at
