"""Run a suite of acceptance tests that speak HTTP against the cluster profile on this host; gives the suite's status.

python -m tests.deployments.acceptance FOLDER [arguments for pytest]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.deployments.cluster import ServedCluster


def main(suite: Path, words: list[str]) -> int:
    if not suite.is_dir():  # before a cluster is started for it
        sys.exit(f"{suite} is no folder")
    with tempfile.TemporaryDirectory(prefix="d", ignore_cleanup_errors=True) as name:
        served = ServedCluster(Path(name))
        try:
            environment = {**served.ready().environment, **_keys(served)}
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
            return subprocess.run(command, cwd=suite, env=environment, check=False).returncode
        finally:
            served.end()


def _keys(served: ServedCluster) -> dict[str, str]:
    """What the suite asks for: an admin, a key of another tenant, one that is bound to a user."""
    return {
        "MEMSTRATA_URL": served.url,
        "MEMSTRATA_KEY": _key(served, tenant="a", role="admin"),
        "MEMSTRATA_KEY_B": _key(served, tenant="b", role="admin"),
        "MEMSTRATA_USER_KEY": _key(served, tenant="a", role="app", user_id="bound"),
    }


def _key(served: ServedCluster, **body: Any) -> str:
    headers = {"Authorization": f"Bearer {served.key}"}
    answer = httpx.post(f"{served.url}/v1/admin/keys", json=body, headers=headers, trust_env=False, timeout=60)
    assert answer.status_code < 300, answer.text
    made: str = answer.json()["key"]
    return made


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
