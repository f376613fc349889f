"""A language model that summarises, in a deployment of its own: what serves there, and what a service has instead.

One that is gone or hangs costs a summary that model and its deadline, and then nothing: after some faults it is left
alone for a while, and the next backend summarises.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol

from serve_app.breaker import Breaker
from serve_app.deployments.place import Place
from serve_app.deployments.scaling import Reports, Work
from serve_app.deployments.standing import Standing
from serve_app.errors import Overloaded, SummariserFailed
from serve_app.memory.configurations import name_of
from serve_app.models.chat import FAULTS_MAX, TELLING_SHARE
from serve_app.models.model_thread import WAITING_MAX
from serve_app.models.summarise import (
    CompressOptions,
    OpenSummarisers,
    SummariserOptions,
    local_name,
    open_summariser,
    open_summarisers,
    opened_by,
)
from serve_app.models.waiting import cost_of
from serve_app.ports import Summariser, SummaryTask

__all__ = ["SummariserCalls", "SummariserDeployments", "SummariserReplica", "opening_summarisers"]

SECTION: Final = "compress"

_log = logging.getLogger(__name__)


class SummariserReplica:
    """A `ports.Summariser` as other processes call it. One task is computed at a time, in the model's own thread."""

    def __init__(
        self,
        options: SummariserOptions,
        place: Place,
        open_one: Callable[[SummariserOptions, str], Summariser | None] = open_summariser,
    ) -> None:
        """Raises InvalidRequest, SummariserFailed."""
        place.enter()
        model = open_one(options, SECTION)
        if model is None:
            raise SummariserFailed("no model is named")
        self._model, self._window_tokens = model, options.window_tokens
        self._waiting = ThreadPoolExecutor(WAITING_MAX, "summaries")
        self._work = Work()
        self._reports = Reports(lambda: self._work.load)

    async def summarise(self, task: SummaryTask, within_s: float) -> str:
        """Raises SummariserFailed."""
        with self._work.of(cost_of(task.text, self._window_tokens)):
            call = partial(self._model.summarise, task, within_s)
            return await asyncio.get_running_loop().run_in_executor(self._waiting, call)

    async def alive(self) -> bool:
        return True

    async def record_autoscaling_stats(self) -> dict[str, float]:
        return self._reports.next()


class SummariserCalls:
    """`ports.Summariser` by a deployment."""

    def __init__(
        self,
        name: str,
        options: SummariserOptions,
        open_handle: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        *,
        several: bool = False,
        end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`end` is called when nobody needs the deployment any more."""
        self._name, self._options, self._end = name, options, end
        self._breaker = Breaker(name, FAULTS_MAX, options.rest_s, clock)
        self._deployment = Standing(name, open_handle, loop, SummariserFailed, several=several)

    @property
    def name(self) -> str:
        return self._name

    @property
    def window_tokens(self) -> int:
        return self._options.window_tokens

    @property
    def breaker(self) -> Breaker:
        return self._breaker

    @property
    def trouble(self) -> str | None:
        if self._deployment.gone:
            return "its deployment does not answer"
        return None if self._breaker.state == "closed" else "left alone after faults"

    def summarise(self, task: SummaryTask, deadline_s: float) -> str:
        """See the port. Waits on the calling thread, which is not the loop's."""
        if not self._breaker.admit():
            raise SummariserFailed("left alone after faults")
        own_s = self._options.deadline_ms / 1e3
        within_s = max(0.0, min(deadline_s, own_s))
        try:
            text = self._answered(task, within_s)
        except TimeoutError as error:
            (self._breaker.released if within_s < own_s * TELLING_SHARE else self._breaker.failed)()
            raise SummariserFailed("deadline") from error
        except Overloaded as error:
            self._breaker.released()
            raise SummariserFailed("busy") from error
        except SummariserFailed:  # says something of the task, unless the deployment is gone
            (self._breaker.failed if self._deployment.gone else self._breaker.released)()
            raise
        self._breaker.succeeded()
        return text

    def close(self) -> None:
        """What is under way fails. Not to be called on the loop."""
        self._deployment.close()
        try:
            self._end()
        except SummariserFailed as error:
            _log.warning("a summariser that nobody needs may go on: %s", error)

    def _answered(self, task: SummaryTask, within_s: float) -> str:
        """Raises TimeoutError, Overloaded, SummariserFailed."""
        asked = self._deployment.begin(self._asked(task, within_s))
        try:
            return asked.result(within_s)
        finally:
            asked.cancel()

    async def _asked(self, task: SummaryTask, within_s: float) -> str:
        async with asyncio.timeout(within_s):
            text: str = await self._deployment.answer(lambda remote: remote.summarise.remote(task, within_s))
            return text


class SummariserDeployments(Protocol):
    """By the names of configurations. `deployments/applications.py` has those of Ray Serve."""

    def run(self, name: str, options: CompressOptions) -> None:
        """Raises SummariserFailed."""
        ...

    def end(self, name: str) -> None: ...

    def handle(self, name: str) -> Callable[[], Any]: ...


def opening_summarisers(
    deployments: SummariserDeployments, loop: asyncio.AbstractEventLoop, *, several: bool = False
) -> OpenSummarisers:
    """Opens each where `[compress]` says; what is no model of this project's runs inside. What it gives is not to be
    called on the loop. `several`: there may be more replicas than the section says.
    """

    def opened(options: CompressOptions) -> tuple[Summariser | None, Summariser | None]:
        if options.placement == "inside":
            return open_summarisers(options)
        return opened_by(options, partial(_opened, deployments, loop, options, several))

    return opened


def _opened(
    deployments: SummariserDeployments,
    loop: asyncio.AbstractEventLoop,
    section: CompressOptions,
    several: bool,
    options: SummariserOptions,
    part: str,
) -> Summariser | None:
    if options.backend != "transformers":
        return open_summariser(options, part)
    name = name_of(options)
    deployments.run(name, CompressOptions(options, options, section.placement, section.deployment))
    end = partial(deployments.end, name)
    more = several or section.deployment.several
    return SummariserCalls(local_name(options), options, deployments.handle(name), loop, several=more, end=end)
