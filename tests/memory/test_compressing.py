"""What takes long is computed in a process of its own: the answer is the same, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator, Sequence

import pytest

from serve_app.compress.compressor import Compressed, Compressor
from serve_app.context.tokens import open_tokenizer
from serve_app.core import Turn
from serve_app.errors import Overloaded, SummariserFailed
from serve_app.memory import compressing
from serve_app.memory.apart import CompressorApart, Worker
from serve_app.memory.compressing import LONG_CHARACTERS, WAITING_MAX, Compressing, Made, Makes
from serve_app.memory.making import Compresses
from serve_app.policies import Policies
from serve_app.ports import Tokenizer
from serve_app.write.operations import NewTurn

TOKENIZER = open_tokenizer()
AT = 1_700_000_000_000_000
BUDGET = NewTurn("user", "My budget must not exceed 4850 euros.")
SHORT = [BUDGET]
LONG = [BUDGET, NewTurn("user", "We spoke about the little boat down by the harbour. " * (LONG_CHARACTERS // 50))]


class Defaults:
    def of(self, tenant: str, kind: type) -> object:
        return kind()

    of_service = None


class Held(Compressor):
    """Makes nothing before `go` is set; `failure` is raised then."""

    def __init__(self, failure: str = "") -> None:
        super().__init__()
        self.begun, self.go, self.failure = threading.Event(), threading.Event(), failure

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        self.begun.set()
        self.go.wait(10)
        if self.failure:
            raise SummariserFailed(self.failure)
        return super().compress(turns, target_tokens, tokenizer, deadline_s)


def opened(apart: Compresses | None) -> Compressing:
    policies: Policies = Defaults()  # type: ignore[assignment]
    return Compressing(
        lambda tenant: Makes(short := Compressor(), apart or short), lambda name: TOKENIZER, policies, lambda: AT, 3600
    )


async def made(one: Compressing, turns: Sequence[NewTurn]) -> Made:
    return await one.of("t", turns, 100, AT, None)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def test_a_long_one_is_made_apart_and_is_the_same(worker: Worker) -> None:
    one = opened(CompressorApart(Compressor(), worker, fresh=True))
    asyncio.run(made(one, SHORT))
    assert worker._process is None
    assert asyncio.run(made(one, LONG)) == asyncio.run(made(opened(None), LONG))
    assert worker._process is not None
    one.close()


def test_the_process_may_end_at_any_time(worker: Worker) -> None:
    one = opened(CompressorApart(Compressor(), worker, fresh=True))
    asyncio.run(made(one, LONG))
    assert worker._process is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    assert "4850" in asyncio.run(made(one, LONG)).summary.text
    one.close()


def test_short_ones_do_not_wait_for_long_ones() -> None:
    held = Held()
    one = opened(held)

    async def beside() -> Made:
        long = [asyncio.create_task(made(one, LONG)) for _ in range(3)]
        await asyncio.to_thread(held.begun.wait, 10)
        short = await asyncio.wait_for(made(one, SHORT), 5)
        held.go.set()
        assert [found.summary.text for found in await asyncio.gather(*long)]
        return short

    assert "4850" in asyncio.run(beside()).summary.text
    one.close()


def test_who_cannot_be_answered_in_time_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressing, "WAIT_S", 0.05)
    held = Held()
    one = opened(held)

    async def both() -> None:
        first = asyncio.create_task(made(one, LONG))
        await asyncio.to_thread(held.begun.wait, 10)
        late = asyncio.create_task(made(one, LONG))
        await asyncio.sleep(0.1)
        held.go.set()
        assert (await first).summary.text
        with pytest.raises(Overloaded, match="others came first"):
            await late

    asyncio.run(both())
    one.close()


def test_what_gives_no_answer_is_named() -> None:
    held = Held("deadline")
    held.go.set()
    one = opened(held)
    with pytest.raises(Overloaded, match="deadline"):
        asyncio.run(made(one, LONG))
    assert asyncio.run(made(one, SHORT)).summary.text
    one.close()


def test_no_more_wait_than_may() -> None:
    held = Held()
    one = opened(held)

    async def many() -> list[Made | BaseException]:
        calls = [asyncio.create_task(made(one, LONG)) for _ in range(WAITING_MAX + 3)]
        await asyncio.to_thread(held.begun.wait, 10)
        held.go.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    assert sum(isinstance(found, Overloaded) for found in asyncio.run(many())) == 3
    one.close()
