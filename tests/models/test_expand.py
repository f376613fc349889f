"""A chat model that reads queries: what it says well counts, whatever else it does becomes a named fault in time."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import ExpanderFailed, InvalidRequest
from serve_app.models.chat import ANSWER_BYTES_MAX, AT_ONCE_MAX, FAULTS_MAX
from serve_app.models.expand import ChatExpander, ExpanderOptions, open_expander
from serve_app.ports import AskedQuery, Expansion
from tests.models.chat_server import ChatServer

ASKED = AskedQuery("and the other one?", ("Fuji or Leica?",), datetime.fromisoformat("2025-03-12T15:30:00+01:00"))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    found = ChatServer()
    yield found
    found.close()


class Asking:
    """An expander with a clock of the test's own, asked from plain functions."""

    def __init__(self, server: ChatServer, **options: Any) -> None:
        self.now = 0.0
        chosen = {"deadline_ms": 5_000} | options
        wanted = ExpanderOptions(backend="openai", url=server.url, model="m", **chosen)
        self.expander = ChatExpander(wanted, clock=lambda: self.now)

    def __call__(self, deadline_s: float | None = None) -> Expansion:
        async def asked() -> Expansion:
            try:
                return await self.expander.expand(ASKED, deadline_s)
            finally:
                await self.expander.close()
                self.expander._chat._http = None  # its connections belong to the loop that ends here

        return asyncio.run(asked())

    def fault(self, deadline_s: float | None = None) -> str:
        with pytest.raises(ExpanderFailed) as caught:
            self(deadline_s)
        return str(caught.value)


def test_a_good_answer_is_taken(server: ChatServer) -> None:
    server.says("How much was the Leica?", ["Leica", "price"], {"start": "2025-03-01T00:00:00+01:00", "end": None})
    found = Asking(server)()
    assert found.rewritten == "How much was the Leica?"
    assert found.keywords == ("Leica", "price")
    assert found.window is not None
    assert (found.window.start, found.window.end) == (datetime.fromisoformat("2025-03-01T00:00:00+01:00"), None)
    assert server.question == {"now": "2025-03-12T15:30:00+01:00", "said": ["Fuji or Leica?"], "query": ASKED.query}
    assert server.asked[0]["temperature"] == 0


def test_an_answer_in_a_fence_is_read_too(server: ChatServer) -> None:
    server.says("the Leica")
    server.content = f"```json\n{server.content}\n```"
    assert Asking(server)().rewritten == "the Leica"


@pytest.mark.parametrize(
    "content",
    [
        "the Leica",
        "",
        "[]",
        '{"keywords": ["a"]}',
        '{"rewritten": ""}',
        '{"rewritten": 3}',
        '{"rewritten": "x", "keywords": "Leica"}',
        '{"rewritten": "x", "time_window": {"start": "2025-03-01T00:00:00", "end": null}}',
        '{"rewritten": "x", "time_window": {"start": "soon", "end": null}}',
        '{"rewritten": "x", "time_window": {"start": "2025-03-02T00:00:00Z", "end": "2025-03-01T00:00:00Z"}}',
        '{"rewritten": "' + "long " * 500 + '"}',
        '{"rewritten": " \\u0000\\u202e "}',
        "[" * 60_000,
        '{"rewritten": "x", "time_window": {"start": "0001-01-01T00:00:00+14:00", "end": null}}',
        '{"rewritten": "x", "time_window": {"start": "2025-03-01T00:00:00+01:00:07", "end": null}}',
    ],
)
def test_an_answer_of_no_use_is_a_fault(server: ChatServer, content: str) -> None:
    server.content = content
    assert Asking(server).fault() == "answer of no use"


@pytest.mark.parametrize("raw", [b"", b"<html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": {}}]}', b"\xff"])
def test_what_is_no_answer_of_a_chat_server_is_a_fault(server: ChatServer, raw: bytes) -> None:
    server.raw = raw
    assert Asking(server).fault() == "answer of no use"


def test_an_endless_answer_is_not_read_to_its_end(server: ChatServer) -> None:
    server.raw = b" " * (ANSWER_BYTES_MAX + 1)
    assert Asking(server).fault() == "answer of no use"


def test_an_answer_of_blanks_holds_nobody_up(server: ChatServer) -> None:
    server.content = '{"rewritten": ' + " " * 60_000 + "x"
    started = time.process_time()
    assert Asking(server).fault() == "answer of no use"
    assert time.process_time() - started < 1.0


