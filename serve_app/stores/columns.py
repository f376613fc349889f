"""What is known of each resident turn by its ordinal: its place, its words, what it names, its day, its speaker.

An ordinal is given at `append` and stays; a removed turn leaves a dead one behind, and `since` gives
columns of the newer turns with ordinals of their own. Columns grow at the end only, so a prefix of them
is the state as of an earlier seq.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.entities.recognise import in_turn, speaker_key
from serve_app.entities.values import Entity
from serve_app.stores.entity_index import EntityIndex
from serve_app.stores.lexical import NO_TURN, LexicalIndex
from serve_app.stores.packing import turn_text
from serve_app.stores.terms import index_terms
from serve_app.stores.views import day_number

NO_SPEAKER = -1


class Columns:
    def __init__(self) -> None:
        self.lexical = LexicalIndex()
        self.entities = EntityIndex()
        self.seqs = array("q")
        self.speaker_terms: list[frozenset[str]] = []
        self._alive = bytearray()
        self._days = array("i")
        self._times = array("q")
        self._speaker_of = array("i")
        self._speakers: dict[str, int] = {}
        self._speaker_keys: list[str] = []
        """Of the speakers whose terms these are, by the name of an entity; empty where a speaker is no name."""

    def append(
        self,
        turn: Turn,
        previous_seq: int | None,
        terms: Sequence[str] | None = None,
        entities: Sequence[Entity] | None = None,
    ) -> None:
        """Take a turn whose seq is larger than all before; `previous_seq`: the turn before it in its session.

        `terms` and `entities` where they are known: to find them again takes a good part of loading a block.
        """
        previous = NO_TURN if previous_seq is None else self.ordinal(previous_seq)
        ordinal = self.lexical.append(index_terms(turn_text(turn)) if terms is None else terms, previous)
        self.entities.append(ordinal, in_turn(turn) if entities is None else entities)
        self.seqs.append(turn.seq)
        self._alive.append(1)
        self._days.append(day_number(turn.created_at, turn.offset_minutes))
        self._times.append(turn.created_at)
        self._speaker_of.append(self._speaker(turn.speaker))

    def replace(self, held: Turn, turn: Turn) -> None:
        """Take the new state of the turn that is `held`: it keeps its ordinal and its neighbours."""
        ordinal = self.ordinal(turn.seq)
        if turn_text(turn) != turn_text(held):
            self.lexical.replace(ordinal, index_terms(turn_text(held)), index_terms(turn_text(turn)))
        if (turn.content, turn.data, turn.speaker) != (held.content, held.data, held.speaker):
            self.entities.replace(ordinal, in_turn(turn))
        self._days[ordinal] = day_number(turn.created_at, turn.offset_minutes)
        self._times[ordinal] = turn.created_at
        self._speaker_of[ordinal] = self._speaker(turn.speaker)

    def since(self, seq: int) -> Columns:
        """The turns from `seq` on as columns of their own; nothing is read or cut into terms again."""
        first, kept = self.ordinal(seq), Columns()
        kept.lexical, kept.entities = self.lexical.since(first), self.entities.since(first)
        kept.seqs = self.seqs[first:]
        kept.speaker_terms, kept._speakers = list(self.speaker_terms), dict(self._speakers)
        kept._speaker_keys = list(self._speaker_keys)
        kept._alive, kept._days, kept._times = self._alive[first:], self._days[first:], self._times[first:]
        kept._speaker_of = self._speaker_of[first:]
        return kept

    def _speaker(self, name: str | None) -> int:
        if name is None:
            return NO_SPEAKER
        if name not in self._speakers:
            self._speakers[name] = len(self.speaker_terms)
            self.speaker_terms.append(frozenset(index_terms(name)))
            self._speaker_keys.append(speaker_key(name))
        return self._speakers[name]

    def remove(self, seqs: Sequence[int]) -> None:
        ordinals = [self.ordinal(seq) for seq in seqs]
        for ordinal in ordinals:
            self._alive[ordinal] = 0
            self._speaker_of[ordinal] = NO_SPEAKER
        self.lexical.remove(*ordinals)
        self.entities.remove(ordinals)

    def ordinal(self, seq: int) -> int:
        return bisect.bisect_left(self.seqs, seq)

    def until(self, seq: int | None) -> int:
        """The number of ordinals that existed as of `seq`."""
        return len(self.seqs) if seq is None else bisect.bisect_right(self.seqs, seq)

    def alive(self, n: int) -> NDArray[np.bool_]:
        """A copy of the first n marks."""
        return np.frombuffer(bytes(self._alive[:n]), np.bool_).copy()

    def days(self, n: int) -> NDArray[np.int32]:
        return np.array(self._days[:n], np.int32)

    def times(self, n: int) -> NDArray[np.int64]:
        """When each turn was said, in microseconds."""
        return np.array(self._times[:n], np.int64)

    def speaker_of(self, n: int) -> NDArray[np.int32]:
        """Index into `speaker_terms` for each ordinal, or NO_SPEAKER."""
        return np.array(self._speaker_of[:n], np.int32)

    def speaker_keys_until(self, n: int) -> frozenset[str]:
        """Of those who speak in the first n turns, by the name of an entity."""
        return frozenset(self._speaker_keys[place] for place in set(self._speaker_of[:n]) if place != NO_SPEAKER)
