"""What a search with filters costs of a user with many turns, most of them not in memory, and that it is exact."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from benchmarks.large_user import Texts
from serve_app.core import Turn
from serve_app.entities.recognise import in_turn
from serve_app.memory import entities
from serve_app.memory.reading import unfolded
from serve_app.ports import EncodedQuery
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.question import Question
from serve_app.retrieve.search import search
from serve_app.write.operations import AppendTurns, NewTurn
from tests.write.shards import ANN, EMBEDDER, VERSION, OneShard

pytestmark = pytest.mark.slow

TURNS = int(os.environ.get("LARGE_TURNS", "20000"))
RESIDENT = 4_096
SESSION = 40
FIRST_AT = 1_600_000_000_000_000
MINUTE_US = 60_000_000
DAY_US = 1_440 * MINUTE_US
TIMES = 3


@pytest.fixture
def filled(opened: Callable[..., OneShard]) -> OneShard:
    shard, texts = opened("large", owner_turns_resident=RESIDENT), Texts()
    for at in range(0, TURNS, SESSION):
        turns = [
            NewTurn("user" if one % 2 else "assistant", texts.turn(one), created_at=FIRST_AT + one * MINUTE_US)
            for one in range(at, at + SESSION)
        ]
        shard.do(AppendTurns(ANN, f"s{at // SESSION}", turns))
        if not at % 10_000:
            shard.fold()
    shard.fold()
    return shard


def found(shard: OneShard, query: str, k: int, filters: Filters) -> set[int]:
    encoded = EncodedQuery(VERSION.name, EMBEDDER.embed([query])[0]) if query else None
    held, question = shard.shard, Question(query, "hybrid", k, shard.clock.now, filters)
    answer = search(held.block(ANN), question, encoded, held.table, held.turns, partial(unfolded, held))
    return {one.turn.seq for one in answer.found}


def timed(name: str, act: Callable[[], Any]) -> Any:
    seconds = []
    for _ in range(TIMES):
        began = time.process_time()
        given = act()
        seconds.append(time.process_time() - began)
    print(f"{name}: {1e3 * sorted(seconds)[TIMES // 2]:.0f} ms of processor time")
    return given


def test_filters_over_many_turns(filled: OneShard) -> None:
    seqs = [seq for index in filled.block(ANN).sessions.values() for seq in index.seqs]
    turns = filled.shard.turns(ANN, seqs)
    assert len(turns) == TURNS
    page = timed("entities", lambda: entities.page(filled.shard, ANN, None, "", None, 100, filled.clock.now))
    key = next(one.key for turn in turns for one in in_turn(turn) if one.name == page.lines[0].name)
    named = Filters(entities=frozenset({key}))
    cases: dict[str, tuple[Filters, Callable[[Turn], bool]]] = {
        "entity": (named, lambda turn: key in {one.key for one in in_turn(turn)}),
        "session": (Filters(session="s3"), lambda turn: turn.session == "s3"),
        "one day": (
            Filters(start=FIRST_AT + DAY_US, end=FIRST_AT + 2 * DAY_US),
            lambda turn: FIRST_AT + DAY_US <= turn.created_at < FIRST_AT + 2 * DAY_US,
        ),
        "role": (Filters(roles=frozenset({"user"})), lambda turn: turn.role == "user"),
    }
    for name, (filters, admits) in cases.items():
        given = timed(name, partial(found, filled, "what happened", TURNS, filters))
        assert given == {turn.seq for turn in turns if admits(turn)}
        if name == "entity":
            assert len(given) == page.lines[0].count
    newest = timed("entity without a query", lambda: found(filled, "", 10, named))
    assert newest == {*sorted(turn.seq for turn in turns if cases["entity"][1](turn))[-10:]}
    assert timed("no query", lambda: found(filled, "", 10, Filters())) == {*sorted(seqs)[-10:]}
