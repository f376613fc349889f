"""One call for all of a context that computes, over a real shard."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import build_context
from serve_app.errors import QueryExceedsBudget
from serve_app.memory.assembly import Answered, Moment, Packing, Retrieval, answer, assemble, with_older
from serve_app.memory.expansion import Resolved
from serve_app.memory.histories import Histories
from serve_app.memory.reading import WINDOW_TURNS_MAX
from serve_app.memory.requests import ContextRequest
from serve_app.memory.timing import Stages
from serve_app.ports import EncodedQuery
from serve_app.retrieve.rerankers import LateInteraction
from serve_app.retrieve.second import SecondStage
from serve_app.write.operations import AppendTurns, DeleteTurn, EditTurn, NewTurn
from tests.write.shards import ANN, EMBEDDER, OneShard

MOMENT = Moment(10**16, 10**16, ("test",))
TOKENIZER = open_tokenizer()
PACKING = Packing(DEFAULT_LAYOUT, TOKENIZER, Histories())


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[OneShard]:
    opened = OneShard(tmp_path / "store")
    yield opened
    opened.close()


def ask(shard: OneShard, query: str = "the kettle?", budget: int = 800, session: str = "s") -> Answered:
    request = ContextRequest(query=query, budget_tokens=budget, session=session)
    stages = Stages()
    answered = answer(shard.shard, ANN, request, retrieval(query), ("reason",), MOMENT, PACKING, stages)
    assert list(stages.ms) == ["queue", "retrieve", "rerank", "pack"]
    assert min(stages.ms.values()) >= 0
    return answered


def retrieval(query: str) -> Retrieval:
    found = EMBEDDER.encode([query], tokens=True)
    assert found.tokens is not None
    encoded = EncodedQuery(EMBEDDER.version.name, found.vectors[0], found.tokens[0], EMBEDDER.spans(query))
    return Retrieval(Resolved(query), encoded, SecondStage({"late": LateInteraction()}))


def texts(answered: Answered) -> str:
    return "\n".join(message["content"] for message in answered.context.messages)


def test_an_answer_is_what_its_steps_give(shard: OneShard) -> None:
    total = WINDOW_TURNS_MAX + 40
    shard.do(AppendTurns(ANN, "s", [NewTurn("user", f"turn number {n} of a kettle") for n in range(total)]))
    shard.say(ANN, "other", "the kettle is red", "the boat is blue")
    answered = ask(shard)
    request = ContextRequest(query="the kettle?", budget_tokens=800, session="s")
    state = assemble(shard.shard, ANN, request, retrieval("the kettle?"), ("reason",), MOMENT)
    context = with_older(build_context(state.inputs, DEFAULT_LAYOUT, TOKENIZER), state.older)
    assert answered.context == context
    assert answered.search.second_s > 0
    assert (answered.seq, answered.summary_due, answered.found) == (state.seq, True, state.found)
    assert answered.context.degradation.reasons == ("reason",)
    assert {one.reason for one in context.dropped} >= {"beyond_window", "budget"}


def test_a_query_over_the_budget_is_refused(shard: OneShard) -> None:
    with pytest.raises(QueryExceedsBudget):
        ask(shard, budget=5)


@pytest.mark.parametrize("session", ["s", "another"], ids=["recent", "retrieved"])
def test_an_edit_is_shown_and_counted_at_once(shard: OneShard, session: str) -> None:
    result = shard.say_as(ANN, "s", "t", "the kettle is red")
    before = ask(shard, session=session)
    shard.do(EditTurn(ANN, "s", result.id, "the kettle is blue, and not of the colour that was told before", None))
    after = ask(shard, session=session)
    assert "kettle is red" in texts(before)
    assert "kettle is red" not in texts(after)
    assert "kettle is blue" in texts(after)
    for answered in (before, after):
        contents = [message["content"] for message in answered.context.messages]
        assert answered.context.total_tokens == sum(4 + TOKENIZER.count(content) for content in contents)


def test_tool_halves_are_completed(shard: OneShard) -> None:
    call: dict[str, Any] = {"tool_call_id": "c", "tool_name": "gauge"}
    shard.do(
        AppendTurns(
            ANN,
            "past",
            [NewTurn("assistant", "looking", **call), NewTurn("tool", "the kettle weighs two pounds", **call)],
        )
    )
    answered = ask(shard, query="what does the kettle weigh, two pounds?")
    assert "(calls gauge with {})" in texts(answered)
    assert "two pounds" in texts(answered)


def test_a_deleted_turn_is_nowhere_once_it_has_left_the_tail(shard: OneShard) -> None:
    """Neither the turn nor what was worked out of it is held by anything that answered."""
    seq = shard.say(ANN, "s", "the door code is 90331", "the kettle is red")[0].seq
    assert seq is not None
    assert "90331" in texts(ask(shard, session="s"))
    assert "90331" in texts(ask(shard, session="another"))
    held = weakref.ref(shard.block(ANN).turns[seq])
    shard.do(DeleteTurn(ANN, "s", shard.block(ANN).turns[seq].id))
    shard.fold()
    gc.collect()
    assert held() is None
    assert "90331" not in str(msgspec.to_builtins(ask(shard).context.messages))
