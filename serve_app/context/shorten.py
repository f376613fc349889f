"""A summary under less room than it was made for: whole lines go, those worth least first. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Container, Sequence
from itertools import compress

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


def without_quotes(summary: Summary | None, shown: Container[int]) -> Summary | None:
    """The summary without the lines whose turn (by seq) is shown itself; None where no line is left."""
    if summary is None or not summary.line_seqs:
        return summary
    return _kept(summary, [seq not in shown for seq in summary.line_seqs])


def _best(summary: Summary, lines: int) -> Summary:
    """The `lines` lines with the lowest ranks, in their order."""
    least = sorted(summary.ranks)[:lines]
    best = _kept(summary, [rank <= least[-1] for rank in summary.ranks])
    assert best is not None
    return best


def _kept(summary: Summary, keep: Sequence[bool]) -> Summary | None:
    if not any(keep):
        return None
    return msgspec.structs.replace(
        summary,
        text="\n".join(compress(summary.text.split("\n"), keep)),
        ranks=tuple(compress(summary.ranks, keep)),
        line_seqs=tuple(compress(summary.line_seqs, keep)),
    )
