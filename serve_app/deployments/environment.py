"""The environment variables that Ray and Ray Serve read once, when they are imported and when a session starts.

Pure: gives a mapping, sets nothing. Every process of a session must see the same values, so they are put into the
environment before Ray is imported, and Ray's processes inherit them. `docs/ray.md` tells what each one is for.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from serve_app.deployments.port_block import PortBlock

Proxy = Literal["haproxy", "python"]

BALANCE = "hdr(x-memstrata-route)"
"""One user's requests go to one gateway while the gateways stay the same: its hot blocks are there."""

PROXY_CHECK_S = "1"
"""Between two looks at a proxy, of which the third that fails replaces it. Serve's own 10 s leave a HAProxy that was
killed away for half a minute."""

CALL_BYTES_MAX = 32 << 20
"""Of what a replica is asked by another: a request's body, which a gateway passes on whole. Serve's own 4 MiB refuse
bodies that the service accepts."""

HAPROXY_THREADS = 1
HAPROXY_STOP_S = 3
"""How long a replaced HAProxy process may finish its requests."""

CLIENT_IDLE_S = 120
ORPHAN_S = 15
"""How long Ray's agents look for the rest of a killed session before they end."""

DRAIN_S = 2
"""In a cluster: how long a gateway that goes still answers, for the load balancers of other nodes to let go of it.
Serve holds writers back as long before they hear that they are to go, while nobody reaches them any more."""

CLUSTER_STOP_S = 10
"""In a cluster: how long a replaced HAProxy process may finish its requests."""

MUST_BE_UNSET = ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_RUNTIME_ENV_HOOK")
"""A private session never joins a cluster that happens to run."""


def ray_environment(root: Path, ports: PortBlock, proxy: Proxy, haproxy: Path | None = None) -> dict[str, str]:
    """Variables of one private session whose files all lie under `root`.

    `haproxy` is the program that Serve starts as HAProxy; needed where `proxy` is "haproxy".
    """
    way_in = _haproxy(root, ports, haproxy) if proxy == "haproxy" else _python()
    return session_environment(root) | _throughput(ports) | way_in


def cluster_environment() -> dict[str, str]:
    """Of every node of a cluster, before `ray start` or the container's start: the fast path, and what several nodes
    need. Ports and folders are Ray's own.
    """
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(CALL_BYTES_MAX),
        "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM": BALANCE,
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",  # one log line a request, for figures that the service has itself
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(CLUSTER_STOP_S),
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(CLIENT_IDLE_S),
        "RAY_SERVE_HAPROXY_TIMEOUT_CONNECT_S": "1",  # a node that is gone does not refuse, it is silent
        "RAY_SERVE_HAPROXY_HEALTH_CHECK_INTER": "1s",
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": PROXY_CHECK_S,
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(DRAIN_S),
        "RAY_health_check_period_ms": "1000",  # with five misses a node is dead after 5 s and not after 15
        "RAY_health_check_timeout_ms": "2000",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a replica without a GPU share may still see the GPU
    }


def session_environment(root: Path) -> dict[str, str]:
    """Of a session without Serve: see `jobs/session.py`."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(root / "token"),  # else Ray writes one into the home folder
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the node's address is loopback, not that of a network card
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(ORPHAN_S),
        "RAY_worker_niceness": "0",
        "RAY_prestart_worker_first_driver": "0",  # else a process a CPU, of which none is asked for before a job comes
        "RAY_enable_metrics_collection": "0",
        "RAY_metrics_report_interval_ms": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a replica without a GPU share may still see the GPU
    }


def _throughput(ports: PortBlock) -> dict[str, str]:
    first, end = ports.replicas
    return {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_LOG_TO_STDERR": "1",  # a replica's output goes to its standard streams, which the gateway redirects
        "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(CALL_BYTES_MAX),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(first),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(end),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports.fallback_proxy),
        # One node, and the log is crash-safe: no load balancer has to be waited for before a replica may end.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0",
    }


def _haproxy(root: Path, ports: PortBlock, program: Path | None) -> dict[str, str]:
    folder = root / "h"
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(program),
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": PROXY_CHECK_S,
        "RAY_SERVE_HAPROXY_BALANCE_ALGORITHM": BALANCE,
        "RAY_SERVE_HAPROXY_NBTHREAD": str(HAPROXY_THREADS),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(ports.stats),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(ports.metrics),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",  # one log line a request, for figures that the service has itself
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": str(HAPROXY_STOP_S),
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(CLIENT_IDLE_S),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "c"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "a"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "m"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "s"),
    }


def _python() -> dict[str, str]:
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",  # else replicas listen and nothing does on the public port
    }


def _exported(variables: dict[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


if __name__ == "__main__":
    print(_exported(cluster_environment()))  # eval "$(python -m serve_app.deployments.environment)"
