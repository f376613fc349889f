"""One contract for every summariser: a language model in this process, and one behind a server.

Whatever the model does, `summarise` gives plain lines or raises SummariserFailed, in time; and the next task is served
as if nothing had been.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from serve_app.errors import SummariserFailed
from serve_app.models.chat import ANSWER_BYTES_MAX, ChatOptions
from serve_app.models.summarise_chat import ChatSummariser
from serve_app.models.summarise_local import AnsweringModel, TransformersSummariser
from serve_app.ports import Summariser, SummaryTask
from tests.models.answering import Answering
from tests.models.chat_server import ChatServer
from tests.models.smollm2_server import WAYS, misbehaving

TASK = SummaryTask("2026-01-05 user: No red-eye flights. My budget is 5000.\n2026-01-05 assistant: Noted.", 40)
SUMMARY = "The user wants no red-eye flights.\nThe budget is 5000."

SOON_S = 0.3
LATE_S = 1.5
"""By then whoever had SOON_S must have come back, on a busy machine too."""

OWN_S = 2.0
"""What a summariser gives its model, however long the caller would wait."""

PLENTY_S = float("inf")


class Backend(Protocol):
    """A summariser whose model does as it is told."""

    summariser: Summariser

    def says(self, *contents: str, whole: bool = True) -> None: ...
    def hangs(self) -> None: ...
    def never_ends(self) -> None: ...
    def fails(self) -> None: ...
    def asked(self) -> list[list[dict[str, str]]]: ...
    def close(self) -> None: ...


class Local:
    def __init__(self, rest_s: float) -> None:
        self._model = Answering(SUMMARY)
        self._switch = _Switch(self)
        self.summariser: Summariser = TransformersSummariser(
            "local:test", lambda: self._switch, window_tokens=512, deadline_s=OWN_S, rest_s=rest_s
        )
        self._asked: list[list[dict[str, str]]] = []

    def says(self, *contents: str, whole: bool = True) -> None:
        self._become(Answering(*contents, whole=whole))

    def hangs(self) -> None:
        self._become(Answering(SUMMARY, hangs=True))

    def never_ends(self) -> None:
        self._become(Answering(SUMMARY, endless=True))

    def fails(self) -> None:
        model = Answering(SUMMARY)
        model.failure = MemoryError("the text of a defect may quote a turn")
        self._become(model)

    def asked(self) -> list[list[dict[str, str]]]:
        return self._asked + self._model.asked

    def close(self) -> None:
        self._model.go.set()
        self.summariser.close()

    def current(self) -> AnsweringModel:
        return self._model

    def _become(self, model: Answering) -> None:
        self._model.go.set()
        self._asked += self._model.asked
        self._model = model


class _Switch:
    """The model of the thread: whatever the test says that it is by now."""

    def __init__(self, owner: Local) -> None:
        self._owner = owner

    def answer(self, *arguments: object) -> object:
        return self._owner.current().answer(*arguments)  # type: ignore[arg-type]


class Chat:
    def __init__(self, rest_s: float) -> None:
        self._server = ChatServer()
        self._server.content = SUMMARY
        options = ChatOptions(url=self._server.url, model="m", deadline_ms=round(OWN_S * 1e3), rest_s=rest_s)
        self.summariser: Summariser = ChatSummariser("chat:test", options, "compress.coarse", 512)

    def says(self, *contents: str, whole: bool = True) -> None:
        self._reset()
        *self._server.contents, self._server.content = contents
        self._server.finish = "stop" if whole else "length"

    def hangs(self) -> None:
        self._server.delay_s = 60.0

    def never_ends(self) -> None:
        self._server.drips = 0.01

    def fails(self) -> None:
        self._server.status = 500

    def asked(self) -> list[list[dict[str, str]]]:
        return [one["messages"] for one in self._server.asked]

    def close(self) -> None:
        self.summariser.close()
        self._server.close()

    def _reset(self) -> None:
        self._server.delay_s, self._server.drips, self._server.status = 0.0, None, 200


REST_S = 0.2


@pytest.fixture(params=[Local, Chat])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    made: Backend = request.param(REST_S)
    yield made
    made.close()


def summarise(backend: Backend, task: SummaryTask = TASK, deadline_s: float = PLENTY_S) -> str:
    return backend.summariser.summarise(task, deadline_s)


def failure(backend: Backend, deadline_s: float = PLENTY_S) -> str:
    """Of a task that must fail in time."""
    began = time.monotonic()
    with pytest.raises(SummariserFailed) as caught:
        summarise(backend, deadline_s=deadline_s)
    assert time.monotonic() - began < LATE_S + (OWN_S if deadline_s > OWN_S else 0.0)
    return str(caught.value)


def eventually(backend: Backend) -> str:
    """Once what hung is out of the way."""
    for _ in range(100):
        try:
            return summarise(backend)
        except SummariserFailed:
            time.sleep(0.05)
    raise AssertionError("it never came back")


def test_what_it_says_is_given(backend: Backend) -> None:
    assert summarise(backend) == SUMMARY
    assert summarise(backend) == SUMMARY
    assert backend.summariser.trouble is None


def test_it_is_known_without_being_asked(backend: Backend) -> None:
    assert backend.summariser.name.endswith(":test")
    assert backend.summariser.window_tokens == 512
    assert backend.asked() == []


def test_rules_come_first_and_the_text_stands_quoted(backend: Backend) -> None:
    summarise(backend, TASK._replace(keep=("My budget is 5000.",), draft="A draft."))
    [[rules, question]] = backend.asked()
    assert rules["role"] == "system"
    assert question["role"] == "user"
    assert f"<conversation>\n{TASK.text}\n</conversation>" in question["content"]
    assert "- My budget is 5000." in question["content"]
    assert "<draft>\nA draft.\n</draft>" in question["content"]
    assert "red-eye" not in rules["content"]


@pytest.mark.parametrize("content", [SUMMARY, f'{{"summary": "{SUMMARY}"}}'.replace("\n", "\\n")])
def test_after_an_answer_of_no_use_it_is_asked_once_more(backend: Backend, content: str) -> None:
    backend.says("", content)
    assert summarise(backend) == SUMMARY
    first, second = backend.asked()
    assert second[: len(first)] == first
    assert [one["role"] for one in second] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("content", ["", " \n\t", "{}", '{"summary": 3}', "[1, 2]", "\ufffd\x00\u202e", "!!! 111 ???"])
def test_an_answer_of_no_use_is_a_failure_after_one_repair(backend: Backend, content: str) -> None:
    backend.says(content)
    for asked in range(1, 5):
        assert failure(backend) == "answer of no use"
        assert len(backend.asked()) == 2 * asked
    backend.says(SUMMARY)
    assert summarise(backend) == SUMMARY  # it was the task's failure: the model is not left alone for it


def test_what_was_cut_off_ends_with_a_whole_sentence(backend: Backend) -> None:
    backend.says("The user wants no red-eye flights. The budget is 50", whole=False)
    assert summarise(backend) == "The user wants no red-eye flights."


def test_a_model_that_hangs_costs_its_deadline(backend: Backend) -> None:
    backend.hangs()
    assert failure(backend, SOON_S) == "deadline"
    assert failure(backend, 0.0) == "deadline"
    backend.says(SUMMARY)
    assert eventually(backend) == SUMMARY


def test_an_answer_without_end_costs_its_deadline(backend: Backend) -> None:
    backend.never_ends()
    assert failure(backend, SOON_S) == "deadline"
    backend.says(SUMMARY)
    assert eventually(backend) == SUMMARY


def test_its_own_deadline_holds_too(backend: Backend) -> None:
    backend.never_ends()
    assert failure(backend, PLENTY_S) == "deadline"


def test_after_faults_in_a_row_it_is_left_alone_for_a_while(backend: Backend) -> None:
    backend.fails()
    said = [failure(backend) for _ in range(4)]
    assert said[3] == "left alone after faults"
    assert "left alone after faults" not in said[:3]
    assert backend.summariser.trouble == "left alone after faults"
    assert len(backend.asked()) == 3
    backend.says(SUMMARY)
    time.sleep(REST_S + 0.05)
    assert summarise(backend) == SUMMARY
    assert backend.summariser.trouble is None


def test_callers_in_a_hurry_do_not_close_it_to_others(backend: Backend) -> None:
    backend.never_ends()
    for _ in range(5):
        failure(backend, SOON_S / 10)
    backend.says(SUMMARY)
    assert eventually(backend) == SUMMARY
    assert backend.summariser.trouble is None


def test_no_failure_quotes_anything(backend: Backend) -> None:
    backend.fails()
    assert failure(backend) in ("status 500", "failed: MemoryError")


def test_many_callers_each_get_the_same(backend: Backend) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: summarise(backend), range(8))) == {SUMMARY}


def test_a_closed_one_refuses_and_lets_go_of_who_waits(backend: Backend) -> None:
    backend.never_ends()
    said: list[str] = []
    waiting = threading.Thread(target=lambda: said.append(failure(backend)))
    waiting.start()
    while not backend.asked():
        time.sleep(0.005)
    backend.summariser.close()
    waiting.join(LATE_S)
    assert said in (["closed"], ["deadline"])
    assert failure(backend) == "closed"
    backend.summariser.close()


# ---- what only a model in this process can do


def test_a_model_that_goes_on_hanging_is_left_alone() -> None:
    model = Answering(SUMMARY, hangs=True)
    made = TransformersSummariser("local:test", lambda: model, window_tokens=512, deadline_s=SOON_S, rest_s=60.0)
    said: list[str] = []
    for _ in range(5):
        with pytest.raises(SummariserFailed) as caught:
            made.summarise(TASK, PLENTY_S)
        said.append(str(caught.value))
    assert said == ["deadline"] * 3 + ["left alone after faults"] * 2
    model.go.set()
    made.close()


def test_who_comes_while_it_is_late_waits_for_his_own_deadline() -> None:
    local = Local(REST_S)
    local.hangs()
    assert failure(local, SOON_S) == "deadline"
    threading.Timer(SOON_S, local.says, (SUMMARY,)).start()
    assert summarise(local) == SUMMARY
    local.close()


# ---- what only a server can do


@pytest.fixture
def server() -> Iterator[ChatServer]:
    found = ChatServer()
    found.content = SUMMARY
    yield found
    found.close()


@pytest.fixture
def chat(server: ChatServer) -> Iterator[ChatSummariser]:
    options = ChatOptions(url=server.url, model="m", deadline_ms=round(OWN_S * 1e3))
    made = ChatSummariser("chat:test", options, "compress.fine", 512)
    yield made
    made.close()


def chat_failure(chat: ChatSummariser) -> str:
    with pytest.raises(SummariserFailed) as caught:
        chat.summarise(TASK, PLENTY_S)
    return str(caught.value)


def test_what_is_asked_of_a_server(server: ChatServer, chat: ChatSummariser) -> None:
    assert chat.summarise(TASK, PLENTY_S) == SUMMARY
    [asked] = server.asked
    assert (asked["model"], asked["temperature"], asked["seed"], asked["stream"]) == ("m", 0, 0, False)
    assert asked["max_tokens"] == 2 * TASK.target_tokens


@pytest.mark.parametrize(("share", "tries"), [(0.3, 2), (0.6, 1)])
def test_both_tries_have_one_deadline(server: ChatServer, chat: ChatSummariser, share: float, tries: int) -> None:
    """And the second one is not begun where it would not be whole in time."""
    server.content, server.delay_s = "", share * OWN_S
    began = time.monotonic()
    assert chat_failure(chat) == "answer of no use"
    assert time.monotonic() - began < OWN_S
    assert len(server.asked) == tries


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_status_is_named(server: ChatServer, chat: ChatSummariser, status: int) -> None:
    server.status = status
    assert chat_failure(chat) == f"status {status}"


def test_nobody_there_and_a_connection_broken_off(server: ChatServer, chat: ChatSummariser) -> None:
    server.resets = True
    assert chat_failure(chat) == "server unreachable"
    server.close()
    assert chat_failure(chat) == "server unreachable"


@pytest.mark.parametrize("raw", [b"", b"<html>", b"{}", b'{"choices": []}', b"\xff", b" " * (ANSWER_BYTES_MAX + 1)])
def test_what_is_no_answer_of_a_chat_server_is_its_fault(server: ChatServer, chat: ChatSummariser, raw: bytes) -> None:
    server.raw = raw
    assert [chat_failure(chat) for _ in range(4)] == ["answer of no use"] * 3 + ["left alone after faults"]


def test_a_server_that_refuses_a_task_is_asked_the_next(server: ChatServer, chat: ChatSummariser) -> None:
    server.content = None
    assert [chat_failure(chat) for _ in range(4)] == ["answer of no use"] * 4
    server.content = SUMMARY
    assert chat.summarise(TASK, PLENTY_S) == SUMMARY


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_misbehaves_costs_no_more_than_the_deadline(way: str) -> None:
    server = misbehaving(way)
    options = ChatOptions(url=server.url, model="m", deadline_ms=round(SOON_S * 1e3))
    made = ChatSummariser("chat:test", options, "compress.coarse", 512)
    for _ in range(5):
        began = time.monotonic()
        try:
            text = made.summarise(TASK, PLENTY_S)
        except SummariserFailed:
            text = "nothing"
        assert time.monotonic() - began < LATE_S
        assert all(line and line.isprintable() for line in text.split("\n"))
    made.close()
    server.close()
