"""A guard: reads come, fail, or hang; who waits, for how long, and what a store that hangs costs later ones."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from serve_app.errors import StoreLate, StoreLeftAlone, StoreUnavailable
from serve_app.stores.guard import Guard, GuardBounds, patient_until

BOUNDS = GuardBounds(threads=2, given_up_max=4, waiting_max=4, wait_s=0.2, slow_s=0.02, faults_max=3, rest_s=0.1)
LONG_S = 10.0


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Reads that wait for it hang until the test is over, or lets them go."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def guard() -> Guard:
    return Guard("table", BOUNDS)


def late(guard: Guard, held: threading.Event, within_s: float = 0.05) -> None:
    with patient_until(time.monotonic() + within_s), pytest.raises(StoreLate):
        guard.call(held.wait)


def until(state: str, guard: Guard) -> None:
    ends = time.monotonic() + LONG_S
    while guard.breaker.state != state:
        assert time.monotonic() < ends
        time.sleep(0.005)


def failing() -> None:
    raise StoreUnavailable("no")


def test_what_is_read_is_given_and_what_is_raised_is_raised(guard: Guard) -> None:
    assert guard.call(lambda: 7) == 7
    with pytest.raises(StoreUnavailable, match=r"^no$"):
        guard.call(failing)
    with pytest.raises(ZeroDivisionError):
        guard.call(lambda: 1 // 0)
    assert guard.breaker.state == "closed"


def test_a_read_that_hangs_costs_no_more_than_the_time_there_is(guard: Guard, held: threading.Event) -> None:
    started = time.monotonic()
    late(guard, held)
    assert 0.04 < time.monotonic() - started < LONG_S / 2
    started = time.monotonic()
    with pytest.raises(StoreLate):
        guard.call(held.wait)
    assert time.monotonic() - started >= BOUNDS.wait_s - 0.01, "without a deadline the guard's own bound holds"
    started = time.monotonic()
    with patient_until(started), pytest.raises(StoreLate):
        guard.call(held.wait)
    assert time.monotonic() - started < BOUNDS.wait_s


def test_after_some_that_hung_nobody_waits_until_one_tries_again(guard: Guard, held: threading.Event) -> None:
    for _ in range(BOUNDS.faults_max):
        late(guard, held)
    assert guard.breaker.state == "open"
    started = time.monotonic()
    with pytest.raises(StoreLeftAlone):
        guard.call(held.wait)
    assert time.monotonic() - started < BOUNDS.wait_s
    until("half_open", guard)
    assert guard.call(lambda: 1) == 1
    assert guard.breaker.state == "closed"


def test_a_read_that_was_given_up_tells_when_it_comes_that_the_store_is_back(
    guard: Guard, held: threading.Event
) -> None:
    for _ in range(BOUNDS.faults_max):
        late(guard, held)
    held.set()
    until("closed", guard)
    assert guard.call(lambda: 1) == 1
    ends = time.monotonic() + LONG_S
    while guard.given_up:
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_reads_that_hang_are_bounded_and_do_not_keep_others_from_a_thread(guard: Guard, held: threading.Event) -> None:
    for _ in range(2):
        late(guard, held)
    assert guard.call(lambda: 1) == 1, "both threads hang, and two others have taken their place"
    running = threading.active_count()
    for _ in range(20):
        until("half_open", guard) if guard.breaker.state == "open" else None
        with patient_until(time.monotonic() + 0.03), pytest.raises(StoreUnavailable):
            guard.call(held.wait)
    assert guard.given_up <= BOUNDS.given_up_max + BOUNDS.threads
    assert threading.active_count() <= running + BOUNDS.given_up_max + BOUNDS.threads
    held.set()
    until("closed", guard)
    assert [guard.call(lambda: 2) for _ in range(10)] == [2] * 10


def test_who_has_next_to_no_time_says_nothing_about_the_store(guard: Guard, held: threading.Event) -> None:
    for _ in range(3):
        late(guard, held, within_s=0.005)
    assert guard.breaker.state == "closed"


def test_a_read_that_takes_longer_than_one_would_wait_is_not_waited_for(guard: Guard, held: threading.Event) -> None:
    reading = guard.begin(held.wait)
    time.sleep(0.06)
    started = time.monotonic()
    with patient_until(started + 0.05), pytest.raises(StoreLate):
        guard.wait(reading)
    assert time.monotonic() - started < 0.04
    held.set()
    assert guard.wait(reading), "who has more time gets it"


def test_a_thread_that_may_not_try_leaves_that_to_others(guard: Guard) -> None:
    for _ in range(BOUNDS.faults_max):
        with pytest.raises(StoreUnavailable):
            guard.call(failing)
    until("half_open", guard)
    with patient_until(time.monotonic() + 1, probes=False), pytest.raises(StoreLeftAlone):
        guard.call(lambda: 1)
    assert guard.call(lambda: 1) == 1
    with patient_until(time.monotonic() + 1, probes=False):
        assert guard.call(lambda: 2) == 2


def test_too_many_that_wait_are_sent_away(held: threading.Event) -> None:
    guard = Guard("table", BOUNDS)
    for _ in range(BOUNDS.threads + BOUNDS.waiting_max):
        guard.begin(held.wait)
        time.sleep(0.01)  # so that threads take what they can
    with pytest.raises(StoreUnavailable, match="too many"):
        guard.begin(held.wait)


def test_many_threads_ask_at_once() -> None:
    guard, answers = Guard("table", GuardBounds(threads=3)), []

    def ask(number: int) -> None:
        answers.extend(guard.call(lambda: number) for _ in range(50))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert sorted(answers) == sorted(n for n in range(8) for _ in range(50))


class Found:
    """Something that was read."""


def test_a_thread_that_waits_for_work_holds_nothing_of_what_it_read(guard: Guard) -> None:
    held = weakref.ref(guard.call(Found))
    ends = time.monotonic() + LONG_S
    while held() is not None:
        assert time.monotonic() < ends
        time.sleep(0.005)
