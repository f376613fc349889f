"""The local engine, from outside."""

import signal
import socket

import httpx
import pytest

from serve_app.local import HEAD_BYTES_MAX
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


def sent(served, *pieces):
    """All that comes back for raw bytes, until the other side closes."""
    received = b""
    with socket.create_connection(("127.0.0.1", served.ready().port), timeout=10) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            while part := connection.recv(65_536):
                received += part
        except ConnectionError:  # closed while there was more to send
            pass
    return received


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "], ids=["path", "header"])
def test_a_head_without_end_is_cut_off(served, start):
    assert b"200 OK" not in sent(served, start, *[b"a" * 10_000] * 100)


def test_many_headers_without_end_are_cut_off(served):
    assert b"200 OK" not in sent(served, b"GET / HTTP/1.1\r\nHost: x\r\n", *[b"X-One: 1\r\n" * 1_000] * 100)


def test_trailers_without_end_are_cut_off(served):
    start = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    assert b"200 OK" not in sent(served, start, *[b"X-One: 1\r\n" * 1_000] * 100)


def test_heads_within_the_bound_and_long_bodies_are_answered_on_one_connection(served):
    url, headers = served.ready().url, {"X-Long": "a" * (HEAD_BYTES_MAX * 3 // 4)}
    with httpx.Client(trust_env=False) as client:
        answers = [client.post(url, headers=headers, content=b"b" * 1_000_000).json() for _ in range(3)]
        chunked = client.post(url, headers=headers, content=iter([b"c" * 10] * 20_000)).json()
    assert [answer["bytes"] for answer in [*answers, chunked]] == [1_000_000] * 3 + [200_000]


def test_a_request_that_the_service_refuses_unread_is_answered_and_the_next_one_comes_in(served):
    head = "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: {connection}\r\n\r\n"
    refused = head.format(path="/crowded", connection="keep-alive").encode()
    last = head.format(path="/x", connection="close").encode()
    received = sent(served, refused, b"GET / HTT", refused + b"123456789", last + b"123456789")
    answers = received.split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"429", b"429", b"200"]
    assert all(b"retry-after: 7\r\n" in answer and answer.endswith(b"\r\n\r\nfull") for answer in answers[:2])
    assert b'"bytes": 9' in answers[2]


def test_one_that_is_refused_and_wants_no_more_is_closed(served):
    received = sent(served, b"GET /crowded HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")


def test_what_follows_on_a_connection_that_waits_for_an_answer_is_not_refused_before_it(served):
    request = b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: %b\r\n\r\n"
    received = sent(served, request % (b"/slow", b"keep-alive") + request % (b"/crowded", b"close"))
    assert [answer[:3] for answer in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200"]
