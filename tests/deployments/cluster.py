"""The cluster profile on this host as a test sees it: several Ray nodes, an S3 server, `deploy/serve.yaml` on them.

Ends everything that it starts, whatever happened. Everything has its own ports and lies below one folder, whose path
has to be short: Ray's sockets lie there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml
from obstore.store import S3Store

from tests.deployments.served import ROOT, free_port, wait_until

SERVE_YAML, GPU_YAML = ROOT / "deploy" / "serve.yaml", ROOT / "deploy" / "serve-gpu.yaml"
MARK = "MEMSTRATA_CLUSTER_MARK"
START_S = 600.0
BUCKET = "memory"
EMBEDDER = "memstrata-Embedder@hash_64"
"""The application of the encoder in `SETTINGS`, where it is placed apart."""

NODES = {name: {name: 100} for name in ("head", "gateways", "writers")}
SETTINGS = """\
[store]
shards = {shards}
files_uri = "s3://memory/files"
log_uri = "s3://memory/log"
tables_uri = "s3://memory/tables"
cold_uri = "s3://memory/cold"

[store.options]
endpoint = "http://127.0.0.1:{s3}"
region = "us-east-1"
allow_http = "true"
access_key_id = "test"
secret_access_key = "test"

[encoder]
model = "hash"
placement = "{placement}"

[multilingual]
model = "off"

