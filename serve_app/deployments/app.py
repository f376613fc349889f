"""The Serve applications: every `bind` of the laptop profile on one screen.

Plain classes are wrapped here and nowhere else; no other module of this package decorates anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ray import serve
from ray.serve.config import BackpressureConfig

from serve_app.asgi import AsgiService
from serve_app.deployments.applications import EmbedderApplications, deployment_of
from serve_app.deployments.calls import CALLS_MAX
from serve_app.deployments.gateway import Gateway
from serve_app.deployments.models import EmbedderReplica, compose_beside
from serve_app.deployments.place import Place
from serve_app.models.embed import EncoderOptions

APPLICATION = "memstrata"
ONGOING_REQUESTS_MAX = 256
"""Requests that one gateway works on at a time; more wait."""

QUEUED_REQUESTS_MAX = 1024
"""Requests that wait for one gateway; over it the answer is 503 with Retry-After."""

RETRY_AFTER_S = 1.0
HEALTH_CHECK_PERIOD_S = 10.0
HEALTH_CHECK_TIMEOUT_S = 60.0
STOP_S = 8.0
"""What a gateway has to finish its requests and stop its service."""

DRAIN_POLL_S = 0.1
START_TRIES = 1
"""A store that is locked or damaged is so the second time too: tell it at once."""


def build(compose: Callable[..., AsgiService], console: Path, *, encoders_beside: bool = False) -> serve.Application:
    """The application whose gateway runs `compose()`; its output goes to the pipe at `console`.

    With `encoders_beside` the gateway starts a deployment for each encoder that it has, and `compose` is told so.
    """
    composed = compose
    if encoders_beside:
        composed = partial(compose_beside, compose, EmbedderApplications(partial(embedder, console=console)))

    def gateway() -> Gateway:
        return Gateway(composed, Place(console=str(console)))

    deployed = serve.deployment(
        name="Gateway",
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=ONGOING_REQUESTS_MAX,
        max_queued_requests=QUEUED_REQUESTS_MAX,
        backpressure_config=BackpressureConfig(status_code=503, retry_after_s=RETRY_AFTER_S),
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=STOP_S,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
        max_constructor_retry_count=START_TRIES,
    )
    return deployed(serve.ingress(gateway)()).bind()


def embedder(version: str, options: EncoderOptions, console: Path) -> serve.Application:
    """The application of one version's encoder: an application of its own, since it comes and goes alone."""
    deployed = serve.deployment(
        name=deployment_of(version),
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=CALLS_MAX,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=STOP_S,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
    )
    return deployed(EmbedderReplica).bind(version, options, console)
