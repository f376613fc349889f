"""One round of the indexer: turns of one lane that are embedded together, under one version or several."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from serve_app.core import Turn, TurnForm
from serve_app.ports import Encodings
from serve_app.records import TurnVectors
from serve_app.stores.packing import turn_vectors
from serve_app.write.backlog import Backlog, Waiting


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
    form: TurnForm = "contextual"

    def of_each(self) -> list[TurnVectors]:
        """The vectors of each turn. Waits for the encoder, and raises what it raises."""
        encodings = self.encodings.result()
        found, at = [], 0
        for turn, pieces in zip(self.turns.values(), self.pieces, strict=True):
            end = at + len(pieces)
            found.append(turn_vectors(turn, self.form, encodings.part(at, end)))
            at = end
        return found


@dataclass(eq=False)
class Round:
    """Turns of one lane that are being embedded together, under one version or several."""

    lane: Lane
    turns: list[tuple[Waiting, Turn]]
    of_versions: dict[str, Embedded]
