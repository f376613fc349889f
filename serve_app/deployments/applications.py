"""Serve applications of embedders: started, found again, and ended by a gateway's thread.

Each version is an application of its own, without a route: one can come and go while the others, and the gateway,
stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from serve_app.deployments.calls import VersionCalls
from serve_app.deployments.session import QUIET
from serve_app.errors import EncoderUnavailable
from serve_app.models.embed import EncoderOptions

__all__ = ["EmbedderApplications", "deployment_of"]

FAILED = ("DEPLOY_FAILED", "DELETING", "NOT_STARTED")
"""States of an application out of which no replica comes by itself."""

PREFIX = "memstrata-Embedder@"
"""Of the names of these applications."""

Build = Callable[[str, EncoderOptions], serve.Application]


def deployment_of(version: str) -> str:
    return f"Embedder@{version}"


def _application_of(version: str) -> str:
    return f"{PREFIX}{version}"


class EmbedderApplications:
    """`models.Deployments` on Ray Serve. Picklable; blocking, so not for an event loop."""

    def __init__(self, build: Build) -> None:
        self._build = build

    def run(self, version: str, options: EncoderOptions) -> None:
        with _translated(version):
            there = serve.status().applications.get(_application_of(version))
            if there is not None and there.status not in FAILED:
                return  # to run it again would replace its replica
            target = serve.RunTarget(
                target=self._build(version, options),
                name=_application_of(version),
                route_prefix=None,
                logging_config=QUIET,
            )
            serve.run_many([target], wait_for_ingress_deployment_creation=False, wait_for_applications_running=False)

    def end(self, version: str) -> None:
        with _translated(version):
            serve.delete(_application_of(version), _blocking=False)

    def versions(self) -> list[str]:
        with _translated("the service's versions"):
            there = serve.status().applications
        return [name.removeprefix(PREFIX) for name in there if name.startswith(PREFIX)]

    def calls(self, version: str, loop: asyncio.AbstractEventLoop) -> VersionCalls:
        names = deployment_of(version), _application_of(version)
        return VersionCalls(version, partial(serve.get_deployment_handle, *names), loop)


@contextmanager
def _translated(version: str) -> Iterator[None]:
    try:
        yield
    except (ray.exceptions.RayError, RayServeException, RuntimeError, TimeoutError) as error:
        raise EncoderUnavailable(f"the deployment of {version} cannot be reached") from error
