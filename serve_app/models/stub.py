"""A tiny embedder without weights: for tests, and to try the service where no encoder can be installed.

Promises what `ports.Embedder` promises (unit vectors, in order, deterministic in every process) and
that texts which share words or pieces of words are nearer than texts which do not. It knows no meaning.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from serve_app.core import EmbeddingVersion, TurnForm
from serve_app.models.chunking import pieces
from serve_app.models.projection import compressed
from serve_app.ports import TOKEN_DIMENSION, Encodings, Spans, Tokens, Vectors

__all__ = ["HashEmbedder"]

DIMENSION = 64
"""Of its vectors, unless told otherwise."""

MAX_TOKENS = 128
"""Words that one vector stands for."""

WORD_WEIGHT, NGRAM_WEIGHT, NGRAM = 3, 1, 3
"""A shared word counts more than a shared run of NGRAM characters."""

GRAMS_MAX = 120
"""Of one word: what they add fits eight bits, whatever they are."""

WORDS_REMEMBERED = 16_384
"""Words whose features are kept, by digest, so that no word outlives the turn that said it. Hashing them anew took
most of the time."""

WORDS = re.compile(r"[぀-ヿ㐀-鿿가-힯]|\w+|[^\w\s]")
"""A word, a single character of a script that has no spaces, or a sign."""


class HashEmbedder:
    """`ports.Embedder` by feature hashing of words and character n-grams (CRC-32; one bit gives the sign)."""

    def __init__(self, dimension: int = DIMENSION, turns: TurnForm = "contextual") -> None:
        self._version = EmbeddingVersion(
            name=f"hash_{dimension}" if turns == "contextual" else f"hash_{dimension}_{turns}",
            model="hash",
            revision="1",
            pooling="mean",
            template="{text}",
            dimension=dimension,
            max_tokens=MAX_TOKENS,
            turns=turns,
        )

    @property
    def version(self) -> EmbeddingVersion:
        return self._version

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self.encode(texts).vectors

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        vectors = np.zeros((len(texts), self._version.dimension), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            words = [match.group() for match in _words(text.lower())]
            if words:
                vector += np.sum([_of_word(word, len(vector)) for word in words], axis=0)
            if not vector.any():  # nothing to hash, or signs that cancelled: still a unit vector
                vector[0] = 1.0
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Encodings(vectors, self.count(texts), [_token_vectors(text) for text in texts] if tokens else None)

    def spans(self, text: str) -> Spans:
        return np.array([match.span() for match in _words(text)], np.int32).reshape(-1, 2)

    def chunks(self, text: str) -> list[str]:
        spans = [match.span() for match in WORDS.finditer(text)]
        return pieces(text, spans, range(len(spans)), MAX_TOKENS)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [sum(1 for _ in WORDS.finditer(text)) for text in texts]


def _words(text: str) -> Iterator[re.Match[str]]:
    return islice(WORDS.finditer(text), MAX_TOKENS)


def _token_vectors(text: str) -> Tokens:
    vectors = np.array([_of_word(match.group(), TOKEN_DIMENSION) for match in _words(text.lower())], np.float32)
    return compressed(vectors.reshape(-1, TOKEN_DIMENSION))


_remembered: dict[tuple[bytes, int], NDArray[np.int8]] = {}


def _of_word(word: str, dimension: int) -> NDArray[np.int8]:
    key = hashlib.blake2b(word.encode(), digest_size=8).digest(), dimension
    found = _remembered.get(key)
    if found is None:
        if len(_remembered) >= WORDS_REMEMBERED:
            _remembered.clear()
        found = _remembered[key] = _features(word, dimension)
    return found


def _features(word: str, dimension: int) -> NDArray[np.int8]:
    """What a word adds to a vector: itself and its n-grams, each at a place and with a sign from its code."""
    padded = f"<{word}>"
    grams = [padded[start : start + NGRAM] for start in range(len(padded) - NGRAM + 1)][:GRAMS_MAX]
    added = np.zeros(dimension, np.int8)
    for feature, weight in ((word, WORD_WEIGHT), *((gram, NGRAM_WEIGHT) for gram in grams)):
        code = zlib.crc32(feature.encode())
        added[(code >> 1) % dimension] += weight if code & 1 else -weight
    return added
