"""Cross-encoder and summariser behind deployments that live in this process: they answer, hang and die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from serve_app.breaker import Breaker
from serve_app.deployments.place import Place
from serve_app.deployments.rerank import RerankerReplica, opening_rerankers
from serve_app.deployments.summarise import SummariserCalls, SummariserReplica, opening_summarisers
from serve_app.errors import InvalidRequest, MemstrataError, RerankerUnavailable, SummariserFailed
from serve_app.memory.configurations import name_of
from serve_app.models.placed import Placed
from serve_app.models.rerank import CrossEncoding, ModelOptions, PairReranker, Scores, open_reranker
from serve_app.models.summarise import CompressOptions, SummariserOptions, open_summarisers
from serve_app.ports import Shortlist, SummaryTask
from tests.deployments.served import wait_until

WAIT_S = 20.0
OPTIONS = ModelOptions(model="a-model", placement="deployment")


class Longest:
    """A `PairModel`."""

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> Scores:
        if query == "fails":
            raise RerankerUnavailable("the reranker failed: MemoryError")
        return np.array([len(text) / 100 for text in texts])


class Echo:
    """`ports.Summariser`."""

    name, window_tokens, trouble = "echo", 100, None
    breaker = Breaker("echo", 3, 1.0)

    def summarise(self, task: SummaryTask, deadline_s: float) -> str:
        if task.text == "useless":
            raise SummariserFailed("answer of no use")
        return task.text.upper()

    def close(self) -> None:
        pass


class InProcess:
    """Deployments of one kind; `answers` off: a call waits, as one for a replica that hangs or does not come."""

    def __init__(self, replica: Callable[[Any], Any]) -> None:
        self._replica = replica
        self.there: dict[str, Any] = {}
        self.answers = True
        self.wraps = True
        """Whether what is raised over there comes wrapped: Ray has ways of both kinds."""

    def run(self, name: str, options: Any) -> None:
        self.there.setdefault(name, self._replica(options))

    def end(self, name: str) -> None:
        del self.there[name]

    def handle(self, name: str) -> Callable[[], Any]:
        return lambda: Handle(self, self.there[name])


class Handle:
    def __init__(self, deployments: InProcess, replica: Any) -> None:
        self._deployments, self._replica = deployments, replica

    def __getattr__(self, name: str) -> Any:
        deployments, method = self._deployments, getattr(self._replica, name)

        class Method:
            @staticmethod
            async def remote(*given: Any) -> Any:
                if not deployments.answers:
                    await asyncio.Event().wait()
                try:
                    return await method(*given)
                except (MemstrataError, TimeoutError) as error:
                    raise (Wrapped(error) if deployments.wraps else error) from None

        return Method


class Wrapped(Exception):
    """As Ray hands on what was raised over there."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def reranker_replica(options: ModelOptions) -> RerankerReplica:
    return RerankerReplica(options, InsideHere(), lambda inside: CrossEncoding(inside.model, Longest))


class InsideHere(Place, frozen=True):
    def enter(self) -> None:
        """This process is the test's."""


def summariser_replica(options: CompressOptions) -> SummariserReplica:
    return SummariserReplica(options.coarse, InsideHere(), lambda one, section: Echo())


@pytest.fixture
def reranked(loop: asyncio.AbstractEventLoop) -> Iterator[tuple[InProcess, PairReranker]]:
    deployments = InProcess(reranker_replica)
    model = opening_rerankers(deployments, loop)(OPTIONS)
    assert model is not None
    yield deployments, model
    model.close()
    assert not deployments.there, "nobody needs it any more"


def asked(model: PairReranker, query: str, within_s: float = WAIT_S) -> Scores:
    texts = ["aa", "a"]
    shortlist = Shortlist(query, lambda: texts, np.zeros(2), np.zeros((2, 0), np.float32))
    return model.scores(shortlist, time.monotonic() + within_s)


