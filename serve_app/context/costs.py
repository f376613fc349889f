"""What a text takes by one tokenizer, where that can be had without reading the text again.

Of a turn and of the lines of a summary the counts are kept with the object (`kept`), and of their
texts no copy but the source of a quote. Where the tokenizer promises that the counts of lines add up
(`ports.Tokenizer.lines_add_up_to`), a quoted block is counted as the sum of its lines.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import lru_cache

import msgspec

from serve_app.context import quote
from serve_app.context.quote import Record
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS
from serve_app.core import Fact, Summary, Turn
from serve_app.kept import Entry, Kept
from serve_app.ports import Tokenizer

TURNS_A_GENERATION = 32_768
"""Turns whose counts are kept, twice at most: about 400 bytes each, so 25 MB a tokenizer when full."""

FACTS_A_GENERATION = 8_192
"""The same for facts; about 300 bytes each."""

SUMMARIES_A_GENERATION = 1_024
"""The same for summaries; about 1 kB each."""

TOKENIZERS_MAX = 16
"""Tokenizers whose counts are kept at a time."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """A record as a line of a quoted block, and what it takes there beside the mark.

    `planned` adds up its parts, of which the text's count serves elsewhere, too; `exact` counts it whole.
    """

    source: str
    text: str
    planned: int
    exact: int


class Frame(msgspec.Struct, frozen=True, gc=False):
    """What a mark takes in a block: the message with its first and last line, and the beginning of each line."""

    message: int
    lead: int


class TurnCosts(Entry[Turn]):
    """What the turn takes as it is said, and its line for readers of its own session and of others.

    A line holds the very string that the turn holds; where it would be a copy, no line is kept.
    """

    __slots__ = ("own", "said", "theirs")

    def __init__(self, turn: Turn, gone: Callable[[weakref.ref[Turn]], None]) -> None:
        super().__init__(turn, gone)
        self.said: int | None = None
        self.own: Line | None = None
        self.theirs: Line | None = None


class FactCosts(Entry[Fact]):
    """The fact's source in a quote, and what its line is planned to take beside the mark."""

    __slots__ = ("planned", "source")

    def __init__(self, fact: Fact, gone: Callable[[weakref.ref[Fact]], None]) -> None:
        super().__init__(fact, gone)
        self.source: str | None = None
        self.planned = 0


class SummaryCosts(Entry[Summary]):
    """What each line takes without and with the date that it leaves out, and the most that its best lines take within
    a number of tokens: (that number, theirs).
    """

    __slots__ = ("least", "lines")

    def __init__(self, summary: Summary, gone: Callable[[weakref.ref[Summary]], None]) -> None:
        super().__init__(summary, gone)
        self.lines: tuple[tuple[int, ...], tuple[int, ...]] | tuple[()] | None = None
        self.least: tuple[int, int] | None = None


class Costs:
    """Counts by one tokenizer. Safe for threads: whatever two of them work out at once comes out the same."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.turns = Kept(TurnCosts, TURNS_A_GENERATION)
        self.facts = Kept(FactCosts, FACTS_A_GENERATION)
        self.summaries = Kept(SummaryCosts, SUMMARIES_A_GENERATION)
        self._closing = tokenizer.count(quote.CLOSING)
        self._openings: dict[str, int] = {}

    def said(self, turn: Turn, text: str) -> int:
        """Tokens of the text, which must be the turn's as a message of the conversation."""
        kept = self.turns.of(turn)
        if kept.said is None:
            kept.said = self.tokenizer.count(text)
        return kept.said

    def planned(self, record: Record) -> int:
        """A line of a block without its mark, text and break counted apart."""
        return self.tokenizer.count(quote.tail(record.source)) + self.tokenizer.count(record.text) + 1

    def line(self, record: Record) -> Line:
        exact = self.tokenizer.count(f"{quote.tail(record.source)}{record.text}\n") if self._adds_up else 0
        return Line(record.source, record.text, self.planned(record), exact)

    def frame(self, title: str, mark: str) -> Frame:
        """`title` is one of few."""
        opening = self._openings.get(title)
        if opening is None:
            opening = self._openings[title] = self.tokenizer.count(quote.opening(title))
        lead = self.tokenizer.count(quote.lead(mark))
        ends = opening + self.tokenizer.count(f" {mark}\n") + lead + self._closing
        return Frame(MESSAGE_OVERHEAD_TOKENS + ends, lead)

    def adds_up(self, text: str) -> bool:
        """Whether the tokens of this block are those of its lines."""
        return len(text) <= self.tokenizer.lines_add_up_to

    @property
    def _adds_up(self) -> bool:
        return self.tokenizer.lines_add_up_to > 0


@lru_cache(maxsize=TOKENIZERS_MAX)
def costs_by(tokenizer: Tokenizer) -> Costs:
    """The same for the same object."""
    return Costs(tokenizer)
