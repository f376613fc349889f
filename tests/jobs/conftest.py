"""One Ray for all tests of jobs, started by the first that needs it."""

from collections.abc import Iterator

import pytest

from tests.jobs.apart import JobsApart


@pytest.fixture(scope="session")
def jobs() -> Iterator[JobsApart]:
    apart = JobsApart()
    yield apart
    apart.close()
