"""What the service and a job of the backfill tell each other: claims, units of vectors, and what became of them.

Sent as MessagePack, since vectors are bytes. A unit is a range of seqs of one shard; it may take several calls, of
which the last says that it is done.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from serve_app.core import EmbeddingVersion
from serve_app.migrate.intervals import Intervals
from serve_app.records import TurnVectors

MSGPACK = "application/msgpack"

ITEMS_MAX = 4_096
"""Turns, and dead letters, of one call."""

REASON_CHARACTERS_MAX = 100

Seq = Annotated[int, Meta(ge=0)]
Range = tuple[Seq, Seq]


class Item(msgspec.Struct, frozen=True, array_like=True):
    """One turn's vectors, and whose turn it is."""

    owner: str
    vectors: TurnVectors


class Dead(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A turn whose vectors cannot be made. `reason` never holds a text."""

    shard: int
    seq: int
    rev: int
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)]


class Units(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Some vectors of one shard; `done` says that nothing more will come of this range. Empty, a sign of life."""

    fence: int
    shard: Annotated[int, Meta(ge=0)] = 0
    items: Annotated[tuple[Item, ...], Meta(max_length=ITEMS_MAX)] = ()
    done: Range | None = None
    cold: Seq = 0
    """Turns in `done` that have no vectors under any version."""
    dead: Annotated[tuple[Dead, ...], Meta(max_length=ITEMS_MAX)] = ()
    left: Seq | None = None
    """Turns that are still to be embedded, once the job has counted them."""
    finish: bool = False
    """Asks whether everything has its vectors, and what lacks them."""


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of the turns of a call."""

    written: int = 0
    stale: int = 0
    """They were edited meanwhile: their new state gets its vectors as it is written."""
    gone: int = 0
    cold: int = 0
    dead: int = 0
    rest_s: float = 0.0
    """To rest for each second of work, so that those who search do not notice."""
    complete: bool = False
    """Answers `finish`."""
    shards: tuple[ShardLeft, ...] = ()
    """The same: what is left."""


class ShardLeft(msgspec.Struct, frozen=True):
    """Turns of this shard up to seq `through` are to be embedded, but for the ranges that are done."""

    shard: int
    through: int
    done: Intervals = ()


class Claim(msgspec.Struct, frozen=True):
    """What a job needs: `fence` goes with all that it sends."""

    fence: int
    version: EmbeddingVersion
    options: dict[str, Any]
    """Of the encoder that makes this version."""
    shards: tuple[ShardLeft, ...]
    rest_s: float = 0.0