def test_nothing_is_unfolded(server: ChatServer) -> None:
    server.says("the Leica")
    server.raw = gzip.compress(json.dumps({"choices": [{"message": {"content": server.content}}]}).encode())
    server.headers = {"content-encoding": "gzip"}
    assert Asking(server).fault() == "answer of no use"


def test_a_redirect_is_not_followed(server: ChatServer) -> None:
    server.status = 307
    server.headers = {"location": f"{server.url}/chat/completions"}
    assert Asking(server).fault() == "status 307"
    assert len(server.asked) == 1


def test_no_control_characters_come_from_a_model(server: ChatServer) -> None:
    server.says("the\x00 Leica\u202e\n price", ["\x1bLeica", " \t", "pri\x00ce"])
    found = Asking(server)()
    assert found.rewritten == "the Leica price"
    assert found.keywords == ("Leica", "pri ce")


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_status_is_named(server: ChatServer, status: int) -> None:
    server.status = status
    assert Asking(server).fault() == f"status {status}"
    assert len(server.asked) == 1  # one try


def test_nobody_there(server: ChatServer) -> None:
    asking = Asking(server)
    server.close()
    assert asking.fault() == "server unreachable"


@pytest.mark.parametrize(("own_ms", "callers_s"), [(100, None), (30_000, 0.1)])
def test_the_earlier_deadline_holds(server: ChatServer, own_ms: int, callers_s: float | None) -> None:
    server.delay_s = 3.0
    asking = Asking(server, deadline_ms=own_ms)
    started = time.monotonic()
    assert asking.fault(callers_s) == "deadline"
    assert time.monotonic() - started < 2.0


def test_after_faults_in_a_row_the_server_is_left_alone_for_a_while(server: ChatServer) -> None:
    server.status = 500
    asking = Asking(server, rest_s=30)
    for _ in range(FAULTS_MAX):
        assert asking.fault() == "status 500"
    assert asking.fault() == "left alone after faults"
    assert len(server.asked) == FAULTS_MAX
    asking.now = 31.0
    assert asking.fault() == "status 500"  # one call tries it again
    assert asking.fault() == "left alone after faults"
    asking.now, server.status = 62.0, 200
    server.says("the Leica")
    assert asking().rewritten == "the Leica"
    server.status = 500
    assert asking.fault() == "status 500"
    assert asking.fault() == "status 500"  # they are counted anew


def test_callers_in_a_hurry_do_not_close_it_to_others(server: ChatServer) -> None:
    server.delay_s = 0.5
    server.says("the Leica")
    asking = Asking(server)
    assert [asking.fault(0.01) for _ in range(FAULTS_MAX + 1)] == ["deadline"] * (FAULTS_MAX + 1)
    assert asking().rewritten == "the Leica"


def test_more_at_once_than_there_are_places_do_not_wait(server: ChatServer) -> None:
    server.delay_s = 0.5
    server.says("the Leica")
    expander = Asking(server).expander

    async def all_at_once() -> list[Expansion | BaseException]:
        calls = [expander.expand(ASKED, None) for _ in range(AT_ONCE_MAX + 3)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await expander.close()
        return answers

    refused = [str(one) for one in asyncio.run(all_at_once()) if isinstance(one, ExpanderFailed)]
    assert refused == ["too many at once"] * 3


def test_the_key_comes_from_where_it_is_named(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("of-a-file\n")
    monkeypatch.setenv("SOME_KEY", "of-the-environment")
    server.says("x")
    Asking(server)()
    Asking(server, key_env="SOME_KEY")()
    Asking(server, key_file=str(tmp_path / "key"))()
    assert server.keys == [None, "Bearer of-the-environment", "Bearer of-a-file"]


def test_a_key_that_is_named_but_not_there_is_said_at_the_start(tmp_path: Path) -> None:
    for named in ({"key_env": "NOT_SET_ANYWHERE"}, {"key_file": str(tmp_path / "none")}):
        with pytest.raises(InvalidRequest, match="key"):
            open_expander(ExpanderOptions(backend="openai", url="http://x", model="m", **named))


@pytest.mark.parametrize("options", [{}, {"url": "http://x"}, {"model": "m"}, {"url": "file:///x", "model": "m"}])
def test_a_server_is_named_whole(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="needs url"):
        ExpanderOptions(backend="openai", **options)


def test_rules_need_no_expander() -> None:
    assert open_expander(ExpanderOptions()) is None
