"""Finding facts and summaries of one owner by their words. They are few: each search indexes them anew."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from serve_app.core import Fact, Mode, Summary, Tier
from serve_app.retrieve.expand import named_date
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.found import Found
from serve_app.retrieve.fuse import Evidence, date_match, rank
from serve_app.retrieve.question import Question
from serve_app.stores.block import Block
from serve_app.stores.lexical import NO_TURN, LexicalIndex
from serve_app.stores.terms import code_terms, index_terms, query_terms
from serve_app.stores.views import day_number


class Statement(msgspec.Struct, frozen=True):
    """A fact or a summary as a result, like `Found`."""

    value: Fact | Summary
    score: float
    added: Sequence[float] = ()
    tier: Tier = "hot"

    @property
    def seq(self) -> int:
        return self.value.seq


Result = Found | Statement


def with_statements(block: Block, question: Question, turns: Sequence[Found]) -> list[Result]:
    """The best k of the turns found and of the owner's statements that the question admits."""
    results: list[Result] = [*turns, *_ranked(_eligible(block, question), question)]
    if question.query.strip():
        return sorted(results, key=lambda one: (-one.score, -_seq(one)))[: question.k]
    return sorted(results, key=lambda one: -_seq(one))[: question.k]


def _seq(result: Result) -> int:
    return result.turn.seq if isinstance(result, Found) else result.seq


def _eligible(block: Block, question: Question) -> list[Fact | Summary]:
    """What holds at this moment, oldest first. A fact is the whole user's: a session does not leave it out."""
    filters = question.filters
    if filters.roles or filters.tool_name is not None or filters.metadata or filters.data:
        return []  # no statement has any of these
    with block.lock:
        facts = [block.fact_at(key, question.as_of) for key in block.facts] if "fact" in filters.kinds else []
        sessions = [name for name in block.summaries if filters.session in (None, name)]
        asked = sessions if "summary" in filters.kinds else []
        summaries = [block.summary_at(name, question.as_of, question.compressor) for name in asked]
    found: list[Fact | Summary] = [one for one in facts if one is not None and not one.expired(question.now)]
    found += [one for one in summaries if one is not None and one.expires_at > question.now]
    named = (one for one in found if _within(written_at(one), filters) and filters.name_all(_text(one)))
    return sorted(named, key=lambda one: one.seq)


def written_at(value: Fact | Summary) -> int:
    return value.written_at if isinstance(value, Fact) else value.created_at


def _within(at: int, filters: Filters) -> bool:
    return (filters.start is None or at >= filters.start) and (filters.end is None or at < filters.end)


def _ranked(values: Sequence[Fact | Summary], question: Question) -> list[Statement]:
    if not values or not question.query.strip():
        return [Statement(value, 0.0) for value in values]
    index, codes = LexicalIndex(), code_terms(question.query)
    for value in values:
        index.append(index_terms(_text(value)), NO_TURN)
    own, window = index.scores(query_terms(question.query))
    links = index.links()
    days = np.array([day_number(written_at(value), 0) for value in values], np.int32)
    evidence = Evidence(
        own=own,
        window=window,
        previous=links.previous,
        following=links.following,
        eligible=np.ones(len(values), np.bool_),
        code=index.coverage(codes) if codes else None,
        date=date_match(named_date(question.query), days),
    )
    mode: Mode = "hybrid" if question.mode == "hybrid" else "lexical"
    ranking = rank(evidence, mode, question.k, question.weights, exhaustive=question.exhaustive)
    best = zip(ranking.ordinals.tolist(), ranking.scores.tolist(), ranking.parts.tolist(), strict=True)
    return [Statement(values[ordinal], score, added) for ordinal, score, added in best]


def _text(value: Fact | Summary) -> str:
    return f"{value.key}: {value.value}" if isinstance(value, Fact) else value.text
