"""Which shard holds whose memory. Pure, and fixed for the life of a store."""

from __future__ import annotations

import hashlib

from serve_app.core import Owner


def shard_of(owner: Owner, shards: int) -> int:
    """The shard of an owner: the same in every process and release (BLAKE2b, first eight bytes, modulo)."""
    digest = hashlib.blake2b(owner.key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards
