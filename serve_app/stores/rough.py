"""Many vectors of one version in few bytes: eight bits a component to score by, half a byte for four to choose by.

`RoughVectors` is made once and never changed, so any number of threads may search it. Scores by `scores` are within
about a thousandth of the exact ones. `look` takes what a product quantiser finds (Jegou et al. 2011, in
FAISS's form for registers), which reads a fiftieth of the bytes; of few vectors it scores all.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Vectors

try:
    import faiss
except ImportError as error:
    raise ImportError("the hot index needs FAISS: pip install 'memstrata[cpu]'") from error

QUANTISED_FROM: Final = 2_048
"""Vectors from which a quantiser is made; fewer are scored in a millisecond or two."""

TRAINED_ON_MAX: Final = 16_384
"""Vectors that the quantiser is made from, evenly spread: a thousand for each of its 16 centroids."""

COMPONENTS_A_CODE: Final = 2
"""With 16 centroids for so many components; with four the codes of hashed words overlooked one in twenty of the ten
best."""

CENTROID_BITS: Final = 4
INT16_MAX: Final = 32_767
"""With eight bits a component one in thirty of the ten best by vectors was another one."""

ROWS_A_STEP: Final = 8_192
"""Rows that are widened to floats at once: twelve megabytes at 384 components."""


class Look(NamedTuple):
    """Places and scores of about the best, in no order, and places of about the worst."""

    best: NDArray[np.intp]
    scores: NDArray[np.float32]
    worst: NDArray[np.intp]


class RoughVectors:
    """Shape (n, dimension). Row ids are places, 0 to n - 1."""

    def __init__(self, vectors: Vectors, quantised_from: int = QUANTISED_FROM) -> None:
        reach = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-9)
        self._scale = (reach / INT16_MAX).astype(np.float32)
        self._rows = np.rint(vectors / self._scale[:, None]).astype(np.int16)
        self._codes = _coded(vectors) if len(vectors) >= quantised_from else None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes(self) -> int:
        coded = 0 if self._codes is None else self._codes.codes.size()
        return int(self._rows.nbytes + self._scale.nbytes + coded)

    def scores(self, query: NDArray[np.float32], places: NDArray[np.intp] | None = None) -> NDArray[np.float32]:
        """Inner products with the rows at these places, or with all."""
        rows = self._rows if places is None else self._rows[places]
        scale = self._scale if places is None else self._scale[places]
        found = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), ROWS_A_STEP):
            end = start + ROWS_A_STEP
            found[start:end] = rows[start:end].astype(np.float32) @ query
        found *= scale
        return found

    def look(self, query: NDArray[np.float32], k: int, worst: int) -> Look:
        """About the k places with the largest inner product, with about what that is, and so many with the least."""
        if self._codes is None:
            scores = self.scores(query)
            return Look(np.arange(len(self)), scores, np.argsort(scores)[:worst])
        _, places = self._codes.search(query[None].astype(np.float32), min(k, len(self)))
        best = np.sort(places[0][places[0] >= 0])
        _, least = self._codes.search(-query[None].astype(np.float32), min(worst, len(self)))  # few: half the time
        return Look(best, self.scores(query, best), least[0][least[0] >= 0])


def _coded(vectors: Vectors) -> Any:
    """An index of codes in which the length of the rest (a dimension that is no multiple of the codes') counts as 0."""
    dimension = vectors.shape[1]
    parts = dimension // COMPONENTS_A_CODE if dimension % COMPONENTS_A_CODE == 0 else dimension
    index = faiss.IndexPQFastScan(dimension, parts, CENTROID_BITS, faiss.METRIC_INNER_PRODUCT)
    step = -(-len(vectors) // TRAINED_ON_MAX)
    contiguous = np.ascontiguousarray(vectors, np.float32)
    index.train(contiguous[::step])
    index.add(contiguous)
    return index
