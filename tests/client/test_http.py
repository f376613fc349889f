"""The client: keys, ids in paths, retries by Retry-After, problems as errors."""

import time

import pytest

from serve_app.client.http import TRIES, Client, Refused, Unreachable
from tests.client.answering import Answering

BUSY = (503, {"Retry-After": "0"}, {"code": "overloaded", "detail": "busy"})
OK = (200, {}, {"results": []})


def test_the_key_and_the_id_go_as_they_must():
    with Answering({"/v1/sessions": [(201, {}, {"results": []})]}) as service, Client(service.url, "k1") as client:
        client.append("u", "a/b ..", [{"role": "user", "content": "x"}])
    _, path, headers, body = service.asked[0]
    assert path == "/v1/sessions/a%2Fb%20../turns"
    assert headers["Authorization"] == "Bearer k1"
    assert body == {"user_id": "u", "turns": [{"role": "user", "content": "x"}], "wait": "durable"}


def test_a_busy_service_is_asked_again():
    with Answering({"/v1/search": [BUSY, BUSY, OK]}) as service, Client(service.url) as client:
        assert client.search({"query": "q"}) == {"results": []}
    assert len(service.asked) == 3


def test_retries_are_bounded_and_the_problem_is_told():
    with (
        Answering({"/v1/search": [BUSY]}) as service,
        Client(service.url) as client,
        pytest.raises(Refused, match="503 overloaded: busy") as refused,
    ):
        client.search({"query": "q"})
    assert refused.value.code == "overloaded"
    assert len(service.asked) == TRIES


def test_a_refusal_is_not_repeated():
    wrong = (422, {}, {"code": "invalid_request", "detail": "k"})
    with (
        Answering({"/v1/search": [wrong]}) as service,
        Client(service.url) as client,
        pytest.raises(Refused, match="invalid_request"),
    ):
        client.search({"query": "q"})
    assert len(service.asked) == 1


def test_retry_after_is_waited_for():
    with Answering({"/v1/search": [(429, {"Retry-After": "0.3"}, {}), OK]}) as service, Client(service.url) as client:
        start = time.monotonic()
        client.search({"query": "q"})
        assert time.monotonic() - start >= 0.3


def test_waiting_for_a_service_that_never_comes_ends():
    with Client("http://127.0.0.1:9") as client, pytest.raises(Unreachable):
        client.wait_ready(0.3)


def test_a_call_to_nobody_fails_soon():
    start = time.monotonic()
    with Client("http://127.0.0.1:9") as client, pytest.raises(Unreachable, match="is the service running"):
        client.search({"query": "q"})
    assert time.monotonic() - start < 2
