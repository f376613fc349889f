"""Keywords, rewrites and dates of queries, in English and Chinese."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.retrieve.expand import (
    CARRIED_WORDS_MAX,
    KEYWORDS_MAX,
    PIECE_CHARS_MAX,
    NamedDate,
    continues,
    is_elliptic,
    keywords,
    named_date,
    rewritten,
)
from serve_app.stores.terms import query_terms


def test_a_long_query_becomes_a_few_words_as_written() -> None:
    query = "Could you please remind me which hotel near the bagokatimu museum in Lisbon my colleague recommended?"
    assert keywords(query) == ["bagokatimu", "museum", "Lisbon", "colleague", "recommended"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ZX-81Q", ["ZX-81Q"]),
        ("the key, the keys, the KEY", ["key"]),
        ("The Who", ["The", "Who"]),
        ("他上个月买的那台相机是什么牌子", ["上个月买", "台相机", "牌子"]),
        ("YW-440918 赔多少？", ["YW-440918"]),
        ("昨日の会議で話した予算は？", ["昨日", "会議", "予算"]),
        ("김치찌개 좋아해요", ["김치찌개", "좋아해요"]),
        ("?!", []),
        ("", []),
    ],
)
def test_keywords_by_script(query: str, expected: list[str]) -> None:
    assert keywords(query) == expected


@given(st.text(max_size=120))
def test_keywords_are_few_and_stand_in_the_query(query: str) -> None:
    found = keywords(query)
    assert len(found) <= KEYWORDS_MAX
    assert all(word in query for word in found)
    assert found == keywords(query)


def test_an_elliptic_query_takes_over_what_it_leaves_out() -> None:
    history = ["We stayed at the Hotel Aurora in Lisbon.", "The breakfast there was superb."]
    query = rewritten("And how much was it?", history)
    assert query.startswith("And how much was it?")
    assert {"Aurora", "Lisbon", "breakfast"} <= set(query.replace("(", " ").replace(")", " ").replace(",", " ").split())


def test_an_elliptic_chinese_query_takes_over_what_it_leaves_out() -> None:
    assert "相机" in rewritten("那它多少钱来着？", ["上个月买的相机镜头坏了"])


@pytest.mark.parametrize(
    "query", ["Which hotel in Lisbon did Anna book?", "What did Ken say about his leg?", "ZX-81Q", "蓝色雨伞放在阳台"]
)
def test_a_query_that_stands_alone_is_left_alone(query: str) -> None:
    assert not is_elliptic(query)
    assert rewritten(query, ["The Hotel Aurora was full."]) == query


def test_without_history_a_query_is_left_alone() -> None:
    assert rewritten("how much was it?", []) == "how much was it?"


@given(st.text(max_size=60), st.lists(st.text(max_size=200), max_size=5))
def test_a_rewrite_holds_the_query_and_a_bounded_rest(query: str, history: list[str]) -> None:
    longer = rewritten(query, history)
    assert longer.startswith(query)
    assert longer.count(", ") - query.count(", ") < CARRIED_WORDS_MAX
    assert set(query_terms(query)) <= set(query_terms(longer)) or not query_terms(query) or is_elliptic(query)


def test_a_long_query_of_months_is_read_at_once() -> None:
    started = time.process_time()
    assert named_date("may " * 4_096) == NamedDate()
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("query", "date"),
    [
        ("What happened on 8 May 2023?", (2023, 5, 8)),
        ("the 3rd of March, 2024", (2024, 3, 3)),
        ("May 8th", (None, 5, 8)),
        ("in may", (None, 5, None)),
        ("last September", (None, 9, None)),
        ("Sep 2023", (2023, 9, None)),
        ("2023-05-08", (2023, 5, 8)),
        ("2023/5", (2023, 5, None)),
        ("2023年5月8日吃了什么", (2023, 5, 8)),
        ("五月二十八号", (None, 5, 28)),
        ("十二月", (None, 12, None)),
        ("2022년 3월", (2022, 3, None)),
        ("all of 2022", (2022, None, None)),
        ("I may go and march on", (None, None, None)),
        ("order ZX-2024, 3.2024 and 20231", (None, None, None)),
        ("2023-13-40", (2023, None, None)),
        ("三个月", (None, None, None)),
    ],
)
def test_dates_that_are_spelt_out(query: str, date: tuple[int | None, ...]) -> None:
    assert named_date(query) == NamedDate(*date)


@given(st.text(alphabet="0123456789年月日-/. MayMarch一二十号", max_size=30))
def test_any_text_gives_a_possible_date(query: str) -> None:
    year, month, day = named_date(query)
    assert year is None or 1900 <= year <= 2099
    assert month is None or 1 <= month <= 12
    assert day is None or (month is not None and 1 <= day <= 31)


@pytest.mark.parametrize(
    "query",
    ["and how much was it?", "What about the other one?", "那价格呢？", "那么多少钱", "他呢", "y cuánto costó?"],
)
def test_some_queries_go_on_from_the_last_turn(query: str) -> None:
    assert continues(query)


@pytest.mark.parametrize(
    "query",
    ["what was it called again?", "那个东西在谁手里来着？", "那家店叫什么", "Which one was his pick?", "Andrew's dog"],
)
def test_others_point_further_back(query: str) -> None:
    assert not continues(query)


def test_chinese_keywords_are_cut_where_words_end_as_far_as_function_words_tell() -> None:
    assert keywords("佟蕊现在的电话尾号是多少？") == ["佟蕊", "电话尾号"]
    assert keywords("QX7M2R 這個訂位的價錢係幾多？")[0] == "QX7M2R"
    assert max(map(len, keywords("轮速传感器故障维修费用明细表"))) <= PIECE_CHARS_MAX


@pytest.mark.parametrize("words", ["한국\n", "呢 ﬁ", "'王老师", "ab1-", "then "])
def test_a_query_as_long_as_can_be_is_read_in_no_time(words: str) -> None:
    query = words * (16_384 // len(words))
    started = time.process_time()
    keywords(query)
    rewritten("and it?", [query, query])
    rewritten(query, ["Leica in Porto"])
    assert time.process_time() - started < 0.2
