"""Encoder, cross-encoder and language model in deployments of their own on Ray: they answer, die and come back."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deployments.served import Served, wait_until
from tests.models import test_causal, test_rerank

pytestmark = [pytest.mark.ray, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("model_service.py")
BACK_S = 90
CALLS, AT_ONCE = 40, 32
TOO_LONG = "text too long"
"""What the small language model says, which cannot even read its instructions: said over there it is an answer."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="m", ignore_cleanup_errors=True) as name:
        models = Path(name) / "models"
        for make, kind in ((test_rerank.small, "pairs"), (test_causal.small, "chat")):
            (models / kind).mkdir(parents=True)
            make(models / kind)
        one = Served(Path(name) / "v", "ray", program=PROGRAM, MODELS=str(models))
        try:
            yield one.ready()
        finally:
            one.end()


def ask(served: Served, path: str, **body: Any) -> Any:
    try:
        return httpx.post(f"{served.url}{path}", json=body, trust_env=False, timeout=60).json()
    except httpx.TransportError as error:  # while it starts the proxy is replaced
        return str(error)


def replicas(served: Served, kind: str) -> list[int]:
    return served.processes(f"ray::ServeReplica:memstrata-{kind}@".encode())


def answers(served: Served, path: str) -> bool:
    return is_answer(ask(served, path, count=1, texts=["a b"]))


def is_answer(said: Any) -> bool:
    return isinstance(said, list) or said == TOO_LONG


def test_models_of_each_kind_answer_from_processes_of_their_own(served: Served) -> None:
    for path in ("/vectors", "/scores", "/summary"):
        assert wait_until(lambda path=path: answers(served, path), BACK_S), (ask(served, path), served.log.read_text())
    assert ask(served, "/vectors", count=3) == [16] * 3
    assert len(ask(served, "/scores", texts=["a b", "c"])) == 2
    assert [len(replicas(served, kind)) for kind in ("Embedder", "Reranker", "Summariser")] == [2, 1, 1]
    assert ask(served, "/") == {"torch": False}


def test_of_two_replicas_one_that_is_killed_costs_no_call(served: Served) -> None:
    assert wait_until(lambda: len(replicas(served, "Embedder")) == 2, BACK_S)
    found: list[Any] = []

    def call() -> None:
        for _ in range(CALLS):
            found.extend(ask(served, "/vectors", count=AT_ONCE))

    calling = threading.Thread(target=call)
    calling.start()
    assert wait_until(lambda: len(found) > AT_ONCE * 3, BACK_S)
    gone = replicas(served, "Embedder")[0]
    os.kill(gone, signal.SIGKILL)
    before = len(found)
    calling.join()
    assert len(found) > before, "calls went on"
    assert found == [16] * (CALLS * AT_ONCE)
    assert wait_until(lambda: len(set(replicas(served, "Embedder")) - {gone}) == 2, BACK_S)


@pytest.mark.parametrize(("kind", "path"), [("Reranker", "/scores"), ("Summariser", "/summary")])
def test_one_that_is_killed_is_told_gone_and_comes_back(served: Served, kind: str, path: str) -> None:
    assert wait_until(lambda: answers(served, path), BACK_S)
    [gone] = replicas(served, kind)
    os.kill(gone, signal.SIGKILL)
    said = ask(served, path, texts=["a b"])
    assert is_answer(said) or "does not answer" in said, said
    assert wait_until(lambda: answers(served, path), BACK_S), ask(served, path, texts=["a b"])
    assert ask(served, "/vectors", count=1) == [16], "the others notice nothing"
