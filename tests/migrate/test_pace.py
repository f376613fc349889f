"""A job takes all of an idle service's time, little of a busy one's, and none while vectors wait for a fold."""

from __future__ import annotations

import pytest

from serve_app.migrate.pace import REST_MAX_S, SHARE_MIN, TAIL_BYTES_MAX, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _loaded(pace: Pace, clock: Clock, share: float, seconds: float, request_s: float = 0.01) -> None:
    """Requests one after the other that take this share of the time."""
    for _ in range(round(seconds * share / request_s)):
        pace.begin()
        clock.now += request_s
        pace.end()
        clock.now += request_s * (1 / share - 1)


def test_an_idle_service_gives_all_its_time() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.rest_s() == 0.0
    _loaded(pace, clock, 0.01, 10)
    assert pace.rest_s() == 0.0


def test_a_busy_service_gives_the_least() -> None:
    clock = Clock()
    pace = Pace(clock)
    _loaded(pace, clock, 0.5, 10)
    assert pace.busy == pytest.approx(0.5, abs=0.05)
    assert pace.rest_s() == pytest.approx(1 / SHARE_MIN - 1)


def test_load_is_noticed_within_a_second_and_forgotten_within_some() -> None:
    clock = Clock()
    pace = Pace(clock)
    _loaded(pace, clock, 0.5, 1)
    assert pace.rest_s() > 1
    clock.now += 6
    assert pace.rest_s() == 0.0


def test_one_long_request_is_load_while_it_lasts() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.begin()
    clock.now += 2
    assert pace.rest_s() == pytest.approx(1 / SHARE_MIN - 1)
    pace.end()


def test_what_waits_for_a_fold_lets_the_job_rest() -> None:
    pace = Pace(Clock())
    assert pace.rest_s(TAIL_BYTES_MAX) == 0.0
    assert pace.rest_s(TAIL_BYTES_MAX + 1) == REST_MAX_S
