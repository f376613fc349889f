"""What tests of ways to deployments share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One that runs on a thread of its own, as a gateway's does for the indexer."""
    one = asyncio.new_event_loop()
    thread = threading.Thread(target=one.run_forever)
    thread.start()
    yield one
    one.call_soon_threadsafe(one.stop)
    thread.join()
    one.close()
