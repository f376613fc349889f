"""One deployment for each embedding version: they come and go while the service lives, and die alone."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deployments.served import Served, wait_until

pytestmark = pytest.mark.ray
PROGRAM = Path(__file__).with_name("version_service.py")
BACK_S = 60
DOWN = "the deployment of hash_16 does not answer"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="e", ignore_cleanup_errors=True) as name:
        one = Served(Path(name) / "v", "ray", program=PROGRAM, MODELS="hash-16 hash-32")
        try:
            yield one.ready()
        finally:
            one.end()


def ask(served: Served, path: str, **body: str) -> Any:
    return httpx.post(f"{served.url}{path}", json=body, trust_env=False, timeout=60).json()


def length(served: Served, model: str) -> Any:
    """Of the vector of a text that nobody asked for before; else why there is none."""
    try:
        return ask(served, "/vectors", model=model, text=os.urandom(8).hex())
    except httpx.TransportError as error:  # while it starts the proxy is replaced, and cuts off what takes seconds
        return str(error)


def replicas(served: Served, version: str) -> list[int]:
    return served.processes(f"ray::ServeReplica:memstrata-Embedder@{version}:".encode())


def kill(served: Served, version: str) -> None:
    [replica] = replicas(served, version)
    os.kill(replica, signal.SIGKILL)


@pytest.mark.slow
def test_versions_come_and_go_and_die_alone(served: Served) -> None:
    """In this order: the encoders live on from one to the next, as they do in a service."""
    assert wait_until(lambda: [length(served, f"hash-{n}") for n in (16, 32)] == [16, 32], BACK_S)
    assert ask(served, "/")["torch"] is False
    one_that_dies_takes_no_other_along(served)
    one_that_comes_is_served_at_once(served)
    a_new_gateway_finds_them_as_they_are(served)
    one_that_goes_leaves_nothing(served)


def one_that_dies_takes_no_other_along(served: Served) -> None:
    known = ask(served, "/vectors", model="hash-16", text="known")
    kill(served, "hash_16")
    assert [length(served, "hash-16"), length(served, "hash-32")] == [DOWN, 32]
    assert ask(served, "/vectors", model="hash-16", text="known") == known == 16
    assert wait_until(lambda: length(served, "hash-16") == 16, BACK_S)


def one_that_comes_is_served_at_once(served: Served) -> None:
    others = replicas(served, "hash_16") + replicas(served, "hash_32")
    ask(served, "/add", model="hash-64")
    assert wait_until(lambda: length(served, "hash-64") == 64, BACK_S)
    assert replicas(served, "hash_16") + replicas(served, "hash_32") == others


def a_new_gateway_finds_them_as_they_are(served: Served) -> None:
    before = {version: replicas(served, version) for version in ("hash_16", "hash_32")}
    gateway = ask(served, "/")["gateway"]
    os.kill(gateway, signal.SIGKILL)

    def served_by_another() -> bool:
        try:
            ready = [length(served, f"hash-{n}") for n in (16, 32)] == [16, 32]
            return ready and bool(ask(served, "/")["gateway"] != gateway)
        except (httpx.TransportError, ValueError):  # the proxy hears of the other one a moment later
            return False

    assert wait_until(served_by_another, BACK_S), served.log.read_text()
    assert {version: replicas(served, version) for version in before} == before
    assert length(served, "hash-64") == "the version hash_64 is not served here"


def one_that_goes_leaves_nothing(served: Served) -> None:
    ask(served, "/remove", model="hash-32")
    assert length(served, "hash-32") == "the version hash_32 is not served here"
    assert wait_until(lambda: not replicas(served, "hash_32"), BACK_S)
    ask(served, "/add", model="hash-32")
    assert wait_until(lambda: length(served, "hash-32") == 32, BACK_S)
    assert length(served, "hash-16") == 16


def test_a_killed_service_takes_them_along(served: Served) -> None:
    os.killpg(served.process.pid, signal.SIGKILL)
    assert wait_until(lambda: not served.processes(), 30), served.processes()
