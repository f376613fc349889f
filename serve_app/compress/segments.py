"""A conversation as topics, by its words alone: runs of turns on one subject, each with a title of its own words.

Pure and online: whether a turn begins a topic depends on what was said before it and on nothing after, so a later turn
never moves a boundary. A topic begins after a long rest, or where the user takes the word and says enough, almost none
of it in words of the running topic. Words that were said all through the conversation tell little.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def segments(turns: Sequence[Turn]) -> list[Segment]:
    """Every turn is in exactly one."""
    firsts = list(_firsts(turns))
    return [Segment(first, end) for first, end in zip(firsts, [*firsts[1:], len(turns)], strict=True)]


def topics(turns: Sequence[Turn], found: Iterable[Segment]) -> tuple[Topic, ...]:
    """The segments with their titles."""
    before: Counter[str] = Counter()
    return tuple(_topic(turns[first:end], before) for first, end in found)


def _topic(turns: Sequence[Turn], before: Counter[str]) -> Topic:
    """`before` counts the turns that have said each word, those of this topic once it is named.

    A title is kept like a quote: turns of which anything expires give it no word.
    """
    spoken: Counter[str] = Counter()
    spelt: dict[str, str] = {}
    for turn in [turn for turn in turns if turn.lasting]:
        for word, surface in _words.of(turn).words.items():
            spoken[word] += ROLE_VOICE[turn.role]
            spelt.setdefault(word, surface)
    topic = Topic(_title(spoken, spelt, before), turns[0].seq, turns[-1].seq, len(turns))
    before.update(spoken)
    return topic


def _title(spoken: Counter[str], spelt: Mapping[str, str], before: Counter[str]) -> str:
    """The words that are most its own; of equals those said first. Empty where nothing tells."""
    telling = [word for word in spoken if not word[0].isdigit()]
    best = sorted(telling, key=lambda word: -spoken[word] / (1 + before[word]))[:TITLE_WORDS_LOOKED_AT]
    surfaces = dict.fromkeys(spelt[word] for word in best)
    return ", ".join(list(surfaces)[:TITLE_WORDS])[:TITLE_CHARS_MAX]


def _firsts(turns: Sequence[Turn]) -> Iterator[int]:
    """The numbers of the turns that begin a topic."""
    said: Counter[str] = Counter()
    topic: set[str] = set()
    begun = 0
    for number, turn in enumerate(turns):
        words = _words.of(turn).words
        if number == 0 or _begins(turns[number - 1], turn, number - begun, _cohesion(words, topic, said)):
            yield number
            topic, begun = set(), number
        topic.update(words)
        said.update(words.keys())


def _cohesion(words: Iterable[str], topic: set[str], said: Counter[str]) -> float | None:
    """None where the words are too few to tell."""
    weights = {word: 1 / (1 + said[word]) for word in words}
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
