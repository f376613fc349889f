"""The environment of a session: private files, private ports, the fast path."""

import subprocess
import sys
from pathlib import Path

import pytest

from serve_app.api.schemas import BODY_BYTES_MAX
from serve_app.deployments.environment import cluster_environment, ray_environment
from serve_app.deployments.port_block import reserve_block

MARGIN = 1 << 20
ROOT = Path("/private/mst-abc")


@pytest.fixture
def ports():
    block = reserve_block()
    yield block
    block.close()


def test_every_file_lies_in_the_sessions_folder(ports):
    variables = ray_environment(ROOT, ports, "haproxy", ROOT / "haproxy")
    files = {name: value for name, value in variables.items() if value.startswith("/")}
    assert len(files) >= 7
    assert all(Path(value).is_relative_to(ROOT) for value in files.values())


def test_every_port_is_of_the_sessions_block(ports):
    variables = ray_environment(ROOT, ports, "haproxy", ROOT / "haproxy")
    named = [int(value) for name, value in variables.items() if "_PORT" in name]
    assert len(named) == 5
    assert all(ports.first < port <= ports.replicas[1] for port in named)


def test_without_haproxy_replicas_stay_behind_the_python_proxy(ports):
    variables = ray_environment(ROOT, ports, "python")
    assert variables["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert variables["RAY_SERVE_ENABLE_DIRECT_INGRESS"] == "0"
    assert variables["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "1"


def test_a_cluster_has_the_fast_path_and_what_several_nodes_need(ports):
    ours, private = cluster_environment(), ray_environment(ROOT, ports, "haproxy", ROOT / "haproxy")
    for name in ("RAY_SERVE_ENABLE_HA_PROXY", "RAY_SERVE_THROUGHPUT_OPTIMIZED", "RAY_worker_niceness"):
        assert ours[name] == private[name]
    assert ours["RAY_SERVE_HAPROXY_BALANCE_ALGORITHM"] == "hdr(x-memstrata-route)"
    assert float(ours["RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"]) > 0
    assert int(ours["RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"]) > BODY_BYTES_MAX + MARGIN
    assert not [value for value in ours.values() if value.startswith("/")]


def test_the_environment_of_a_cluster_can_be_exported():
    said = subprocess.run(
        [sys.executable, "-m", "serve_app.deployments.environment"], capture_output=True, text=True, check=True
    ).stdout
    assert [line.split("=")[0] for line in said.splitlines()] == [f"export {name}" for name in cluster_environment()]
