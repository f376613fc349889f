"""A whole service for every test that asks one over HTTP; one a test file, so that most tests start none."""

from collections.abc import Iterator

import pytest

from tests.api.running import Running, hash_settings


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("service")))
    yield running
    running.stop()
