"""Vectors of one version as they lie in the tables, inline in the rows of turns or beside them, and both as one.

A vector counts while it is of its turn's present state. Of a turn that has vectors in both places those beside count:
once a version has a table of its own, nothing is written inline any more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from serve_app.core import ROWS_PER_TURN_MAX


class States(NamedTuple):
    """Which state each of some turns is in; shape (n,) each, in order of seq."""

    seqs: NDArray[np.int64]
    revs: NDArray[np.int64]

    @classmethod
    def of(cls, seqs: NDArray[np.int64], revs: NDArray[np.int64]) -> States:
        """Of turns in any order."""
        order = np.argsort(seqs, kind="stable")
        return cls(seqs[order], revs[order])

    def agree(self, seqs: NDArray[np.int64], revs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of each pair, whether this turn is there and in this very state."""
        if not len(self.seqs):
            return np.zeros(len(seqs), np.bool_)
        places = np.minimum(np.searchsorted(self.seqs, seqs), len(self.seqs) - 1)
        return np.asarray((self.seqs[places] == seqs) & (self.revs[places] == revs))


class Parts(NamedTuple):
    """Vectors in order of their rows, which are those of their turns; `came` are the seqs of their records."""

    rows: NDArray[np.int64]
    came: NDArray[np.int64]
    vectors: NDArray[np.float16]
    """Shape (n, dimension)."""
    tokens: pa.ChunkedArray
    """Of each row, null but for first parts."""

    @property
    def seqs(self) -> NDArray[np.int64]:
        return self.rows // ROWS_PER_TURN_MAX


def inline_parts(rows: pa.Table, vectors: str, tokens: str | None = None) -> Parts:
    """What the rows of turns hold in these columns, as far as it is of their present state."""
    known = np.asarray(rows[vectors].is_valid()) & (np.asarray(rows["vector_rev"]) == np.asarray(rows["rev"]))
    return _parts(rows.filter(pa.array(known)), vectors, tokens)


def parts_beside(rows: pa.Table, states: States, through: int) -> Parts:
    """What lies beside turns in these states, but for what came after `through`."""
    agreeing = states.agree(np.asarray(rows["seq"]), np.asarray(rows["rev"]))
    known = np.asarray(rows["vector"].is_valid()) & agreeing & (np.asarray(rows["vector_seq"]) <= through)
    return _parts(rows.filter(pa.array(known)), "vector", "tokens" if "tokens" in rows.column_names else None)


def united(inline: Parts | None, beside: Parts | None) -> Parts | None:
    """None where neither is there."""
    if inline is None or beside is None:
        return beside if inline is None else inline
    alone = ~np.isin(inline.seqs, beside.seqs)
    rows = np.concatenate([inline.rows[alone], beside.rows])
    order = np.argsort(rows, kind="stable")
    tokens = pa.chunked_array([*inline.tokens.filter(pa.array(alone)).chunks, *beside.tokens.chunks], pa.binary())
    return Parts(
        rows[order],
        np.concatenate([inline.came[alone], beside.came])[order],
        np.concatenate([inline.vectors[alone], beside.vectors])[order],
        tokens.take(pa.array(order)),
    )


def _parts(held: pa.Table, vectors: str, tokens: str | None) -> Parts:
    held = held.sort_by("row")
    column = held[vectors].combine_chunks()
    flat = np.asarray(column.flatten()).reshape(len(column), column.type.list_size)
    said = pa.chunked_array([pa.nulls(len(held), pa.binary())]) if tokens is None else held[tokens]
    return Parts(np.asarray(held["row"]), np.asarray(held["vector_seq"]), flat, said)
