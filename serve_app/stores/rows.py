"""Rows of the tables: one as it is merged, and all of one owner as they are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import ROWS_PER_TURN_MAX, Fact, Summary, Turn


class Row(msgspec.Struct, frozen=True):
    """One row to be merged. `body` is the packed value; `vector` and `vector_seq` may come later."""

    row: int
    rev: int
    kind: str
    owner: str
    seq: int
    session: str = ""
    id: str = ""
    created_at: int = 0
    terms: str = ""
    body: bytes = b""
    vector_rev: int = 0
    vector_seq: int = 0
    vector: bytes | None = None


def turn_row(owner: str, turn: Turn, terms: Sequence[str]) -> Row:
    return Row(
        row=turn.seq * ROWS_PER_TURN_MAX,
        rev=turn.rev,
        kind="turn",
        owner=owner,
        seq=turn.seq,
        session=turn.session,
        id=turn.id,
        created_at=turn.created_at,
        terms=" ".join(terms),
        body=msgspec.msgpack.encode(turn),
    )


def pseudonym(owner: str) -> str:
    """Stands for an erased owner in the mark of the erasure, so that no file holds the name; it is no owner's key."""
    return hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()


class StoredTurn(msgspec.Struct, frozen=True):
    """Enough to index a turn whose content stays in the table."""

    seq: int
    session: str
    id: str
    created_at: int


class StoredVectors(msgspec.Struct, frozen=True):
    """The vectors of one turn, shape (parts, dimension), and the seq of the record that brought them."""

    turn_seq: int
    vector_seq: int
    parts: NDArray[np.float32]


class StoredOwner(msgspec.Struct, frozen=True):
    """All of one owner up to `folded_seq`, each part in order of seq.

    `turns`, their `terms` and `vectors` are of the newest only.
    """

    index: tuple[StoredTurn, ...] = ()
    turns: tuple[Turn, ...] = ()
    terms: tuple[str, ...] = ()
    vectors: tuple[StoredVectors, ...] = ()
    facts: tuple[Fact, ...] = ()
    summaries: tuple[Summary, ...] = ()
    changed_seq: int = 0
    folded_seq: int = 0
