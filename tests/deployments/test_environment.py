"""The environment of a session: private files, private ports, the fast path."""

from pathlib import Path

import pytest

from serve_app.deployments.environment import ray_environment
from serve_app.deployments.port_block import reserve_block

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
