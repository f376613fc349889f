"""What the configured models say of a conversation, for one summary: chunks, drafts, and what may stand in it.

Models read what may be quoted and nothing else, so that they cannot tell what no longer holds. What they say takes a
bounded share of the summary; quotes have the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from serve_app.compress.chunks import chunks, tokens_of
from serve_app.compress.composing import NO_TURN, Line, Part, composed, whole
from serve_app.compress.drafting import Chunk, Draft, Sentences, Stage, calibrated, drafted, merged, within
from serve_app.compress.extractive import full_lead, lead, year_of
from serve_app.compress.ledger import Reading
from serve_app.compress.segments import Segment
from serve_app.core import Turn
from serve_app.ports import Summariser, Tokenizer
from serve_app.remembered import Remembered

PROSE_SHARE = 3
"""A summary's target over this is what models may say of it."""

PROSE_TOKENS_MIN = 16
"""Below it there is no room for a sentence, and nobody is asked."""

TEXT_SHARE = 0.6
"""Of a model's window for the text of a task; the draft, the spans to keep and the answer have the rest."""

DRAFT_SHARE = 8
"""A model's window over this is the most that a draft takes."""

KEEP_MAX = 16
"""Literal spans that a task names, those most worth keeping."""

COARSE_SHARE = 0.5
"""Of the time there is, for the coarse backend where a fine one follows: one that hangs leaves the other its time."""

SPEAKER = "summary"


class Writing:
    """One summary's work with the models; without any it does nothing. Not to be shared between threads."""

    def __init__(
        self,
        coarse: Summariser | None,
        fine: Summariser | None,
        cache: Remembered[Sentences],
        target: int,
        tokenizer: Tokenizer,
        deadline_s: float,
    ) -> None:
        self._coarse = None if coarse is None else Stage("coarse", coarse, tokenizer, cache)
        self._fine = None if fine is None else Stage("fine", fine, tokenizer, cache)
        self._window = min((one.window_tokens for one in (coarse, fine) if one is not None), default=0)
        self._tokenizer = tokenizer
        self._room = target // PROSE_SHARE
        begun = time.monotonic()
        self._until = begun + deadline_s
        self._coarse_until = begun + deadline_s * (COARSE_SHARE if fine is not None else 1.0)

    @property
    def asks(self) -> bool:
        """Whether there is a model to be asked."""
        return self._window > 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why models say less than they could."""
        return tuple(reason for stage in (self._coarse, self._fine) if stage is not None for reason in stage.reasons)

    def chunks(
        self, turns: Sequence[Turn], found: Sequence[Segment], reading: Reading, parts: Sequence[Part]
    ) -> list[Chunk]:
        """What the models are to read. `parts`: what may be quoted, best first."""
        if not self.asks or self._room < PROSE_TOKENS_MIN or not parts:
            return []
        tokens = int(self._window * TEXT_SHARE)
        return [self._chunk(turns, one, reading, parts, tokens) for one in chunks(turns, found, tokens)]

    def _chunk(
        self, turns: Sequence[Turn], span: Segment, reading: Reading, parts: Sequence[Part], tokens: int
    ) -> Chunk:
        """Of turns that are larger than a window, what is most worth keeping."""
        mine = [
            part._replace(lead=full_lead(turns[part.line.turn]))
            for part in parts
            if span.first <= part.line.turn < span.end
        ]
        if not mine:
            return Chunk(span.first, "", (), ())
        fits = sum(map(tokens_of, turns[span.first : span.end])) <= tokens
        text = whole(mine) if fits else composed(mine, tokens, self._tokenizer).text
        said = [one for one in reading.statements if span.first <= one.turn < span.end]
        keep = sorted((one for one in said if one.verdict == "active"), key=lambda one: -one.worth)[:KEEP_MAX]
        barred = tuple(one.text for one in said if not one.kept)
        return Chunk(span.first, text, tuple(one.text for one in keep if one.text in text), barred)

    def drafts(self, parts: Sequence[Chunk]) -> list[Draft]:
        """By the coarse backend; by the fine one where there is no other."""
        if self._coarse is None:
            return [Draft(one.turn, ()) for one in parts]
        return drafted(parts, self._each(parts), self._coarse, self._coarse_until)

    def calibrated(self, parts: Sequence[Chunk], drafts: Sequence[Draft]) -> list[Draft]:
        if self._fine is None:
            return list(drafts)
        return calibrated(parts, drafts, self._each(parts), self._fine, self._until)

    def halved(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Until they are short enough, or cannot be made fewer."""
        stage = self._fine or self._coarse
        if stage is None or not drafts:
            return []
        count = self._tokenizer.count
        return merged(drafts, self._room, self._each(drafts), stage, self._until, count)

    def _each(self, drafts: Sequence[Chunk] | Sequence[Draft]) -> int:
        """Tokens of one draft: several are made to fit in pairs."""
        return min(self._room if len(drafts) == 1 else self._room // 2, self._window // DRAFT_SHARE)

    def parts(self, turns: Sequence[Turn], drafts: Sequence[Draft]) -> list[Part]:
        """The sentences, of each draft in turn one, the newest draft's first: as many as models may say."""
        best_first = list(_in_turn(turns, drafts[::-1]))
        fitting = within(tuple(part.text for part in best_first), self._room, self._tokenizer)
        return best_first[: len(fitting)]


def _in_turn(turns: Sequence[Turn], drafts: Sequence[Draft]) -> Iterator[Part]:
    year = year_of(turns)
    parts = [
        [
            Part(Line(draft.turn, False, NO_TURN), at, at + 1, " ", sentence, lead(turns[draft.turn], year, SPEAKER))
            for at, sentence in enumerate(draft.sentences)
        ]
        for draft in drafts
    ]
    for row in zip_longest(*parts):
        yield from (part for part in row if part is not None)
