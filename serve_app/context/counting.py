"""What all tokenizers share: counts that are remembered, cuts that keep their promise, long texts in parts.

The memory of counts keeps digests and numbers, never text, so an erased turn leaves nothing behind in it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol

COUNT_CACHE_ENTRIES_MAX = 65_536
"""Texts whose count is remembered, per tokenizer (about 10 MB when full)."""

UNCACHED_CHARS_MAX = 24
"""A text this short is counted sooner than it is looked up."""

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


class CountingTokenizer(ABC):
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


class BytePairs(Protocol):
    """An encoding, as the packages `bpe_openai` and `tiktoken` have it."""

    def encode_ordinary(self, text: str, /) -> list[int]: ...

    def decode_bytes(self, tokens: list[int], /) -> bytes: ...


class BytePairTokenizer(CountingTokenizer):
    """Of an encoding that takes any text, in parts where it is long."""

    def __init__(self, name: str, encoding: BytePairs, cache_entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        super().__init__(name, cache_entries_max)
        self._encoding = encoding

    def _encoded_length(self, text: str) -> int:
        if len(text) <= ENCODE_CHARS_MAX:
            return len(self._encoding.encode_ordinary(text))
        return sum(len(self._encoding.encode_ordinary(part)) for part in parts(text))

    def _end_of_token(self, text: str, tokens: int) -> int:
        characters = 0
        for part in parts(text):
            ids = self._encoding.encode_ordinary(part)
            if len(ids) > tokens:
                return characters + len(self._encoding.decode_bytes(ids[:tokens]).decode("utf-8", "ignore"))
            characters += len(part)
            tokens -= len(ids)
        return characters


def parts(text: str) -> Iterator[str]:
    """The text in parts short enough to encode, cut between two words where there are words: no token spans that."""
    start = 0
    while len(text) - start > ENCODE_CHARS_MAX:
        end = start + ENCODE_CHARS_MAX
        gaps = [gap.start() for gap in _WORD_START.finditer(text, end - 1000, end)]
        cut = gaps[-1] if gaps else end
        yield text[start:cut]
        start = cut
    yield text[start:]
