"""How much of what binds survives compression, measured on packaged dialogues that nothing was tuned on.

Each says which words must stand together in one line of its summary.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, Protocol

import msgspec

from serve_app.compress.compressor import Compressed
from serve_app.core import SECOND_US, Role, Turn
from serve_app.ports import Tokenizer

HELD_OUT_FILE = "held_out.jsonl"

SHARE = 0.35
"""Of a dialogue's tokens: what its summary may take."""

_BEGAN = 1_760_000_000 * SECOND_US


class Said(msgspec.Struct, frozen=True):
    role: Role
    content: str


class Dialogue(msgspec.Struct, frozen=True):
    """`must_keep`: of each thing that binds, words of which all must stand in one line."""

    id: str
    lang: str
    turns: tuple[Said, ...]
    must_keep: tuple[tuple[str, ...], ...]


class Compresses(Protocol):
    """What is measured."""

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed: ...


class Kept(NamedTuple):
    """Of things that bind."""

    kept: int
    all: int


@cache
def held_out() -> tuple[Dialogue, ...]:
    text = (files("serve_app.compress") / HELD_OUT_FILE).read_text(encoding="utf-8")
    return tuple(msgspec.json.decode(line, type=Dialogue) for line in text.splitlines())


def measured(compressor: Compresses, tokenizer: Tokenizer, deadline_s: float) -> Iterator[Kept]:
    """Dialogue by dialogue, so that whoever asks may rest between them."""
    for dialogue in held_out():
        target = max(1, round(SHARE * sum(tokenizer.count(one.content) for one in dialogue.turns)))
        made = compressor.compress(turns_of(dialogue), target, tokenizer, deadline_s)
        yield kept_in(made.text, dialogue)


def kept_in(text: str, dialogue: Dialogue) -> Kept:
    lines = [_folded(line) for line in text.splitlines()]
    found = [any(all(_folded(word) in line for word in words) for line in lines) for words in dialogue.must_keep]
    return Kept(sum(found), len(found))


def turns_of(dialogue: Dialogue) -> list[Turn]:
    """As they would be stored."""
    return [
        Turn(f"{dialogue.id}-{number}", dialogue.id, one.role, one.content, number, at, at, rev=number)
        for number, one in enumerate(dialogue.turns, 1)
        for at in (_BEGAN + 60 * SECOND_US * number,)
    ]


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
