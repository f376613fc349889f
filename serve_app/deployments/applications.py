"""Serve applications of models: started, found again, and ended by a service's thread.

Each model is an application of its own, without a route: one can come and go while the others, and the service, stay as
they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from serve_app.deployments.calls import VersionCalls
from serve_app.deployments.session import QUIET
from serve_app.errors import EncoderUnavailable, MemstrataError, RerankerUnavailable, SummariserFailed
from serve_app.models.embed import EncoderOptions
from serve_app.models.rerank import ModelOptions
from serve_app.models.summarise import CompressOptions

__all__ = [
    "EMBEDDER",
    "RERANKER",
    "SUMMARISER",
    "Applications",
    "EmbedderApplications",
    "application_of",
    "rerankers",
    "summarisers",
]

FAILED = ("DEPLOY_FAILED", "DELETING", "NOT_STARTED")
"""States of an application out of which no replica comes by itself."""

PREFIX = "memstrata-"
"""Of the names of these applications; the rest is the name of the one deployment in it."""

EMBEDDER, RERANKER, SUMMARISER = "Embedder", "Reranker", "Summariser"
"""Kinds of deployments; their names are `kind@name`."""

O = TypeVar("O")  # noqa: E741 - options


def application_of(kind: str, name: str) -> str:
    return f"{PREFIX}{kind}@{name}"


class Applications(Generic[O]):
    """Of one kind, by the names of what they hold. Picklable; blocking, so not for an event loop."""

    def __init__(
        self,
        kind: str,
        unavailable: Callable[[str], MemstrataError],
        build: Callable[[str, O], serve.Application] | None,
    ) -> None:
        """Without `build` they are declared in a Serve config: none is started or ended here."""
        self._kind, self._error, self._build = kind, unavailable, build

    @property
    def declared(self) -> bool:
        """Whether a Serve config says what they are, and so how many replicas each has."""
        return self._build is None

    def run(self, name: str, options: O) -> None:
        """See to it that there is one; it may still be starting. Raises what `unavailable` makes."""
        if self._build is None:
            return
        with self._translated(name):
            there = serve.status().applications.get(application_of(self._kind, name))
            if there is not None and there.status not in FAILED:
                return  # to run it again would replace its replicas
            target = serve.RunTarget(
                target=self._build(name, options),
                name=application_of(self._kind, name),
                route_prefix=None,
                logging_config=QUIET,
            )
            serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)

    def end(self, name: str) -> None:
        """See to it that there is none, without waiting. Raises what `unavailable` makes."""
        if self._build is None:
            return
        with self._translated(name):
            serve.delete(application_of(self._kind, name), _blocking=False)

    def names(self) -> list[str]:
        """Of those that were started here. Raises what `unavailable` makes."""
        if self._build is None:
            return []
        with self._translated("the service's models"):
            there = serve.status().applications
        prefix = application_of(self._kind, "")
        return [name.removeprefix(prefix) for name in there if name.startswith(prefix)]

    def handle(self, name: str) -> Callable[[], Any]:
        """Opens the handle. It asks Serve's controller and blocks; to be used on an event loop."""
        return partial(serve.get_deployment_handle, f"{self._kind}@{name}", application_of(self._kind, name))

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ray.exceptions.RayError, RayServeException, RuntimeError, TimeoutError) as error:
            raise self._error(f"the deployment of {name} cannot be reached") from error


def rerankers(build: Callable[[str, ModelOptions], serve.Application] | None) -> Applications[ModelOptions]:
    return Applications(RERANKER, RerankerUnavailable, build)


def summarisers(build: Callable[[str, CompressOptions], serve.Application] | None) -> Applications[CompressOptions]:
    return Applications(SUMMARISER, SummariserFailed, build)


class EmbedderApplications(Applications[EncoderOptions]):
    """`models.Deployments` on Ray Serve."""

    def __init__(self, build: Callable[[str, EncoderOptions], serve.Application] | None) -> None:
        super().__init__(EMBEDDER, EncoderUnavailable, build)

    def versions(self) -> list[str]:
        return self.names()

    def calls(self, version: str, loop: asyncio.AbstractEventLoop, *, several: bool = False) -> VersionCalls:
        return VersionCalls(version, self.handle(version), loop, several=several or self.declared)
