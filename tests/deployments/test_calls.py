"""The calls of versions' deployments, on a loop of their own and with deployments that live in this process."""

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import pytest

from serve_app.deployments.calls import VersionCalls
from serve_app.deployments.models import EmbedderCalls, OpenedEncoders
from serve_app.deployments.standing import Standing
from serve_app.errors import EncoderUnavailable
from serve_app.models.embed import EncoderOptions, open_embedder
from tests.deployments.served import wait_until

WAIT_S = 10


class Method:
    """As of a Serve handle. `answers` off: the call waits, as one for a replica that does not come."""

    def __init__(self, deployment: "Deployment", name: str) -> None:
        self._deployment, self._name = deployment, name

    async def remote(self, *given: Any) -> Any:
        if not self._deployment.answers:
            await asyncio.Event().wait()
        if self._name == "alive":
            return True
        return self._deployment.embedder.encode(given[0])


class Deployment:
    def __init__(self, options: EncoderOptions) -> None:
        self.embedder = open_embedder(options)
        self.answers = True

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


class InProcess:
    """`Deployments` by their versions."""

    def __init__(self) -> None:
        self.there: dict[str, Deployment] = {}
        self.run_count = 0

    def run(self, version: str, options: EncoderOptions) -> None:
        if version not in self.there:
            self.there[version] = Deployment(options)
            self.run_count += 1

    def end(self, version: str) -> None:
        self.there.pop(version, None)

    def versions(self) -> list[str]:
        return list(self.there)

    def calls(self, version: str, loop: asyncio.AbstractEventLoop, *, several: bool = False) -> VersionCalls:
        return VersionCalls(version, lambda: self.there[version], loop, several=several)


def opened(*models: str) -> tuple[OpenedEncoders, list[Any]]:
    encoders = OpenedEncoders()
    return encoders, [encoders.open(EncoderOptions(model=model)) for model in models]


def test_a_version_that_is_down_costs_its_own_vectors_alone(loop: asyncio.AbstractEventLoop) -> None:
    deployments = InProcess()
    encoders, embedders = opened("hash-16", "hash-32")
    calls = EmbedderCalls(deployments, encoders, loop, embedders)
    assert calls.passages("hash_16", ["a"]).result(WAIT_S).vectors.shape == (1, 16)
    deployments.there["hash_16"].answers = False
    waits = calls.passages("hash_16", ["b"])
    assert calls.passages("hash_32", ["b"]).result(WAIT_S).vectors.shape == (1, 32)
    with pytest.raises(EncoderUnavailable):
        waits.result(WAIT_S)
    with pytest.raises(EncoderUnavailable):
        calls.passages("hash_16", ["c"])
    assert calls.passages("hash_32", ["c"]).result(WAIT_S).vectors.shape == (1, 32)
    deployments.there["hash_16"].answers = True
    assert wait_until(lambda: not refused(calls, "hash_16"), WAIT_S)
    calls.close()


def refused(calls: EmbedderCalls, version: str) -> bool:
    try:
        calls.passages(version, ["d"]).result(WAIT_S)
    except EncoderUnavailable:
        return True
    return False


def test_what_waits_for_a_version_that_goes_fails_at_once(loop: asyncio.AbstractEventLoop) -> None:
    deployments = InProcess()
    encoders, embedders = opened("hash-16")
    calls = EmbedderCalls(deployments, encoders, loop, embedders)
    deployments.there["hash_16"].answers = False
    waits = calls.passages("hash_16", ["a"])
    calls.remove("hash_16")
    with pytest.raises(EncoderUnavailable):
        waits.result(1)
    with pytest.raises(EncoderUnavailable, match="not served here"):
        calls.passages("hash_16", ["a"])
    assert deployments.versions() == []
    calls.add(embedders[0])
    assert calls.passages("hash_16", ["a"]).result(WAIT_S).vectors.shape == (1, 16)
    calls.close()


