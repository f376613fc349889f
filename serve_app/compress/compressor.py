"""Makes the summary of a run of turns: ledger, topics, a draft by the coarse backend, calibration by the fine one.

Deterministic: the same turns, target, tokenizer and backends give the same string, in any process and any order of
calls. Never over its target. A backend that is down, slow or gives rubbish is passed over and named in `reasons`;
the extractive one, which needs nothing, always answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from serve_app.compress.extractive import EXTRACTIVE_VERSION, summarise
from serve_app.compress.ledger import LEDGER_VERSION, ledger
from serve_app.core import Constraint, Topic, Turn
from serve_app.ports import Summariser, Tokenizer


class Compressed(NamedTuple):
    """A summary before it is stored: see `core.Summary` for what its fields mean."""

    text: str
    first_seq: int
    last_seq: int
    tokens: int
    input_hash: str
    ranks: tuple[int, ...] = ()
    line_seqs: tuple[int, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    topics: tuple[Topic, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why it is less than the configured backends could give."""


class Compressor:
    """`coarse` and `fine` are None for the extractive backend. Safe for threads."""

    def __init__(self, coarse: Summariser | None = None, fine: Summariser | None = None) -> None:
        self._coarse = coarse
        self._fine = fine

    @property
    def version(self) -> str:
        """Names everything beside turns and target that decides the text."""
        models = [one.name for one in (self._coarse, self._fine) if one is not None]
        return "+".join([EXTRACTIVE_VERSION, LEDGER_VERSION, *models])

    @property
    def backend(self) -> str:
        """What it is called in figures."""
        models = [one.name for one in (self._coarse, self._fine) if one is not None]
        return "+".join(dict.fromkeys(models)) or "extractive"

    def afresh(self) -> Compressor:
        """The same with nothing remembered."""
        return Compressor(self._coarse, self._fine)

    def forget(self) -> None:
        """Let go of every text that is remembered."""

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        """`turns` are oldest first and at least one. Raises InvalidRequest without turns or below one token."""
        extract = summarise(turns, target_tokens, tokenizer)
        return Compressed(
            text=extract.text,
            first_seq=extract.first_seq,
            last_seq=extract.last_seq,
            tokens=extract.tokens,
            input_hash=input_hash(turns),
            ranks=extract.ranks,
            line_seqs=extract.line_seqs,
            constraints=ledger(turns),
        )


def input_hash(turns: Sequence[Turn]) -> str:
    """Names what a summary was made from: the turns in the states that were read."""
    digest = hashlib.blake2b(digest_size=16)
    for turn in turns:
        digest.update(msgspec.msgpack.encode(turn))
    return digest.hexdigest()
