"""How a turn is written out for the indexes, and how its vectors are packed for the log and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from serve_app.core import ROWS_PER_TURN_MAX, Turn, TurnForm
from serve_app.ports import Encodings, Tokens
from serve_app.records import TurnVectors
from serve_app.stores.views import contextual_text

PACKED_BYTES = 2
"""Of one component of a packed vector."""

DIGEST_BYTES = 16

TURN_TOKENS_MAX = 1_024
"""Tokens of one turn, of its beginning, whose vectors are kept; its words are found wherever they stand."""


def turn_text(turn: Turn, form: TurnForm = "contextual") -> str:
    """The text of a turn as it is indexed, and as versions of this form embed it: who said it, when, and what; or what
    alone.
    """
    if form == "plain":
        return turn.text
    return contextual_text(turn.speaker, turn.role, turn.created_at, turn.offset_minutes, turn.text)


def text_digest(text: str) -> bytes:
    """Says which text a vector is of, without saying the text."""
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def vector_rows(turn_seq: int, parts: int) -> NDArray[np.int64]:
    return np.arange(parts, dtype=np.int64) + turn_seq * ROWS_PER_TURN_MAX


def pack_vectors(parts: NDArray[np.float32]) -> bytes:
    """Float16, little endian: half the bytes, and the same value in the log, the tables and memory."""
    return parts.astype("<f2").tobytes()


def turn_vectors(turn: Turn, form: TurnForm, pieces: Encodings) -> TurnVectors:
    """What is kept of a turn under a version of this form: the vectors of its pieces, and of their first tokens."""
    packed = pack_vectors(pieces.vectors)
    tokens = b"" if pieces.tokens is None else _token_bytes(pieces.tokens)
    digest = text_digest(turn_text(turn, form))
    return TurnVectors(turn.seq, turn.rev, turn.session, turn.id, packed, tokens, digest)


def _token_bytes(tokens: Sequence[Tokens]) -> bytes:
    return np.concatenate(tokens)[:TURN_TOKENS_MAX].astype(np.int8).tobytes()


def unpack_vectors(packed: bytes, dimension: int) -> NDArray[np.float32]:
    return np.frombuffer(packed, "<f2").reshape(-1, dimension).astype(np.float32)
