"""The cluster profile on several Ray nodes of this host, as `deploy/serve.yaml` says it: what a user of it sees."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.deployments.cluster import START_S, ServedCluster
from tests.deployments.served import ROOT, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def served() -> Iterator[ServedCluster]:
    """Short: Ray's socket paths lie below it."""
    with tempfile.TemporaryDirectory(prefix="d", ignore_cleanup_errors=True) as name:
        one = ServedCluster(Path(name))
        try:
            yield one.ready()
        finally:
            one.end()


def serve_deploy(served: ServedCluster, document: dict[str, Any]) -> None:
    file = served.folder / "serve.yaml"
    file.write_text(yaml.safe_dump(document))
    words = [sys.executable, "-m", "ray.serve.scripts", "deploy", str(file)]
    subprocess.run(words, check=True, cwd=ROOT, env=served.environment, capture_output=True, timeout=120)
    assert wait_until(served.settled, START_S), served.told()


def test_each_kind_runs_on_its_node_and_all_is_ready(served: ServedCluster) -> None:
    where = {name: node for node, name in {(one.node, one.deployment) for one in served.replicas()}}
    assert where == {
        "Gateway": served.nodes["gateways"],
        "Control": served.nodes["head"],
        "ShardWriter-0": served.nodes["writers"],
        "ShardWriter-1": served.nodes["writers"],
    }
    assert len(served.replicas("Gateway")) == 2
    assert httpx.get(f"{served.url}/readyz", trust_env=False).json()["status"] == "ready"


def test_options_change_in_place_and_arguments_restart_one_application(served: ServedCluster) -> None:
    before = {one.replica: one.process for one in served.replicas()}
    document = served.document()
    gateways = document["applications"][0]["deployments"][0]
    gateways |= {"max_queued_requests": 512, "health_check_period_s": 2.0}
    gateways["autoscaling_config"] |= {"target_ongoing_requests": 12}
    serve_deploy(served, document)
    assert {one.replica: one.process for one in served.replicas()} == before
    writer = next(one for one in document["applications"] if one["name"] == "memstrata-writer-1")
    writer["args"]["data"] = str(served.folder / "e")
    serve_deploy(served, document)
    now = {one.replica: one.process for one in served.replicas() if one.state == "RUNNING"}
    assert {one.deployment for one in served.replicas() if one.replica not in before} == {"ShardWriter-1"}
    assert len(now.items() & before.items()) == len(before) - 1
