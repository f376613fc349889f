"""Several Ray nodes on this host. Takes one JSON command a line, answers each by one line; ends at the input's end.

python -m tests.deployments.cluster_nodes ROOT DASHBOARD_PORT

{"add": NAME, "resources": {...}} and {"kill": NAME}. The first node is the head. Files lie below ROOT, which the caller
removes. Every process that is started here carries the environment of this one.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from serve_app.deployments.environment import MUST_BE_UNSET, cluster_environment, ray_environment
from serve_app.deployments.lifeline import tied_program
from serve_app.deployments.port_block import reserve_block
from serve_app.deployments.session import haproxy_program

STORE_BYTES = 100 << 20
CPUS = 8
"""Of each node; not of this host."""


def main(root: Path, dashboard: int) -> None:
    (root / "token").touch(mode=0o600)
    (root / "token").write_text(secrets.token_hex(32))
    haproxy = tied_program(haproxy_program(), root / "haproxy")
    for name in MUST_BE_UNSET:
        os.environ.pop(name, None)
    os.environ.update(ray_environment(root, reserve_block(), "haproxy", haproxy) | cluster_environment())
    os.environ["RAY_SERVE_LOG_TO_STDERR"] = "0"
    from ray.cluster_utils import Cluster

    cluster, nodes = Cluster(), {}
    head: dict[str, Any] = {
        "include_dashboard": True,
        "dashboard_host": "127.0.0.1",
        "dashboard_port": dashboard,
        "temp_dir": str(root),
    }
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if "kill" in asked:
            cluster.remove_node(nodes.pop(asked["kill"]), allow_graceful=False)
        else:
            options = {} if nodes else head
            nodes[asked["add"]] = cluster.add_node(
                num_cpus=CPUS, num_gpus=0, object_store_memory=STORE_BYTES, resources=asked["resources"], **options
            )
        answer({"nodes": {name: node.node_id for name, node in nodes.items()}, "address": cluster.address})
    cluster.shutdown()


def answer(said: dict[str, Any]) -> None:
    print(json.dumps({"cluster": said}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
