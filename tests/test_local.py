"""The local engine, from outside."""

import signal

import httpx
import pytest

from tests.deployments.served import Served


@pytest.fixture
def served(tmp_path):
    one = Served(tmp_path / "a", "local")
    yield one
    one.end()


def test_it_answers_without_ray_and_stops_in_order(served):
    path = "/v1/sessions/a%2Fb%2E%2e//x/turns"
    assert httpx.get(f"{served.ready().url}{path}").json()["raw_path"] == path
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(10) == 0
    assert served.marker.read_text().splitlines() == ["started ray=False", "stopped ray=False"]


def test_ctrl_c_ends_it_too(served):
    served.ready().process.send_signal(signal.SIGINT)
    assert served.process.wait(10) == 0


def test_a_service_that_cannot_start_fails(tmp_path):
    served = Served(tmp_path / "a", "local", FAIL="1")
    assert served.process.wait(30) != 0
    assert "held by another service" in served.log.read_text()
