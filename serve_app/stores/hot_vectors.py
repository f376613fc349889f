"""One owner's vectors in memory: of each resident turn those that each version made, and those of its tokens.

The vectors lie in the hot index of their version, the tokens here, packed as they came. Vectors of two versions never
meet: each question names its version, and each version knows when its vectors of a turn came. Versions come (`hold`)
and go (`release`) while others are asked for. Not locked: the block whose part this is has a lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from serve_app.core import ROWS_PER_TURN_MAX, EmbeddingVersion
from serve_app.ports import TOKEN_DIMENSION, HotIndex, HotProducts, Rows, Tokens
from serve_app.records import TurnVectors
from serve_app.stores.ownership import live_of
from serve_app.stores.packing import PACKED_BYTES, unpack_vectors, vector_rows
from serve_app.stores.rows import StoredVectors

Offsets = NDArray[np.int64]
Places = tuple[Rows, NDArray[np.intp], NDArray[np.bool_] | None]


class HotVectors:
    """Of the owner `key`. `hot` holds the index of each version by its name."""

    def __init__(self, key: str, versions: Sequence[EmbeddingVersion], hot: Mapping[str, HotIndex]) -> None:
        self._key = key
        self._of = {version.name: _OfVersion(key, version.dimension, hot[version.name]) for version in versions}

    @property
    def came(self) -> dict[int, int]:
        """By the seq of each turn that has vectors, the seq of the newest record that brought some. Made anew."""
        found: dict[int, int] = {}
        for of in self._of.values():
            found |= {seq: max(came, found.get(seq, 0)) for seq, came in of.came.items()}
        return found

    def came_by(self, version: str) -> Mapping[int, int]:
        """The same of one version."""
        of = self._of.get(version)
        return {} if of is None else of.came

    def hold(self, version: EmbeddingVersion, hot: HotIndex) -> None:
        """Take vectors of this version, too, which has none here yet."""
        if version.name not in self._of:
            self._of[version.name] = _OfVersion(self._key, version.dimension, hot)

    def release(self, name: str) -> None:
        """Forget what this version made, here and in its index."""
        of = self._of.pop(name, None)
        if of is not None:
            of.drop()

    def put(self, version: str, items: Sequence[TurnVectors], seq: int) -> None:
        """The record `seq` brought these, in the place of what this version had made of the same turns.

        All of it in one call of the index, which costs about as much for many.
        """
        of = self._of.get(version)
        if of is not None and items:
            of.add(items, seq)

    def take(self, version: str, stored: Sequence[StoredVectors]) -> None:
        """What the tables hold, where there is nothing yet."""
        of = self._of.get(version)
        if of is not None and stored:
            of.take(stored)

    def remove(self, turn_seq: int) -> None:
        for one in self._of.values():
            one.remove(turn_seq)

    def clear(self) -> None:
        for one in self._of.values():
            one.drop()

    def moved(self) -> None:
        """Turns have other ordinals than before."""
        for one in self._of.values():
            one.places = None

    def dense(
        self,
        version: str,
        query: NDArray[np.float32],
        seqs: Sequence[int],
        as_of: int | None,
        given: HotProducts | None = None,
    ) -> NDArray[np.float32]:
        """The inner product of each of the ascending `seqs`, NaN where this version has no vector of it as of then.

        Of a turn of several parts the best counts. What a hot shard has `given` counts where it knows the very same
        vectors; else the index here is asked.
        """
        of = self._of.get(version)
        scores = np.full(len(seqs), np.nan, np.float32)
        if of is not None:
            if not of.score_given(given, seqs, scores):
                of.score(query, seqs, scores)
            scores[np.searchsorted(np.asarray(seqs, np.int64), of.after(as_of))] = np.nan
        return scores

    def products(self, version: str, query: NDArray[np.float32]) -> HotProducts:
        """Of each vector of this version that is here."""
        of = self._of.get(version)
        if of is None:
            return HotProducts(np.empty(0, np.int64), np.empty(0, np.float32), 0)
        rows, scores = of.hot.products(self._key, query)
        return HotProducts(rows, scores, of.newest)

    def tokens(self, version: str, seqs: Sequence[int], as_of: int | None) -> tuple[Tokens, Offsets]:
        """The vectors of the tokens of these turns, one after another, and where each turn's begin: one offset more
        than turns. A turn has none where this version made none of it as of then.
        """
        of = self._of.get(version)
        held = {} if of is None else of.tokens
        if late := frozenset(() if of is None else of.after(as_of)):
            packed = [b"" if seq in late else held.get(seq, b"") for seq in seqs]
        else:
            packed = [held.get(seq, b"") for seq in seqs]
        offsets = np.zeros(len(packed) + 1, np.int64)
        np.cumsum([len(one) // TOKEN_DIMENSION for one in packed], out=offsets[1:])
        return np.frombuffer(b"".join(packed), np.int8).reshape(-1, TOKEN_DIMENSION), offsets

    def count(self, turn_seqs: Iterable[int] | None = None) -> int:
        """How many vectors there are, of these turns or of all."""
        wanted = None if turn_seqs is None else list(turn_seqs)
        return sum(
            sum(map(of.size, of.came if wanted is None else filter(of.came.__contains__, wanted)))
            for of in self._of.values()
        )

    def shape(self, turn_seq: int) -> dict[str, tuple[int, int]]:
        """By version, how many vectors a turn has, and of how many tokens."""
        return {
            name: (of.size(turn_seq), len(of.tokens.get(turn_seq, b"")) // TOKEN_DIMENSION)
            for name, of in self._of.items()
            if turn_seq in of.came
        }


class _OfVersion:
    """One version's; it begins with nothing. `places`: the ordinals of the index's rows, and which are this owner's if
    not all are.
    """

    def __init__(self, key: str, dimension: int, hot: HotIndex) -> None:
        self._key = key
        self._dimension = dimension
        self.hot = hot
        self.drop()

    def drop(self) -> None:
        self.came: dict[int, int] = {}  # by the seq of the turn, the seq of the record
        self.tokens: dict[int, bytes] = {}
        self.places: Places | None = None
        self._parts: dict[int, int] = {}  # of the turns that have not just one
        self.newest = 0
        self.hot.drop(self._key)

    def size(self, turn_seq: int) -> int:
        """How many vectors a turn has that has come."""
        return self._parts.get(turn_seq, 1)

    def after(self, as_of: int | None) -> list[int]:
        """The turns whose vectors came later; none, as a rule, and then this costs nothing."""
        if as_of is None or as_of >= self.newest:
            return []
        return [seq for seq, came in self.came.items() if came > as_of]

    def add(self, items: Sequence[TurnVectors], seq: int) -> None:
        for one in items:
            self.remove(one.turn_seq)
        sizes = [len(one.vectors) // (self._dimension * PACKED_BYTES) for one in items]
        vectors = unpack_vectors(b"".join(one.vectors for one in items), self._dimension)
        self._index([one.turn_seq for one in items], sizes, vectors, [one.tokens for one in items])
        self.came.update((one.turn_seq, seq) for one in items)
        self.newest = max(self.newest, seq)

    def take(self, stored: Sequence[StoredVectors]) -> None:
        parts = [one.parts for one in stored]
        turn_seqs, tokens = [one.turn_seq for one in stored], [one.tokens for one in stored]
        self._index(turn_seqs, [len(one) for one in parts], np.concatenate(parts), tokens)
        self.came.update((one.turn_seq, one.vector_seq) for one in stored)
        self.newest = max(self.newest, *(one.vector_seq for one in stored))

    def _index(
        self, turn_seqs: Sequence[int], sizes: Sequence[int], vectors: NDArray[np.float32], tokens: Sequence[bytes]
    ) -> None:
        rows = [vector_rows(seq, size) for seq, size in zip(turn_seqs, sizes, strict=True)]
        self.hot.add(self._key, np.concatenate(rows), vectors)
        self._parts.update((seq, size) for seq, size in zip(turn_seqs, sizes, strict=True) if size != 1)
        self.tokens.update((seq, one) for seq, one in zip(turn_seqs, tokens, strict=True) if one)

    def remove(self, turn_seq: int) -> None:
        if self.came.pop(turn_seq, None) is None:
            return
        self.tokens.pop(turn_seq, None)
        if parts := self._parts.pop(turn_seq, 1):
            self.hot.remove(self._key, vector_rows(turn_seq, parts))

    def score_given(self, given: HotProducts | None, seqs: Sequence[int], scores: NDArray[np.float32]) -> bool:
        """Set the scores by what a hot shard gave; False, and nothing is set, where it does not have what is here."""
        if given is None or given.newest != self.newest:
            return False
        own = np.asarray(seqs, np.int64)
        turns = given.rows // ROWS_PER_TURN_MAX
        here = np.isin(turns, np.fromiter(self.came, np.int64, len(self.came))) & np.isin(turns, own)
        if int(here.sum()) != sum(map(self.size, self.came)):
            return False
        np.fmax.at(scores, np.searchsorted(own, turns[here]), given.scores[here])
        return True

    def score(self, query: NDArray[np.float32], seqs: Sequence[int], scores: NDArray[np.float32]) -> None:
        """Set the scores of the turns that have vectors."""
        rows, found = self.hot.products(self._key, query)
        if self.places is None or not np.array_equal(self.places[0], rows):  # vectors or turns have come or gone
            self.places = rows, *live_of(seqs, rows // ROWS_PER_TURN_MAX)
        _, ordinals, live = self.places
        if live is not None:
            rows, found, ordinals = rows[live], found[live], ordinals[live]
        if not self._parts:
            scores[ordinals] = found
        else:
            np.fmax.at(scores, ordinals, found)
