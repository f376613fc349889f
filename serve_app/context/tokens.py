"""Counts tokens as named model families do. Owns the names that a request may use, and a bounded cache of counts.

No name that a caller sends is ever taken for a path: a name is one of `ENCODINGS`, or a key of the
mapping that the operator configured. The cache keeps digests and numbers, never text, so an erased
turn leaves nothing behind in it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import bpe_openai
import tokenizers

from serve_app.errors import InvalidRequest
from serve_app.ports import Tokenizer

MESSAGE_OVERHEAD_TOKENS = 4
"""What a chat message costs beside its text: role and separators."""

ENCODINGS = ("o200k_base", "cl100k_base")
"""Vocabularies that ship inside the `bpe-openai` package."""

DEFAULT_TOKENIZER = ENCODINGS[0]

COUNT_CACHE_ENTRIES_MAX = 65_536
"""Texts whose count is remembered, per tokenizer (about 10 MB when full)."""

UNCACHED_CHARS_MAX = 24
"""A text this short is counted sooner than it is looked up."""

LOCAL_TOKENIZERS_MAX = 8
"""Configured tokenizer files that are held open at a time."""

ENCODE_CHARS_MAX = 50_000
"""The BPE encoder refuses what gives more than 200,000 tokens, and a character may take four: encode in parts."""

TRUNCATE_STEPS_MAX = 16
"""Characters that a cut may still move: a prefix can encode otherwise than the same text inside a whole."""

_WORD_START = re.compile(r"(?<=[^\W\d_]) (?=[^\W\d_])")


class CountCache:
    """A least recently used map from text to its count, keyed by digest. Safe for threads."""

    def __init__(self, entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    @staticmethod
    def key(text: str) -> bytes:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def get(self, key: bytes) -> int | None:
        with self._lock:
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            return count

    def put(self, key: bytes, count: int) -> None:
        with self._lock:
            self._counts[key] = count
            if len(self._counts) > self._entries_max:
                self._counts.popitem(last=False)


class _CountingTokenizer(ABC):
    """The part that every tokenizer shares: cached counts, and cuts that keep their promise."""

    def __init__(self, name: str, cache_entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        self._name = name
        self._cache = CountCache(cache_entries_max)

    lines_add_up_to = 0

    @property
    def name(self) -> str:
        return self._name

    def count(self, text: str) -> int:
        """Tokens of `text`, special tokens left out and never recognised inside it."""
        if len(text) <= UNCACHED_CHARS_MAX:
            return self._encoded_length(text)
        key = CountCache.key(text)
        known = self._cache.get(key)
        if known is None:
            known = self._encoded_length(text)
            self._cache.put(key, known)
        return known

    def truncate(self, text: str, tokens: int) -> str:
        """The longest prefix of at most `tokens` tokens, never ending inside a code point."""
        if tokens <= 0:
            return ""
        end = self._end_of_token(text, tokens)
        while end > 0 and self._encoded_length(text[:end]) > tokens:
            end -= 1
        for longer in range(end + 1, min(end + TRUNCATE_STEPS_MAX, len(text)) + 1):
            if self._encoded_length(text[:longer]) <= tokens:
                end = longer
        return text[:end]

    @abstractmethod
    def _encoded_length(self, text: str) -> int:
        """Tokens of `text`, uncached."""

    @abstractmethod
    def _end_of_token(self, text: str, tokens: int) -> int:
        """Characters that stand whole before the token after the first `tokens`."""


class BpeTokenizer(_CountingTokenizer):
    """One of `ENCODINGS`, as OpenAI's models count.

    Their patterns end a piece, and so a token, after a line break that neither white space nor a slash
    follows, and between a letter or digit and a space.
    """

    lines_add_up_to = ENCODE_CHARS_MAX

    def __init__(self, name: str = DEFAULT_TOKENIZER, cache_entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        if name not in ENCODINGS:
            raise InvalidRequest(f"no such encoding: {name!r}")
        super().__init__(name, cache_entries_max)
        self._encoding = bpe_openai.get_encoding(name)

    def _encoded_length(self, text: str) -> int:
        if len(text) <= ENCODE_CHARS_MAX:
            return len(self._encoding.encode_ordinary(text))
        return sum(len(self._encoding.encode_ordinary(part)) for part in _parts(text))

    def _end_of_token(self, text: str, tokens: int) -> int:
        characters = 0
        for part in _parts(text):
            ids = self._encoding.encode_ordinary(part)
            if len(ids) > tokens:
                return characters + len(self._encoding.decode_bytes(ids[:tokens]).decode("utf-8", "ignore"))
            characters += len(part)
            tokens -= len(ids)
        return characters


class HubTokenizer(_CountingTokenizer):
    """Any `tokenizer.json` in the format of the `tokenizers` library: the file, or a folder that holds it."""

    def __init__(self, name: str, path: Path, cache_entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        super().__init__(name, cache_entries_max)
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise InvalidRequest(f"tokenizer {name!r} is configured, but its tokenizer.json is not there")
        self._tokenizer = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        # Files made for an encoder cut at its length and pad up to it; either would make counts lies.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def _encoded_length(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def _end_of_token(self, text: str, tokens: int) -> int:
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return len(text) if len(offsets) <= tokens else int(offsets[tokens][0])


def open_tokenizer(name: str = DEFAULT_TOKENIZER, local: Mapping[str, Path] | None = None) -> Tokenizer:
    """The tokenizer of that name: one of `ENCODINGS`, or a key of `local` (set by the operator, not by a request).

    Raises InvalidRequest for any other name. The same name gives the same object again.
    """
    if local and name in local:
        return _open_local(name, local[name])
    if name in ENCODINGS:
        return _open_encoding(name)
    raise InvalidRequest(f"unknown tokenizer {name!r}; known are {', '.join(sorted({*ENCODINGS, *(local or ())}))}")


def message_tokens(message: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """Tokens of one chat message, in OpenAI's or Anthropic's form: all that it says, and the overhead."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    tokens = MESSAGE_OVERHEAD_TOKENS + sum(block_tokens(block, tokenizer) for block in blocks)
    if message.get("tool_calls"):
        tokens += tokenizer.count(compact_json(message["tool_calls"]))
    if message.get("tool_call_id"):
        tokens += tokenizer.count(message["tool_call_id"])
    return tokens


def block_tokens(block: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """Tokens of one block of a message's content: its text, or its compact JSON where it is a call."""
    if block["type"] == "text":
        return tokenizer.count(block["text"])
    if block["type"] == "tool_result":
        return tokenizer.count(block["tool_use_id"]) + tokenizer.count(block["content"])
    return tokenizer.count(compact_json(block))


def compact_json(value: object) -> str:
    """JSON without white space, in the order given, non-ASCII as it is: the form in which calls are counted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=len(ENCODINGS))
def _open_encoding(name: str) -> BpeTokenizer:
    return BpeTokenizer(name)


@lru_cache(maxsize=LOCAL_TOKENIZERS_MAX)
def _open_local(name: str, path: Path) -> HubTokenizer:
    return HubTokenizer(name, path)


def _parts(text: str) -> Iterator[str]:
    """The text in parts short enough to encode, cut between two words where there are words: no token spans that."""
    start = 0
    while len(text) - start > ENCODE_CHARS_MAX:
        end = start + ENCODE_CHARS_MAX
        gaps = [gap.start() for gap in _WORD_START.finditer(text, end - 1000, end)]
        cut = gaps[-1] if gaps else end
        yield text[start:cut]
        start = cut
    yield text[start:]
