"""A learned ranker: boosted trees over the columns of `features`, evaluated in NumPy.

Owns the form of a ranker file (JSON) and what makes one usable. LightGBM trains it (`training`) and is not needed
to use it: importing that costs a service more memory than the turns of most users. Promises the same score for the
same row, whatever else is in the list and in which order it comes; and that a file either works or is refused by
name, so that no column is ever taken for another one.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.errors import RankerUnusable
from serve_app.retrieve.features import FEATURES, Rows

SHIPPED: Final = Path(__file__).with_name("ranker.json")
"""Trained on the conversations in `benchmarks/data/golden`; docs/retrieval.md has the command and the figures."""

TREES_MAX: Final = 2_000
LEAVES_MAX: Final = 32
"""A leaf is a bit of one machine word."""

BYTES_MAX: Final = 16 << 20

LEAF_STEP: Final = 2.0**-30
"""Values of leaves are whole numbers of it: then their sum is exact, in whichever order they are added up."""

_LARGEST: Final = float(np.finfo(np.float32).max)

LATE: Final = FEATURES.index("late_weighted")

SCORE_STEPS: Final = 10_000
"""Scores are whole numbers of 1 / SCORE_STEPS, so that the last bits of a vector decide nothing."""


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tree. A child below 0 is the leaf -1 - child; node 0 is the root."""

    column: tuple[int, ...]
    """Of the file's `features`, for each inner node."""
    threshold: tuple[float, ...]
    """What is not above it goes left."""
    unknown_left: tuple[bool, ...]
    """Where NaN goes."""
    left: tuple[int, ...]
    right: tuple[int, ...]
    inner: tuple[float, ...]
    """What a row that came so far is worth on the average: for `contributions`."""
    leaf: tuple[float, ...]


class RankerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a ranker file holds. `late_share`: of late interaction beside the trees, in the score."""

    format: Literal["memstrata-ranker-1"]
    trained_on: str
    features: tuple[str, ...]
    late_share: float
    trees: tuple[Tree, ...]


class _Forest(NamedTuple):
    """All trees at once. Nodes and leaves are padded to the widest tree's."""

    columns: NDArray[np.intp]
    """(nodes,), of FEATURES; of FEATURES once more where NaN is larger than any number."""
    thresholds: NDArray[np.float32]
    """(nodes, 1)"""
    kept: NDArray[np.unsignedinteger]
    """(nodes, 1): the leaves that are still possible where a node's test sends a row to the right."""
    all_leaves: np.unsignedinteger
    leaves: NDArray[np.float64]
    """(trees, leaves)"""

    @property
    def tests(self) -> tuple[int, int]:
        """Trees, and nodes of each."""
        return len(self.leaves), self.leaves.shape[1] - 1


class Ranker:
    """See the module. Immutable, for any number of threads."""

    def __init__(self, text: bytes) -> None:
        """Raises RankerUnusable."""
        self.file = _read(text)
        self.name = f"lambdarank-{hashlib.sha256(text).hexdigest()[:8]}"
        self._forest = _forest(self.file)
        self._shares: NDArray[np.float64] | None = None

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """One a row, 0 to 1. Of equal ones the newer turn comes first: that is for the caller to do."""
        grown = 1 / (1 + np.exp(-self._values(rows)))
        late = rows[:, LATE].astype(np.float64)
        share = np.where(np.isnan(late), 0.0, self.file.late_share)
        mixed = (1 - share) * grown + share * np.nan_to_num(np.clip(late, 0, 1))
        return np.asarray(np.rint(mixed * SCORE_STEPS) / SCORE_STEPS, np.float64)

    def _values(self, rows: Rows) -> NDArray[np.float64]:
        """The sum of the trees, shape (n,)."""
        trees = len(self._forest.leaves)
        reached = self._reached(rows)
        return np.asarray(self._forest.leaves[np.arange(trees)[:, None], reached].sum(axis=0), np.float64)

    def _reached(self, rows: Rows) -> NDArray[np.intp]:
        """The leaf of each tree that each row comes to, shape (trees, n).

        Each node whose test fails rules the leaves on its left out; of those that stay the leftmost is it
        (QuickScorer, Lucchese et al. 2015).
        """
        forest, unknown = self._forest, np.isnan(rows)
        either = np.concatenate((np.where(unknown, -np.inf, rows), np.where(unknown, np.inf, rows)), axis=1)
        right = np.ascontiguousarray(either.T, np.float32)[forest.columns] > forest.thresholds
        left = np.where(right, forest.kept, forest.all_leaves)
        possible = np.bitwise_and.reduce(left.reshape(*forest.tests, len(rows)), axis=1)
        lowest = possible & (~possible + possible.dtype.type(1))
        return np.asarray(np.frexp(lowest.astype(np.float32))[1] - 1, np.intp)

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """What each column adds to the sum of the trees, shape (n, len(FEATURES) + 1), the mean of all rows last.

        Along a row's path through a tree each step's change of the expected value is the column's that it asks for
        (Saabas 2014). The sum of a row is what `scores` squashes.
        """
        if self._shares is None:
            self._shares = _shares_of_leaves(self.file, self._forest.leaves.shape[1])
        trees = np.arange(len(self._forest.leaves))[:, None]
        return np.asarray(self._shares[trees, self._reached(rows)].sum(axis=0), np.float64)


@lru_cache(maxsize=1)
def shipped() -> Ranker:
    """The one that comes with this release. Read at first use."""
    return open_ranker(SHIPPED)


