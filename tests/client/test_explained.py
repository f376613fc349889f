"""Explained searches are read as the service tells them, asked again where it was late, and refused where they lack."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.client.data_sets import Case
from serve_app.client.explained import TRIES, Explained, Hit, NotExplained, explained
from serve_app.client.http import Client, Json
from serve_app.client.scores import Ranked, scored, table


class Answers:
    """Gives one answer after the other, and the last one again."""

    def __init__(self, *answers: Json) -> None:
        self._answers = list(answers)
        self.asked: list[Json] = []

    def search(self, body: Json) -> Json:
        self.asked.append(body)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def result(turn: str, rank: int, **why: Any) -> Json:
    told = {"first_rank": rank, "rerankers": {"late": 0.5}, "features": {"a": 1.0, "b": None}} | why
    return {"session_id": "s", "id": turn, "seq": rank, "explain": told}


def answer(*results: Json, reasons: tuple[str, ...] = ()) -> Json:
    return {"results": list(results), "degradation": {"level": "full", "reasons": list(reasons)}}


def ask(answers: Answers, case: Case) -> Explained:
    return explained(cast(Client, answers), case)


CASE = Case("q", "g", {"user_id": "u", "query": "x"}, frozenset({("s", "t2")}))


def test_hits_come_in_the_order_of_the_first_stage_with_their_features() -> None:
    why = ask(Answers(answer(result("t2", 2), result("t1", 1))), CASE)
    assert [hit.place for hit in why.hits] == [("s", "t1"), ("s", "t2")]
    assert why.names == ("a", "b")
    assert why.hits[0].features[0] == 1.0
    assert math.isnan(why.hits[0].features[1])
    assert why.gold == [False, True]


def test_what_is_later_than_the_case_is_left_out() -> None:
    why = ask(Answers(answer(result("t2", 2), result("t1", 1))), CASE._replace(as_of_seq=1))
    assert [hit.place for hit in why.hits] == [("s", "t1")]


def test_a_late_second_stage_is_asked_again_and_no_more_than_so_often() -> None:
    late = answer({"session_id": "s", "id": "t1", "seq": 1}, reasons=("rerank: deadline",))
    answers = Answers(late, late, answer(result("t1", 1)))
    assert len(ask(answers, CASE).hits) == 1
    assert len(answers.asked) == 3
    always = Answers(late)
    with pytest.raises(NotExplained, match="rerank: deadline"):
        ask(always, CASE)
    assert len(always.asked) == TRIES


def test_a_service_without_a_second_stage_is_said() -> None:
    with pytest.raises(NotExplained, match="no second stage"):
        ask(Answers(answer({"session_id": "s", "id": "t1", "seq": 1})), CASE)
    assert ask(Answers(answer()), CASE).hits == []


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=20))
def test_equal_scores_fall_to_the_newer_turn(scores: list[float]) -> None:
    hits = [Hit(("s", str(seq)), seq, seq + 1, {}, ()) for seq in range(len(scores))]
    order = [int(turn) for _, turn in Explained(CASE, (), hits).ranked(scores)]
    assert order == sorted(range(len(scores)), key=lambda seq: (scores[seq], seq), reverse=True)


def test_recall_is_the_share_of_gold_turns_and_a_session_is_hit_by_any_of_its_turns() -> None:
    gold = frozenset({("s", "1"), ("s", "2")})
    case = Case("q", "g", {}, gold, ("en",))
    found = [("t", str(number)) for number in range(5)] + [("s", "1"), ("s", "9")]
    other = Case("r", "g", {}, frozenset({("t", "0")}))
    scores = scored({"row": [Ranked(case, found, 0.002), Ranked(other, found, 0.004, degraded=True)]})
    every, english = scores["row"]["all"], scores["row"]["en"]
    assert (english["recall@5"], english["recall@10"], english["session_hit@10"]) == (0.0, 0.5, 1.0)
    assert (every["queries"], every["recall@5"], every["degraded"], every["p50_ms"]) == (2, 0.5, 1, 3.0)
    assert "row" in table(scores)
