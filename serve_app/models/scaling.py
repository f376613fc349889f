"""How many replicas of a model there should be, by the tokens that wait for it. Pure: no clock, no Ray.

Promises more replicas at once when what waits or comes is more than those there are can do in time, and fewer only
when fewer would have done for a while: a load that comes and goes faster than that does not start and end replicas.
Never below or above the aim's bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Aim", "Load", "Peaks", "Reported", "decided", "needed", "target", "total"]

TOKENS_S_UNKNOWN = 6400.0
"""Of a replica that has computed nothing yet: what a slow core does, so that a first burst finds too many replicas
rather than too few."""

Peaks = tuple[tuple[float, int], ...]
"""When how many were needed, oldest first, each more than every later one: so never more than there may be replicas."""


class Aim(NamedTuple):
    """What is wanted."""

    replicas_min: int = 1
    replicas_max: int = 1
    delay_s: float = 1.0
    """What waits should be done within it."""
    busy_share: float = 0.8
    """Of what the replicas can do, at most so much should come: near 1 queues grow without end."""
    quiet_s: float = 60.0
    """So long fewer replicas must have been enough before there are fewer."""


class Load(NamedTuple):
    """Of all replicas together, but for the last."""

    waiting_tokens: float
    came_tokens_s: float
    replica_tokens_s: float
    """What one computes a second, 0 where none has said."""


class Reported(NamedTuple):
    """By one replica."""

    waiting_tokens: float
    came_tokens_s: float
    tokens_s: float
    """0 before it has computed anything."""


def total(reports: Sequence[Reported]) -> Load:
    """Replicas are alike: their pace is the mean of those that have one."""
    paces = [one.tokens_s for one in reports if one.tokens_s > 0]
    return Load(
        sum(one.waiting_tokens for one in reports),
        sum(one.came_tokens_s for one in reports),
        sum(paces) / len(paces) if paces else 0.0,
    )


def needed(load: Load, aim: Aim) -> int:
    """Enough to do what comes with some room to spare, and what waits within the delay; within the bounds."""
    pace = load.replica_tokens_s or TOKENS_S_UNKNOWN
    coming, waiting = load.came_tokens_s / aim.busy_share, load.waiting_tokens / aim.delay_s
    # What waits in a steady state is small, and what comes pays for it out of its room: only more than that counts.
    wanted = max(coming, load.came_tokens_s + waiting)
    return max(aim.replicas_min, math.ceil(min(wanted / pace, aim.replicas_max)))


def decided(peaks: Peaks, load: Load, aim: Aim, now: float) -> Peaks:
    """With what is needed now; the first of them is the next target. `peaks` begins with what there is, `((now, n),)`:
    at a start, and after one, nobody knows what was needed before.
    """
    need = needed(load, aim)
    lasting = [peak for peak in peaks if now - peak[0] < aim.quiet_s and peak[1] > need]
    return (*lasting, (now, need))


def target(peaks: Peaks, aim: Aim) -> int:
    """The bounds may have changed since."""
    return max(aim.replicas_min, min(aim.replicas_max, peaks[0][1]))