def open_ranker(path: Path) -> Ranker:
    """Raises RankerUnusable, naming the file and what is wrong with it."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise RankerUnusable(f"a ranker file has at most {BYTES_MAX} bytes")
        return Ranker(path.read_bytes())
    except OSError as error:
        raise RankerUnusable(f"the ranker {path} cannot be read: {error.strerror}") from error
    except RankerUnusable as error:
        raise RankerUnusable(f"the ranker {path} cannot be used: {error}") from error


def _read(text: bytes) -> RankerFile:
    try:
        file = msgspec.json.decode(text, type=RankerFile)
    except msgspec.DecodeError as error:
        raise RankerUnusable(f"it is no ranker file: {error}") from error
    unknown = [name for name in file.features if name not in FEATURES]
    if unknown:
        raise RankerUnusable(f"it asks for features that this release does not know: {', '.join(unknown)}")
    if not 0 <= file.late_share <= 1:
        raise RankerUnusable(f"late_share is {file.late_share}, which is not between 0 and 1")
    if not 1 <= len(file.trees) <= TREES_MAX:
        raise RankerUnusable(f"it has {len(file.trees)} trees, not 1 to {TREES_MAX}")
    for number, tree in enumerate(file.trees):
        if trouble := _trouble(tree, len(file.features)):
            raise RankerUnusable(f"tree {number} {trouble}")
    return file


def _trouble(tree: Tree, features: int) -> str | None:
    """What makes this no tree: every node and every leaf must be reached exactly once."""
    nodes, leaves = len(tree.column), len(tree.leaf)
    if not 1 <= leaves <= LEAVES_MAX or nodes != leaves - 1:
        return f"has {nodes} nodes and {leaves} leaves"
    sides = (tree.threshold, tree.unknown_left, tree.left, tree.right, tree.inner)
    if any(len(side) != nodes for side in sides):
        return "has lists of different lengths"
    if not all(0 <= column < features for column in tree.column):
        return "asks for a column that is not among its features"
    if not all(map(math.isfinite, (*tree.threshold, *tree.inner, *tree.leaf))):
        return "holds a number that is not finite"
    below = [*range(-leaves, 0), *range(1, nodes)] if nodes else []  # a lone leaf is below nothing
    if sorted((*tree.left, *tree.right)) != below:
        return "does not reach each node and each leaf once"
    return None


def _forest(file: RankerFile) -> _Forest:
    width = max(2, *(len(tree.leaf) for tree in file.trees))
    shape = (len(file.trees), width - 1)
    word = np.uint16 if width <= 16 else np.uint32
    all_leaves = np.iinfo(word).max
    columns, thresholds = np.zeros(shape, np.intp), np.full(shape, np.inf, np.float32)
    kept, leaves = np.full(shape, all_leaves, word), np.zeros((len(file.trees), width))
    known = [FEATURES.index(name) for name in file.features]
    for number, tree in enumerate(file.trees):
        order, left_of = _in_order(tree)
        leaves[number, : len(order)] = [round(tree.leaf[leaf] / LEAF_STEP) * LEAF_STEP for leaf in order]
        bit = {leaf: 1 << place for place, leaf in enumerate(order)}
        for node, column in enumerate(tree.column):
            columns[number, node] = known[column] + (0 if tree.unknown_left[node] else len(FEATURES))
            thresholds[number, node] = _not_above(tree.threshold[node])
            kept[number, node] = all_leaves ^ sum(bit[leaf] for leaf in left_of[node])
    return _Forest(columns.ravel(), thresholds.reshape(-1, 1), kept.reshape(-1, 1), word(all_leaves), leaves)


def _not_above(threshold: float) -> np.float32:
    """The largest float32 that is not above it: a float32 is above the one exactly where it is above the other."""
    near = np.float32(np.clip(threshold, -_LARGEST, _LARGEST))
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))


def _in_order(tree: Tree) -> tuple[list[int], list[list[int]]]:
    """The leaves from left to right, and for each node those on its left."""
    left_of: list[list[int]] = [[] for _ in tree.column]

    def below(node: int) -> list[int]:
        if node < 0:
            return [-1 - node]
        left_of[node] = below(tree.left[node])
        return left_of[node] + below(tree.right[node])

    return below(0 if tree.column else -1), left_of


def _shares_of_leaves(file: RankerFile, width: int) -> NDArray[np.float64]:
    """What the way to each leaf, from left to right, adds by column; shape (trees, width, len(FEATURES) + 1)."""
    known = [FEATURES.index(name) for name in file.features]
    shares = np.zeros((len(file.trees), width, len(FEATURES) + 1))
    for number, tree in enumerate(file.trees):
        place = 0

        def walk(node: int, sofar: NDArray[np.float64], tree: Tree = tree, number: int = number) -> None:
            nonlocal place
            if node < 0:
                shares[number, place] = sofar
                place += 1
                return
            for child in (tree.left[node], tree.right[node]):
                step = sofar.copy()
                step[known[tree.column[node]]] += _expected(tree, child) - tree.inner[node]
                walk(child, step)

        base = np.zeros(len(FEATURES) + 1)
        base[-1] = _expected(tree, 0 if tree.column else -1)
        walk(0 if tree.column else -1, base)
    return shares


def _expected(tree: Tree, node: int) -> float:
    return tree.inner[node] if node >= 0 else tree.leaf[-1 - node]
