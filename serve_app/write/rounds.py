"""One round of the indexer: turns of one lane that are embedded together, under one version or several."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from serve_app.core import Turn
from serve_app.ports import Encodings, Tokens
from serve_app.records import TurnVectors
from serve_app.stores.packing import pack_vectors
from serve_app.write.backlog import Backlog, Waiting

TURN_TOKENS_MAX = 1_024
"""Tokens of one turn, of its beginning, whose vectors are kept; its words are found wherever they stand."""


class Lane:
    """A backlog, how many turns of it one round takes, and until when none are taken."""

    def __init__(self, most: int, late: Lane | None = None) -> None:
        self.backlog = Backlog()
        self.most = self.most_ever = most
        self.rests_until = 0.0
        self.late = late or self
        """The lane of those of its turns that have failed; itself where it is such a one."""

    @property
    def is_late(self) -> bool:
        return self.late is self

    def ready_in(self) -> float | None:
        """Seconds; None where nothing waits."""
        return max(0.0, self.rests_until - time.monotonic()) if len(self.backlog) else None


class Embedded(NamedTuple):
    """Turns of a round, by their place in it, that one version embeds: their pieces, whose vectors come in order."""

    turns: dict[int, Turn]
    pieces: list[list[str]]
    encodings: Future[Encodings]

    def of_each(self) -> list[TurnVectors]:
        """The vectors of each turn. Waits for the encoder, and raises what it raises."""
        encodings = self.encodings.result()
        found, at = [], 0
        for turn, pieces in zip(self.turns.values(), self.pieces, strict=True):
            end = at + len(pieces)
            tokens = b"" if encodings.tokens is None else _token_bytes(encodings.tokens[at:end])
            packed = pack_vectors(encodings.vectors[at:end])
            found.append(TurnVectors(turn.seq, turn.rev, turn.session, turn.id, packed, tokens))
            at = end
        return found


@dataclass(eq=False)
class Round:
    """Turns of one lane that are being embedded together, under one version or several."""

    lane: Lane
    turns: list[tuple[Waiting, Turn]]
    of_versions: dict[str, Embedded]


def _token_bytes(tokens: Sequence[Tokens]) -> bytes:
    return np.concatenate(tokens)[:TURN_TOKENS_MAX].astype(np.int8).tobytes()
