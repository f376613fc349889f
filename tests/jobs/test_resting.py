"""A job rests as the service says, asks again meanwhile, and rests long where nobody says anything."""

from __future__ import annotations

import pytest

from jobs.resting import STEP_S, UNHEARD_REST_S, UNHEARD_S, Resting, Told


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def _resting(answers: list[float]) -> tuple[Resting, Clock]:
    """Told one answer after the other, the last for ever."""
    clock = Clock()
    return Resting(lambda: answers.pop(0) if len(answers) > 1 else answers[0], clock, clock.sleep), clock


def test_no_rest_where_none_is_wanted() -> None:
    rest, clock = _resting([0.0])
    assert not rest(1.0)
    assert clock.now == 0.0


def test_as_long_as_it_is_told_for_each_second_of_work() -> None:
    rest, clock = _resting([3.0])
    assert rest(0.5)
    assert clock.now == pytest.approx(1.5)


def test_a_rest_ends_when_the_service_is_idle_again() -> None:
    rest, clock = _resting([30.0, 30.0, 0.0])
    assert rest(1.0)
    assert clock.now == pytest.approx(2 * STEP_S)


def test_a_service_that_says_nothing_is_left_alone() -> None:
    clock = Clock()
    told = Told(clock)
    told.tell(0.0)
    clock.now += UNHEARD_S / 2
    assert told.rest_s() == 0.0
    clock.now += UNHEARD_S
    assert told.rest_s() == UNHEARD_REST_S
