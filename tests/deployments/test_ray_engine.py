"""The Ray engine, from outside: what passes through the proxy, and what is left after each kind of end."""

import os
import signal
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.deployments.served import READY_S, Served, wait_until

pytestmark = pytest.mark.ray
MIB = 1024 * 1024
STOP_S = 12
GONE_S = 30


@pytest.fixture(scope="module")
def folder():
    """Short: Ray's socket paths lie below it."""
    with tempfile.TemporaryDirectory(prefix="e", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def failing(folder):
    """A service that cannot start; it tries beside the others, which takes no longer than they do."""
    one = Served(folder / "c", "ray", FAIL="1")
    yield one
    one.end()


@pytest.fixture(scope="module")
def pair(folder, failing):
    """Two services on one host at once: one behind HAProxy, one behind the Python proxy."""
    both = Served(folder / "a", "ray", "haproxy"), Served(folder / "b", "ray", "python")
    try:
        yield [one.ready() for one in both]
    finally:
        for one in both:
            one.end()


@pytest.fixture(params=[0, 1], ids=["haproxy", "python"])
def served(request, pair):
    return pair[request.param]


def test_the_path_arrives_as_it_was_sent(served):
    path = "/v1/sessions/a%2Fb%2E%2e%20c//x%E4%B8%AD/turns"
    assert httpx.get(f"{served.url}{path}?q=%2F").json()["raw_path"] == path


def test_a_body_of_eight_mib_arrives_whole(served):
    answer = httpx.post(f"{served.url}/v1/x", content=b"x" * (8 * MIB), timeout=30)
    assert answer.json()["bytes"] == 8 * MIB


def test_the_services_own_refusal_passes(served):
    answer = httpx.post(f"{served.url}/too-large", content=b"x" * MIB)
    assert (answer.status_code, answer.json()["path"]) == (413, "/too-large")


def test_authorization_passes(served):
    answer = httpx.get(served.url, headers={"Authorization": "Bearer secret"})
    assert answer.json()["authorization"] == "Bearer secret"


def test_the_services_words_reach_the_terminal(served):
    assert wait_until(lambda: "a word from the service" in served.log.read_text(), 5)


def test_nothing_is_written_into_the_home_folder(served):
    assert not (served.marker.parent / ".ray").exists()


def test_a_signal_to_the_whole_group_ends_it_in_order(pair):
    served = pair[0]
    os.killpg(served.process.pid, signal.SIGTERM)
    assert served.process.wait(STOP_S) == 0, served.log.read_text()
    assert served.marker.read_text().splitlines()[-1].startswith("stopped")
    assert wait_until(lambda: not served.processes(), 2)
    assert list(served.temp.iterdir()) == []
    assert "Traceback" not in served.log.read_text()


def test_a_killed_service_leaves_no_process_and_no_port(pair):
    served = pair[1]
    os.killpg(served.process.pid, signal.SIGKILL)
    assert wait_until(lambda: not served.processes(), GONE_S), served.processes()
    with pytest.raises(httpx.TransportError):
        httpx.get(served.url)


def test_a_service_that_cannot_start_says_why_and_fails(failing):
    assert failing.process.wait(READY_S) == 1
    assert "the data folder is held by another service" in failing.log.read_text()
    assert wait_until(lambda: not failing.processes(), 2)
