"""The writers of a store's shards that run in this process: of all of them, or of some where others run elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from serve_app.errors import ShardElsewhere
from serve_app.write.commit import ShardWriter

__all__ = ["ShardWriters"]


class ShardWriters(Sequence[ShardWriter]):
    """By the numbers of their shards, with gaps: `len` is how many shards the store has, iteration gives those here."""

    def __init__(self, writers: Iterable[ShardWriter], shards: int) -> None:
        self._here = {writer.shard.number: writer for writer in writers}
        self._shards = shards

    def __len__(self) -> int:
        return self._shards

    def __iter__(self) -> Iterator[ShardWriter]:
        return iter(self._here.values())

    @overload
    def __getitem__(self, number: int) -> ShardWriter: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[ShardWriter]: ...

    def __getitem__(self, number: int | slice) -> ShardWriter | Sequence[ShardWriter]:
        """Raises ShardElsewhere where it is not here."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(self._shards))]
        found = self._here.get(number)
        if found is None:
            if not 0 <= number < self._shards:
                raise IndexError(number)
            raise ShardElsewhere(f"shard {number} is not written by this process")
        return found

    @property
    def numbers(self) -> list[int]:
        """Of those here."""
        return list(self._here)
