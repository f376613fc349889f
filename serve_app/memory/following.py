"""What a replica tells its operators: how far it is behind, what it cannot read, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

from serve_app.errors import ReadOnlyReplica
from serve_app.memory.operator import Operator
from serve_app.memory.requests import Trouble
from serve_app.stores.followed import NO_WRITES
from serve_app.write.commit import ShardWriter
from serve_app.write.follow import Follower


class FollowingOperator(Operator):
    """`followers` are in the order of their shards."""

    def __init__(
        self, writers: Sequence[ShardWriter], followers: Sequence[Follower], pool: Executor, warm: Future[Any]
    ) -> None:
        super().__init__(writers, pool, warm)
        self._followers = followers

    def nudge(self) -> None:
        """There is no maintenance here."""

    def _shard_troubles(self) -> list[Trouble]:
        found: list[Trouble] = []
        for follower in self._followers:
            number, log = follower.shard.number, follower.shard.log
            if log.damage is not None:
                found.append(Trouble("log_damaged", str(log.damage), number))
            elif log.doubt is not None:
                found.append(Trouble("replica_behind", f"{log.doubt}; {follower.trouble or 'it catches up'}", number))
            if follower.table_trouble is not None:
                found.append(Trouble("tables", follower.table_trouble, number))
            if not follower.alive:
                found.append(Trouble("worker_stopped", f"follower-{number} has stopped", number))
        return found

    def _damage_of(self, number: int) -> list[str]:
        damage = self._followers[number].shard.log.damage
        return [] if damage is None else [str(damage)]

    def _behind_s(self, number: int) -> float | None:
        behind = self._followers[number].behind_s
        return None if behind is None else round(behind, 3)

    async def maintain(self, action: str, shard: int | None) -> list[dict[str, int]]:
        raise ReadOnlyReplica(NO_WRITES)
