"""A session's turns as topics: runs of turns on one subject. Pure, and online: a later turn never moves a boundary.

A topic ends where the conversation rests for long, or where somebody takes the word and says something that lies far
from what the topic was about so far. What the running topic is about is the mean of its turns' vectors, so a boundary
depends on nothing before the topic and on nothing after the turn that begins the next one: the same turns with the
same vectors give the same topics however they came in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from serve_app.core import SECOND_US, Turn

REST_S = 3_600
"""After so long without a word whatever comes is another topic: people come back an hour later with something new."""

FAR = 0.35
"""Cosine to the topic's mean below which a turn is about something else.

With the packaged encoder, of conversations joined end to end without a rest between them: at less most joins are
missed, at more nearly every fourth turn of one conversation begins a topic.
"""

TURNS_MIN = 4
"""A mean of fewer turns says little about a subject: so few make no topic but by a rest."""

TURNS_MAX = 200
"""A topic of more is cut, so that one endless talk has parts that can be forgotten."""

SAYS_LITTLE_BYTES = 40
"""A shorter turn (`Yes, please.`) lies far from anything and begins nothing. Bytes: a Chinese character says more."""

Vector = NDArray[np.float32]


class _Topic:
    """The running topic: how many turns it has and the sum of their vectors."""

    def __init__(self) -> None:
        self.turns = 0
        self._sum: Vector | None = None

    def add(self, vector: Vector | None) -> None:
        self.turns += 1
        if vector is not None:
            self._sum = vector if self._sum is None else self._sum + vector

    def likeness(self, vector: Vector) -> float:
        """Cosine to the mean, in hundredths, so that rounding in the encoder rarely counts; 1 where there is none."""
        if self._sum is None:
            return 1.0
        length = float(np.linalg.norm(self._sum) * np.linalg.norm(vector))
        return round(float(self._sum @ vector) / length, 2) if length else 1.0


def topic_lengths(turns: Sequence[Turn], vectors: Mapping[int, Vector]) -> list[int]:
    """How many turns each topic has, in order. `vectors`: by seq, of the turns that have one."""
    lengths: list[int] = []
    topic = _Topic()
    for place, turn in enumerate(turns):
        vector = vectors.get(turn.seq)
        if place and _begins(topic, turns[place - 1], turn, vector):
            lengths.append(topic.turns)
            topic = _Topic()
        topic.add(vector)
    return [*lengths, topic.turns] if topic.turns else lengths


def _begins(topic: _Topic, previous: Turn, turn: Turn, vector: Vector | None) -> bool:
    """Whether this turn begins another topic. The result of a tool never does: it belongs to its call."""
    if turn.role == "tool":
        return False
    if topic.turns >= TURNS_MAX or turn.created_at - previous.created_at > REST_S * SECOND_US:
        return True
    if topic.turns < TURNS_MIN or vector is None or len(turn.text.encode()) < SAYS_LITTLE_BYTES:
        return False
    takes_the_word = turn.role == "user" or (turn.role, turn.speaker) != (previous.role, previous.speaker)
    return takes_the_word and topic.likeness(vector) < FAR
