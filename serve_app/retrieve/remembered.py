"""Orders that the second stage has found: who asks the same again of an unchanged memory waits for none of it.

What is kept are digests and scores, no text. Bounded; those used least recently go first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.retrieve.question import Question
from serve_app.retrieve.shortlist import Clues, asked_hour

ORDERS_MAX: Final = 1_024
"""Two kilobytes each, so two megabytes when full."""

Scores = NDArray[np.float64]
Opinions = Mapping[str, Scores]
"""By kind of reranker."""


def digest_of(clues: Clues, question: Question) -> bytes:
    """Of all that an order depends on: the state of the memory, the query, the candidates with their scores, and what
    has expired or is filtered out.
    """
    state = (clues.owner, clues.applied_seq, clues.version, question.as_of, question.query, question.said)
    asked = (asked_hour(question), question.late, question.window and question.window.bounds)
    whole = hashlib.blake2b(msgspec.json.encode((state, asked)), digest_size=16)
    whole.update(clues.ranking.ordinals.tobytes())
    whole.update(clues.ranking.scores.tobytes())
    whole.update(np.packbits(clues.evidence.eligible).tobytes())
    lacking = [(ordinal, turn.fields_gone) for ordinal, turn in clues.turns.items() if turn.fields_gone]
    whole.update(msgspec.json.encode(lacking))
    return whole.digest()
