"""What a language model answered, read as a summary: plain lines, or nothing. Pure, and linear in the answer.

One JSON object `{"summary": "..."}` or `{"summary": ["...", ...]}` is taken for what it holds; any other JSON is of no
use. Whether the lines are true of the text is not judged here.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from serve_app.models.plain import Said, one_line, unfenced

__all__ = ["ANSWER_VERSION", "lines_of"]

ANSWER_VERSION: Final = "1"
"""Changes with anything here that changes what is read."""

_THOUGHT: Final = re.compile(r"^\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
"""What a model says to itself first; if it never ends, there is no answer after it."""

_STEERING: Final = re.compile(r"<\|[^|<>\n]{0,40}\|>|</?s>|</?(?:conversation|draft)>")
_LEAD: Final = re.compile(
    r"^(?:(?:[-*–]|#{1,6}|\(?\d{1,2}[.)）])\s+|[•・]\s*|\d{1,2}、\s*|(?:summary|resumen|摘要|总结|概要|要約)\s*[:：]\s*)",
    re.IGNORECASE,
)
"""What makes a line an item of a list, or a heading of what follows."""

_ANNOUNCEMENT: Final = re.compile(r"[:：]$")
_SENTENCE_END: Final = re.compile(r"(?:[!?。！？…]|\.(?=[\s\"'”’」』)])|(?<=[^\W\d])\.$)[\"'”’」』)）]*")
"""A point after a digit at the very end may be one in a number that was cut."""


class _Summary(msgspec.Struct):
    """An answer in JSON."""

    summary: str | list[str]


def lines_of(said: Said) -> str:
    """One line a sentence or more, no two alike; empty where the answer is of no use."""
    text = _THOUGHT.sub("", said.content, count=1)
    try:
        found = _unwrapped(unfenced(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    lines = [line for raw in found.splitlines() if (line := _plain(raw))]
    if not said.whole and lines:
        lines[-1] = _ended(lines[-1])
    if len(lines) > 1 and _ANNOUNCEMENT.search(lines[0]):
        del lines[0]
    first: dict[str, str] = {}
    for line in filter(_says_something, lines):
        first.setdefault(line.casefold(), line)
    return "\n".join(first.values())


def _unwrapped(text: str) -> str:
    """Raises msgspec.MsgspecError where it is JSON of another shape."""
    text = text.strip()
    if not text.startswith(("{", "[")):
        return text
    summary = msgspec.json.decode(text, type=_Summary).summary
    return summary if isinstance(summary, str) else "\n".join(summary)


def _plain(line: str) -> str:
    return _LEAD.sub("", one_line(_STEERING.sub(" ", line)).replace("**", "")).strip()


def _ended(line: str) -> str:
    """Up to the end of its last whole sentence."""
    ends = [found.end() for found in _SENTENCE_END.finditer(line)]
    return line[: ends[-1]] if ends else ""


def _says_something(line: str) -> bool:
    """Letters, and not one letter again and again."""
    letters = {letter for letter in line if letter.isalpha()}
    return len(letters) > 1
