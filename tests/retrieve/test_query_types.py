"""What kind of query it is, in the languages that rules know."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.core import TimeWindow
from serve_app.layouts import QUERY_TYPES
from serve_app.retrieve.query_types import READ_CHARACTERS_MAX, query_type

KINDS = {
    "small_talk": ["Hi!", "thank you so much", "good morning", "谢谢！", "你好，在吗？", "おはよう", "¡Hola, qué tal!"],
    "follow_up": ["and how much was it?", "what about the red one?", "那价格呢？"],
    "temporal": ["When did Ada move?", "How long have we talked?", "他什么时候来", "いつ行きますか", "¿Cuándo llega?"],
    "instruction": ["Write a letter", "Could you please draft it", "帮我写一封信", "请翻译这句话", "要約してください"],
    "lookup": ["What is my budget?", "Ada's boat", "我的预算是多少", "hotels in Oslo", "thanks to whom did we win"],
}


@pytest.mark.parametrize(("kind", "query"), [(kind, query) for kind, queries in KINDS.items() for query in queries])
def test_rules_know_the_usual_queries(kind: str, query: str) -> None:
    assert query_type(query.lstrip("¡¿"), None) == kind


def test_a_query_that_names_a_time_is_temporal() -> None:
    assert query_type("what did we say yesterday", TimeWindow(None, None)) == "temporal"
    assert query_type("hello", TimeWindow(None, None)) == "small_talk"


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["hi ", "ok", "好", "please ", "你好早"]), max_size=200).map("".join)
)
def test_any_text_has_a_type(query: str) -> None:
    assert query_type(query, None) in QUERY_TYPES


@pytest.mark.parametrize("piece", ["hi ", "ok", "早你好", "please, ", "请", "can you please ", "buenas "])
def test_no_text_takes_long(piece: str) -> None:
    query = (piece * READ_CHARACTERS_MAX)[: READ_CHARACTERS_MAX - 1] + "#"
    started = time.perf_counter()
    query_type(query, None)
    assert time.perf_counter() - started < 0.05
