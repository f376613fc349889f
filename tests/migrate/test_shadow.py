"""Shadow reads: a share of the searches, in the background, whatever becomes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from serve_app.core import Owner
from serve_app.memory.serving import Served
from serve_app.migrate.pairs import Outcome, Sides
from serve_app.migrate.sampling import Historical
from serve_app.migrate.shadow import QUEUE_MAX, Shadow
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.question import Question
from serve_app.retrieve.second import SecondStage
from serve_app.routing import Routing
from tests.migrate.test_figures import one
from tests.write.shards import wait_until

ANN = Owner("acme", "ann")
SIDE = Served(Routing("a", "a"), SecondStage({}), ())
SIDES = Sides(SIDE, SIDE)


def question(query: str = "where?", **more: object) -> Question:
    return Question(query, "hybrid", 10, 0, rerank=True, **more)  # type: ignore[arg-type]


class Pairs:
    """Compares when it is let."""

    def __init__(self, outcome: Outcome | None = None) -> None:
        self.go = threading.Event()
        self.asked: list[str] = []
        self._outcome = outcome

    def compared(self, query: Historical, sides: Sides, k: int) -> Outcome:
        assert not sides.alone
        self.asked.append(query.text)
        assert self.go.wait(20)
        if self._outcome is None:
            raise RuntimeError("broken")
        return self._outcome


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    pairs = Pairs(Outcome("told", one()))
    yield pairs
    pairs.go.set()


def test_what_is_compared_leaves_numbers(pairs: Pairs) -> None:
    shadow = Shadow(pairs.compared)
    pairs.go.set()
    shadow.searched(ANN, question())  # before it began
    shadow.begin("m", SIDES, 1.0, 10)
    shadow.begin("m", SIDES, 1.0, 10)
    for _ in range(5):
        shadow.searched(ANN, question())
    wait_until(lambda: shadow.reads == 5)
    assert (shadow.figures().reads, shadow.figures().overlap, shadow.figures().latency_ratio) == (5, 1.0, 1.0)
    assert shadow.told() == [one()] * 5
    assert {name: value for name, _, value in shadow.gauges()}["memstrata_shadow_reads"] == 5
    shadow.end()
    assert (shadow.reads, shadow.told()) == (0, [])
    shadow.close()


def test_a_hanging_search_delays_nobody_and_what_does_not_fit_is_dropped(pairs: Pairs) -> None:
    shadow = Shadow(pairs.compared)
    shadow.begin("m", SIDES, 1.0, 10)
    began = time.monotonic()
    for _ in range(QUEUE_MAX + 100):
        shadow.searched(ANN, question())
    assert time.monotonic() - began < 1
    assert shadow.figures().drawn == QUEUE_MAX + 100
    assert shadow.figures().dropped >= 99
    pairs.go.set()
    shadow.close()


def test_a_failing_one_is_counted(pairs: Pairs) -> None:
    broken = Pairs()
    broken.go.set()
    shadow = Shadow(broken.compared)
    shadow.begin("m", SIDES, 1.0, 10)
    shadow.searched(ANN, question())
    wait_until(lambda: shadow.figures().failed == 1)
    assert shadow.reads == 0
    shadow.close()


def test_a_share_of_plain_searches(pairs: Pairs) -> None:
    chances = iter([0.5, 0.05, 0.2, 0.01])
    shadow = Shadow(pairs.compared, lambda: next(chances))
    shadow.begin("m", SIDES, 0.1, 10)
    pairs.go.set()
    for asked in (
        Question("words", "lexical", 10, 0),
        question("filtered", filters=Filters(session="s")),
        question("cold", tiers=frozenset({"cold"})),
        question("0.5"),
        question("0.05"),
        question("0.2"),
        question("0.01"),
    ):
        shadow.searched(ANN, asked)
    wait_until(lambda: shadow.reads == 2)
    assert pairs.asked == ["0.05", "0.01"]
    shadow.close()
    shadow.begin("m-2", SIDES, 1.0, 10)  # a service that ends begins nothing
    shadow.searched(ANN, question())
    assert shadow.figures().drawn == 0
