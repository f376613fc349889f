"""Users who write and read without pause while a cluster changes, and what must be true of all that they were told."""

from __future__ import annotations

import asyncio
import itertools
from types import TracebackType

import msgspec

from serve_app.errors import Overloaded, ShardElsewhere, StoreUnavailable
from tests.cluster.in_process import Cluster

SESSION = "s"
PAUSE_S = 0.02


class _User:
    """One at a time: a turn, and from time to time a look at all that it has written."""

    def __init__(self, name: str, named: bool) -> None:
        self.name, self.named = name, named
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        """Of these it was said that they surely were not done."""
        self.unknown: list[str] = []
        self.wrong: list[str] = []
        self.errors: list[bytes] = []
        """Answers that were none."""
        self.gaps_s: list[float] = []

    async def write(self, cluster: Cluster, until: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        for number in itertools.count():
            if until.is_set():
                break
            await asyncio.sleep(PAUSE_S)
            turn = f"{self.name} says {number}"
            try:
                answer = await cluster.append(self.name, SESSION, turn, named=self.named)
            except (ShardElsewhere, Overloaded):
                self.refused.append(turn)
                continue
            except StoreUnavailable:
                self.unknown.append(turn)
                continue
            if answer.status != 201:
                self.errors.append(answer.body)
                self.unknown.append(turn)
                continue
            self.acknowledged.append(turn)
            self.gaps_s.append(loop.time() - last)
            last = loop.time()
            if number % 10 == 0:
                await self.read(cluster)

    async def read(self, cluster: Cluster) -> list[str]:
        """Every turn that was acknowledged, once and in order; none that was refused."""
        path = f"/v1/sessions/{SESSION}/turns?user_id={self.name}&limit=1000"
        found: list[str] = []
        after = 0
        while True:
            answer = await cluster.call(self.name, "GET", f"{path}&after_seq={after}")
            page = msgspec.json.decode(answer.body)
            assert answer.status == 200, page
            found += [turn["content"] for turn in page["turns"]]
            if page.get("next_after_seq") is None:
                break
            after = page["next_after_seq"]
        sure = [turn for turn in found if turn not in self.unknown]
        if sure != self.acknowledged or len(set(found)) < len(found):
            self.wrong.append(f"{self.name}: {sure} instead of {self.acknowledged}")
        return found


class Load:
    """`async with`: its users write meanwhile."""

    def __init__(self, cluster: Cluster, users_a_shard: int = 2) -> None:
        """Half of the users name their turns, so that theirs can be sent again whatever has become of them."""
        self._cluster = cluster
        self.users = [
            _User(cluster.user_in(shard, f"-{one}"), named=one % 2 == 0)
            for shard in range(cluster.shards)
            for one in range(users_a_shard)
        ]
        self._until = asyncio.Event()

    async def __aenter__(self) -> Load:
        self._writing = [asyncio.ensure_future(user.write(self._cluster, self._until)) for user in self.users]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._until.set()
        done = await asyncio.gather(*self._writing, return_exceptions=True)
        for one in done:
            if isinstance(one, BaseException) and kind is None:
                raise one

    async def check(self) -> None:
        """0 lost, none twice, every read right, and what was refused is not there."""
        for user in self.users:
            await user.read(self._cluster)
        assert [wrong for user in self.users for wrong in user.wrong] == []
        assert all(user.acknowledged for user in self.users)

    @property
    def unknown(self) -> list[str]:
        return [turn for user in self.users for turn in user.unknown]

    @property
    def errors(self) -> list[bytes]:
        return [error for user in self.users for error in user.errors]

    @property
    def refused(self) -> list[str]:
        return [turn for user in self.users for turn in user.refused]

    @property
    def acknowledged(self) -> int:
        return sum(len(user.acknowledged) for user in self.users)

    @property
    def longest_s(self) -> float:
        """The longest that any user waited from one acknowledgement to the next."""
        return max(gap for user in self.users for gap in user.gaps_s)
