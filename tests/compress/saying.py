"""Turns and models for tests of the compressor: real implementations of the port, small ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from serve_app.core import Turn
from serve_app.errors import SummariserFailed
from serve_app.ports import SummaryTask

MAY_8_2023 = 1_683_536_400_000_000
MINUTE_US = 60_000_000


def said(*contents: str, role: Any = "user", first: int = 3, **fields: Any) -> list[Turn]:
    return [
        Turn(f"t{seq}", "s", role, content, seq, MAY_8_2023, MAY_8_2023 + seq * MINUTE_US, **fields)
        for seq, content in zip(itertools.count(first), contents, strict=False)
    ]


def small_talk(count: int, first: int = 3) -> list[Turn]:
    """So many turns that bind nobody, each in words of its own."""
    things = ("boat", "kite", "lamp", "fence", "violin", "garden", "bridge", "poster", "kettle", "mitten")
    places = ("harbour", "market", "station", "museum", "valley", "corner", "cellar", "meadow")
    return said(
        *(
            f"The {things[n % 10]} near the {places[n % 8]} looks rather {'very ' * (n // 80)}old."
            for n in range(count)
        ),
        first=first,
    )


class Scripted:
    """A model that answers by a function of its task, and keeps what it was asked."""

    def __init__(
        self, answer: Callable[[SummaryTask], str], name: str = "scripted", window_tokens: int = 2_000
    ) -> None:
        self._answer = answer
        self._name = name
        self._window_tokens = window_tokens
        self.tasks: list[SummaryTask] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def window_tokens(self) -> int:
        return self._window_tokens

    @property
    def trouble(self) -> str | None:
        return None

    def summarise(self, task: SummaryTask, deadline_s: float) -> str:
        self.tasks.append(task)
        return self._answer(task)

    def close(self) -> None:
        pass


def heads(task: SummaryTask) -> str:
    """Of each line what was said, in nearly the same words: what an honest model would give."""
    said_there = (line.partition(": ")[2] or line for line in task.text.split("\n"))
    return "\n".join(one.replace("rather ", "") for one in said_there)


def failing(why: str) -> Callable[[SummaryTask], str]:
    def fail(task: SummaryTask) -> str:
        raise SummariserFailed(why)

    return fail


def texts(turns: Sequence[Turn]) -> str:
    return "\n".join(turn.text for turn in turns)
