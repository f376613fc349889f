"""The parts that the cue tables of Chinese and Japanese are made of."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.compress.cues import cues_for, fold
from serve_app.compress.cues.han_numbers import NUMBER, figure
from serve_app.compress.cues.han_words import words
from serve_app.compress.cues.traditional import both, compiled
from serve_app.compress.statements import values_of


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("一万二", "12000"),
        ("13万5", "135000"),
        ("两百六", "260"),
        ("二百零六", "206"),
        ("十二", "12"),
        ("三十一", "31"),
        ("1,200", "1200"),
        ("1.2万", "12000"),
        ("1万5千", "15000"),
        ("一亿三千万", "130000000"),
        ("一六五", "165"),
        ("一萬兩千", "12000"),
        ("半", "0.5"),
        ("周五", "周五"),
        ("", ""),
    ],
)
def test_numbers_become_figures(text, amount):
    assert figure(text) == amount


@given(st.integers(1, 99_999_999))
def test_figures_stay_what_they_are(number):
    assert figure(str(number)) == figure(f"{number:,}") == str(number)


@given(st.text(alphabet="零一二三四五六七八九十百千万亿两半0123456789.,", max_size=30))
def test_any_run_of_numerals_has_a_figure(text):
    assert isinstance(figure(text), str)
    assert all(found.group() for found in re.finditer(NUMBER, text))


def test_a_pattern_matches_both_scripts():
    pattern = compiled("过敏|[对给]我说")
    assert [bool(pattern.search(text)) for text in ("过敏", "過敏", "對我說", "给我说", "过路")] == [True] * 4 + [False]
    assert both(r"\[过\]") == r"\[[过過]\]"


def test_words_are_characters_and_pairs_without_function_words():
    assert {"香菜", "香", "菜"} <= words("我不要香菜")
    assert "要" not in words("我不要香菜")
    assert {"python", "アレルギー"} <= words(fold("Pythonのアレルギー"))


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("不要香菜", ["chinese"]),
        ("香菜は抜いて", ["japanese"]),
        ("这个 repo 的 build 是 the latest", ["chinese", "english"]),
        ("no cilantro for me, please, it is awful", ["english"]),
    ],
)
def test_a_text_is_read_with_the_tables_of_its_scripts(text, languages):
    assert [cues.language for cues in cues_for(text)] == languages


@pytest.mark.parametrize(
    ("text", "kind", "amount"),
    [
        ("总预算八千块", "money", "8000"),
        ("补习挪到周四和周六", "date", "周四和周六"),
        ("四点半开席", "time", "四点半"),
        ("一共31位", "people", "31"),
        ("每天一小时", "duration", "1"),
        ("瘦到65公斤", "size", "65"),
        ("订单 BX20250903-17", "code", "bx20250903-17"),
        ("路径统一到 /gw/pay/v3", "path", "/gw/pay/v3"),
        ("就按一万二来", "number", "12000"),
        ("换成深蓝色的", "colour", "深蓝色"),
    ],
)
def test_values_are_read_with_kind_and_amount(text, kind, amount):
    assert (kind, amount) in [(one.kind, one.amount) for one in values_of(fold(text), cues_for(text))]
