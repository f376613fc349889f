"""A cluster in one process: Control, hosts, a gateway's upstream on one event loop, and ways between them that fail.

`Ways` cuts, holds up and loses; the rest is the real thing. A host that is "dropped" hears and says nothing any more,
but its threads live on: a process that only the network has lost, which is worse than one that is dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from serve_app.api.auth import KeyFile
from serve_app.asgi import Answered, Asked
from serve_app.cluster.answering import answered
from serve_app.cluster.control import Control, ControlBounds
from serve_app.cluster.held import HeldBounds
from serve_app.cluster.host import Host, HostBounds
from serve_app.cluster.lease_file import LeaseFile
from serve_app.cluster.messages import Beat, Leases, Wanted
from serve_app.cluster.relays import Relays
from serve_app.cluster.upstream import Upstream
from serve_app.config import Settings, StoreOptions
from serve_app.core import Owner
from serve_app.errors import ShardElsewhere, StoreUnavailable
from serve_app.placement import shard_of
from serve_app.service import Service
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.relay import Segment
from serve_app.write.follow import FollowOptions
from tests.api.running import hash_settings, quoted

T = TypeVar("T")

QUICK = ControlBounds(silence_s=1.5, gather_s=0.2, look_s=0.1, poll_s=1.0, held_up_s=0.5)
QUICK_HOST = HostBounds(beat_s=0.1, beat_limit_s=1.0, rest_s=0.2, leave_s=5.0)
QUICK_HELD = HeldBounds(pause_s=0.05, look_s=0.05, drain_s=2.0)
SETTLED_S = 30.0
"""Far more than it takes: the machine may be busy with other tests."""

LOST_S = 0.3
"""What it takes until a call into nowhere is given up."""


class Ways:
    """The network: names in `cut` reach nobody and are not reached; what is meant for `paused` ones comes late."""

    def __init__(self) -> None:
        self.cut: set[str] = set()
        self.lose: Callable[[], bool] = lambda: False
        """Whether the answer to a request, which was done, gets lost."""
        self._paused: dict[str, asyncio.Event] = {}
        self._late: set[asyncio.Task[Any]] = set()

    def pause(self, name: str) -> None:
        self._paused[name] = asyncio.Event()

    def wake(self, name: str) -> None:
        self._paused.pop(name).set()

    async def to(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Who calls gives up after a while; a call to one that is paused reaches it all the same, when it wakes."""
        if name in self.cut:
            await asyncio.sleep(LOST_S)
            raise StoreUnavailable(f"{name} does not answer")
        if (paused := self._paused.get(name)) is not None:
            late = asyncio.ensure_future(self._late_call(paused, call))
            self._late.add(late)
            await asyncio.wait({late}, timeout=LOST_S)
            if not late.done():
                raise StoreUnavailable(f"{name} did not answer in time")
            return late.result()
        found = await call()
        if name in self.cut or name in self._paused:
            raise StoreUnavailable(f"{name} was lost")
        return found

    async def _late_call(self, paused: asyncio.Event, call: Callable[[], Awaitable[T]]) -> T:
        await paused.wait()
        return await call()

    async def end(self) -> None:
        self.cut.clear()
        for name in list(self._paused):
            self.wake(name)
        await asyncio.gather(*self._late, return_exceptions=True)


class ControlWay:
    """`ControlCalls` for one process, over the ways."""

    def __init__(self, cluster: Cluster, of: str) -> None:
        self._cluster, self._of = cluster, of

    async def beat(self, beat: Beat) -> Leases:
        return await self._call(lambda control: control.beat(beat))

    async def leases(self, after: int = -1) -> Leases:
        return await self._call(lambda control: control.leases(after))

    async def _call(self, call: Callable[[Control], Awaitable[Leases]]) -> Leases:
        control = self._cluster.control
        if control is None:
            raise StoreUnavailable("nobody is there")
        return await self._cluster.ways.to(self._of, lambda: call(control))


class Gateway:
    """A service that follows the store, with ways of its own to Control and to the writers."""

    def __init__(self, cluster: Cluster, name: str, follow: FollowOptions) -> None:
        settings = cluster.settings(name, role="gateway", follow=follow)
        upstream = Upstream(ControlWay(cluster, name), cluster, LeaseFile(settings.files))
        self._relays = Relays(lambda: upstream.leases, cluster)
        self.service = Service(settings, upstream=upstream, relay=self._relays.of, **cluster.injected)

    async def start(self) -> None:
        await self.service.start()

    async def stop(self) -> None:
        self._relays.close()
        await self.service.stop()


