"""Splits turns into sentences: English, Chinese and Japanese, linear in the text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

SENTENCE_CHARS_MAX = 400
"""A longer run without a full stop is cut: one endless line must not be all or nothing."""

_END = re.compile(
    r"(?<=[。！？!?…])(?![。！？!?…])[”』」）)\"']*|(?<=[^\W\d]\w\.)[\"')]*(?=\s)|(?<=\d\.)(?=\s+[A-Z])|[\r\n]+"
)
"""After a CJK stop; after a full stop that follows a word and precedes white space; at a line's end."""


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text in order, white space inside each made single spaces, none empty."""
    start = 0
    for end in _END.finditer(text):
        yield from _cut(text[start : end.end()])
        start = end.end()
    yield from _cut(text[start:])


def _cut(sentence: str) -> Iterator[str]:
    """Parts of at most SENTENCE_CHARS_MAX, between words where there are words."""
    rest = " ".join(sentence.split())
    start = 0
    while len(rest) - start > SENTENCE_CHARS_MAX:
        end = start + SENTENCE_CHARS_MAX
        gap = rest.rfind(" ", start + SENTENCE_CHARS_MAX // 2, end)
        end = gap if gap > 0 else end
        yield rest[start:end].strip()
        start = end
    if rest[start:].strip():
        yield rest[start:].strip()
