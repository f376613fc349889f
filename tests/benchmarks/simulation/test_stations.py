"""The stations against queueing theory (Kleinrock, Queueing Systems 1, 1975), and their bounds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from benchmarks.simulation.clock import Clock, SimulationFailed
from benchmarks.simulation.stations import IN_A_ROW_MAX, Batches, Servers

CUSTOMERS = 40_000
WITHIN = 0.06
"""Of the theory's mean wait: runs of this length with other seeds stay within 4 %."""


def mean_time(servers: int, rate: float, service: Callable[[random.Random], float]) -> float:
    """In the station, service included, of Poisson arrivals."""
    clock, source = Clock(), random.Random(5)
    station, taken = Servers(clock, servers), []

    def arrive() -> None:
        at = clock.now
        station.ask(service(source), lambda: taken.append(clock.now - at))
        if len(taken) < CUSTOMERS:
            clock.after(source.expovariate(rate), arrive)

    arrive()
    clock.run()
    return math.fsum(taken) / len(taken)


def test_one_server_with_exponential_service() -> None:
    assert mean_time(1, 0.7, lambda source: source.expovariate(1)) == pytest.approx(1 / (1 - 0.7), rel=WITHIN)


def test_one_server_with_constant_service() -> None:
    assert mean_time(1, 0.7, lambda source: 1.0) == pytest.approx(1 + 0.7 / (2 * (1 - 0.7)), rel=WITHIN)


def test_four_servers_with_exponential_service() -> None:
    """Erlang's C."""
    servers, offered = 4, 3.0
    waiting = offered**servers / math.factorial(servers) * servers / (servers - offered)
    none = sum(offered**busy / math.factorial(busy) for busy in range(servers))
    expected = 1 + waiting / (none + waiting) / (servers - offered)
    assert mean_time(servers, offered, lambda source: source.expovariate(1)) == pytest.approx(expected, rel=WITHIN)


def test_what_comes_over_the_bound_is_refused_and_never_done() -> None:
    clock, done = Clock(), list[int]()
    station = Servers(clock, 1, room=2)
    taken = [station.ask(1.0, lambda number=number: done.append(number)) for number in range(5)]  # type: ignore[misc]
    clock.run()
    assert taken == [True, True, True, False, False]
    assert (done, clock.now, station.busy_s) == ([0, 1, 2], 3.0, 3.0)


def test_a_batch_takes_what_waits_up_to_its_weight() -> None:
    clock, ended = Clock(), list[float]()
    station = Batches(clock, lambda weight: 1 + weight / 10, weight_max=20)
    for _ in range(4):
        station.ask(10, lambda: ended.append(clock.now))
    clock.run()
    assert ended == [2.0, 5.0, 5.0, 7.0], "the first alone, since nothing else had come; then two; then what is left"


def test_a_less_urgent_queue_has_its_turn() -> None:
    clock, ended = Clock(), dict[str, float]()
    station = Batches(clock, lambda weight: 1.0, items_max=1, rooms=(100, 100))
    station.ask(1, lambda: None)
    station.ask(1, lambda: ended.setdefault("late", clock.now), queue=1)
    for _ in range(3 * IN_A_ROW_MAX):
        station.ask(1, lambda: None)
    clock.run()
    assert ended["late"] == pytest.approx(IN_A_ROW_MAX + 2)


def test_a_model_that_does_not_end_is_ended() -> None:
    clock = Clock()

    def again() -> None:
        clock.after(0.0, again)

    again()
    with pytest.raises(SimulationFailed):
        clock.run(events_max=1_000)
