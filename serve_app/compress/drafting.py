"""What models make of a conversation: a draft of each chunk, calibrated, and drafts of drafts until they are short.

Every answer is held against what the model was given (`evidence.py`) before anything is built on it. Answers are
remembered by their task, so that a conversation that goes on asks for its last chunk alone, and for what a closed
chunk is merged with. A backend that is down, late or of no use is passed over, and why is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from serve_app.compress.evidence import Evidence
from serve_app.errors import SummariserFailed
from serve_app.ports import Summariser, SummaryTask, Tokenizer
from serve_app.remembered import Remembered

DRAFTS_VERSION = "drafts-1"
"""Changes with anything here, in the chunks or in the evidence that changes what is made of an answer."""

MERGES_MAX = 8
"""Times that pairs of drafts are made one; after that they are cut."""

FAULTS_MAX = 2
"""Of one backend and summary, after which it is not asked again."""

CALL_S_MIN = 0.02
"""With less time left nobody is asked."""

NO_USE = "answer of no use"
NOT_ASKED = "left alone after faults"
OF_THE_TASK = frozenset({NO_USE, "text too long"})
"""Faults that the same task has again, and that say nothing of other tasks."""

Sentences = tuple[str, ...]


class Chunk(NamedTuple):
    """What a model may read of some turns, and which of it should stand in the answer word for word."""

    turn: int
    """The number of the first."""
    text: str
    keep: tuple[str, ...]
    barred: tuple[str, ...]
    """What those turns say that must not be said again."""


class Draft(NamedTuple):
    """Sentences about what begins with this turn."""

    turn: int
    sentences: Sentences


class Stage:
    """One backend for the length of one summary: `name` is what its faults are called by."""

    def __init__(self, name: str, backend: Summariser, tokenizer: Tokenizer, cache: Remembered[Sentences]) -> None:
        self.reasons: dict[str, None] = {}
        self._name = name
        self._backend = backend
        self._tokenizer = tokenizer
        self._cache = cache
        self._faults = 0

    def draft(self, task: SummaryTask, barred: Sequence[str], until: float) -> Sentences:
        """What of the answer the task's text bears out, at most as long as it was to be; nothing after a fault."""
        if not task.text:
            return ()
        key = (self._backend.name, self._tokenizer.name, task, tuple(barred))
        found = self._cache.get(key)
        if found is None:
            try:
                found = self._checked(self._answer(task, until), task, barred)
            except SummariserFailed as error:
                self._note(str(error))
                if str(error) not in OF_THE_TASK:
                    self._faults += 1
                    return ()
                found = ()
            self._cache.put(key, found)
        if not found:
            self._note(NO_USE)
        return found

    def _answer(self, task: SummaryTask, until: float) -> str:
        left = until - time.monotonic()
        if self._faults >= FAULTS_MAX:
            raise SummariserFailed(NOT_ASKED)
        if left < CALL_S_MIN:
            raise SummariserFailed("deadline")
        return self._backend.summarise(task, left)

    def _checked(self, answer: str, task: SummaryTask, barred: Sequence[str]) -> Sentences:
        return within(Evidence(task.text, barred).borne_out(answer), task.target_tokens, self._tokenizer)

    def _note(self, why: str) -> None:
        self.reasons[f"compress: {self._name}: {why}"] = None


def drafted(chunks: Sequence[Chunk], target: int, stage: Stage, until: float) -> list[Draft]:
    """Of each chunk what the coarse backend makes of it; empty where it gives nothing."""
    return [Draft(one.turn, stage.draft(SummaryTask(one.text, target, one.keep), one.barred, until)) for one in chunks]


def calibrated(
    chunks: Sequence[Chunk], drafts: Sequence[Draft], target: int, stage: Stage, until: float
) -> list[Draft]:
    """Each draft as the fine backend corrects it, which has the chunk itself beside it; as it was after a fault."""
    tasks = [
        SummaryTask(one.text, target, one.keep, "\n".join(draft.sentences))
        for one, draft in zip(chunks, drafts, strict=True)
    ]
    return [
        Draft(one.turn, stage.draft(task, one.barred, until) or draft.sentences)
        for one, task, draft in zip(chunks, tasks, drafts, strict=True)
    ]


def merged(
    drafts: Sequence[Draft], target: int, each: int, stage: Stage, until: float, count: Callable[[str], int]
) -> list[Draft]:
    """Drafts of at most `target` tokens in all, or as few as pairing gives: neighbours become one of `each` tokens.

    Only whole pairs are merged, and pairs of pairs: what was merged once stays so, and a draft that comes later is
    merged when it has a neighbour. The last draft, whose chunk still grows, waits.
    """
    levels = [list(drafts[:-1])]
    for _ in range(MERGES_MAX):
        if _tokens([*_flat(levels), drafts[-1]], count) <= target or len(levels[-1]) < 2:
            break
        whole = len(levels[-1]) // 2 * 2
        pairs, left = levels[-1][:whole], levels[-1][whole:]
        levels[-1] = left
        levels.append([_pair(pairs[at], pairs[at + 1], each, stage, until) for at in range(0, whole, 2)])
    return [*_flat(levels), drafts[-1]]


def _flat(levels: Sequence[Sequence[Draft]]) -> list[Draft]:
    """Oldest first: what was merged most often is oldest."""
    return [draft for level in reversed(levels) for draft in level]


def _pair(older: Draft, newer: Draft, target: int, stage: Stage, until: float) -> Draft:
    """One draft of two; after a fault the sentences of both, which are cut later."""
    both = older.sentences + newer.sentences
    if not (older.sentences and newer.sentences):
        return Draft(older.turn, both)
    return Draft(older.turn, stage.draft(SummaryTask("\n".join(both), target), (), until) or both)


def _tokens(drafts: Sequence[Draft], count: Callable[[str], int]) -> int:
    return sum(count("\n".join(draft.sentences)) for draft in drafts if draft.sentences)


def within(sentences: Sentences, target: int, tokenizer: Tokenizer) -> Sentences:
    """As many as fit, from the first on."""
    kept: list[str] = []
    room = target
    for sentence in sentences:
        room -= 1 + tokenizer.count(sentence)
        if room < 0:
            break
        kept.append(sentence)
    return tuple(kept)
