"""A search of an owner in plain functions: what it costs, what answers it. Who calls them chooses the thread."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import msgspec

from serve_app.core import Mode, Tier
from serve_app.memory import reading
from serve_app.memory.requests import SearchRequest
from serve_app.memory.timing import Stages
from serve_app.ports import EncodedQuery
from serve_app.retrieve.cold import cold_turns
from serve_app.retrieve.found import Answer
from serve_app.retrieve.question import Question
from serve_app.retrieve.search import search
from serve_app.retrieve.second import SecondStage
from serve_app.retrieve.statements import Result, with_statements
from serve_app.stores.block import Block
from serve_app.write.shard import Shard

AT_ONCE_TURNS_MAX = 1_024
AT_ONCE_CHARACTERS_MAX = 256 << 10
AT_ONCE_RESULTS_MAX = 100
AT_ONCE_ASKED_CHARACTERS_MAX = 4_096
"""A read of so few turns in memory with so little text, for so few results, that brings so little text itself, takes
about a millisecond at most. To hand it to another thread costs as much, and both would then fight for the
interpreter's lock: so it is done at once."""


AT_HAND: frozenset[Tier] = frozenset({"hot"})


class Size(NamedTuple):
    """What a read's cost depends on beside the turns that are stored."""

    characters: int
    results: int
    heavy: bool = False
    reranked: bool = False
    """A second stage takes several milliseconds."""
    cold: bool = False
    """It asks a store whatever is in memory."""

    @property
    def small(self) -> bool:
        return (
            not self.heavy
            and not self.reranked
            and not self.cold
            and self.characters <= AT_ONCE_ASKED_CHARACTERS_MAX
            and self.results <= AT_ONCE_RESULTS_MAX
        )


def short(block: Block) -> bool:
    """Whether so little is in memory that a small read of it is done at once."""
    return len(block.turns) <= AT_ONCE_TURNS_MAX and block.characters <= AT_ONCE_CHARACTERS_MAX


def found_in(
    shard: Shard,
    owner: str,
    question: Question,
    encoded: EncodedQuery | None,
    second: SecondStage,
    stages: Stages,
) -> tuple[list[Result], Answer]:
    """What answers the question, and the turns among it."""
    stages.mark("queue")
    loaded, kinds = not shard.holds(owner), question.filters.kinds
    block, lacking = shard.block_or_tail(owner)
    answer = Answer([])
    if "turn" in kinds:
        cold = partial(cold_turns, table=shard.cold_reads, read=shard.turns, leaving=shard.leaving)
        unfolded, archive = partial(reading.unfolded, shard), shard.archives.of(owner)
        answer = search(block, question, encoded, shard.reads, shard.turns, unfolded, cold, second, archive)
    found: list[Result] = [*answer.found] if kinds == {"turn"} else with_statements(block, question, answer.found)
    if loaded or lacking:
        answer = msgspec.structs.replace(answer, loaded=loaded, reasons=(*lacking, *answer.reasons))
    stages.mark_two("search", "rerank", answer.second_s)
    return found, answer


def found_at_hand(
    shard: Shard, owner: str, question: Question, encoded: EncodedQuery | None, stages: Stages
) -> tuple[list[Result], Answer]:
    """In place of `found_in`, where that would come too late: of memory or the log's tail, by the first stage alone."""
    block = shard.resident(owner)
    lacking = [] if block is not None else ["store: deadline"]
    block = block or shard.tail_block(owner)
    if "warm" in question.tiers and not (lacking or block.complete):
        lacking.append("warm: deadline")
    lacking += ["cold: deadline"] if "cold" in question.tiers else []
    lacking += ["rerank: deadline"] if question.rerank else []
    answer = Answer([], asked=frozenset())
    if "turn" in question.filters.kinds and not question.tiers.isdisjoint(AT_HAND):
        asked = msgspec.structs.replace(question, tiers=AT_HAND, rerank=False, work=question.work.again())
        answer = search(block, asked, encoded, shard.reads, shard.turns)
    found: list[Result] = [*answer.found]
    if question.filters.kinds != {"turn"}:
        found = with_statements(block, question, answer.found)
    stages.mark("smaller")
    return found, msgspec.structs.replace(answer, reasons=(*lacking, *answer.reasons))


def mode_of(request: SearchRequest, lacks_vector: bool) -> Mode:
    """Words alone find what is asked for where there is no vector; but what a filter lets through is found, too."""
    if request.mode == "hybrid" and lacks_vector and not request.filters.narrow:
        return "lexical"
    return request.mode
