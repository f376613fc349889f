"""Both load generators against a real server: what they send, what they count, and from when they measure."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.load import Load, LoadFailed, Target
from benchmarks.workload import NUMBER, Request

STALL_S = 0.4


class Heard(ThreadingHTTPServer):
    """Answers {}; /refused with 503; /stall the first time only after a while, during which nobody gets an answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Listener)
        self.asked: list[tuple[str, str, str | None, Any]] = []
        self.stalled = False
        self.turn = threading.Lock()


class Listener(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Heard

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(
            (self.command, self.path, self.headers.get("Authorization"), body and json.loads(body))
        )
        with self.server.turn:
            if self.path == "/stall" and not self.server.stalled:
                self.server.stalled = True
                time.sleep(STALL_S)
        self.wfile.write(b"HTTP/1.1 %d x\r\nContent-Length: 2\r\n\r\n{}" % (503 if self.path == "/refused" else 200))

    do_GET = do_POST = answer  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Heard]:
    with Heard() as heard:
        threading.Thread(target=heard.serve_forever, daemon=True).start()
        yield heard
        heard.shutdown()


@pytest.fixture
def target(server: Heard) -> Target:
    return Target(f"http://127.0.0.1:{server.server_address[1]}", "secret")


@pytest.fixture(params=["wrk", "own"])
def load(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    if request.param == "own":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("wrk") is None:
        pytest.skip("wrk is not installed")
    return Load(tmp_path)


def asked(path: str, kind: str = "a", **body: str) -> Request:
    return Request.post(kind, path, body)


def test_every_request_is_new_and_carries_the_key(load: Load, server: Heard, target: Target) -> None:
    """In slices one after the other, too: what an earlier one asked may be cached."""
    file = load.prepared([asked("/one", text=f"käse {NUMBER}"), asked("/two", text=f"“{NUMBER}”")])
    ran = [load.closed(target, file, 2, 1) for _ in range(2)]
    texts = [body["text"] for _, _, _, body in server.asked]
    assert len(set(texts)) == len(texts)
    assert len(texts) >= sum(one.rate for one in ran) > 10
    assert {(method, path) for method, path, *_ in server.asked} == {("POST", "/one"), ("POST", "/two")}
    assert {key for _, _, key, _ in server.asked} == {"Bearer secret"}
    assert {text[:5] for text in texts if text.startswith("k")} == {"käse "}
    assert all(one.errors == 0 and 0 < one.p50_ms <= one.p99_ms for one in ran)


def test_a_request_without_a_number_is_repeated(load: Load, server: Heard, target: Target) -> None:
    load.closed(target, load.prepared([asked("/one", text="again"), Request("n", "GET", "/healthz", "")]), 1, 1)
    assert {(method, path, str(body)) for method, path, _, body in server.asked} == {
        ("POST", "/one", "{'text': 'again'}"),
        ("GET", "/healthz", "b''"),
    }


def test_refusals_are_errors_and_no_answers(load: Load, target: Target) -> None:
    ran = load.closed(target, load.prepared([asked("/refused")]), 1, 1)
    assert ran.errors > 0
    assert ran.rate == 0
    assert ran.faults == [f"{ran.errors} errors"]


def test_each_request_once(load: Load, server: Heard, target: Target) -> None:
    file = load.prepared([asked(f"/{at}", "odd" if at % 2 else "even") for at in range(30)])
    ran = load.own(target, file, clients=4, seconds=30, once=True)
    assert sorted(path for _, path, *_ in server.asked) == sorted(f"/{at}" for at in range(30))
    assert set(ran.kinds) == {"odd", "even"}


def test_an_open_loop_counts_the_wait_that_a_stall_causes(load: Load, server: Heard, target: Target) -> None:
    """Requests go on arriving during the stall, and each counts from when it was to be sent."""
    ran = load.own(target, load.prepared([asked("/stall")]), rate=100, seconds=2)
    assert len(server.asked) > 100
    assert ran.p99_ms > 1e3 * STALL_S / 2
    assert ran.p50_ms < 1e3 * STALL_S / 2
    assert ran.send_lag_p99_ms is not None


def test_nobody_there_is_an_error(load: Load) -> None:
    file = load.prepared([asked("/one")])
    if load.tool == "wrk":
        with pytest.raises(LoadFailed, match="wrk"):
            load.closed(Target("http://127.0.0.1:9"), file, 1, 1)
    else:
        assert load.closed(Target("http://127.0.0.1:9"), file, 1, 1).errors > 0
