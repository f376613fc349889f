"""When a session is due for a summary. Pure.

Due is what has enough new turns, or new turns that fill the zone in which they would have to stand, or a new turn that
has waited for long; and a summary near its end, or by another compressor, if somebody reads the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from serve_app.core import SECOND_US, Summary, Turn
from serve_app.policies import HOUR_S, SummaryPolicy
from serve_app.ports import Tokenizer

ZONE_SHARE = 0.8
"""Of the recent zone: new turns that fill so much of it are summed up before the zone overflows."""

NEAR_END = 1 / 8
"""Of its time to live: a summary with less left than this is made anew if it is read."""

DEGRADED_RETRY_S = 300
"""A summary that a backend failed to help with is tried again after so long."""

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=3600)]
Why = Literal["turns", "zone", "age", "end", "version"]


class SummaryOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When summaries are made anew, how long they may be and how long they hold. A tenant's policy may say otherwise.

    `zone_tokens`: of the recent zone; the default is that of a budget of 8,000 tokens.
    """

    every_turns: Positive = 5
    target_tokens: Positive = 600
    turns_max: Positive = 2_000
    ttl_s: Positive = 4 * HOUR_S
    max_age_s: Positive = 600
    zone_tokens: Positive = 2_880
    settle_s: Annotated[float, Meta(gt=0, le=60)] = 0.5
    deadline_s: Seconds = 60.0
    """Of one summary: a backend that takes longer is passed over."""
    apart: bool = True
    """Whether what needs no model is computed in a process of its own, so that requests notice nothing of it."""
    workers: Annotated[int, Meta(ge=1, le=64)] = 4
    """Summaries that are made at the same time, most of it waiting for models."""

    def under(self, policy: SummaryPolicy) -> SummaryOptions:
        """These with what the policy sets."""
        set_there = {name: value for name, value in msgspec.structs.asdict(policy).items() if value is not None}
        return msgspec.structs.replace(self, **set_there) if set_there else self


def why_due(
    turns: int,
    new: Sequence[Turn],
    latest: Summary | None,
    now: int,
    read: bool,
    options: SummaryOptions,
    tokenizer: Tokenizer,
    version: str = "",
) -> Why | None:
    """`turns`: how many came since the last summary; `new`: those of them that are at hand, oldest first.

    `version`: of the compressor that would make it; a summary by another one is made anew if it is read.
    """
    if turns >= options.every_turns:
        return "turns"
    if fills_zone(new, ZONE_SHARE * options.zone_tokens, tokenizer):
        return "zone"
    if new and age_due_at(new, options) <= now:
        return "age"
    if read and latest is not None and near_end(latest, now):
        return "end"
    if read and latest is not None and version not in ("", latest.version):
        return "version"
    return None


def age_due_at(new: Sequence[Turn], options: SummaryOptions) -> int:
    """When the oldest of the new turns has waited for long."""
    return new[0].arrived_at + options.max_age_s * SECOND_US


def near_end(summary: Summary, now: int) -> bool:
    return summary.expires_at - now < NEAR_END * (summary.expires_at - summary.created_at)


def fills_zone(turns: Sequence[Turn], tokens: float, tokenizer: Tokenizer) -> bool:
    """Whether they take so many tokens. No token is shorter than a byte, so that most turns need not be counted."""
    texts = [turn.text for turn in turns]
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) < tokens:
        return False
    return sum(map(tokenizer.count, texts)) >= tokens
