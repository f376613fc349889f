"""A summary under less room than it was made for: whole lines go, those worth least first. Pure."""

from __future__ import annotations

import bisect

import msgspec

from serve_app.context import draft
from serve_app.core import Summary
from serve_app.ports import Tokenizer


def shortened(summary: Summary | None, tokens: int, tokenizer: Tokenizer) -> Summary | None:
    """The summary with as many of its best lines as its message may take; None where none fits.

    One that does not rank its lines is shown whole or not at all.
    """
    if summary is None or summary_tokens(summary, tokenizer) <= tokens:
        return summary
    ranked = len(summary.ranks)
    lines = bisect.bisect_right(range(1, ranked), tokens, key=lambda n: summary_tokens(_best(summary, n), tokenizer))
    if not lines:
        return None
    short = _best(summary, lines)
    return msgspec.structs.replace(short, tokens=tokenizer.count(short.text))


def summary_tokens(summary: Summary | None, tokenizer: Tokenizer) -> int:
    """What the summary's message takes."""
    return draft.piece_tokens(draft.summary_piece(summary), tokenizer) if summary else 0


def _best(summary: Summary, lines: int) -> Summary:
    """The `lines` lines with the lowest ranks, in their order."""
    kept = [(line, rank) for line, rank in zip(summary.text.split("\n"), summary.ranks, strict=True) if rank < lines]
    return msgspec.structs.replace(
        summary, text="\n".join(line for line, _ in kept), ranks=tuple(rank for _, rank in kept)
    )