def test_a_gateway_takes_over_what_is_there_and_ends_strays(loop: asyncio.AbstractEventLoop) -> None:
    deployments = InProcess()
    encoders, embedders = opened("hash-16", "hash-32")
    EmbedderCalls(deployments, encoders, loop, embedders).close()
    assert sorted(deployments.versions()) == ["hash_16", "hash_32"], "they outlive the gateway that started them"
    encoders, embedders = opened("hash-16")
    calls = EmbedderCalls(deployments, encoders, loop, embedders, settled_s=0.05)
    assert deployments.run_count == 2
    assert wait_until(lambda: deployments.versions() == ["hash_16"], WAIT_S)
    calls.close()


def test_a_handle_that_cannot_be_opened_keeps_the_loop_of_nobody(loop: asyncio.AbstractEventLoop) -> None:
    there, opened_by = threading.Event(), list[int]()
    replica = Deployment(EncoderOptions(model="hash-16"))

    def open_handle() -> Deployment:
        opened_by.append(threading.get_ident())
        there.wait(WAIT_S)
        return replica

    calls = VersionCalls("v", open_handle, loop)
    waits = [calls.passages([text]) for text in "ab"]
    assert asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "goes on"), loop).result(1) == "goes on"
    there.set()
    assert [found.result(WAIT_S).vectors.shape for found in waits] == [(1, 16)] * 2
    assert len(opened_by) == 1
    calls.close()


class Replicas:
    """A deployment of several, which calls of each method reach in turn; a dead one fails, a hung one keeps them."""

    def __init__(self, *states: str) -> None:
        self.one = Deployment(EncoderOptions(model="hash-16"))
        self.states, self.calls = list(states), Counter[str]()

    def __getattr__(self, name: str) -> "Turned":
        return Turned(self, name)


class Turned:
    def __init__(self, replicas: Replicas, name: str) -> None:
        self._replicas, self._name, self._method = replicas, name, Method(replicas.one, name)

    async def remote(self, *given: Any) -> Any:
        state = self._replicas.states[self._replicas.calls[self._name] % len(self._replicas.states)]
        self._replicas.calls[self._name] += 1
        if state == "hung":
            await asyncio.Event().wait()
        if state == "given up":
            raise asyncio.CancelledError
        if state == "dead":
            raise ConnectionError("the actor died")
        return await self._method.remote(*given)


@pytest.mark.parametrize("bad", ["dead", "hung"])
def test_one_of_several_replicas_may_be_gone(loop: asyncio.AbstractEventLoop, bad: str) -> None:
    """It costs no call where it is dead, and where it hangs those that it has."""
    replicas = Replicas("alive", bad)
    calls = VersionCalls("hash_16", lambda: replicas, loop, several=True)
    waiting = []
    for number in range(12):
        waiting.append(calls.passages([str(number)]))
        time.sleep(0.25)
    came = sum(one.done() and one.exception() is None for one in waiting)
    assert came == len(waiting) if bad == "dead" else came >= len(waiting) // 4
    replicas.states = ["dead", "dead"]
    assert wait_until(lambda: not accepted(calls), WAIT_S)
    replicas.states = ["dead", "alive"]
    assert wait_until(lambda: accepted(calls), WAIT_S)
    calls.close()


def accepted(calls: VersionCalls) -> bool:
    try:
        calls.passages(["d"]).cancel()
    except EncoderUnavailable:
        return False
    return True


def test_a_call_that_ray_gives_up_is_no_answer_and_such_a_beat_not_the_last(loop: asyncio.AbstractEventLoop) -> None:
    replicas = Replicas("given up")
    standing = Standing("v", lambda: replicas, loop, EncoderUnavailable)
    with pytest.raises(EncoderUnavailable):
        standing.begin(standing.answer(lambda one: one.passages.remote(["a"]), patient=True)).result(WAIT_S)
    assert wait_until(lambda: standing.gone, WAIT_S)
    replicas.states = ["well"]
    assert wait_until(lambda: not standing.gone, WAIT_S)
    standing.close()