class Cluster:
    """`async with`: Control and the hosts are started, and everything is ended at the end, dropped hosts too."""

    def __init__(self, folder: Path, shards: int = 4, **injected: Any) -> None:
        self.folder, self.shards, self.injected = folder, shards, injected
        self.ways = Ways()
        self.control: Control | None = None
        self.hosts: dict[str, Host] = {}
        self.dropped: list[Host] = []
        self.gateways: list[Gateway] = []
        self.mute: set[str] = set()
        """Writers that answer no calls for new segments."""
        self.upstream = Upstream(ControlWay(self, "gateway"), self, LeaseFile(DiskDocuments(folder / "store")))
        self.pulls = 0
        """Calls for new segments."""
        self._started = 0
        self._said: list[str] = []

    async def __aenter__(self) -> Cluster:
        await self.start_control()
        await self.upstream.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for gateway in self.gateways:
            await gateway.stop()
        await self.upstream.stop()
        await self.stop_control()
        await self.ways.end()
        await asyncio.gather(*(host.stop() for host in [*self.hosts.values(), *self.dropped]))

    @property
    def key(self) -> str:
        return (self.folder / "store" / "admin.key").read_text().strip()

    def settings(self, name: str, **sections: Any) -> Settings:
        store = StoreOptions(shards=self.shards, files_uri=str(self.folder / "store"))
        return hash_settings(self.folder / name, store=store, **sections)

    async def start_control(self) -> None:
        control = Control(self.settings("control"), QUICK, tell=self._said.append)
        await control.start()
        self.control = control

    async def stop_control(self) -> None:
        if self.control is not None:
            await self.control.stop()
        self.control = None

    async def add(self, *names: str) -> None:
        for name in names:
            self._started += 1
            settings = self.settings(f"{name}.{self._started}")
            host = self.hosts[name] = Host(
                name, settings, ControlWay(self, name), QUICK_HOST, QUICK_HELD, **self.injected
            )
            await host.start()

    async def gateway(self, name: str, **follow: Any) -> Gateway:
        """Started; `follow` are `FollowOptions`."""
        one = Gateway(self, name, FollowOptions(**follow))
        await one.start()
        self.gateways.append(one)
        return one

    async def remove(self, name: str) -> None:
        await self.hosts[name].stop()
        del self.hosts[name]

    def drop(self, name: str) -> None:
        self.ways.cut.add(name)
        self.dropped.append(self.hosts.pop(name))

    async def settled(self, within_s: float = SETTLED_S) -> float:
        """Wait until every shard is open where it is leased, and nowhere else that can be reached; seconds it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not self._is_settled():  # what is waited for is spread over all hosts
            if loop.time() > began + within_s:
                open_where = {name: (host.open, host.troubles()) for name, host in self.hosts.items()}
                raise AssertionError(f"not settled: {self.upstream.leases}, {open_where}, {self.upstream.troubles()}")
            await asyncio.sleep(0.01)
        return loop.time() - began

    def _is_settled(self) -> bool:
        leases = self.upstream.leases.writers
        wanted = {name: tuple(n for n, writer in enumerate(leases) if writer == name) for name in self.hosts}
        balanced = max(map(len, wanted.values())) - min(map(len, wanted.values())) <= 1
        return (
            balanced
            and sum(map(len, wanted.values())) == self.shards
            and all(host.open == wanted[name] for name, host in self.hosts.items())
        )

    # ---- `WriterCalls`

    async def ask(self, writer: str, shard: int, asked: Asked, within_s: float) -> Answered:
        host = self.hosts.get(writer)
        if host is None and writer not in self.ways.cut:
            raise ShardElsewhere(f"{writer} is not there")
        if host is None:
            await asyncio.sleep(LOST_S)
            raise StoreUnavailable(f"{writer} does not answer")
        answer = await self.ways.to(writer, lambda: host.ask(shard, asked, within_s))
        if self.ways.lose():
            raise StoreUnavailable("the answer was lost")
        return answer

    async def segments(
        self, writer: str, wanted: Mapping[int, Wanted], wait_s: float
    ) -> dict[int, list[Segment] | None]:
        self.pulls += 1
        host = self.hosts.get(writer)
        if host is None or writer in self.mute:
            raise StoreUnavailable(f"{writer} does not answer")
        return await self.ways.to(writer, lambda: host.segments(wanted, wait_s))

    # ---- a client

    def make_key(self) -> str:
        return KeyFile(DiskDocuments(self.folder / "store")).create(tenant="default", role="app")[1]

    def user_in(self, shard: int, more: str = "") -> str:
        names = (f"user{more}-{n}" for n in range(1000))
        return next(name for name in names if shard_of(Owner("default", name), self.shards) == shard)

    async def call(
        self, user: str, method: str, path: str, body: Any = None, *, within_s: float = 30.0, again: bool = True
    ) -> Answered:
        """`again`: whether it may be done twice."""
        asked = self.asked(method, path, body)
        shard = shard_of(Owner("default", user), self.shards)
        return await self.upstream.ask(shard, asked, within_s, repeatable=again)

    def asked(self, method: str, path: str, body: Any = None) -> Asked:
        headers = ((b"authorization", f"Bearer {self.key}".encode()), (b"content-type", b"application/json"))
        text = b"" if body is None else msgspec.json.encode(body)
        path, _, query = path.partition("?")
        return Asked(method, path.encode(), query.encode(), headers, text)

    async def append(self, user: str, session: str, turn: str, *, named: bool = True) -> Answered:
        """`named`: with an id, so that it may be sent twice and counts once."""
        said = {"role": "user", "content": turn} | ({"id": turn} if named else {})
        body = {"user_id": user, "turns": [said]}
        return await self.call(user, "POST", f"/v1/sessions/{quoted(session)}/turns", body, again=named)

    async def turns(self, user: str, session: str, gateway: Gateway | None = None) -> list[str]:
        """As its writer shows them, or a gateway."""
        path = f"/v1/sessions/{quoted(session)}/turns?user_id={user}&limit=1000"
        asked = self.asked("GET", path)
        answer = await (self.call(user, "GET", path) if gateway is None else answered(gateway.service, asked))
        assert answer.status == 200, answer.body
        return [turn["content"] for turn in msgspec.json.decode(answer.body)["turns"]]
