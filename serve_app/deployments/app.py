"""The Serve application: every `bind` of the laptop profile on one screen.

Plain classes are wrapped here and nowhere else; no other module of this package decorates anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ray import serve
from ray.serve.config import BackpressureConfig

from serve_app.asgi import AsgiService
from serve_app.deployments.gateway import Gateway
from serve_app.deployments.models import CALLS_MAX, EMBEDDER, EmbedderReplica, compose_beside
from serve_app.ports import Embedder

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


def build(
    compose: Callable[..., AsgiService], console: Path, open_encoders: Callable[[], Sequence[Embedder]] | None = None
) -> serve.Application:
    """The application whose gateway runs `compose()`; its output goes to the pipe at `console`.

    With `open_encoders` the encoders have a deployment of their own, and `compose` is told so by `queues`.
    """
    beside = [] if open_encoders is None else [_embedder(open_encoders, console)]
    composed = partial(compose_beside, compose, APPLICATION) if beside else compose

    def gateway() -> Gateway:
        return Gateway(composed, console)

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
    return deployed(serve.ingress(gateway)()).bind(*beside)


def _embedder(open_encoders: Callable[[], Sequence[Embedder]], console: Path) -> serve.Application:
    deployed = serve.deployment(
        name=EMBEDDER,
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=CALLS_MAX,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=STOP_S,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
    )
    return deployed(EmbedderReplica).bind(open_encoders, console)
