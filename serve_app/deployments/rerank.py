"""The cross-encoder in a deployment of its own: what serves there, and what searches have instead.

A deployment that is gone or hangs costs searches the stage, and never more than its share of their deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import numpy as np

from serve_app.deployments.place import Place
from serve_app.deployments.scaling import Reports, Work
from serve_app.deployments.standing import CALL_S, Standing
from serve_app.errors import RerankerUnavailable
from serve_app.memory.configurations import name_of
from serve_app.models.rerank import ModelOptions, OpenReranker, PairReranker, Scores, open_reranker
from serve_app.models.waiting import cost_of
from serve_app.ports import Shortlist

__all__ = ["PairCalls", "RerankerDeployments", "RerankerReplica", "opening_rerankers", "run_inside"]


_log = logging.getLogger(__name__)


def run_inside(options: ModelOptions) -> ModelOptions:
    """The cross-encoder alone, as a replica opens it: what else its section says changes nothing of it."""
    chosen = {name: getattr(options, name) for name in ("model", "revision", "device", "max_tokens")}
    return ModelOptions(**chosen)


class RerankerReplica:
    """A cross-encoder as other processes call it; it computes in its own thread, never on the replica's loop."""

    def __init__(self, options: ModelOptions, place: Place, open_model: OpenReranker = open_reranker) -> None:
        """Raises RerankerUnavailable."""
        place.enter()
        model = open_model(run_inside(options))
        if model is None:
            raise RerankerUnavailable("no cross-encoder is named")
        self._model, self._max_tokens = model, options.max_tokens
        self._work = Work()
        self._reports = Reports(lambda: self._work.load)

    async def scores(self, query: str, texts: list[str], within_s: float) -> Scores:
        """Raises TimeoutError, Overloaded, RerankerUnavailable."""
        asked = cost_of(query, self._max_tokens)
        tokens = sum(min(asked + cost_of(text, self._max_tokens), self._max_tokens) for text in texts)
        with self._work.of(tokens):
            return await asyncio.wrap_future(self._model.ask(query, texts, time.monotonic() + within_s))

    async def alive(self) -> bool:
        return True

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return self._reports.next()


class PairCalls:
    """`models.rerank.PairReranker` by a deployment."""

    def __init__(
        self,
        name: str,
        open_handle: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        *,
        several: bool = False,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`end` is called when nobody needs the deployment any more."""
        self._name, self._end = name, end
        self._deployment = Standing("the reranker", open_handle, loop, RerankerUnavailable, several=several)

    @property
    def name(self) -> str:
        return self._name

    def scores(self, shortlist: Shortlist, deadline: float) -> Scores:
        """See the port. Waits on the calling thread."""
        asked = self.ask(shortlist.query, shortlist.texts(), deadline)
        try:
            return asked.result(max(0.0, deadline - time.monotonic()))
        finally:
            asked.cancel()

    def contributions(self, shortlist: Shortlist) -> dict[str, Scores]:
        return {}

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Scores]:
        return self._deployment.begin(self._asked(query, list(texts), deadline))

    def close(self) -> None:
        """What still waits fails. Not to be called on the loop."""
        self._deployment.close()
        try:
            self._end()
        except RerankerUnavailable as error:
            _log.warning("a reranker that nobody needs may go on: %s", error)

    async def _asked(self, query: str, texts: list[str], deadline: float) -> Scores:
        """Raises TimeoutError at the deadline, whatever becomes of the call."""
        left_s = min(deadline - time.monotonic(), CALL_S)
        async with asyncio.timeout(max(0.0, left_s)):
            came = await self._deployment.answer(lambda remote: remote.scores.remote(query, texts, left_s))
        return np.array(came, np.float64)  # Ray may share what it hands out


class RerankerDeployments(Protocol):
    """By the names of configurations. `deployments/applications.py` has those of Ray Serve."""

    def run(self, name: str, options: ModelOptions) -> None:
        """Raises RerankerUnavailable."""
        ...

    def end(self, name: str) -> None: ...

    def handle(self, name: str) -> Callable[[], Any]: ...


def opening_rerankers(
    deployments: RerankerDeployments, loop: asyncio.AbstractEventLoop, *, several: bool = False
) -> OpenReranker:
    """Opens each where its section says. What it gives is not to be called on the loop. `several`: there may be more
    replicas than the section says.
    """

    def opened(options: ModelOptions) -> PairReranker | None:
        if options.placement == "inside" or not options.model:
            return open_reranker(options)
        name = name_of(run_inside(options))
        deployments.run(name, options)
        more, end = several or options.deployment.several, partial(deployments.end, name)
        return PairCalls(options.model, deployments.handle(name), loop, several=more, end=end)

    return opened
