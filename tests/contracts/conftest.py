"""What contracts of stores share."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """A loopback S3 server with the bucket `memory`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/memory", method="PUT"), timeout=10).close()
    yield endpoint
    server.stop()
