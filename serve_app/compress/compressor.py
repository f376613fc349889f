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

from serve_app.compress.composing import composed
from serve_app.compress.extractive import EXTRACTIVE_VERSION, quotes
from serve_app.compress.ledger import LEDGER_VERSION, read
from serve_app.compress.segments import SEGMENTS_VERSION, segments, topics
from serve_app.core import Constraint, Topic, Turn
from serve_app.errors import InvalidRequest
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
        return "+".join([SEGMENTS_VERSION, EXTRACTIVE_VERSION, LEDGER_VERSION, *models])

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        """`turns` are oldest first and at least one. Raises InvalidRequest without turns or below one token."""
        if not turns or target_tokens < 1:
            raise InvalidRequest("a summary needs at least one turn and a target of at least one token")
        found = segments(turns)
        reading = read(turns)
        binding, others = quotes(turns, reading)
        made = composed([*binding, *others], target_tokens, tokenizer)
        return Compressed(
            text=made.text,
            first_seq=turns[0].seq,
            last_seq=turns[-1].seq,
            tokens=made.tokens,
            input_hash=input_hash(turns),
            ranks=made.ranks,
            line_seqs=made.line_seqs,
            constraints=reading.entries,
            topics=topics(turns, found),
        )


def input_hash(turns: Sequence[Turn]) -> str:
    """Names what a summary was made from: the turns in the states that were read."""
    digest = hashlib.blake2b(digest_size=16)
    for turn in turns:
        digest.update(msgspec.msgpack.encode(turn))
    return digest.hexdigest()
