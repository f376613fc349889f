"""Each session once, at its time, in turn between owners; bounded."""

from __future__ import annotations

import threading

from serve_app.memory.agenda import STALE_MAX, Agenda, Asked, Key


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def key(owner: str, session: str = "s") -> Key:
    return Key(0, owner, session)


def taken(agenda: Agenda, count: int) -> list[str]:
    asked = [agenda.next() for _ in range(count)]
    return [f"{one.key.owner}{one.key.session}" for one in asked if one is not None]


def test_each_session_comes_once_when_its_time_has_come() -> None:
    clock = Hands()
    agenda = Agenda(clock=clock)
    for in_s in (9.0, 1.0, 5.0):
        assert agenda.ask(key("a"), in_s)
    agenda.ask(key("b"), 3.0)
    assert (len(agenda), agenda.ripe) == (2, 0)
    clock.now = 1.0
    assert agenda.ripe == 1
    assert agenda.next() == Asked(key("a"), False)
    clock.now = 20.0
    assert agenda.next() == Asked(key("b"), False)
    assert (len(agenda), agenda.ripe) == (0, 0)


def test_owners_take_turns() -> None:
    agenda = Agenda(clock=Hands())
    for session in "123":
        agenda.ask(key("many", session), 0.0)
    agenda.ask(key("one", "1"), 0.0)
    agenda.ask(key("two", "1"), 0.0)
    assert taken(agenda, 5) == ["many1", "one1", "two1", "many2", "many3"]


def test_that_somebody_read_it_is_told_once() -> None:
    agenda = Agenda(clock=Hands())
    agenda.ask(key("a"), 0.0)
    agenda.ask(key("a"), 0.0, read=True)
    assert agenda.next() == Asked(key("a"), True)
    agenda.ask(key("a"), 0.0)
    assert agenda.next() == Asked(key("a"), False)


def test_what_does_not_fit_is_refused_and_what_waits_may_be_asked_again() -> None:
    agenda = Agenda(waiting_max=2, clock=Hands())
    assert [agenda.ask(key(owner), 0.0) for owner in "abca"] == [True, True, False, True]
    assert taken(agenda, 2) == ["as", "bs"]


def test_one_session_that_is_asked_for_without_end_takes_no_room() -> None:
    clock = Hands()
    agenda = Agenda(clock=clock)
    for _ in range(3 * STALE_MAX):
        agenda.ask(key("a"), 1_000.0)
        agenda.ask(key("a"), 0.0)
        assert agenda.next() is not None
        agenda.ask(key("a"), 1_000.0)
        clock.now += 0.001
    assert len(agenda) == 1
    assert len(agenda._heap) <= STALE_MAX + 3


def test_who_waits_hears_of_what_comes_and_of_the_end() -> None:
    agenda, heard = Agenda(), []
    reader = threading.Thread(target=lambda: heard.extend([agenda.next(), agenda.next()]))
    reader.start()
    agenda.ask(key("a"), 100.0)
    agenda.ask(key("a"), 0.01)
    while not heard and reader.is_alive() and len(agenda):
        reader.join(0.01)
    agenda.close()
    reader.join(5)
    assert heard == [Asked(key("a"), False), None]
