"""What counts as a word: one text finds another where a reader would say that they share one."""

from __future__ import annotations

import re
import string
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.stores.terms import (
    TERM_CHARS_MAX,
    TERMS_MAX,
    code_terms,
    index_terms,
    is_function_word,
    query_terms,
    read_query,
    terms_of_each,
    unspaced_runs,
    words,
)


def finds(query: str, text: str) -> bool:
    """Whether every term of the query is a term of the text."""
    terms = query_terms(query)
    return bool(terms) and set(terms) <= set(index_terms(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("running", "She runs every morning"),
        ("Caroline's", "Caroline called"),
        ("Caroline", "That is Caroline’s bike"),
        ("CAFE", "the café by the harbour"),
        ("Zoe\u0308", "Zoë waved"),
        ("STRASSE", "die Straße am Fluss"),
        ("ＡＰＩ", "the api is down"),
        ("O'Brien", "Mr O’Brien signed"),
        ("Brien", "Mr O'Brien signed"),
        ("followup", "the follow-up is due"),
        ("1200", "It costs $1,200 a month"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("привет", "Привет, как дела"),
        ("😀", "well done 😀!"),
        ("👍🏽", "ok 👍"),
        ("🇩🇪", "greetings from 🇩🇪"),
    ],
)
def test_forms_of_one_word_are_one_term(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("成语接龙", "昨天我们一起玩了成语接龙的游戏"),
        ("早报", "请每天八点把早报发给我"),
        ("配置", "请检查一下API配置是否正确"),
        ("API配置", "请检查一下API配置是否正确"),
        ("猫", "我的猫叫饼干"),
        ("しりとり", "子供たちとしりとりをして遊びました"),
        ("ｺﾝﾋﾟｭｰﾀ", "新しいコンピュータを買った"),
        ("김치찌개", "어제 저녁에 김치찌개를 먹었어요"),
        ("กาแฟ", "ฉันชอบดื่มกาแฟทุกเช้า"),
    ],
)
def test_scripts_without_spaces_are_found_by_any_part(query: str, text: str) -> None:
    assert finds(query, text)
    assert not finds(query, "今天天气很好 おはようございます 안녕하세요 สวัสดี API")


@pytest.mark.parametrize(
    "code",
    [
        "ZX-81Q",
        "KX-2291",
        "0b9c2d1e-2f3a-4b5c-8d7e-9f0a1b2c3d4e",
        "lanxi.mu@example.com",
        "report_final-v2.pdf",
        "v1.2.3",
        "10.0.0.7",
        "E_CONN#42",
        "src/app/main.py",
    ],
)
def test_a_code_is_found_whole_and_by_its_parts(code: str) -> None:
    for text in (f"Then {code}, as he said.", f"然后{code}。", f"({code})"):
        assert finds(code, text)
        assert all(finds(part, text) for part in re.split(r"[^0-9A-Za-z]", code))
    assert set(query_terms(code)) - set(index_terms(f"{code}9")), "another code has at least one other term"


def test_a_code_is_found_however_it_is_joined() -> None:
    assert "zx81q" in query_terms("ZX81Q")
    assert all("zx81q" in index_terms(code) for code in ("ZX-81Q", "zx_81q", "ZX81Q"))


def test_two_characters_of_an_unspaced_query_must_stand_together() -> None:
    assert query_terms("早报") == ["早报"]
    assert query_terms("猫") == ["猫"]
    assert not finds("早报", "报告明早再发")


def test_a_han_character_of_a_longer_query_is_looked_for_by_itself() -> None:
    """It is a word or half of one; letters of alphabets are none, and function characters tell little."""
    assert set(query_terms("我的早报呢")) == {"我的", "的早", "早报", "报呢", "早", "报"}
    assert {"早", "报"} == set(query_terms("我的早报呢")) & set(index_terms("报告明早再发"))
    assert set(query_terms("ねこのなまえ")) == {"ねこ", "この", "のな", "なま", "まえ"}
    assert set(query_terms("猫の名前は")) == {"猫の", "の名", "名前", "前は", "猫", "名"}
    assert "ก" not in query_terms("กาแฟ")
    assert query_terms("是什么") == ["是什", "什么"]
    assert set(read_query("我的早报呢").wanted) == set(query_terms("我的早报呢"))


