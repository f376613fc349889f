"""Services that stop with the test, and an S3 server on loopback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from moto.server import ThreadedMotoServer

from serve_app.config import Settings
from tests.api.running import Running

REGION = "us-east-1"
SIGNED = f"AWS4-HMAC-SHA256 Credential=any/20200101/{REGION}/s3/aws4_request"


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(settings: Settings, **injected: Any) -> Running:
        started.append(Running(settings, **injected))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def bucket(server: str, request: pytest.FixtureRequest) -> str:
    """A fresh bucket."""
    name = f"b{abs(hash(request.node.name)) % 10**12}"
    assert httpx.put(f"{server}/{name}", headers={"authorization": SIGNED}, trust_env=False).status_code == 200
    return name


@pytest.fixture
def connection(server: str) -> dict[str, str]:
    """Options that reach the server."""
    keys = {"access_key_id": "any", "secret_access_key": "any"}
    return {"endpoint": server, "region": REGION, "allow_http": "true"} | keys
