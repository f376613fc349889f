"""A conversation as topics, by its words alone: runs of turns on one subject, each with a title of its own words.

Pure and online: whether a turn begins a topic depends on what was said before it and on nothing after, so a later turn
never moves a boundary. A topic begins after a long rest, or where the user takes the word and says enough, almost none
of it in words of the running topic. Words that were said all through the conversation tell little.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from serve_app.compress.vocabulary import vocabulary
from serve_app.core import SECOND_US, Role, Topic, Turn
from serve_app.kept import Entry, Kept

SEGMENTS_VERSION = "segments-2"
"""Changes with anything here that changes a boundary or a title."""

REST_S = 3_600
"""After so long without a word whatever comes is another topic."""

TURNS_MIN = 8
"""Fewer turns make no topic but by a rest."""

TURNS_MAX = 200
"""A topic of more is cut."""

WORDS_MIN = 8
"""A turn of fewer words of its own (`Yes, please.`) begins nothing."""

COHESION_MIN = 0.1
"""Share of a turn's words, each the less the more turns have said it, that the topic has said before; with less the
turn is about something else.
"""

TITLE_WORDS = 4
TITLE_WORDS_LOOKED_AT = 16
ROLE_VOICE: dict[Role, int] = {"user": 3, "assistant": 2, "tool": 1, "system": 1}
"""How much a turn's words count for the title."""
TITLE_CHARS_MAX = 80

WORDS_A_TURN_MAX = 2_000
"""Of a longer turn, those of its beginning."""

READ_TURNS_KEPT = 16_384


class Segment(NamedTuple):
    """Turns `first` to before `end`, by their numbers."""

    first: int
    end: int


class _Words(Entry[Turn]):
    """The words of a turn that say what it is about, as they are compared, each with how it is first written."""

    __slots__ = ("words",)

    def __init__(self, turn: Turn, gone: Callable[..., None]) -> None:
        super().__init__(turn, gone)
        self.words = vocabulary(turn.text, WORDS_A_TURN_MAX)


_words = Kept[Turn, _Words](_Words, READ_TURNS_KEPT)


class Course:
    """The topics of a conversation up to a turn: it follows, turn by turn. What it knows of its turns is counts."""

    def __init__(self) -> None:
        self._turns = 0
        self._firsts: list[int] = []
        self._topics: list[Topic] = []
        """Those that have ended."""
        self._said: Counter[str] = Counter()
        """The turns that have said each word."""
        self._before: Counter[str] = Counter()
        """The same by how much each counts, in the topics that have ended."""
        self._spoken: Counter[str] = Counter()
        """The same in the running topic."""
        self._named: Counter[str] = Counter()
        """The same without the turns of which anything expires: a title is kept like a quote."""
        self._spelt: dict[str, str] = {}

    def copy(self) -> Course:
        other = copy.copy(self)
        other._firsts, other._topics = self._firsts.copy(), self._topics.copy()
        other._said, other._before = self._said.copy(), self._before.copy()
        other._spoken, other._named, other._spelt = self._spoken.copy(), self._named.copy(), self._spelt.copy()
        return other

    def follow(self, turns: Sequence[Turn], end: int) -> Course:
        """Up to the turn before `end`. `turns` begins with all turns that were followed so far."""
        for number in range(self._turns, end):
            turn = turns[number]
            words = _words.of(turn).words
            if number == 0 or self._begins(turns[number - 1], turn, number - self._firsts[-1], words):
                self._begin(turns, number)
            for word, surface in words.items():
                self._spoken[word] += ROLE_VOICE[turn.role]
                if turn.lasting:
                    self._spelt.setdefault(word, surface)
                    self._named[word] += ROLE_VOICE[turn.role]
            self._said.update(words.keys())
        self._turns = max(self._turns, end)
        return self

    def segments(self) -> list[Segment]:
        """Every turn is in exactly one."""
        ends = [*self._firsts[1:], self._turns]
        return [Segment(first, end) for first, end in zip(self._firsts, ends, strict=True)]

    def topics(self, turns: Sequence[Turn]) -> tuple[Topic, ...]:
        """The segments with their titles."""
        return (*self._topics, self._running(turns, self._turns)) if self._firsts else ()

    def _begins(self, previous: Turn, turn: Turn, length: int, words: Iterable[str]) -> bool:
        return _begins(previous, turn, length, _cohesion(words, self._spoken, self._said))

    def _begin(self, turns: Sequence[Turn], number: int) -> None:
        if self._firsts:
            self._topics.append(self._running(turns, number))
            self._before.update(self._named)
        self._firsts.append(number)
        self._spoken, self._named, self._spelt = Counter(), Counter(), {}

    def _running(self, turns: Sequence[Turn], end: int) -> Topic:
        first = self._firsts[-1]
        title = _title(self._named, self._spelt, self._before)
        return Topic(title, turns[first].seq, turns[end - 1].seq, end - first)


def segments(turns: Sequence[Turn]) -> list[Segment]:
    """Every turn is in exactly one."""
    return Course().follow(turns, len(turns)).segments()


def topics(turns: Sequence[Turn]) -> tuple[Topic, ...]:
    """The segments with their titles."""
    return Course().follow(turns, len(turns)).topics(turns)


def _title(spoken: Counter[str], spelt: Mapping[str, str], before: Mapping[str, int]) -> str:
    """The words that are most its own; of equals those said first. Empty where nothing tells."""
    telling = [word for word in spoken if not word[0].isdigit()]
    count = before.get
    best = sorted(telling, key=lambda word: -spoken[word] / (1 + count(word, 0)))[:TITLE_WORDS_LOOKED_AT]
    surfaces = dict.fromkeys(spelt[word] for word in best)
    return ", ".join(list(surfaces)[:TITLE_WORDS])[:TITLE_CHARS_MAX]


def _cohesion(words: Iterable[str], topic: Container[str], said: Mapping[str, int]) -> float | None:
    """None where the words are too few to tell."""
    count = said.get
    weights = {word: 1 / (1 + count(word, 0)) for word in words}
    if len(weights) < WORDS_MIN:
        return None
    return sum(weight for word, weight in weights.items() if word in topic) / sum(weights.values())


def _begins(previous: Turn, turn: Turn, length: int, cohesion: float | None) -> bool:
    """Whether a turn begins a topic after one of `length` turns. The result of a tool never does."""
    if turn.role == "tool":
        return False
    if length >= TURNS_MAX or turn.created_at - previous.created_at > REST_S * SECOND_US:
        return True
    if length < TURNS_MIN or cohesion is None:
        return False
    takes_the_word = turn.role == "user" or (turn.role, turn.speaker) != (previous.role, previous.speaker)
    return takes_the_word and cohesion < COHESION_MIN
