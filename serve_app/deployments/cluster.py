"""The Serve applications of the cluster profile: every `bind` of it on one screen.

Each builder is an import path of a Serve config (`deploy/serve.yaml`): `gateway`, `control`, `writer`, `hot_shard`, and
for models `embedder`, `reranker`, `summariser` (whose binds are in `app.py`), given `args` as `Place` reads them.
Applications and not deployments of one application, since whose `args` or code change is deployed anew as a whole: so a
writer comes and goes while the gateways stay as they are. What is set here are defaults: a config's `deployments` say
otherwise, and options among them (replicas, bounds, autoscaling) change in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, BackpressureConfig

from serve_app.deployments import declared
from serve_app.deployments.app import APPLICATION, DRAIN_POLL_S, RETRY_AFTER_S
from serve_app.deployments.control import ControlReplica
from serve_app.deployments.gateway import Gateway
from serve_app.deployments.gateways import compose_gateway
from serve_app.deployments.hot_shard import HotShardReplica
from serve_app.deployments.place import Place
from serve_app.deployments.ways import CONTROL, hot_shard_deployment, writer_deployment
from serve_app.deployments.writer import WriterReplica

__all__ = [
    "CONTROL_APP",
    "GATEWAY_APP",
    "WRITER_APP",
    "WRITER_APPLICATION",
    "applications",
    "control",
    "embedder",
    "gateway",
    "hot_shard",
    "reranker",
    "summariser",
    "writer",
]

WRITER_APPLICATION = writer_deployment("")[1]
"""What the names of writers' applications begin with."""

GATEWAYS_MIN, GATEWAYS_MAX = 1, 8
GATEWAY_TARGET = 24.0
"""Requests at work that one gateway is to have on average; above it Serve adds one."""

GATEWAY_ONGOING_MAX = 256
GATEWAY_QUEUED_MAX = 1_024
"""Requests that wait for a gateway; over it the answer is 503 with Retry-After."""

WRITER_ONGOING_MAX = 512
WRITER_QUEUED_MAX = 1_024
"""Calls of one gateway that wait for a writer; over it the gateway says 503."""

CONTROL_ONGOING_MAX = 1_024
"""Each gateway and writer has one question there that waits for later leases."""

HEALTH_CHECK_PERIOD_S = 1.0
HEALTH_CHECK_TIMEOUT_S = 30.0
GATEWAY_STOP_S = 20.0
"""What a gateway has to finish its requests and stop: more than the load balancers need to let go of it."""

WRITER_STOP_S = 40.0
"""What a writer has to finish its requests, to hand its shards over and to close them."""

CONTROL_STOP_S = 5.0

HOT_ONGOING_MAX, HOT_QUEUED_MAX = 256, 1_024
"""Calls at work at once, and those of one gateway that wait; over it the gateway searches by itself."""

HOT_STOP_S = 20.0


def gateway(args: Mapping[str, str]) -> serve.Application:
    place = Place.of(args)

    def ingress() -> Gateway:
        return Gateway(partial(compose_gateway, place), place)

    return _bound(
        "Gateway",
        serve.ingress(ingress)(),
        graceful_shutdown_timeout_s=GATEWAY_STOP_S,
        max_ongoing_requests=GATEWAY_ONGOING_MAX,
        max_queued_requests=GATEWAY_QUEUED_MAX,
        backpressure_config=BackpressureConfig(status_code=503, retry_after_s=RETRY_AFTER_S),
        autoscaling_config=AutoscalingConfig(
            min_replicas=GATEWAYS_MIN, max_replicas=GATEWAYS_MAX, target_ongoing_requests=GATEWAY_TARGET
        ),
    )


def control(args: Mapping[str, str]) -> serve.Application:
    return _bound(
        CONTROL[0],
        ControlReplica,
        Place.of(args),
        graceful_shutdown_timeout_s=CONTROL_STOP_S,
        num_replicas=1,
        max_ongoing_requests=CONTROL_ONGOING_MAX,
    )


def writer(args: Mapping[str, str]) -> serve.Application:
    place = Place.of(args)
    return _bound(
        writer_deployment(place.writer)[0],
        WriterReplica,
        place,
        graceful_shutdown_timeout_s=WRITER_STOP_S,
        num_replicas=1,
        max_ongoing_requests=WRITER_ONGOING_MAX,
        max_queued_requests=WRITER_QUEUED_MAX,
    )


def embedder(args: Mapping[str, str]) -> serve.Application:
    """Of `[encoder]` or `[multilingual]`; raises InvalidRequest where these are no deployments, EncoderUnavailable."""
    return declared.application(Place.of(args), declared.ENCODERS)


def reranker(args: Mapping[str, str]) -> serve.Application:
    """Of `[rerank]`. Raises InvalidRequest."""
    return declared.application(Place.of(args), declared.RERANK)


def summariser(args: Mapping[str, str]) -> serve.Application:
    """Of `[compress.coarse]` or `[compress.fine]`. Raises InvalidRequest."""
    return declared.application(Place.of(args), declared.COMPRESS)


def hot_shard(args: Mapping[str, str]) -> serve.Application:
    """On a GPU where the settings say so; the config says how much of one each replica takes."""
    place = Place.of(args)
    return _bound(
        hot_shard_deployment(place.hot)[0],
        HotShardReplica,
        place,
        graceful_shutdown_timeout_s=HOT_STOP_S,
        num_replicas=1,
        max_ongoing_requests=HOT_ONGOING_MAX,
        max_queued_requests=HOT_QUEUED_MAX,
    )


def _bound(name: str, replica: Any, *values: Any, **options: Any) -> serve.Application:
    deployed = serve.deployment(
        name=name,
        ray_actor_options={"num_cpus": 0},
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        graceful_shutdown_wait_loop_s=DRAIN_POLL_S,
        **options,
    )
    application: serve.Application = deployed(replica).bind(*values)
    return application


def applications(args: Mapping[str, str], writers: int) -> list[tuple[str, str | None, serve.Application]]:
    """All of them, for as many writers and the models that the settings place: name, route and what it is."""
    names = [f"writer-{number}" for number in range(writers)]
    return [
        *((one.application, None, one.bound) for one in declared.declared(Place.of(args))),
        (CONTROL[1], None, control(args)),
        *((writer_deployment(name)[1], None, writer({**args, "writer": name})) for name in names),
        (APPLICATION, "/", gateway(args)),
    ]


GATEWAY_APP, CONTROL_APP, WRITER_APP = gateway({}), control({}), writer({})
"""For `serve build`, which takes applications and not builders. What it writes names these; put the builders there."""
