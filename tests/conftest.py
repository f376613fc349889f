"""A whole service for every test that asks one over HTTP; one a test file, so that most tests start none.

With MEMSTRATA_TEST_GATEWAY=1 in the environment it is a gateway before a writer for each shard: the same tests then say
that a gateway answers as a service does that writes itself.
"""

import os
from collections.abc import Iterator

import pytest

from tests.api.clustered import Clustered
from tests.api.running import Running, hash_settings


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if os.environ.get("MEMSTRATA_TEST_GATEWAY"):
        cluster = Clustered(tmp_path_factory.mktemp("cluster"))
        yield cluster.start()
        cluster.stop()
        return
    running = Running(hash_settings(tmp_path_factory.mktemp("service")))
    yield running
    running.stop()
