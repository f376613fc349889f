"""Units of turns made units of vectors: what one process with an encoder does, without Ray.

Texts are embedded shortest first, in slices between which it rests as much as it is told. A text that the encoder
fails at is found by halving, and becomes a dead letter; where the encoder fails at everything, that is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from jobs.reading import StoredBody, Unit
from serve_app.core import Turn
from serve_app.errors import EncoderUnavailable
from serve_app.migrate.units import Dead, Item
from serve_app.models.waiting import cost_of
from serve_app.ports import Embedder, Encodings
from serve_app.records import TurnVectors
from serve_app.stores.packing import turn_text, turn_vectors

SLICE_TOKENS, RESTING_SLICE_TOKENS = 4_096, 512
"""Of one call of the encoder, by estimate; the smaller one while somebody else wants the processor."""

GPU_SLICE_TOKENS = 65_536

SOUND = "a text that every encoder can read"
"""Embedded when a text fails, to see whether it is the text's fault."""

_turns = msgspec.msgpack.Decoder(Turn)


class Embedded(msgspec.Struct, frozen=True, array_like=True):
    """A unit once it is embedded."""

    shard: int
    first: int
    last: int
    items: tuple[Item, ...] = ()
    dead: tuple[Dead, ...] = ()
    cold: int = 0
    tokens: int = 0
    """That the encoder read."""


class _Asked(NamedTuple):
    """A turn, and where its pieces stand among all."""

    stored: StoredBody
    turn: Turn
    start: int
    end: int


class Worker:
    """`rest` is told the seconds of each slice, and returns when the next may begin; `resting` says whether the last
    one rested at all.
    """

    def __init__(
        self,
        embedder: Embedder,
        rest: Callable[[float], bool] = lambda worked_s: False,
        slice_tokens: int = SLICE_TOKENS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder, self._rest, self._slice_tokens, self._clock = embedder, rest, slice_tokens, clock
        self._resting = False

    def embed(self, unit: Unit) -> Embedded:
        """Raises EncoderUnavailable where the encoder fails at everything."""
        dead: list[Dead] = []
        asked: list[_Asked] = []
        pieces: list[str] = []
        for stored in unit.turns:
            try:
                turn = _turns.decode(stored.body)
                cut = self._embedder.chunks(turn_text(turn, self._embedder.version.turns))
            except Exception as error:  # noqa: BLE001 - one row that cannot be read keeps no other from its vectors
                dead.append(self._dead(unit, stored, error))
                continue
            asked.append(_Asked(stored, turn, len(pieces), len(pieces) + len(cut)))
            pieces += cut
        encodings, failed = self._encoded(pieces)
        items: list[Item] = []
        for one in asked:
            fault = next((failed[at] for at in range(one.start, one.end) if at in failed), None)
            if fault is None:
                items.append(Item(one.stored.owner, self._made(one, encodings.part(one.start, one.end))))
            else:
                dead.append(self._dead(unit, one.stored, fault))
        counts = tuple(items), tuple(dead), unit.cold, sum(encodings.counts)
        return Embedded(unit.shard, unit.first, unit.last, *counts)

    def _made(self, one: _Asked, encodings: Encodings) -> TurnVectors:
        return turn_vectors(one.turn, self._embedder.version.turns, encodings)

    def _dead(self, unit: Unit, stored: StoredBody, error: Exception) -> Dead:
        return Dead(unit.shard, stored.seq, stored.rev, type(error).__name__)

    def _encoded(self, texts: Sequence[str]) -> tuple[Encodings, dict[int, Exception]]:
        """Of all texts; with the places of those that failed, where the encodings mean nothing, and why."""
        vectors = np.zeros((len(texts), self._embedder.version.dimension), np.float32)
        nothing = np.empty((0, 0), np.int8)
        tokens, counts, any_tokens = [nothing] * len(texts), [0] * len(texts), False
        failed: dict[int, Exception] = {}
        for places in self._slices(texts):
            for at, made in self._found(places, texts):
                if isinstance(made, Exception):
                    failed[at] = made
                    continue
                vectors[at], counts[at] = made.vectors[0], made.counts[0]
                if made.tokens is not None:
                    tokens[at], any_tokens = made.tokens[0], True
        return Encodings(vectors, counts, tokens if any_tokens else None), failed

    def _slices(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Places of texts, shortest first, in slices whose size follows the load."""
        costs = [cost_of(text, self._embedder.version.max_tokens) for text in texts]
        places: list[int] = []
        held = 0
        for at in sorted(range(len(texts)), key=costs.__getitem__):
            most = min(self._slice_tokens, RESTING_SLICE_TOKENS) if self._resting else self._slice_tokens
            if places and held + costs[at] > most:
                yield places
                places, held = [], 0
            places.append(at)
            held += costs[at]
        if places:
            yield places

    def _found(self, places: list[int], texts: Sequence[str]) -> Iterator[tuple[int, Encodings | Exception]]:
        """What became of each of these texts: those that fail are found by halving."""
        began = self._clock()
        try:
            encodings = self._embedder.encode([texts[at] for at in places], tokens=True)
        except Exception as error:  # noqa: BLE001 - whatever an encoder throws
            if len(places) == 1:
                self._require_sound(error)
                yield places[0], error
                return
            half = len(places) // 2
            yield from self._found(places[:half], texts)
            yield from self._found(places[half:], texts)
            return
        self._resting = self._rest(self._clock() - began)
        for place, at in enumerate(places):
            if np.isfinite(encodings.vectors[place]).all():
                yield at, encodings.part(place, place + 1)
            else:
                yield at, FloatingPointError()

    def _require_sound(self, error: Exception) -> None:
        """Raises EncoderUnavailable where the encoder fails at a text that has nothing special about it."""
        try:
            self._embedder.encode([SOUND])
        except Exception as again:  # noqa: BLE001 - whatever an encoder throws
            raise EncoderUnavailable(f"the encoder fails: {type(again).__name__}") from error
