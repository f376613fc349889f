"""A summariser by a chat model behind an OpenAI-compatible server: see `chat.py` for how it is asked.

Owns an event loop in a thread of its own, so that a deadline holds whatever the connection does: a name that is
looked up for ever, an answer that drips.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final

from serve_app.breaker import Breaker
from serve_app.errors import SummariserFailed
from serve_app.models.chat import ChatClient, ChatOptions
from serve_app.models.plain import Said
from serve_app.models.summarise_answer import lines_of
from serve_app.models.summarise_prompt import Message, asked, asked_again, new_tokens
from serve_app.ports import SummaryTask

__all__ = ["ChatSummariser"]

SEED: Final = 0
"""For servers that know one: the same task shall give the same text."""

CLOSE_WAIT_S: Final = 5.0


class ChatSummariser:
    """`ports.Summariser` by a server."""

    def __init__(
        self,
        name: str,
        options: ChatOptions,
        section: str,
        window_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is the breaker's. Raises InvalidRequest where the key is missing."""
        self._name, self._window_tokens, self._deadline_s = name, window_tokens, options.deadline_ms / 1e3
        self._chat = ChatClient(options, section, SummariserFailed, clock)
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="chat summariser", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        return self._name

    @property
    def window_tokens(self) -> int:
        return self._window_tokens

    @property
    def breaker(self) -> Breaker:
        return self._chat.breaker

    @property
    def trouble(self) -> str | None:
        return None if self._chat.breaker.state == "closed" else "left alone after faults"

    def summarise(self, task: SummaryTask, deadline_s: float) -> str:
        """See the port. Waits on the calling thread."""
        if self._closed:
            raise SummariserFailed("closed")
        within_s = max(0.0, min(deadline_s, self._deadline_s))
        work = self._lines(task, time.monotonic() + within_s)
        try:
            waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # closed just now
            work.close()
            raise SummariserFailed("closed") from error
        try:
            lines = waiting.result(within_s)
        except TimeoutError as error:  # the work ends by the same deadline, and tells the breaker
            raise SummariserFailed("deadline") from error
        except CancelledError as error:
            raise SummariserFailed("closed") from error
        if not lines:
            raise SummariserFailed("answer of no use")
        return lines

    def close(self) -> None:
        """What is under way fails."""
        if self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_WAIT_S)

    async def _lines(self, task: SummaryTask, deadline: float) -> str:
        """Of the answer, or of a second one where the first is of no use; empty where both are."""
        messages, began = asked(task), time.monotonic()
        said = await self._said(task, messages, deadline)
        lines, now = lines_of(said), time.monotonic()
        if lines or deadline - now < now - began:  # the second one would not be whole in time
            return lines
        return lines_of(await self._said(task, asked_again(task, messages, said.content), deadline))

    async def _said(self, task: SummaryTask, messages: Sequence[Message], deadline: float) -> Said:
        question: dict[str, Any] = {
            "seed": SEED,
            "max_tokens": new_tokens(task),
            "stream": False,
            "messages": list(messages),
        }
        return await self._chat.ask(question, deadline - time.monotonic(), lambda said: said)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._ended())
            self._loop.close()

    async def _ended(self) -> None:
        """Cancels what is under way and lets go of the connections."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._chat.close()
