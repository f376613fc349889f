"""The Serve applications: every `bind` of the laptop profile on one screen.

Plain classes are wrapped here and nowhere else; no other module of this package decorates anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from ray import serve
from ray.serve.config import BackpressureConfig

from serve_app.asgi import AsgiService
from serve_app.deployments.applications import (
    EMBEDDER,
    RERANKER,
    SUMMARISER,
    EmbedderApplications,
    rerankers,
    summarisers,
)
from serve_app.deployments.beside import Models, compose_beside
from serve_app.deployments.calls import CALLS_MAX
from serve_app.deployments.gateway import Gateway
from serve_app.deployments.models import EmbedderReplica
from serve_app.deployments.place import Place
from serve_app.deployments.rerank import RerankerReplica
from serve_app.deployments.scaling import scaled
from serve_app.deployments.summarise import SummariserReplica
from serve_app.models.embed import EncoderOptions
from serve_app.models.placed import Placed
from serve_app.models.rerank import ModelOptions
from serve_app.models.summarise import CompressOptions

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


def build(compose: Callable[..., AsgiService], console: Path, *, beside: Collection[str] = ()) -> serve.Application:
    """The application whose gateway runs `compose()`; its output goes to the pipe at `console`.

    The gateway starts a deployment for each model that it has of the sections `beside`, and `compose` is told so.
    """
    composed, place = compose, Place(console=str(console))
    if beside:
        composed = partial(compose_beside, compose, _models(place), beside)

    def gateway() -> Gateway:
        return Gateway(composed, place)

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


def embedder(version: str, options: EncoderOptions, place: Place) -> serve.Application:
    """The application of one version's encoder: an application of its own, since it comes and goes alone."""
    return _model(f"{EMBEDDER}@{version}", EmbedderReplica, options.deployment, version, options, place)


def reranker(name: str, options: ModelOptions, place: Place) -> serve.Application:
    return _model(f"{RERANKER}@{name}", RerankerReplica, options.deployment, options, place)


def summariser(name: str, options: CompressOptions, place: Place) -> serve.Application:
    """Of `options.coarse`."""
    return _model(f"{SUMMARISER}@{name}", SummariserReplica, options.deployment, options.coarse, place)


def _models(place: Place) -> Models:
    """Those that a gateway starts and ends."""
    return Models(
        EmbedderApplications(partial(embedder, place=place)),
        rerankers(partial(reranker, place=place)),
        summarisers(partial(summariser, place=place)),
    )


def _model(name: str, replica: Any, placed: Placed, *values: Any) -> serve.Application:
    deployed = serve.deployment(
        name=name,
        max_ongoing_requests=CALLS_MAX,
        max_queued_requests=CALLS_MAX,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_timeout_s=STOP_S,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
        **scaled(placed),
    )
    application: serve.Application = deployed(replica).bind(*values)
    return application
