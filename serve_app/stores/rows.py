"""Rows of the tables: one as it is merged, and all of one owner as they are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import ROWS_PER_TURN_MAX, Fact, Summary, ToolCall, Turn
from serve_app.entities.values import Entity
from serve_app.stores.entity_rows import packed

HOT, WARM, COLD = 0, 1, 2
"""The coldest tier that holds a turn: 0 may be in memory, 1 is in the tables alone, 2 in the cold table alone."""


class Row(msgspec.Struct, frozen=True):
    """One row to be merged. `body` is the packed value; `packed` and `vector_seq` may come later.

    `expires_at` is when the first of it expires, 0 for never. `packed` holds what lies in the columns of the embedding
    versions, by `vector_column` and `token_column`; `vector_rev` and `vector_seq` speak of all of them together.
    `entities`: see `entity_rows`; None: not known.
    """

    row: int
    rev: int
    kind: str
    owner: str
    seq: int
    session: str = ""
    id: str = ""
    created_at: int = 0
    expires_at: int = 0
    arrived_at: int = 0
    tier: int = HOT
    terms: str = ""
    entities: str | None = None
    body: bytes = b""
    vector_rev: int = 0
    vector_seq: int = 0
    packed: Mapping[str, bytes] = {}


PLAIN = Row.__struct_fields__[:-1]
"""Of a row all but the columns of the versions."""


def vector_column(version: str) -> str:
    return f"v_{version}"


def token_column(version: str) -> str:
    return f"t_{version}"


def turn_row(owner: str, turn: Turn, terms: Sequence[str], entities: Sequence[Entity] | None = None) -> Row:
    return Row(
        row=turn.seq * ROWS_PER_TURN_MAX,
        rev=turn.rev,
        kind="turn",
        owner=owner,
        seq=turn.seq,
        session=turn.session,
        id=turn.id,
        created_at=turn.created_at,
        expires_at=turn.first_expiry or 0,
        arrived_at=turn.arrived_at,
        terms=" ".join(terms),
        entities=None if entities is None else packed(entities),
        body=msgspec.msgpack.encode(turn),
    )


class Told(NamedTuple):
    """That a turn is there, and when it came."""

    owner: str
    session: str
    seq: int
    arrived_at: int


class TurnState(NamedTuple):
    """Where a turn stands: whose and of which session it is, in which state and tier."""

    owner: str
    session: str
    rev: int
    tier: int


class Stub(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the warm table keeps of a cold turn's content: enough to know the turn when it is sent again."""

    said: bytes
    """See `said`."""
    expires_at: int | None = None

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def said(role: str, content: str, data: bytes | None, tool_calls: tuple[ToolCall, ...]) -> bytes:
    """A digest of what a turn says: of all that has to agree where one is a repetition."""
    return hashlib.blake2b(msgspec.msgpack.encode((role, content, data, tool_calls)), digest_size=16).digest()


def stub_of(row: Row) -> Row:
    """A turn's row once its content lies in the cold table: it waits for no vector, and no search finds it."""
    turn = msgspec.msgpack.decode(row.body, type=Turn)
    left = Stub(said(turn.role, turn.content, turn.data, turn.tool_calls), turn.expires_at)
    return msgspec.structs.replace(
        row,
        tier=COLD,
        terms="",
        entities=None,
        body=msgspec.msgpack.encode(left),
        arrived_at=turn.arrived_at,
        packed={},
        vector_rev=row.rev,
    )


COLD_CHANGED_ROW, COLD_CLEAN_ROW = -3, -4


def cold_mark(seq: int, *, clean: bool = False) -> Row:
    """That something left the cold table with the fold up to this seq; or that no such bytes are left in its files."""
    key, kind = (COLD_CLEAN_ROW, "cold_clean") if clean else (COLD_CHANGED_ROW, "cold_changed")
    return Row(row=key, rev=seq, kind=kind, owner="", seq=seq)


def pseudonym(owner: str) -> str:
    """Stands for an erased owner in the mark of the erasure, so that no file holds the name; it is no owner's key."""
    return hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()


class Due(msgspec.Struct, frozen=True):
    """A row of which something has expired; `id` is the turn's, or the fact's key."""

    owner: str
    kind: str
    seq: int
    session: str
    id: str
    tier: int = HOT


class StoredTurn(msgspec.Struct, frozen=True):
    """Enough to index a turn whose content stays in the table."""

    seq: int
    session: str
    id: str
    created_at: int
    tier: int = HOT


class StoredVectors(msgspec.Struct, frozen=True):
    """One version's vectors of one turn, shape (parts, dimension), and the seq of the record that brought them."""

    turn_seq: int
    vector_seq: int
    parts: NDArray[np.float32]
    tokens: bytes = b""
    """As in `records.TurnVectors`."""


class StoredOwner(msgspec.Struct, frozen=True):
    """All of one owner up to `folded_seq`, each part in order of seq.

    `turns`, their `terms` and `entities` and `vectors` are of the newest only.
    """

    index: tuple[StoredTurn, ...] = ()
    turns: tuple[Turn, ...] = ()
    terms: tuple[str, ...] = ()
    entities: tuple[str | None, ...] = ()
    vectors: Mapping[str, tuple[StoredVectors, ...]] = {}
    """By version; one that gave none may be missing."""
    facts: tuple[Fact, ...] = ()
    summaries: tuple[Summary, ...] = ()
    changed_seq: int = 0
    folded_seq: int = 0
