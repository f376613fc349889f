"""Finding turns of one owner: hot first, warm where hot cannot answer, cold where it is asked for.

Plain functions on a block (its lock is taken here); who calls them decides on which thread
(`Memory._read`). What is asked stands in a frozen `Question`; its vector was computed before.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from serve_app.core import Tier, Turn
from serve_app.errors import StorageTrouble
from serve_app.ports import EncodedQuery
from serve_app.retrieve.conditions import matched_paths
from serve_app.retrieve.found import Answer, Found, Hot
from serve_app.retrieve.hot import hot_turns
from serve_app.retrieve.merge import merged
from serve_app.retrieve.question import Question
from serve_app.retrieve.warm import Older, Unfolded, WarmTable, all_folded, hot_answers, warm_turns
from serve_app.stores.block import Block

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
) -> Answer:
    """The best turns of an owner. `older(owner, seqs)` reads turns whose content is not resident.

    `cold` is asked where the question names the tier, for those that it may want, see `retrieve/cold.py`.
    """
    if "cold" in question.tiers:
        return _with_cold(block, question, encoded, table, older, unfolded, cold)
    hot = hot_turns(block, question, encoded)
    if hot_answers(block, question, hot):
        return Answer(_with_paths(hot.found[: question.k], question))
    try:
        warm = warm_turns(block, question, encoded, table, older, unfolded)
    except StorageTrouble as error:  # what memory holds is given all the same
        return Answer(_with_paths(hot.found[: question.k], question), (f"warm: {error.code}",), BOTH)
    return Answer(_with_paths(merged(hot, warm, question, encoded), question), asked=BOTH)


def _with_paths(found: list[Found], question: Question) -> list[Found]:
    conditions = question.filters.data
    if not conditions:
        return found
    return [msgspec.structs.replace(one, matched=matched_paths(conditions, one.turn, question.work)) for one in found]


def _with_cold(
    block: Block,
    question: Question,
    encoded: EncodedQuery | None,
    table: WarmTable,
    older: Older,
    unfolded: Callable[[str], Unfolded],
    cold: Callable[[Block, Question], list[Turn]],
) -> Answer:
    """Cold turns, alone or beside the others; they have no vectors and are judged by their words."""
    others = question.tiers - {"cold"}
    hot, warm, reasons = Hot([], []), [], []
    asked: set[Tier] = {"cold"}
    if others:
        asked.add("hot")
        hot = hot_turns(block, question, encoded)
    try:
        if others and not hot_answers(block, question, hot):
            asked.add("warm")
            warm = warm_turns(block, question, encoded, table, older, unfolded)
    except StorageTrouble as error:
        reasons.append(f"warm: {error.code}")
    found: list[Turn] = []
    try:
        found = cold(block, question)
    except StorageTrouble as error:
        reasons.append(f"cold: {error.code}")
    if found and others and question.mode == "dense" and not question.exhaustive:
        reasons.append("cold: found by words only, which mode dense leaves out")
    if not others:
        question = msgspec.structs.replace(question, mode="lexical" if question.mode == "lexical" else "hybrid")
    ranked = merged(hot, warm, question, encoded, found)
    return Answer(_with_paths(ranked, question), tuple(reasons), frozenset(asked))
