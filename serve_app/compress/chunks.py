"""A conversation in pieces that a model can read at once: every turn in exactly one. Pure, and online.

Where a chunk ends depends on nothing after the turn that begins the next one, so that a conversation that goes on
changes its last chunk alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.compress.segments import Segment
from serve_app.core import Turn

BYTES_A_TOKEN = 3
"""About: of English more, of Chinese as many."""

LEAD_TOKENS = 10
"""What the date and the speaker of a line take, about."""


def chunks(turns: Sequence[Turn], segments: Sequence[Segment], tokens_max: int) -> list[Segment]:
    """As many turns as fit into `tokens_max`, and no more topics once half of that is full.

    A turn that is larger has a chunk of its own.
    """
    begins = {segment.first for segment in segments}
    found: list[Segment] = []
    first = held = 0
    for number, turn in enumerate(turns):
        tokens = tokens_of(turn)
        full = held + tokens > tokens_max or (number in begins and held * 2 >= tokens_max)
        if number > first and full:
            found.append(Segment(first, number))
            first, held = number, 0
        held += tokens
    return [*found, Segment(first, len(turns))]


def tokens_of(turn: Turn) -> int:
    """About, whatever the tokenizer."""
    return LEAD_TOKENS + len(turn.text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN
