"""Which writer has which shard: a pure function of who is there and who has what.

Sizes differ by one at most, as few shards move as can be, and the same state gives the same leases. A shard goes from
a writer that lives to another one in two steps: first it is nobody's, and only when no writer that lives has it open
any more it is the other one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from serve_app.cluster.messages import Leases

__all__ = ["NOBODY", "Writer", "assigned", "held_by", "writer_of"]

NOBODY = ""


class Writer(NamedTuple):
    """One that lives, as far as anybody knows."""

    holds: frozenset[int] = frozenset()
    """Shards that are open there, or may be: on their way to be opened or closed."""
    leaving: bool = False


def assigned(leases: Leases, alive: Mapping[str, Writer], shards: int) -> Leases:
    """The leases that are to follow these; the very same where there is nothing to change.

    Where no writer takes shards, those of the dead stay theirs: they may come back.
    """
    now = [*leases.writers[:shards], *[NOBODY] * (shards - len(leases.writers))]
    takers = sorted(name for name, writer in alive.items() if not writer.leaving)
    goal = _balanced(now, takers) if takers else [name if name not in alive else NOBODY for name in now]
    wanted = tuple(_step(shard, now[shard], goal[shard], alive) for shard in range(shards))
    return leases if wanted == leases.writers else Leases(leases.revision + 1, wanted)


def writer_of(leases: Leases, shard: int) -> str:
    """NOBODY where it has none at the moment."""
    return leases.writers[shard] if shard < len(leases.writers) else NOBODY


def held_by(leases: Leases, writer: str) -> frozenset[int]:
    """The shards that these leases give to a writer."""
    return frozenset(shard for shard, name in enumerate(leases.writers) if name == writer)


def _balanced(now: Sequence[str], takers: Sequence[str]) -> list[str]:
    """By shard, who is to have it in the end. Who has most keeps most; the rest gets what is over or has nobody."""
    own: dict[str, list[int]] = {name: [] for name in takers}
    for shard, name in enumerate(now):
        if name in own:
            own[name].append(shard)
    least, more = divmod(len(now), len(takers))
    ranked = sorted(takers, key=lambda name: (-len(own[name]), name))
    share = {name: least + (rank < more) for rank, name in enumerate(ranked)}
    goal = [NOBODY] * len(now)
    for name in takers:
        for shard in own[name][: share[name]]:
            goal[shard] = name
    free = iter([shard for shard, name in enumerate(goal) if name == NOBODY])
    for name in ranked:
        for _ in range(share[name] - min(len(own[name]), share[name])):
            goal[next(free)] = name
    return goal


def _step(shard: int, now: str, goal: str, alive: Mapping[str, Writer]) -> str:
    """Whose the shard is next."""
    if goal == now:
        return now
    taken_away = now in alive
    open_elsewhere = any(shard in writer.holds for name, writer in alive.items() if name != goal)
    return NOBODY if taken_away or open_elsewhere else goal
