"""A summariser by a language model in this process: one task at a time, each within its deadline.

The model is loaded in a thread of its own, which then runs it (`model_thread.py`): nobody else waits for either. What
is asked while it loads waits for that as long as its deadline allows. After some faults in a row it is left alone for
a while; an answer of no use is the task's and no fault, so that equal tasks end equally whatever came between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from serve_app.breaker import Breaker
from serve_app.errors import Overloaded, SummariserFailed
from serve_app.models.chat import FAULTS_MAX, TELLING_SHARE
from serve_app.models.model_thread import ModelThread
from serve_app.models.plain import Said
from serve_app.models.summarise_answer import lines_of
from serve_app.models.summarise_prompt import Message, asked, asked_again, new_tokens
from serve_app.ports import SummaryTask

__all__ = ["AnsweringModel", "TransformersSummariser"]


class AnsweringModel(Protocol):
    """What the thread runs."""

    def answer(self, messages: Sequence[Message], new_tokens_max: int, stopped: Callable[[], bool]) -> Said:
        """`stopped` is asked again and again. Raises TimeoutError once it says yes, SummariserFailed."""
        ...


class TransformersSummariser:
    """`ports.Summariser` by a model that `load` opens."""

    def __init__(
        self,
        name: str,
        load: Callable[[], AnsweringModel],
        *,
        window_tokens: int,
        deadline_s: float,
        rest_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`deadline_s` is for each task, beside its own."""
        self._name, self._window_tokens, self._deadline_s, self._clock = name, window_tokens, deadline_s, clock
        self._breaker = Breaker(name, FAULTS_MAX, rest_s, clock)
        self._thread = ModelThread("summariser", load, SummariserFailed, clock, patient=True)

    @property
    def name(self) -> str:
        return self._name

    @property
    def window_tokens(self) -> int:
        return self._window_tokens

    @property
    def breaker(self) -> Breaker:
        return self._breaker

    @property
    def trouble(self) -> str | None:
        if self._thread.failed is not None:
            return str(self._thread.failed)
        return None if self._breaker.state == "closed" else "left alone after faults"

    def summarise(self, task: SummaryTask, deadline_s: float) -> str:
        """See the port. Waits on the calling thread."""
        if not self._breaker.admit():
            raise SummariserFailed("left alone after faults")
        within_s = min(deadline_s, self._deadline_s)
        try:
            lines = self._lines(task, self._clock() + within_s)
        except TimeoutError as error:
            hurried = within_s < self._deadline_s * TELLING_SHARE
            (self._breaker.released if hurried else self._breaker.failed)()
            raise SummariserFailed("deadline") from error
        except Overloaded as error:
            self._breaker.released()
            raise SummariserFailed("closed" if self._thread.closed else "busy") from error
        except SummariserFailed:  # says something of the task, or of a model that cannot be loaded
            self._breaker.released()
            raise
        except Exception as error:  # out of memory, a defect: the next backend does it
            self._breaker.failed()
            raise SummariserFailed(f"failed: {type(error).__name__}") from error
        self._breaker.succeeded()
        if not lines:
            raise SummariserFailed("answer of no use")
        return lines

    def close(self) -> None:
        """What still waits fails; the weights go with the thread."""
        self._thread.close()

    def _lines(self, task: SummaryTask, deadline: float) -> str:
        """Raises TimeoutError, Overloaded, SummariserFailed, and whatever the model throws."""
        waiting = self._thread.ask(lambda model: self._answered(model, task, deadline), deadline)
        try:
            return waiting.result(max(0.0, deadline - self._clock()))
        finally:
            waiting.cancel()

    def _answered(self, model: AnsweringModel, task: SummaryTask, deadline: float) -> str:
        """The lines of its answer, or of a second one where the first is of no use; empty where both are."""

        def stopped() -> bool:
            return self._clock() >= deadline or self._thread.closed

        messages, began = asked(task), self._clock()
        said = model.answer(messages, new_tokens(task), stopped)
        lines, now = lines_of(said), self._clock()
        if lines or deadline - now < now - began:  # the second one would not be whole in time
            return lines
        return lines_of(model.answer(asked_again(task, messages, said.content), new_tokens(task), stopped))
