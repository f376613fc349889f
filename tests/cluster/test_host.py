"""What a host does with its shards: openings that fail, answers on the way out, and what the services share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_app.asgi import Answered, Asked, Receive, Scope, Send
from serve_app.cluster.answering import ANSWER_BYTES_MAX, answered, not_done_here
from serve_app.cluster.held import HeldBounds, HeldShard
from serve_app.cluster.host import Host, HostBounds
from serve_app.cluster.messages import Beat, Leases
from serve_app.errors import Overloaded, ShardElsewhere, StoreUnavailable
from serve_app.memory.compressors import Opened, opening
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.summarise import CompressOptions
from serve_app.ports import Embedder
from tests.api.running import hash_settings
from tests.cluster.in_process import Cluster

ASKED = Asked("POST", b"/v1/turns%2F?x=1", b"", ((b"a", b"b"),), b"body")
BOUNDS = HeldBounds(pause_s=0.01, pause_s_max=0.02, look_s=0.01, drain_s=0.5, stop_s=0.1)


class Small:
    """A service of one shard that answers with what it was asked, once it may."""

    def __init__(self, troubles: list[Exception] | None = None) -> None:
        self.troubles = troubles or []
        self.fenced = False
        self.may_answer, self.may_stop, self.may_start = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for one in (self.may_answer, self.may_stop, self.may_start):
            one.set()
        self.status, self.said = 200, b""
        self.stopped = False

    async def start(self) -> None:
        if self.troubles:
            raise self.troubles.pop()
        await self.may_start.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": self.status, "headers": scope["headers"]})
        await send({"type": "http.response.body", "body": self.said or scope["raw_path"], "more_body": True})
        await send({"type": "http.response.body", "body": body})

    async def stop(self) -> None:
        await self.may_stop.wait()
        self.stopped = True


async def held(service: Small, *, opened: bool = True) -> tuple[HeldShard, asyncio.Task[None]]:
    shard = HeldShard(3, lambda: service, asyncio.Semaphore(1), lambda: None, BOUNDS)
    life = asyncio.ensure_future(shard.run())
    await until(lambda: shard.open or not opened)
    await asyncio.sleep(0.01)
    return shard, life


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - of what is waited for, nobody tells
            await asyncio.sleep(0.005)


def played(scene: Callable[[], object]) -> None:
    asyncio.run(scene())  # type: ignore[arg-type]


def test_a_request_reaches_the_service_as_it_was_sent() -> None:
    async def scene() -> None:
        assert await answered(Small(), ASKED) == Answered(200, ASKED.headers, b"/v1/turns%2F?x=1body")

    played(scene)


def test_an_answer_that_does_not_end_is_not_kept() -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * (ANSWER_BYTES_MAX // 4), "more_body": True})

    async def scene() -> None:
        with pytest.raises(Overloaded):
            await answered(endless, ASKED)

    played(scene)


@pytest.mark.parametrize(
    ("status", "body", "again"),
    [
        (503, b'{"code": "shard_elsewhere", "detail": "d"}', True),
        (503, b'{"code": "writer_fenced", "detail": "d"}', True),
        (503, b'{"code": "not_ready", "detail": "d"}', True),
        (503, b'{"code": "store_unavailable", "detail": "d"}', False),
        (503, b"nothing of ours", False),
        (200, b'{"code": "shard_elsewhere"}', False),
    ],
)
def test_which_answers_say_that_nothing_was_done(status: int, body: bytes, again: bool) -> None:
    assert (not_done_here(Answered(status, (), body)) is not None) == again


def test_an_opening_that_fails_is_tried_again_and_told() -> None:
    async def scene() -> None:
        service = Small([StoreUnavailable("away")] * 500)
        shard, life = await held(service, opened=False)
        await asyncio.sleep(0.05)
        assert shard.trouble == "shard 3 cannot be opened: away"
        with pytest.raises(ShardElsewhere):
            await shard.ask(ASKED, 1.0)
        service.troubles.clear()
        await until(lambda: shard.open)
        assert shard.trouble is None
        shard.release()
        await life
        assert service.stopped

    played(scene)


def test_what_was_asked_before_the_end_is_answered_and_what_comes_then_is_sent_on() -> None:
    async def scene() -> None:
        service = Small()
        shard, life = await held(service)
        service.may_answer.clear()
        asking = asyncio.ensure_future(shard.ask(ASKED, 5.0))
        await asyncio.sleep(0.01)
        shard.release()
        await asyncio.sleep(0.05)
        with pytest.raises(ShardElsewhere):
            await shard.ask(ASKED, 5.0)
        assert not service.stopped
        service.may_answer.set()
        assert (await asking).status == 200
        await life
        assert service.stopped

    played(scene)


def test_an_answer_that_does_not_come_in_time_is_an_unknown_outcome() -> None:
    async def scene() -> None:
        service = Small()
        shard, life = await held(service)
        service.may_answer.clear()
        with pytest.raises(StoreUnavailable):
            await shard.ask(ASKED, 0.02)
        shard.release()
        await life

    played(scene)


def test_a_fenced_service_is_closed_at_its_own_word() -> None:
    async def scene() -> None:
        service = Small()
        shard, life = await held(service)
        service.fenced, service.status, service.said = True, 503, b'{"code": "writer_fenced", "detail": "d"'
        service.said += b', "x": "'
        with pytest.raises(ShardElsewhere):
            await shard.ask(ASKED._replace(body=b'"}'), 1.0)
        await life
        assert shard.fenced
        assert service.stopped

    played(scene)


@pytest.mark.parametrize("hangs_at", ["start", "stop"])
def test_a_service_that_hangs_is_left_behind(hangs_at: str) -> None:
    async def scene() -> None:
        service = Small()
        hanging = service.may_start if hangs_at == "start" else service.may_stop
        hanging.clear()
        shard, life = await held(service, opened=hangs_at == "stop")
        shard.release()
        await asyncio.wait_for(life, 5.0)
        assert not service.stopped
        hanging.set()
        await until(lambda: service.stopped)

    played(scene)


def test_a_host_whose_beats_have_ended_says_why(tmp_path: Path) -> None:
    class Defect(Exception):
        pass

    class Broken:
        async def beat(self, beat: Beat) -> Leases:
            raise Defect

        async def leases(self, after: int = -1) -> Leases:
            raise StoreUnavailable("away")

    async def scene() -> None:
        host = Host("writer-0", hash_settings(tmp_path), Broken())
        host.check()
        await host.start()
        await asyncio.sleep(0.01)
        with pytest.raises(Defect):
            host.check()
        await host.stop()

    played(scene)


def test_a_shard_that_meets_a_defect_rests_before_it_is_opened_again(tmp_path: Path) -> None:
    tries: list[float] = []

    class Leased:
        async def beat(self, beat: Beat) -> Leases:
            return Leases(1, ("writer-0", "writer-0"))

        async def leases(self, after: int = -1) -> Leases:
            raise StoreUnavailable("away")

    def encoder(options: EncoderOptions) -> Embedder:
        tries.append(time.monotonic())
        raise RuntimeError("a defect")

    async def scene() -> None:
        bounds = HostBounds(beat_s=0.01, rest_s=0.4, leave_s=0.1)
        host = Host("writer-0", hash_settings(tmp_path), Leased(), bounds, encoder=encoder)
        await host.start()
        await until(lambda: len(tries) >= 4)
        await host.stop()
        assert tries[2] - tries[0] > 0.3  # two shards, each of which is tried again after its rest
        assert len(tries) == 4

    played(scene)


def test_the_services_of_a_host_share_models_and_one_that_goes_leaves_them_to_the_rest(tmp_path: Path) -> None:
    opened: list[object] = []
    lock = threading.Lock()
    real = opening({}, apart=False)

    def encoder(options: EncoderOptions) -> Embedder:
        with lock:
            opened.append(options)
        return open_embedder(options)

    def compressor(options: CompressOptions) -> Opened:
        with lock:
            opened.append(options)
        return real(options)

    async def scene() -> None:
        async with Cluster(tmp_path, 2, encoder=encoder, compressor=compressor) as cluster:
            await cluster.add("writer-0")
            await cluster.settled()
            assert len(opened) == 2
            await cluster.add("writer-1")
            await cluster.settled()
            assert len(opened) == 4
            for shard in range(2):
                user = cluster.user_in(shard)
                body = {"user_id": user, "turns": [{"role": "user", "content": "a river"}], "wait": "indexed"}
                answer = await cluster.call(user, "POST", "/v1/sessions/s/turns", body)
                assert answer.status == 201, answer.body

    played(scene)
