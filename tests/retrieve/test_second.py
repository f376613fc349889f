"""The second stage over a block: what it may do to an order, and what becomes of rerankers that are late or broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from serve_app.core import FieldExpiry, Turn
from serve_app.errors import Overloaded, RerankerUnavailable, StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.ports import EncodedQuery, Shortlist
from serve_app.records import TurnPut, TurnVectors, VectorsPut
from serve_app.remembered import Remembered
from serve_app.retrieve.features import FEATURES
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.found import Answer
from serve_app.retrieve.question import Question
from serve_app.retrieve.rerankers import LateInteraction
from serve_app.retrieve.search import search
from serve_app.retrieve.second import SecondStage
from serve_app.retrieve.shortlist import RERANKED_MAX
from serve_app.stores.block import Block
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.packing import pack_vectors
from serve_app.stores.rows import StoredOwner, StoredTurn
from tests.retrieve.test_search import Tables

EMBEDDER = HashEmbedder()
WORDS = ["apple", "pear", "plum", "fig", "quince", "kettle", "boat", "harbour"]
Judge = Callable[[Shortlist], NDArray[np.float64]]


class Fixed:
    """A reranker that gives what it is told; counts its calls."""

    name = "fixed"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.seen: list[Shortlist] = []

    def scores(self, shortlist: Shortlist, deadline: float) -> NDArray[np.float64]:
        self.seen.append(shortlist)
        return self._judge(shortlist)

    def contributions(self, shortlist: Shortlist) -> dict[str, NDArray[np.float64]]:
        return {"whim": np.arange(len(shortlist.scores), dtype=np.float64)}


def raising(error: Exception) -> Judge:
    def judge(shortlist: Shortlist) -> NDArray[np.float64]:
        raise error

    return judge


def backwards(shortlist: Shortlist) -> NDArray[np.float64]:
    return np.arange(len(shortlist.scores)) / 1_000


def block_of(texts: Sequence[str], said: Callable[[Turn], Turn] = lambda turn: turn) -> Block:
    block = Block("owner", (EMBEDDER.version,), {EMBEDDER.version.name: ExactHotIndex(EMBEDDER.version.dimension)})
    for seq, text in enumerate(texts, 1):
        block.apply(TurnPut("owner", said(Turn(f"t{seq}", "s", "user", text, seq, seq, seq, rev=seq))))
    made = EMBEDDER.encode(texts, tokens=True)
    items = tuple(
        TurnVectors(seq, seq, "s", f"t{seq}", pack_vectors(vector[None]), tokens.tobytes())
        for seq, (vector, tokens) in enumerate(zip(made.vectors, made.tokens or [], strict=True), 1)
    )
    block.apply(VectorsPut(len(texts) + 1, "owner", EMBEDDER.version.name, items))
    return block


def query_of(text: str) -> EncodedQuery:
    found = EMBEDDER.encode([text], tokens=True)
    assert found.tokens is not None
    return EncodedQuery(EMBEDDER.version.name, found.vectors[0], found.tokens[0], EMBEDDER.spans(text))


def ask(block: Block, second: SecondStage | None, query: str = "apple pear", k: int = 10, **more: Any) -> Answer:
    question = Question(query, "hybrid", k, 10**9, **{"rerank": True, "asked_at": 10**9} | more)
    table = Tables([])
    return search(block, question, query_of(query), table, table.turns, second=second)


def seqs(answer: Answer) -> list[int]:
    return [one.turn.seq for one in answer.found]


SAID = [f"{WORDS[n % 8]} {WORDS[n % 5]} number {n}" for n in range(130)]
BLOCK = block_of(SAID)
FIRST = ask(BLOCK, None, k=1_000)


def test_the_first_hundred_are_put_in_another_order_and_the_others_stay() -> None:
    answer = ask(BLOCK, SecondStage({"model": Fixed(backwards)}), k=1_000)
    assert seqs(answer)[:RERANKED_MAX] == seqs(FIRST)[:RERANKED_MAX][::-1]
    assert seqs(answer)[RERANKED_MAX:] == seqs(FIRST)[RERANKED_MAX:]
    scores = [one.score for one in answer.found]
    assert scores == sorted(scores, reverse=True)
    assert len(seqs(answer)) == len(SAID)


@pytest.mark.parametrize("k", [1, 3, 99, 100, 101])
def test_k_is_cut_after_the_second_stage(k: int) -> None:
    assert (
        seqs(ask(BLOCK, SecondStage({"model": Fixed(backwards)}), k=k))
        == (seqs(FIRST)[:RERANKED_MAX][::-1] + seqs(FIRST)[RERANKED_MAX:])[:k]
    )


def test_equal_scores_fall_to_the_newer_turn() -> None:
    """Also such as differ by less than a step."""
    judge = Fixed(lambda shortlist: 0.5 + 1e-7 * np.arange(len(shortlist.scores)))
    found = seqs(ask(BLOCK, SecondStage({"model": judge}), k=RERANKED_MAX))
    assert found == sorted(found, reverse=True)


@settings(deadline=None)
@given(
    said=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join), min_size=1, max_size=30),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
)
def test_it_drops_nothing_and_gives_the_same_again(said: list[str], query: str) -> None:
    block, second = block_of(said), SecondStage({"late": LateInteraction()})
    first = ask(block, None, query, k=100)
    again = [ask(block, second, query, k=100) for _ in range(2)]
    assert sorted(seqs(again[0])) == sorted(seqs(first)) == list(range(1, len(said) + 1))
    assert again[0].found == again[1].found
    assert again[0].reasons == ()
    assert all(0 <= one.score <= 1 for one in again[0].found)


def test_filters_are_exact_and_complete_after_it() -> None:
    second = SecondStage({"model": Fixed(backwards)})
    answer = ask(BLOCK, second, k=1_000, filters=Filters(start=20, end=50))
    assert sorted(seqs(answer)) == list(range(20, 50))


@pytest.mark.parametrize("more", [{"rerank": False}, {"query": ""}, {"query": "  "}])
def test_what_is_not_to_be_reranked_is_not(more: dict[str, Any]) -> None:
    judge = Fixed(backwards)
    answer = ask(BLOCK, SecondStage({"model": judge}), **more)
    assert judge.seen == []
    assert answer.second_s == 0
    assert answer.found == ask(BLOCK, None, **more).found


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError(), "rerank: deadline"),
        (Overloaded("busy"), "rerank: overloaded"),
        (RerankerUnavailable("gone"), "rerank: failed"),
        (ValueError("apple"), "rerank: failed"),
        (MemoryError(), "rerank: failed"),
    ],
)
def test_a_broken_reranker_is_named_and_the_order_before_it_stands(error: Exception, reason: str) -> None:
    answer = ask(BLOCK, SecondStage({"model": Fixed(raising(error))}))
    assert seqs(answer) == seqs(FIRST)[:10]
    assert answer.reasons == (reason,)
    late = ask(BLOCK, SecondStage({"late": Fixed(backwards)}))
    both = ask(BLOCK, SecondStage({"late": Fixed(backwards), "model": Fixed(raising(error))}))
    assert seqs(both) == seqs(late)
    assert both.reasons == (reason,)


@pytest.mark.parametrize("scores", [np.full(100, np.nan), np.zeros(99), np.zeros((100, 1)), np.full(100, np.inf)])
def test_scores_that_are_none_are_a_failure(scores: NDArray[np.float64]) -> None:
    answer = ask(BLOCK, SecondStage({"model": Fixed(lambda _: scores)}))
    assert seqs(answer) == seqs(FIRST)[:10]
    assert answer.reasons == ("rerank: failed",)


def test_nothing_is_begun_after_the_callers_deadline() -> None:
    judge = Fixed(backwards)
    answer = ask(BLOCK, SecondStage({"model": judge}), deadline=time.monotonic() - 1)
    assert judge.seen == []
    assert (seqs(answer), answer.reasons) == (seqs(FIRST)[:10], ("rerank: deadline",))


def test_each_has_its_own_deadline_within_the_callers() -> None:
    given_: list[float] = []

    class Watching(Fixed):
        def scores(self, shortlist: Shortlist, deadline: float) -> NDArray[np.float64]:
            given_.append(deadline - time.monotonic())
            return super().scores(shortlist, deadline)

    both = {"late": Watching(backwards), "model": Watching(backwards)}
    ask(BLOCK, SecondStage(both, deadline_s=5))
    ask(BLOCK, SecondStage(both, deadline_s=5), deadline=time.monotonic() + 2)
    assert 4 < given_[0] <= 5
    assert 4 < given_[1] <= 5
    assert 1 < given_[2] <= 2
    assert 1 < given_[3] <= 2


def test_each_sees_the_scores_of_the_one_before() -> None:
    last = Fixed(backwards)
    ask(BLOCK, SecondStage({"late": Fixed(lambda one: np.full(len(one.scores), 0.25)), "model": last}))
    assert (last.seen[0].scores == 0.25).all()
    assert last.seen[0].names == FEATURES
    assert next(iter(last.seen[0].texts())).startswith("user (1 January 1970): ")


def test_what_became_of_each_is_counted() -> None:
    told: list[tuple[str, str]] = []

    class Meter:
        def reranked(self, kind: str, result: str, seconds: float) -> None:
            assert seconds >= 0
            told.append((kind, result))

    ask(BLOCK, SecondStage({"late": Fixed(backwards), "model": Fixed(raising(TimeoutError()))}, Meter()))
    assert told == [("late", "ok"), ("model", "deadline")]


def test_explained_hits_carry_their_place_before_and_every_feature() -> None:
    second = SecondStage({"late": LateInteraction(), "model": Fixed(backwards)})
    answer = ask(BLOCK, second, k=120, explain=True)
    whys = [one.why for one in answer.found]
    assert all(why is None for why in whys[RERANKED_MAX:])
    ahead = [why for why in whys[:RERANKED_MAX] if why is not None]
    assert sorted(why.rank for why in ahead) == list(range(1, RERANKED_MAX + 1))
    first = {one.turn.seq: (rank, one.score) for rank, one in enumerate(FIRST.found, 1)}
    for one, why in zip(answer.found, ahead, strict=False):
        assert (why.rank, why.score) == first[one.turn.seq]
        assert list(why.features) == list(FEATURES)
        assert list(why.by) == ["late", "model"]
        assert one.score == round(why.by["model"], 4)
        assert why.contributions == {"whim": why.rank - 1}
        assert why.features["fused"] == pytest.approx(why.score)
    assert b"NaN" not in msgspec.json.encode(ahead)
    explained = answer.explained
    assert explained is not None
    assert (explained.tiers, explained.version, explained.candidates) == (("hot",), EMBEDDER.version.name, len(SAID))
    assert (explained.reranked, [one.kind for one in explained.judged]) == (RERANKED_MAX, ["late", "model"])
    assert ask(BLOCK, second).explained is None
    assert ask(BLOCK, second).found[0].why is None


def test_the_same_question_of_an_unchanged_memory_is_judged_once() -> None:
    block, judge = block_of(SAID[:40]), Fixed(backwards)
    second = SecondStage({"model": judge})
    first, again = ask(block, second), ask(block, second)
    assert (len(judge.seen), first.found, again.reasons) == (1, again.found, ())
    for number, more in enumerate([{"query": "pear apple"}, {"said": ("what?",)}, {"as_of": 30}, {"explain": True}], 2):
        ask(block, second, **more)
        assert len(judge.seen) == number
    ask(block, second, asked_at=10**9 + 60)  # by the hour
    ask(block, second, k=3)
    assert len(judge.seen) == 5
    ask(block, second, asked_at=10**13)
    block.apply(TurnPut("owner", Turn("late", "t", "user", "something else", 99, 99, 99, rev=99)))
    ask(block, second)
    assert len(judge.seen) == 7


def test_what_has_expired_since_is_judged_anew() -> None:
    """A turn that is none of the best may expire, or a field of one that is: the order depends on both."""
    worst, best = seqs(FIRST)[-1], seqs(FIRST)[0]

    def passing(turn: Turn) -> Turn:
        if turn.seq == worst:
            return msgspec.structs.replace(turn, expires_at=2 * 10**9)
        data = {"data": b'{"a":1,"b":2}', "fields_expire": (FieldExpiry(3 * 10**9, "$.a"),)}
        return msgspec.structs.replace(turn, **data) if turn.seq == best else turn

    block, judge = block_of(SAID, passing), Fixed(backwards)
    second = SecondStage({"model": judge})
    for number, now in enumerate([10**9, 2 * 10**9, 3 * 10**9], 1):
        for _ in range(2):
            question = Question("apple pear", "hybrid", 10, now, rerank=True, asked_at=10**9)
            search(block, question, query_of("apple pear"), Tables([]), Tables([]).turns, second=second)
        assert len(judge.seen) == number


def test_what_failed_is_asked_again() -> None:
    judge = Fixed(raising(TimeoutError()))
    second = SecondStage({"late": Fixed(backwards), "model": judge})
    for _ in range(3):
        assert ask(BLOCK, second).reasons == ("rerank: deadline",)
    assert len(judge.seen) == 3


def test_what_is_remembered_is_bounded() -> None:
    remembered = Remembered(3)
    for number in range(10):
        remembered.put(bytes([number]), {"late": np.zeros(1)})
        assert remembered.get(b"\0") is not None  # whoever is asked for stays
    assert [number for number in range(10) if remembered.get(bytes([number])) is not None] == [0, 8, 9]


@pytest.mark.parametrize("fault", [None, StoreUnavailable("down")], ids=["answers", "fails"])
def test_turns_of_the_tables_are_judged_by_their_tokens_as_far_as_these_can_be_read(fault: Exception | None) -> None:
    block = Block("owner", (EMBEDDER.version,), {EMBEDDER.version.name: ExactHotIndex(EMBEDDER.version.dimension)})
    older = Turn("t1", "s", "user", "the green boat", 1, 1, 1, rev=1)
    block.restore(StoredOwner(index=(StoredTurn(1, "s", "t1", 1),)), 1)
    block.apply(TurnPut("owner", Turn("t2", "s", "user", "a green harbour", 2, 2, 2, rev=2)))
    made = EMBEDDER.encode([older.text], tokens=True).tokens

    class WithTokens(Tables):
        def tokens(self, owner: str, version: str, seqs: Sequence[int]) -> dict[int, bytes]:
            assert (owner, version, list(seqs)) == ("owner", EMBEDDER.version.name, [1])
            if fault is not None:
                raise fault
            return {1: made[0].tobytes()} if made else {}

    table = WithTokens([older])
    question = Question("green boat", "hybrid", 5, 10**9, rerank=True, asked_at=10**9, explain=True)
    second = SecondStage({"late": LateInteraction()})
    answer = search(block, question, query_of("green boat"), table, table.turns, second=second)
    whys = {one.turn.seq: one.why for one in answer.found}
    assert set(whys) == {1, 2}
    warm = whys[1]
    assert warm is not None
    assert (warm.features["late_weighted"] is None) == (fault is not None)


def test_late_interaction_finds_the_turn_that_answers_word_by_word() -> None:
    texts = ["the green boat is in the harbour", "a boat, a boat, a boat", "the harbour is green and so is the sea"]
    answer = ask(block_of(texts), SecondStage({"late": LateInteraction()}), "green boat harbour")
    assert seqs(answer)[0] == 1