def settled(model: PairReranker) -> bool:
    """A model that has just been started sends some away."""
    try:
        return len(asked(model, "q")) == 2
    except (RerankerUnavailable, TimeoutError):
        return False


def test_a_cross_encoder_answers_from_its_deployment(reranked: tuple[InProcess, PairReranker]) -> None:
    _, model = reranked
    assert model.name == "a-model"
    assert wait_until(lambda: settled(model), WAIT_S)
    assert asked(model, "q").tolist() == [0.02, 0.01]
    with pytest.raises(RerankerUnavailable, match="MemoryError"):
        asked(model, "fails")
    with pytest.raises(TimeoutError):
        asked(model, "q", -1.0)


def test_a_cross_encoder_that_hangs_costs_the_deadline_and_one_that_is_gone_nothing(
    reranked: tuple[InProcess, PairReranker],
) -> None:
    deployments, model = reranked
    assert wait_until(lambda: settled(model), WAIT_S)
    deployments.answers = False
    began = time.monotonic()
    with pytest.raises((TimeoutError, RerankerUnavailable)):
        asked(model, "q", 0.2)
    assert time.monotonic() - began < 1.0
    waits: Future[Scores] = model.ask("q", ["a"], time.monotonic() + WAIT_S)
    with pytest.raises(RerankerUnavailable):
        waits.result(WAIT_S)
    with pytest.raises(RerankerUnavailable):
        model.ask("q", ["a"], time.monotonic() + WAIT_S)
    deployments.answers = True
    assert wait_until(lambda: settled(model), WAIT_S)


@pytest.mark.parametrize("wraps", [True, False])
def test_a_summariser_answers_from_its_deployment_and_may_hang(loop: asyncio.AbstractEventLoop, wraps: bool) -> None:
    deployments = InProcess(summariser_replica)
    deployments.wraps = wraps
    options = SummariserOptions(backend="transformers", model="m", deadline_ms=400, rest_s=60.0)
    deployments.run("m", CompressOptions(options))
    calls = SummariserCalls("m", options, deployments.handle("m"), loop)
    assert calls.summarise(SummaryTask("yes", 10), 10.0) == "YES"
    with pytest.raises(SummariserFailed, match="of no use"):
        calls.summarise(SummaryTask("useless", 10), 10.0)
    assert calls.trouble is None
    deployments.answers = False
    for _ in range(3):
        with pytest.raises(SummariserFailed):
            calls.summarise(SummaryTask("yes", 10), 10.0)
    began = time.monotonic()
    with pytest.raises(SummariserFailed, match="left alone"):
        calls.summarise(SummaryTask("yes", 10), 10.0)
    assert time.monotonic() - began < 0.2
    assert calls.trouble is not None
    calls.close()


def test_only_local_language_models_have_deployments(loop: asyncio.AbstractEventLoop) -> None:
    deployments = InProcess(summariser_replica)
    assert opening_summarisers(deployments, loop)(CompressOptions(placement="deployment")) == (None, None)
    server = SummariserOptions(backend="openai", url="http://127.0.0.1:1", model="m")
    coarse, fine = opening_summarisers(deployments, loop)(CompressOptions(server, placement="deployment"))
    assert coarse is not None
    coarse.close()
    assert fine is None
    assert not deployments.there


def test_without_the_ray_engine_there_are_none_and_a_configuration_is_named_alike_wherever_it_runs() -> None:
    with pytest.raises(InvalidRequest, match="needs the Ray engine"):
        open_reranker(OPTIONS)
    with pytest.raises(InvalidRequest, match="needs the Ray engine"):
        open_summarisers(CompressOptions(placement="deployment"))
    placed = ModelOptions(model="a-model", placement="deployment", deployment=Placed(replicas=3))
    assert name_of(placed) == name_of(ModelOptions(model="a-model"))
    with pytest.raises(ValueError, match="below"):
        Placed(replicas=3, replicas_max=2)