# moto answers some 200 requests a second: with four shards and two gateways the default would take them all.
[follow]
poll_s = 0.2
"""

HOT = """
[hot]
device = "host"
memory_mib = 1
placement = "deployment"
shards = {hot_shards}
wait_s = 2.0
"""


class Replica(NamedTuple):
    application: str
    deployment: str
    replica: str
    state: str
    process: int
    node: str


class ServedCluster:
    """Starts in `__init__`; `ready` waits for the first good answer. `nodes` have names and resources: Control is put
    where there is `head`, gateways and writers where there are `gateways` and `writers`, hot shards with Control. The
    first node is the head.
    """

    def __init__(
        self,
        folder: Path,
        *,
        gateways: int = 2,
        writers: int = 2,
        shards: int = 4,
        placement: str = "inside",
        hot_shards: int = 0,
        nodes: Mapping[str, Mapping[str, int]] = NODES,
    ) -> None:
        self.folder, self.port, self._dashboard, self._s3 = folder, free_port(), free_port(), free_port()
        self._shards, self._placement, self._hot_shards = shards, placement, hot_shards
        self._mark = f"{self.port}-{os.getpid()}"
        own = {"HOME": str(folder), "PYTHONPATH": str(ROOT), MARK: self._mark, "OMP_NUM_THREADS": "1"}
        self._environment = os.environ | own
        self.config = folder / "memstrata.toml"
        self._write_settings()
        self.gateways, self.writers = gateways, writers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._layout, self.nodes = nodes, dict[str, str]()
        try:
            self._run([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._s3)], "s3.log")
            self._start_nodes()
            self._make_bucket()
            self.deploy()
        except BaseException:
            self.end()
            raise

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def key(self) -> str:
        bucket = S3Store(
            BUCKET,
            endpoint=f"http://127.0.0.1:{self._s3}",
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
            client_options={"allow_http": True},
        )
        return bytes(bucket.get("files/admin.key").bytes()).decode().strip()

    @property
    def environment(self) -> Mapping[str, str]:
        """In which `serve …` and other programs reach this cluster."""
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / "r" / "token")}
        return self._environment | token | {"RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{self._dashboard}"}

    def ready(self) -> ServedCluster:
        assert wait_until(self.is_ready, START_S), self.told()
        return self

    def document(self) -> dict[str, Any]:
        """`deploy/serve.yaml` for this host: its port and folders, as many of each, and each kind on its node."""
        document: dict[str, Any] = yaml.safe_load(SERVE_YAML.read_text())
        document["proxy_location"] = "HeadOnly"
        document["http_options"] = {"host": "127.0.0.1", "port": self.port}
        by_name = {one["name"]: one for one in document["applications"] if "@" not in one["name"]}  # other models here
        template = json.dumps(by_name.pop("memstrata-writer-0"))
        by_name.pop("memstrata-writer-1")
        for number in range(self.writers):
            one = json.loads(template.replace("writer-0", f"writer-{number}").replace("Writer-0", f"Writer-{number}"))
            by_name[one["name"]] = one
        if self._placement == "deployment":
            by_name[EMBEDDER] = {
                "name": EMBEDDER,
                "route_prefix": None,
                "import_path": "serve_app.deployments.cluster:embedder",
                "args": {},
                "deployments": [{"name": EMBEDDER.removeprefix("memstrata-")}],
            }
        for number in range(self._hot_shards):
            [one] = [one for one in yaml.safe_load(GPU_YAML.read_text())["applications"] if "-hot-" in one["name"]]
            one = json.loads(json.dumps(one).replace("hot-0", f"hot-{number}").replace("Shard-0", f"Shard-{number}"))
            by_name[one["name"]] = one
        for name, application in by_name.items():
            place = {"config": str(self.config), "data": str(self.folder / "d")}
            application["args"] |= place
            kind = "writers" if "writer" in name else "gateways" if name == "memstrata" else "head"
            deployment = application["deployments"][0]
            deployment["ray_actor_options"] = {"num_cpus": 0, "resources": {kind: 1}}
        gateway = by_name["memstrata"]["deployments"][0]
        gateway["autoscaling_config"] |= {"min_replicas": self.gateways, "max_replicas": self.gateways}
        return document | {"applications": list(by_name.values())}

    def deploy(self, document: dict[str, Any] | None = None) -> None:
        """As `serve deploy` does it; returns when everything is as it is to be."""
        answer = self._serve("PUT", document or self.document())
        assert answer.status_code == 200, answer.text
        assert wait_until(self.settled, START_S), self.told()

    def settled(self) -> bool:
        applications = self.details()["applications"]
        return bool(applications) and all(
            one["status"] == "RUNNING" and all(each["status"] == "HEALTHY" for each in one["deployments"].values())
            for one in applications.values()
        )

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = self._serve("GET").json()
        return found

    def replicas(self, deployment: str = "") -> list[Replica]:
        return [
            Replica(name, each, one["replica_id"], one["state"], one.get("pid") or 0, one.get("node_id") or "")
            for name, application in self.details()["applications"].items()
            for each, found in application["deployments"].items()
            for one in found["replicas"]
            if deployment in each
        ]

    def kill_node(self, name: str) -> None:
        self.nodes = self._told_nodes({"kill": name})

    def add_node(self, name: str) -> None:
        self.nodes = self._told_nodes({"add": name, "resources": dict(self._layout[name])})

    def processes(self, title: bytes = b"") -> list[int]:
        """What this cluster started and that lives; with a title, what has it in its command line."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                ours = folder.name.isdigit() and f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes()
                if ours and title in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def told(self) -> str:
        """The end of what the programs of this cluster wrote, for a test that fails."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("r/session_latest/logs/serve/*.log")]
        logs += self.folder.glob("r/session_latest/logs/worker-*.err")
        return "\n".join(f"--- {one.name}\n{_end_of(one)}" for one in sorted(logs) if one.stat().st_size)

    def end(self) -> None:
        for number in self.processes():
            _kill(number)
        for process in self._processes:
            _kill(process.pid)
            process.wait(10)

    def _write_settings(self) -> None:
        settings = SETTINGS.format(shards=self._shards, s3=self._s3, placement=self._placement)
        self.config.write_text(settings + (HOT.format(hot_shards=self._hot_shards) if self._hot_shards else ""))

    def _run(self, words: Iterable[str], log: str, **streams: int) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                list(words),
                cwd=ROOT,
                env=self._environment,
                stderr=out,
                start_new_session=True,
                **({"stdout": out} | streams),  # type: ignore[call-overload]
            )
        self._processes.append(process)
        return process

    def _start_nodes(self) -> None:
        root = self.folder / "r"
        root.mkdir()
        words = [sys.executable, "-m", "tests.deployments.cluster_nodes", str(root), str(self._dashboard)]
        self._nodes = self._run(words, "nodes.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._said()
        for name in self._layout:
            self.add_node(name)

    def _told_nodes(self, command: dict[str, Any]) -> dict[str, str]:
        assert self._nodes.stdin is not None
        self._nodes.stdin.write(json.dumps(command).encode() + b"\n")
        self._nodes.stdin.flush()
        nodes: dict[str, str] = self._said()["nodes"]
        return nodes

    def _said(self) -> dict[str, Any]:
        assert self._nodes.stdout is not None
        for line in self._nodes.stdout:
            if line.startswith(b'{"cluster"'):
                said: dict[str, Any] = json.loads(line)["cluster"]
                return said
        raise AssertionError(self.told())

    def _make_bucket(self) -> None:
        def made() -> bool:
            try:
                return httpx.put(f"http://127.0.0.1:{self._s3}/{BUCKET}", trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        assert wait_until(made, 60), self.told()

    def _serve(self, method: str, body: dict[str, Any] | None = None) -> httpx.Response:
        token = (self.folder / "r" / "token").read_text()
        return httpx.request(
            method,
            f"http://127.0.0.1:{self._dashboard}/api/serve/applications/",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=60,
        )

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=5).status_code == 200
        except httpx.TransportError:
            return False


def _kill(number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def _end_of(log: Path, length: int = 2_000) -> str:
    return log.read_text(errors="replace")[-length:]


def back_in(condition: Any, seconds: float) -> float:
    """Seconds until the condition holds. Fails when it does not in time."""
    began = time.monotonic()
    assert wait_until(condition, seconds)
    return time.monotonic() - began
