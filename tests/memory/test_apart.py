"""A summary made in a process of its own is the very same; that process may die, hang or be closed at any time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from serve_app.compress.compressor import Compressor
from serve_app.context.tokens import open_tokenizer
from serve_app.core import Turn
from serve_app.errors import SummariserFailed
from serve_app.memory.apart import CompressorApart, Worker

AT = 1_700_000_000_000_000
TOKENIZER = open_tokenizer()


def turns(count: int, start: int = 1) -> list[Turn]:
    said = (f"The order {n} must be at the harbour by noon, 别忘了{n}号。" for n in range(start, start + count))
    return [Turn(f"t{n}", "s", "user", text, n, AT, AT, rev=n) for n, text in enumerate(said, start)]


@dataclass
class Place:
    worker: Worker
    compressor: CompressorApart

    @property
    def pid(self) -> int:
        assert self.worker._process is not None
        return self.worker._process.pid


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    worker = Worker()
    yield Place(worker, CompressorApart(Compressor(), worker))
    worker.close()


def test_it_gives_what_the_compressor_gives(place: Place) -> None:
    for some in (turns(3), turns(40), turns(44), turns(2, 50)):
        assert place.compressor.compress(some, 200, TOKENIZER) == Compressor().compress(some, 200, TOKENIZER)
    assert place.compressor.afresh().compress(turns(44), 200, TOKENIZER) == Compressor().compress(
        turns(44), 200, TOKENIZER
    )
    assert (place.compressor.version, place.compressor.backend) == (Compressor().version, "extractive")


def test_it_yields_the_processor_and_forgets_when_it_is_told_to(place: Place) -> None:
    place.compressor.compress(turns(3), 200, TOKENIZER)
    assert os.getpriority(os.PRIO_PROCESS, place.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    place.compressor.forget()
    assert place.compressor.compress(turns(3), 200, TOKENIZER).text


def test_one_that_has_died_is_replaced(place: Place) -> None:
    place.compressor.compress(turns(3), 200, TOKENIZER)
    first = place.pid
    os.kill(first, signal.SIGKILL)
    assert place.compressor.compress(turns(3), 200, TOKENIZER).text
    assert place.pid != first


def test_one_that_hangs_is_given_up_at_the_deadline_and_replaced(place: Place) -> None:
    place.compressor.compress(turns(3), 200, TOKENIZER)
    os.kill(place.pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(SummariserFailed):
        place.compressor.compress(turns(3), 200, TOKENIZER, 0.2)
    assert time.monotonic() - began < 5
    assert place.compressor.compress(turns(3), 200, TOKENIZER).text


def test_it_ends_when_nobody_asks_for_a_while() -> None:
    worker = Worker(idle_s=0.2)
    compressor = CompressorApart(Compressor(), worker)
    first = compressor.compress(turns(3), 200, TOKENIZER)
    assert worker._process is not None
    assert worker._process.wait(10) == 0
    assert compressor.compress(turns(3), 200, TOKENIZER) == first
    compressor.close()


def test_closing_ends_it_and_whoever_waits_hears_of_it() -> None:
    worker = Worker()
    compressor = CompressorApart(Compressor(), worker)
    compressor.compress(turns(3), 200, TOKENIZER)
    process = worker._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    heard: list[BaseException] = []

    def ask() -> None:
        try:
            compressor.compress(turns(3), 200, TOKENIZER, 60.0)
        except SummariserFailed as error:
            heard.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.1)
    compressor.close()
    asking.join(5)
    assert process.wait(5) == -signal.SIGKILL
    assert len(heard) == 1
    with pytest.raises(SummariserFailed):
        compressor.compress(turns(3), 200, TOKENIZER)


def test_a_process_that_takes_nothing_keeps_nobody_waiting() -> None:
    """Stopped, it neither reads an order that is larger than the line holds, nor what it is told to forget."""
    worker = Worker()
    compressor = CompressorApart(Compressor(), worker)
    try:
        compressor.compress(turns(3), 200, TOKENIZER)
        os.kill(Place(worker, compressor).pid, signal.SIGSTOP)
        large = [Turn(f"t{n}", "s", "user", "a boat " * 20_000, n, AT, AT, rev=n) for n in range(1, 9)]
        began = time.monotonic()
        with pytest.raises(SummariserFailed):
            compressor.compress(large, 200, TOKENIZER, 0.3)
        assert compressor.compress(turns(3), 200, TOKENIZER).text
        os.kill(Place(worker, compressor).pid, signal.SIGSTOP)
        for _ in range(20_000):
            compressor.forget()
        assert time.monotonic() - began < 20
        assert compressor.compress(turns(3), 200, TOKENIZER).text
    finally:
        worker.close()
