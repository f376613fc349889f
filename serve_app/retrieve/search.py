"""Finding turns of one owner: hot first, warm where hot cannot answer, cold where it is asked for.

Plain functions on a block (its lock is taken here); who calls them decides on which thread
(`Memory._read`). What is asked stands in a frozen `Question`; its vector was computed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.core import Tier, Turn
from serve_app.errors import StorageTrouble
from serve_app.ports import EncodedQuery
from serve_app.retrieve.conditions import matched_paths
from serve_app.retrieve.found import Answer, Explained, Found
from serve_app.retrieve.hot import hot_turns
from serve_app.retrieve.large import large_turns
from serve_app.retrieve.merge import merged
from serve_app.retrieve.naming import named_in
from serve_app.retrieve.question import Question
from serve_app.retrieve.second import Ordered, SecondStage
from serve_app.retrieve.shortlist import Clues, Hot
from serve_app.retrieve.warm import Older, Unfolded, WarmTable, all_folded, hot_answers, token_reader, warm_turns
from serve_app.stores.archive import Archive, living_seqs
from serve_app.stores.block import Block

HOT: frozenset[Tier] = frozenset({"hot"})
BOTH: frozenset[Tier] = frozenset({"hot", "warm"})


def _none_cold(block: Block, question: Question) -> list[Turn]:
    return []


def search(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Older,
    unfolded: Callable[[str], Unfolded] = all_folded,
    cold: Callable[[Block, Question], list[Turn]] = _none_cold,
    second: SecondStage | None = None,
    archive: Archive | None = None,
) -> Answer:
    """The best turns of an owner. `older(owner, seqs)` reads turns whose content is not resident.

    `cold` is asked where the question names the tier, for those that it may want, see `retrieve/cold.py`; `second`
    judges the best again where the question wants it; `archive` is that of a large user, if there is one: it answers
    instead of the table where it can.
    """
    if "cold" in question.tiers:
        first = _with_cold(block, question, encoded, table, older, unfolded, cold)
    else:
        first = _hot_then_warm(block, question, encoded, table, older, unfolded, archive)
    ordered = second.ordered(first.found, first.clues, question) if second else Ordered(first.found)
    return Answer(
        _with_paths(ordered.found[: question.k], question),
        (*first.reasons, *ordered.reasons),
        first.asked,
        explained=_explained(question, first, ordered, encoded) if question.explain else None,
        second_s=ordered.seconds,
    )


class _First(NamedTuple):
    """What the first stage gives, why it may not be all, and the tiers that it looked into."""

    found: list[Found]
    clues: Clues | None
    entities: tuple[str, ...]
    """The keys of those that the query names."""
    asked: frozenset[Tier]
    reasons: tuple[str, ...] = ()


def _hot_then_warm(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Older,
    unfolded: Callable[[str], Unfolded],
    archive: Archive | None,
) -> _First:
    read_tokens = token_reader(block, encoded, table)
    large = None if archive is None else large_turns(block, question, encoded, archive, older, read_tokens)
    if large is not None:
        return _First(*large, BOTH)
    hot = hot_turns(block, question, encoded)
    if hot_answers(block, question, hot):
        return _First(hot.found, hot.clues, hot.entities, HOT)
    try:
        warm = warm_turns(block, question, encoded, table, older, unfolded)
    except StorageTrouble as error:  # what memory holds is given all the same
        return _First(hot.found, hot.clues, hot.entities, BOTH, (f"warm: {error.reason}",))
    return _First(*merged(hot, warm, question, encoded, read_tokens, partial(newer_of, block, question)), BOTH)


def _explained(question: Question, first: _First, ordered: Ordered, encoded: EncodedQuery | None) -> Explained:
    clues = first.clues
    return Explained(
        tiers=tuple(sorted(first.asked)),
        version=None if encoded is None else encoded.version,
        candidates=len(first.found) if clues is None else clues.candidates,
        reranked=0 if clues is None or not ordered.judged else len(clues.ranking.ordinals),
        judged=ordered.judged,
        window=question.window,
        entities=first.entities,
    )


def _with_paths(found: list[Found], question: Question) -> list[Found]:
    conditions = question.filters.data
    if not conditions:
        return found
    return [msgspec.structs.replace(one, matched=matched_paths(conditions, one.turn, question.work)) for one in found]


def newer_of(block: Block, question: Question, seqs: Sequence[int]) -> NDArray[np.int64]:
    """How many came after each of these: as in a block that holds all, of which filters leave what they let through."""
    with block.lock:
        living = living_seqs(block)
    through = seqs[-1] if question.filters.narrow and seqs else question.as_of
    known = len(living) if through is None else np.searchsorted(living, through, "right")
    return np.maximum(known - np.searchsorted(living, seqs, "right"), 0)


def _with_cold(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Older,
    unfolded: Callable[[str], Unfolded],
    cold: Callable[[Block, Question], list[Turn]],
) -> _First:
    """Cold turns, alone or beside the others; they have no vectors and are judged by their words."""
    others = question.tiers - {"cold"}
    with block.lock:
        entities = named_in(question.query, block.columns, block.columns.until(question.as_of))
    hot, warm, reasons = Hot([], [], entities=entities), [], []
    asked: set[Tier] = {"cold"}
    if others:
        asked.add("hot")
        hot = hot_turns(block, question, encoded)
    try:
        if others and not hot_answers(block, question, hot):
            asked.add("warm")
            warm = warm_turns(block, question, encoded, table, older, unfolded)
    except StorageTrouble as error:
        reasons.append(f"warm: {error.reason}")
    found: list[Turn] = []
    try:
        found = cold(block, question)
    except StorageTrouble as error:
        reasons.append(f"cold: {error.reason}")
    if found and others and question.mode == "dense" and not question.exhaustive:
        reasons.append("cold: found by words only, which mode dense leaves out")
    if not others:
        question = msgspec.structs.replace(question, mode="lexical" if question.mode == "lexical" else "hybrid")
    newer, read_tokens = partial(newer_of, block, question), token_reader(block, encoded, table)
    return _First(
        *merged(hot, warm, question, encoded, read_tokens, newer, found),
        frozenset(asked),
        tuple(reasons),
    )
