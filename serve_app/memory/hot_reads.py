"""What a hot shard answers: the products of the vectors of a user who is in memory.

A user who is not is loaded by the first question, which waits for nothing: who asks has vectors too, and a deadline.
Loads are those of every read of a user (`stores/guard.py`): bounded, and one for all who want the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np

from serve_app.errors import NotFound
from serve_app.ports import HotProducts, Vectors
from serve_app.stores.block import Block
from serve_app.write.shard import Shard

__all__ = ["HotReads"]


class HotReads:
    def __init__(self, shards: Sequence[Shard], pool: Executor) -> None:
        self._shards, self._pool = shards, pool

    async def products(self, shard: int, owner: str, version: str, query: Vectors) -> HotProducts | None:
        """In the order of the rows; None where the owner is not in memory yet. Raises StoreUnavailable, NotFound."""
        if not 0 <= shard < len(self._shards):
            raise NotFound(f"there is no shard {shard} here")
        block = self._shards[shard].block_or_load(owner)
        if not isinstance(block, Block):
            return None
        return await asyncio.get_running_loop().run_in_executor(self._pool, _products, block, version, query)


def _products(block: Block, version: str, query: Vectors) -> HotProducts:
    with block.lock:
        found = block.vectors.products(version, query)
    order = np.argsort(found.rows)
    return found._replace(rows=found.rows[order], scores=found.scores[order])