def test_function_words_are_looked_for_only_where_there_is_nothing_else() -> None:
    assert query_terms("What is the name of my dog?") == ["name", "dog"]
    assert query_terms("who is it") == ["who", "is", "it"]
    assert finds("to be or not to be", "To be, or not to be")
    assert is_function_word("Didn’t")
    assert not is_function_word("dog")


@pytest.mark.parametrize(
    ("query", "codes"),
    [
        ("Where is ZX-81Q?", ["zx81q"]),
        ("order 90331 and v1.2.3", ["v1.2.3", "90331"]),
        ("订单KX-2291赔多少", ["kx2291"]),
        ("at 7pm on the 3rd, 20 people in 2023", []),
        ("a well-known name", []),
    ],
)
def test_codes_of_a_query(query: str, codes: list[str]) -> None:
    assert code_terms(query) == codes
    assert set(codes) <= set(index_terms(query)), "a code is looked for as it is indexed"


@pytest.mark.parametrize("sign", [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "*:*", "((", "C:\\a\\b", "\x00", "\ud83d"])
def test_no_sign_has_a_meaning(sign: str) -> None:
    (kettle,) = query_terms("kettle")
    assert kettle in query_terms(f"{sign} kettle")
    assert sorted(query_terms(f"{sign} kettle")) == sorted(query_terms(f"kettle {sign}"))


@given(st.text(max_size=200))
def test_any_text_finds_itself(text: str) -> None:
    assert set(query_terms(text)) <= set(index_terms(text))
    assert index_terms(text) == index_terms(text)
    assert all(0 < len(term) <= TERM_CHARS_MAX for term in index_terms(text))


def test_the_end_of_a_long_text_is_covered() -> None:
    text = "All work and no play makes Jack a dull boy. " * 2300
    assert "bagokatimu" in index_terms(f"{text} The end is bagokatimu.")


def test_terms_are_bounded_and_both_ends_stay() -> None:
    terms = index_terms("first " + "filler " * TERMS_MAX + "last")
    assert len(terms) == TERMS_MAX
    assert {"first", "last"} <= set(terms)
    assert index_terms("x" * 5000) == ["x" * TERM_CHARS_MAX]


@pytest.mark.parametrize("unit", ["a", "a-", "a'", "-", "啊", "a..", "a\u0301", "1,", "👍🏽", "की"])
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    started = time.perf_counter()
    index_terms(unit * 200_000)
    assert time.perf_counter() - started < 5.0


def test_threads_do_not_disturb_each_other() -> None:
    texts = [f"running dogs number{at} and generously follow-ups {at}" for at in range(400)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(index_terms, texts)) == [index_terms(text) for text in texts]


def test_surface_forms_keep_their_writing() -> None:
    assert words("Ask O’Brien about ZX-81Q, v1.2 API配置!") == ["Ask", "O’Brien", "about", "ZX-81Q", "v1.2", "API"]
    assert unspaced_runs("请看API配置, しりとり") == ["请看", "配置", "しりとり"]


ANY_TEXT = st.one_of(
    st.text(),
    st.text("aZ09 '-_.:/@+#&,é李ー\u0301"),
    st.sampled_from(["Ken's ZX-81Q, 3rd at 7pm", "李梅 o'brien 90331"]),
)


@given(ANY_TEXT)
def test_a_query_read_once_has_the_terms_that_are_read_apart(text: str) -> None:
    assert read_query(text) == tuple(map(tuple, (index_terms(text), query_terms(text), code_terms(text))))


@given(st.text("aZ09 '-_.:/@+#&,!"))
def test_plain_text_has_the_surface_forms_of_any_text(text: str) -> None:
    assert words(f"{text} é") == [*words(text), "é"]


@given(st.lists(ANY_TEXT))
def test_the_terms_of_several_words_are_those_of_each(texts: list[str]) -> None:
    assert terms_of_each(texts) == [frozenset(index_terms(text)) for text in texts]


@given(st.text(st.sampled_from(string.ascii_letters + string.digits + string.punctuation + " \n'-._"), max_size=60))
def test_a_letter_of_another_script_changes_no_other_term(text: str) -> None:
    beside = Counter(index_terms(f"{text} \u0436"))
    assert beside - Counter("\u0436") == Counter(index_terms(text))


def test_a_very_long_run_of_letters_takes_no_longer_than_as_many_short_ones() -> None:
    costs = []
    for text in ("ab-c " * 200_000, "a" * 1_000_000, "a-" * 500_000):
        started = time.process_time()
        index_terms(text)
        costs.append(time.process_time() - started)
    assert max(costs[1:]) < 5 * costs[0]
