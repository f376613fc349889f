"""`memstrata serve --profile cluster`: several processes of one store on this host, as a user tries it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.deployments.served import ROOT, free_port, wait_until

READY_S = 300
STOP_S = 30
CONFIG = '[encoder]\nmodel = "hash"\n[multilingual]\nmodel = "off"\n[store]\nshards = 4\n'


def test_it_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    for more in (["--engine", "local"], ["--role", "replica"], ["--follow", str(tmp_path)]):
        words = ["serve", "--profile", "cluster", "--data", str(tmp_path), "--port", str(free_port()), *more]
        ran = subprocess.run(
            [sys.executable, "-m", "serve_app.cli", *words], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 1
        assert "--profile cluster" in ran.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_it_serves_and_ends_and_leaves_nothing_but_the_store() -> None:
    with tempfile.TemporaryDirectory(prefix="p", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        (folder / "config.toml").write_text(CONFIG)
        (folder / "t").mkdir()
        words = ["serve", "--profile", "cluster", "--data", str(folder / "store"), "--port", str(port)]
        own = {"TMPDIR": str(folder / "t"), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "serve_app.cli", *words, "--config", str(folder / "config.toml")],
                cwd=ROOT,
                env=os.environ | own,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"

            def ready() -> bool:
                assert process.poll() is None, (folder / "log").read_text()
                try:
                    return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
                except httpx.TransportError:
                    return False

            assert wait_until(ready, READY_S), (folder / "log").read_text()
            key = (folder / "store" / "admin.key").read_text().strip()
            headers = {"Authorization": f"Bearer {key}"}
            body = {"user_id": "u", "turns": [{"role": "user", "content": "the river was high"}]}
            written = httpx.post(f"{url}/v1/sessions/s/turns", json=body, headers=headers, trust_env=False, timeout=30)
            assert written.status_code == 201, written.text
            asked = {"user_id": "u", "query": "river", "mode": "lexical", "min_receipt": written.json()["receipt"]}
            found = httpx.post(f"{url}/v1/search", json=asked, headers=headers, trust_env=False, timeout=30).json()
            assert [one["content"] for one in found["results"]] == ["the river was high"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0
            assert not list((folder / "t").glob("mst-*"))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
