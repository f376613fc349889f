"""Makes the summary of a run of turns: ledger, topics, a draft by the coarse backend, calibration by the fine one.

Deterministic: the same turns, target, tokenizer and backends give the same string, in any process and any order of
calls. Never over its target. A backend that is down, slow or gives rubbish is passed over and named in `reasons`;
quoting the turns, which needs no model, always answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from serve_app.compress.composing import as_quoted, composed, most_of, new_to
from serve_app.compress.drafting import DRAFTS_VERSION, Sentences
from serve_app.compress.extractive import EXTRACTIVE_VERSION, quotes
from serve_app.compress.ledger import LEDGER_VERSION
from serve_app.compress.parts import Digests, Settled, course_of, digests, read_on
from serve_app.compress.prose import Writing
from serve_app.compress.segments import SEGMENTS_VERSION, Course
from serve_app.core import Constraint, Topic, Turn
from serve_app.errors import InvalidRequest
from serve_app.ports import Summariser, Tokenizer
from serve_app.remembered import Remembered

MODELS_S = 60.0
"""How long the models may take for one summary where the caller sets no deadline."""

SUMMARIES_KEPT, DRAFTS_KEPT, PARTS_KEPT, COURSES_KEPT = 256, 4_096, 64, 16
"""Those used last; made again where they are wanted again."""


class Compressed(NamedTuple):
    """A summary before it is stored: see `core.Summary` for what its fields mean."""

    text: str
    first_seq: int
    last_seq: int
    tokens: int
    input_hash: str
    ranks: tuple[int, ...] = ()
    line_seqs: tuple[int, ...] = ()
    line_dates: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    topics: tuple[Topic, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why it is less than the configured backends could give."""


class Compressor:
    """`coarse` and `fine` are None for the extractive backend. Safe for threads."""

    def __init__(self, coarse: Summariser | None = None, fine: Summariser | None = None) -> None:
        self._coarse = coarse
        self._fine = fine
        self._made: Remembered[Compressed] = Remembered(SUMMARIES_KEPT)
        self._drafts: Remembered[Sentences] = Remembered(DRAFTS_KEPT)
        self._parts: Remembered[Settled] = Remembered(PARTS_KEPT)
        self._times_forgotten = 0
        self._courses: Remembered[Course] = Remembered(COURSES_KEPT)

    @property
    def version(self) -> str:
        """Names everything beside turns and target that decides the text."""
        models = [one.name for one in (self._coarse, self._fine) if one is not None]
        return "+".join(
            [SEGMENTS_VERSION, EXTRACTIVE_VERSION, LEDGER_VERSION, *([DRAFTS_VERSION, *models] if models else [])]
        )

    @property
    def backend(self) -> str:
        """What it is called in figures."""
        models = [one.name for one in (self._coarse, self._fine) if one is not None]
        return "+".join(dict.fromkeys(models)) or "extractive"

    def afresh(self) -> Compressor:
        """The same with nothing remembered."""
        return Compressor(self._coarse, self._fine)

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        """`turns` are oldest first and at least one. Raises InvalidRequest without turns or below one token."""
        if not turns or target_tokens < 1:
            raise InvalidRequest("a summary needs at least one turn and a target of at least one token")
        names = digests(turns)
        key = (names.whole, target_tokens, tokenizer.name, self.version)
        made = self._made.get(key)
        if made is None:
            before = self._times_forgotten
            made = self._compressed(
                turns, names, target_tokens, tokenizer, MODELS_S if deadline_s is None else deadline_s
            )
            if not made.reasons:  # what a fault made less is made again
                self._made.put(key, made)
            if self._times_forgotten != before:  # it may be among what was erased while this was made
                self._clear()
        return made

    def _compressed(
        self, turns: Sequence[Turn], names: Digests, target: int, tokenizer: Tokenizer, deadline_s: float
    ) -> Compressed:
        """Models may say what they like: what binds is quoted beside it, and is cut last."""
        writing = Writing(self._coarse, self._fine, self._drafts, target, tokenizer, deadline_s)
        course = course_of(turns, names.parts, self._courses)
        reading = read_on(turns, names.parts, self._parts)
        quoted = quotes(turns, reading, None if writing.asks else most_of(target))
        chunks = writing.chunks(turns, course.segments(), reading, quoted.all)
        drafts = writing.calibrated(chunks, writing.drafts(chunks))
        said = new_to(quoted.binding, as_quoted(writing.parts(turns, writing.halved(drafts)), quoted.all))
        best_first = [*quoted.binding, *said, *new_to(said, quoted.others)]
        made = composed(best_first, target, tokenizer, new_to(said, quoted.fillers))
        return Compressed(
            text=made.text,
            first_seq=turns[0].seq,
            last_seq=turns[-1].seq,
            tokens=made.tokens,
            input_hash=names.whole,
            ranks=made.ranks,
            line_seqs=made.line_seqs,
            line_dates=made.line_dates,
            constraints=reading.entries,
            topics=course.topics(turns),
            reasons=writing.reasons,
        )

    def forget(self) -> None:
        """Let go of every text that is remembered: where something was erased or edited, nothing of it stays here.

        What is being made meanwhile is not remembered.
        """
        self._times_forgotten += 1
        self._clear()

    def _clear(self) -> None:
        self._made.clear()
        self._drafts.clear()
        self._parts.clear()
        self._courses.clear()


def input_hash(turns: Sequence[Turn]) -> str:
    """Names what a summary was made from: the turns in the states that were read."""
    return digests(turns).whole
