"""The circuit breaker: opens after faults in a row, lets one probe through, closes when it succeeds."""

from serve_app.breaker import Breaker


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def opened(clock, faults=3):
    breaker = Breaker("store", faults, 10.0, clock)
    for _ in range(faults):
        assert breaker.admit()
        breaker.failed()
    return breaker


def test_faults_in_a_row_open_it_and_a_success_between_starts_again():
    breaker = Breaker("store", 2, 10.0, Clock())
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.state == "closed"
    breaker.failed()
    assert breaker.state == "open"
    assert not breaker.admit()
    assert breaker.opened == 1


def test_one_probe_alone_goes_through_after_the_rest():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0
    assert breaker.state == "half_open"
    assert breaker.admit()
    assert not breaker.admit()
    breaker.succeeded()
    assert breaker.state == "closed"
    assert breaker.admit()


def test_a_probe_that_fails_opens_it_again():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0
    assert breaker.admit()
    breaker.failed()
    assert breaker.state == "open"
    clock.now = 19.9
    assert not breaker.admit()
    clock.now = 20.0
    assert breaker.admit()


def test_a_probe_that_is_given_up_leaves_its_place_to_another():
    clock = Clock()
    breaker = opened(clock)
    clock.now = 10.0
    assert breaker.admit()
    breaker.released()
    assert breaker.admit()
    clock.now = 20.0  # this one is never heard of again
    assert breaker.admit()
