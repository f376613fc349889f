"""Which terms stand in which of many turns: made once from their terms, never changed, five bytes a posting.

A term is known by 64 bits of its hash, so no word of a turn can be read out of it. (Two of a million terms share
theirs with a chance of one in 37 million; then each finds the other's turns, too.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from serve_app.stores.bm25 import Floats

COUNT_MAX: Final = 255
"""Occurrences that a posting tells apart, as in `lexical.py`."""

_ORDINAL_BITS: Final = np.uint64(32)


class Postings(NamedTuple):
    """Those of `hashes[i]` lie from `offsets[i]` to `offsets[i + 1]`, by ordinal."""

    hashes: NDArray[np.uint64]
    """Ascending."""
    offsets: NDArray[np.int64]
    ordinals: NDArray[np.uint32]
    counts: NDArray[np.uint8]
    lengths: Floats
    """Of each turn in terms, shape (turns,)."""

    @property
    def bytes(self) -> int:
        return sum(column.nbytes for column in self)

    def of(self, term: str) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """The ordinals that hold a term, and how often each does."""
        return self.at(hashed(term))

    def known(self, wanted: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Of each of these hashes whether it is that of a term that is held."""
        if not len(self.hashes):
            return np.zeros(len(wanted), np.bool_)
        at = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        return np.asarray(self.hashes[at] == wanted, np.bool_)

    def at(self, wanted: np.uint64) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """The same of the term with this hash."""
        at = int(np.searchsorted(self.hashes, wanted))
        if at == len(self.hashes) or self.hashes[at] != wanted:
            return self.ordinals[:0], self.counts[:0]
        start, end = self.offsets[at : at + 2]
        return self.ordinals[start:end], self.counts[start:end]


def hashed(term: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little"))


def postings_of(texts: Iterable[str], between: str = " ") -> Postings:
    """`texts`: the terms of each turn, joined by blanks, as the tables hold them, or by another sign."""
    split = pc.split_pattern(pa.array(texts, pa.large_string()), between)
    flat = split.flatten()
    there = np.asarray(pc.not_equal(flat, "")).astype(np.bool_)
    turns = np.repeat(np.arange(len(split), dtype=np.uint64), np.diff(np.asarray(split.offsets)))[there]
    coded = flat.filter(pa.array(there)).dictionary_encode()
    known = np.array([hashed(term) for term in coded.dictionary.to_pylist()], np.uint64)
    order = np.argsort(known)
    rank = np.empty(len(known), np.uint64)
    rank[order] = np.arange(len(known), dtype=np.uint64)
    keys, counts = np.unique((rank[np.asarray(coded.indices)] << _ORDINAL_BITS) | turns, return_counts=True)
    offsets = np.searchsorted(keys >> _ORDINAL_BITS, np.arange(len(known) + 1, dtype=np.uint64))
    return Postings(
        hashes=known[order],
        offsets=offsets.astype(np.int64),
        ordinals=keys.astype(np.uint32),
        counts=np.minimum(counts, COUNT_MAX).astype(np.uint8),
        lengths=np.bincount(turns.astype(np.int64), minlength=len(split)).astype(np.float32),
    )
