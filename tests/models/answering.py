"""Language models for tests: small real implementations of what a summariser's thread runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from serve_app.models.plain import Said
from serve_app.models.summarise_prompt import Message


class Answering:
    """Says `contents` one after the other, the last one again and again; keeps what it was asked.

    `hangs`: it does not return before `go` is set, whatever it is told. `endless`: it goes on until it is told to stop.
    """

    def __init__(self, *contents: str, whole: bool = True, hangs: bool = False, endless: bool = False) -> None:
        self._contents = contents
        self._whole = whole
        self._hangs = hangs
        self._endless = endless
        self.go = threading.Event()
        self.stopped = threading.Event()
        self.asked: list[list[Message]] = []
        self.failure: Exception | None = None

    def answer(self, messages: Sequence[Message], new_tokens_max: int, stopped: Callable[[], bool]) -> Said:
        self.asked.append(list(messages))
        if self.failure is not None:
            raise self.failure
        if self._hangs:
            self.go.wait()
        while self._endless:
            if stopped():
                self.stopped.set()
                raise TimeoutError
            self.go.wait(0.005)
        return Said(self._contents[min(len(self.asked), len(self._contents)) - 1], self._whole)
