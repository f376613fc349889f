"""A real language model, in this process and behind a server on loopback: the same task gives the same text by both."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from serve_app.errors import SummariserFailed
from serve_app.models.causal import CausalModel
from serve_app.models.chat import ChatOptions
from serve_app.models.summarise import PACKAGED, CompressOptions, SummariserOptions, open_summarisers
from serve_app.models.summarise_chat import ChatSummariser
from serve_app.models.summarise_local import TransformersSummariser
from serve_app.ports import SummaryTask
from tests.models.chat_server import ChatServer
from tests.models.smollm2_server import answering, packaged_model

TASK = SummaryTask(
    "2026-01-05 user: I will not take red-eye flights. My budget is 5000 dollars at most.\n"
    "2026-01-05 assistant: Then I look for day flights to Lisbon.\n"
    "2026-01-05 user: My daughter Mia is allergic to peanuts.",
    30,
)
PLENTY_S = 60.0


@pytest.fixture(scope="module")
def model() -> CausalModel:
    return packaged_model()


@pytest.fixture(scope="module")
def local(model: CausalModel) -> Iterator[TransformersSummariser]:
    made = TransformersSummariser("local", lambda: model, window_tokens=512, deadline_s=PLENTY_S, rest_s=1.0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(model: CausalModel) -> Iterator[str]:
    server = ChatServer(answering(model))
    yield server.url
    server.close()


@pytest.mark.slow
def test_the_same_task_gives_the_same_text_by_every_way(local: TransformersSummariser, served: str) -> None:
    text = local.summarise(TASK, PLENTY_S)
    assert any(character.isalpha() for character in text)
    local.summarise(TASK._replace(text="2026-01-05 user: Something else was said in between."), PLENTY_S)
    assert local.summarise(TASK, PLENTY_S) == text
    chat = ChatSummariser("chat", ChatOptions(url=served, model=PACKAGED, deadline_ms=60_000), "compress.coarse", 512)
    assert chat.summarise(TASK, PLENTY_S) == text
    chat.close()


def test_it_stops_for_its_deadline(local: TransformersSummariser) -> None:
    long = TASK._replace(text=TASK.text * 4, target_tokens=500)
    began = time.monotonic()
    with pytest.raises(SummariserFailed, match="deadline"):
        local.summarise(long, 0.3)
    assert time.monotonic() - began < 0.8


def test_the_server_speaks_as_others_do(served: str) -> None:
    question = {"model": PACKAGED, "stream": True, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    answer = httpx.post(f"{served}/chat/completions", json=question, timeout=PLENTY_S).json()
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens"] <= 8


SCRIPT = """
from tests.models.test_smollm2 import TASK, opened
print(repr(opened().summarise(TASK, 120.0)))
"""


def opened() -> TransformersSummariser:
    options = SummariserOptions(backend="transformers", model=PACKAGED, deadline_ms=120_000)
    coarse, fine = open_summarisers(CompressOptions(coarse=options, fine=options))
    assert coarse is fine
    assert isinstance(coarse, TransformersSummariser)
    return coarse


@pytest.mark.slow
def test_another_process_says_the_same(local: TransformersSummariser) -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200, check=True)
    assert run.stdout.strip() == repr(local.summarise(TASK, PLENTY_S))
