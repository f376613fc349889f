"""Where one sentence ends and the next begins."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.compress.sentences import SENTENCE_CHARS_MAX, sentences


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("I live in Porto. It rains!  Does it?", ["I live in Porto.", "It rains!", "Does it?"]),
        ("It costs 4.50 euros, i.e. little.", ["It costs 4.50 euros, i.e. little."]),
        ('He said "go." Then he went.', ['He said "go."', "Then he went."]),
        ("What!? Wait... yes", ["What!?", "Wait... yes"]),
        ("预算不能超过5000元。我们九月出发！好吗？", ["预算不能超过5000元。", "我们九月出发！", "好吗？"]),
        ("「行きます。」と言った。雨です", ["「行きます。」", "と言った。", "雨です"]),
        ("one\n\n two \r\nthree", ["one", "two", "three"]),
        ("We meet in 2024. Then we go.", ["We meet in 2024.", "Then we go."]),
        (" \n ", []),
    ],
)
def test_sentences_of_three_languages(text, parts):
    assert list(sentences(text)) == parts


@given(st.text(max_size=2000))
def test_nothing_but_white_space_is_lost(text):
    found = list(sentences(text))
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(0 < len(sentence) <= SENTENCE_CHARS_MAX for sentence in found)


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "a. " * 33_000, "!" * 100_000, "\n" * 100_000, "a-" * 50_000, ' "' * 50_000]
)
def test_work_is_linear_in_the_text(text):
    """Eight times the text takes not much more than eight times the time."""
    short = min(_seconds(text[: len(text) // 8]) for _ in range(3))
    assert min(_seconds(text) for _ in range(3)) < 30 * short + 0.01


def _seconds(text):
    start = time.perf_counter()
    list(sentences(text))
    return time.perf_counter() - start
