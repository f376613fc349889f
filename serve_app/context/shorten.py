"""A summary under less room than it was made for: whole lines go, those worth least first. Pure.

A line that leaves out its date, because one before it says it, says it where that one goes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Container, Sequence
from functools import cached_property

import msgspec

from serve_app.context import quote
from serve_app.context.costs import Costs
from serve_app.context.draft import SUMMARY_TITLE, Piece
from serve_app.context.quote import Record, mark_of
from serve_app.context.tokens import MESSAGE_OVERHEAD_TOKENS
from serve_app.core import Summary

DIGITS = "0123456789"


class Excerpt(msgspec.Struct, frozen=True):
    """Some lines of a summary, by their places, and their message with what that takes."""

    lines: tuple[int, ...]
    text: str
    piece: Piece
    tokens: int


class Excerpts:
    """The ways to show one summary in one request. One that does not rank its lines is shown whole or not at all."""

    def __init__(self, summary: Summary, costs: Costs) -> None:
        self._summary = summary
        self._costs = costs
        self._all = tuple(range(len(summary.ranks) or 1))
        self._made: dict[tuple[int, ...], Excerpt] = {}

    def least(self, tokens: int) -> int:
        """What the message takes if it has `tokens`."""
        kept = self._costs.summaries.of(self._summary)
        if kept.least is None or kept.least[0] != tokens:
            short = self.within(self._of(self._all), tokens)
            kept.least = (tokens, short.tokens if short else 0)
        return kept.least[1]

    def without(self, shown: Container[int]) -> Excerpt | None:
        """All but the lines whose turn (by seq) is shown itself; None where no line is left."""
        if not self._summary.line_seqs:
            return self._of(self._all)
        lines = tuple([place for place, seq in enumerate(self._summary.line_seqs) if seq not in shown])
        return self._of(lines) if lines else None

    def within(self, excerpt: Excerpt | None, tokens: int) -> Excerpt | None:
        """As many of its best lines as their message may take; None where none fits."""
        if excerpt is None or excerpt.tokens <= tokens:
            return excerpt
        if not self._summary.ranks:
            return None
        best_first = sorted(excerpt.lines, key=self._summary.ranks.__getitem__)
        sizes = range(1, len(best_first))
        fitting = bisect.bisect_right(sizes, tokens, key=lambda size: self._of(sorted(best_first[:size])).tokens)
        return self._of(sorted(best_first[:fitting])) if fitting else None

    def summary(self, excerpt: Excerpt) -> Summary:
        """The summary with these lines alone."""
        if excerpt.lines == self._all:
            return self._summary
        dates = self._summary.line_dates
        return msgspec.structs.replace(
            self._summary,
            text=excerpt.text,
            tokens=self._text_tokens(excerpt),
            ranks=_at(self._summary.ranks, excerpt.lines),
            line_seqs=_at(self._summary.line_seqs, excerpt.lines),
            line_dates=tuple(["" if tells else dates[place] for place, tells in self._told(excerpt.lines)])
            if dates
            else (),
        )

    @cached_property
    def _source(self) -> str:
        return f"made {quote.moment(self._summary.created_at)}"

    @cached_property
    def _texts(self) -> tuple[list[str], list[str]]:
        """The lines as they stand in the text, and as they stand where they say their dates."""
        texts = self._summary.text.split("\n") if self._summary.ranks else [self._summary.text]
        dates = self._summary.line_dates
        if not dates:
            return texts, texts
        return texts, [f"{date} {text}" if date else text for date, text in zip(dates, texts, strict=True)]

    @cached_property
    def _dated(self) -> list[int]:
        """Of each line the place of the one that says its date: itself, or the last before it that leaves out none."""
        dates, places = self._summary.line_dates, list(self._all)
        for place in self._all[1:]:
            if dates and dates[place]:
                places[place] = places[place - 1]
        return places

    def _told(self, lines: Sequence[int]) -> list[tuple[int, bool]]:
        """These lines, each with whether it has to say a date that it leaves out."""
        told, last = [], 0
        for place in lines:
            tells = self._dated[place] != place and self._dated[place] >= last
            told.append((place, tells))
            last = place + 1
        return told

    def _of(self, lines: Sequence[int]) -> Excerpt:
        places = tuple(lines)
        made = self._made.get(places)
        if made is None:
            made = self._made[places] = self._excerpt(places)
        return made

    def _excerpt(self, lines: tuple[int, ...]) -> Excerpt:
        text = "\n".join([self._texts[tells][place] for place, tells in self._told(lines)])
        record = Record(self._source, text)
        mark = mark_of([record])
        block = quote.block(SUMMARY_TITLE, [record], mark)
        tokens = self._sum(lines, mark) if self._costs.adds_up(block) and self._lines() else None
        piece = Piece("summary", "user", block, tokens=tokens)
        counted = self._costs.tokenizer.count(block) if tokens is None else tokens
        return Excerpt(lines, text, piece, MESSAGE_OVERHEAD_TOKENS + counted)

    def _sum(self, lines: tuple[int, ...], mark: str) -> int:
        """Tokens of the block, line by line."""
        frame = self._costs.frame(SUMMARY_TITLE, mark)
        lead = frame.lead + self._costs.tokenizer.count(quote.tail(self._source))
        counts = self._lines()
        taken = sum([counts[tells][place] for place, tells in self._told(lines)])
        return frame.message - MESSAGE_OVERHEAD_TOKENS + lead + taken

    def _text_tokens(self, excerpt: Excerpt) -> int:
        counts, count = self._lines(), self._costs.tokenizer.count
        if not counts or excerpt.piece.tokens is None:
            return count(excerpt.text)
        *told, (last, tells) = self._told(excerpt.lines)
        return sum([counts[says][place] for place, says in told]) + count(self._texts[tells][last])

    def _lines(self) -> tuple[tuple[int, ...], tuple[int, ...]] | tuple[()]:
        """Tokens of each line, without its date where it leaves that out and with it; none where they do not add up."""
        kept = self._costs.summaries.of(self._summary)
        if kept.lines is None:
            texts, dated = self._texts
            apart = all(_apart(text, own) for text, own in zip(texts, dated, strict=True))
            count = self._costs.tokenizer.count
            kept.lines = (_counts(texts, count), _counts(dated, count)) if apart else ()
        return kept.lines


def _apart(text: str, dated: str) -> bool:
    """Whether a line begins as those do that add up. The first of any begins with its date, and so with a digit."""
    return bool(dated) and dated[0] in DIGITS and (text is dated or text[:1].isalpha())


def _counts(texts: Sequence[str], count: Callable[[str], int]) -> tuple[int, ...]:
    return tuple([count(f"{text}\n") for text in texts])


def _at(values: tuple[int, ...], places: Sequence[int]) -> tuple[int, ...]:
    return tuple([values[place] for place in places]) if values else ()
