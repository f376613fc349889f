"""The encoder in a deployment of its own: it serves, it may die, it comes back; the local engine has no such thing."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deployments.served import ROOT, free_port, wait_until

READY_S = 120
BACK_S = 60
MARK = "ENCODER_DEPLOYMENT_MARK"
CONFIG = '[encoder]\nmodel = "hash"\nplacement = "deployment"\n[multilingual]\nmodel = "hash-32"\n'


def command(folder: Path, engine: str, port: int) -> list[str]:
    (folder / "config.toml").write_text(CONFIG)
    words = ["serve", "--engine", engine, "--data", str(folder / "d"), "--config", str(folder / "config.toml")]
    return [sys.executable, "-m", "serve_app.cli", *words, "--port", str(port)]


class Deployed:
    def __init__(self, folder: Path) -> None:
        self.folder, port = folder, free_port()
        self.url, self.mark, self.log = f"http://127.0.0.1:{port}", f"{MARK}={port}", folder / "log"
        (folder / "t").mkdir()
        own = {"TMPDIR": str(folder / "t"), "HOME": str(folder), "PYTHONPATH": str(ROOT), MARK: str(port)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command(folder, "ray", port), stdout=log, stderr=log, env=os.environ | own, start_new_session=True
            )
        assert wait_until(self._ready, READY_S), self.log.read_text()
        self.key = (folder / "d" / "admin.key").read_text().strip()

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"}
        answer = httpx.post(f"{self.url}{path}", json=body, headers=headers, trust_env=False, timeout=30)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def search(self, query: str) -> dict[str, Any]:
        return self.post("/v1/search", {"user_id": "u", "query": query, "k": 5, "deadline_ms": 4000})

    def processes(self, title: bytes = b"") -> list[int]:
        """What this service started and that lives; of these, those whose title begins so."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                ours = folder.name.isdigit() and self.mark.encode() in (folder / "environ").read_bytes()
                if ours and (folder / "cmdline").read_bytes().startswith(title):
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            for number in self.processes():
                os.kill(number, signal.SIGKILL)


@pytest.mark.ray
def test_an_encoder_of_its_own_may_die() -> None:
    with tempfile.TemporaryDirectory(prefix="e", ignore_cleanup_errors=True) as name:
        served = Deployed(Path(name))
        try:
            serves_dies_and_comes_back(served)
        finally:
            served.end()


def serves_dies_and_comes_back(served: Deployed) -> None:
    turns = [{"role": "user", "content": "the walrus sleeps"}, {"role": "user", "content": "the gull flies"}]
    other = {"user_id": "other", "turns": [{"role": "user", "content": "海象在睡觉"}], "wait": "indexed"}
    assert served.post("/v1/sessions/s/turns", other)["index_state"] == "indexed"
    [found] = served.post("/v1/search", {"user_id": "other", "query": "海象?", "mode": "dense"})["results"]
    assert found["content"] == "海象在睡觉"
    body = {"user_id": "u", "turns": turns, "wait": "indexed"}
    assert served.post("/v1/sessions/s/turns", body)["index_state"] == "indexed"
    answer = served.search("walrus?")
    assert answer["degradation"]["reasons"] == [], served.log.read_text()
    assert answer["results"][0]["content"] == "the walrus sleeps"
    for model, dimension in (("hash_64", 64), ("hash_32", 32)):
        data = served.post("/v1/embeddings", {"input": ["a b", "c"], "model": model})["data"]
        assert [len(one["embedding"]) for one in data] == [dimension] * 2
    [replica] = served.processes(b"ray::ServeReplica:memstrata-Embedder@hash_64:")
    os.kill(replica, signal.SIGKILL)
    answer = served.search("walrus, or gull?")
    assert answer["degradation"]["reasons"] == ["dense: encoder_unavailable"]
    assert {one["content"] for one in answer["results"]} == {"the walrus sleeps", "the gull flies"}
    assert served.search("walrus?")["degradation"]["reasons"] == [], "this query's vector is known here"
    assert wait_until(lambda: not served.search(f"a gull {os.urandom(4).hex()}?")["degradation"]["reasons"], BACK_S)


def test_the_local_engine_refuses_it(tmp_path: Path) -> None:
    done = subprocess.run(
        command(tmp_path, "local", free_port()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert 'placement = "deployment" needs the Ray engine' in done.stderr
