"""Queries as they were encoded, least recently used out. Bounded in number and bytes; keys are digests, not texts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, TypeVar

import numpy as np

from serve_app.ports import EncodedQuery

__all__ = ["QueryCache", "QueryKey", "owned", "query_key"]

Scalar = TypeVar("Scalar", bound=np.generic)

QueryKey = tuple[str, bytes, bool]
"""Version, digest of the text, solo. A digest, so that long queries do not fill the cache's memory."""


def query_key(version: str, text: str, solo: bool) -> QueryKey:
    return version, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), solo


def owned(encoded: EncodedQuery) -> EncodedQuery:
    """With arrays of its own, read-only: a view would keep its whole batch in memory for as long as it is cached."""
    version, vector, tokens, spans, _ = encoded  # the products are one user's, and come later
    return EncodedQuery(
        version, _own(vector), None if tokens is None else _own(tokens), None if spans is None else _own(spans)
    )


class QueryCache:
    """Not thread-safe: its owner's lock guards it."""

    def __init__(self, queries_max: int, bytes_max: int) -> None:
        self._queries_max, self._bytes_max = queries_max, bytes_max
        self._held: OrderedDict[QueryKey, EncodedQuery] = OrderedDict()
        self.bytes = 0
        """Of the vectors that are held."""

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: QueryKey) -> EncodedQuery | None:
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: QueryKey, encoded: EncodedQuery) -> None:
        self._forget(self._held.pop(key, None))
        self._held[key] = encoded
        self.bytes += _size(encoded)
        while len(self._held) > self._queries_max or self.bytes > self._bytes_max:
            self._forget(self._held.popitem(last=False)[1])

    def _forget(self, encoded: EncodedQuery | None) -> None:
        self.bytes -= 0 if encoded is None else _size(encoded)


def _size(encoded: EncodedQuery) -> int:
    parts = (encoded.vector, encoded.tokens, encoded.spans)
    return sum(part.nbytes for part in parts if part is not None)


def _own(rows: np.ndarray[Any, np.dtype[Scalar]]) -> np.ndarray[Any, np.dtype[Scalar]]:
    own = rows.copy()
    own.setflags(write=False)
    return own
