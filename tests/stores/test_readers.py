"""Who follows a shard, by what they ask."""

from __future__ import annotations

from serve_app.stores.readers import GONE_S, READERS_MAX, Readers


class Turned:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def known() -> tuple[Readers, Turned]:
    """Of a writer that has been there for longer than a follower may be silent."""
    clock = Turned()
    readers = Readers(clock)
    clock.now += GONE_S + 1
    return readers, clock


def test_all_are_there_once_the_last_one_is() -> None:
    readers, _ = known()
    assert readers.all_at(7)
    readers.came("one", 7)
    readers.came("two", 6)
    assert readers.all_at(6)
    assert not readers.all_at(7)
    readers.came("two", 8)
    assert readers.all_at(7)


def test_a_question_that_comes_late_takes_nothing_back() -> None:
    readers, _ = known()
    readers.came("one", 7)
    readers.came("one", 5)
    assert readers.all_at(7)


def test_who_asks_no_more_is_gone() -> None:
    readers, clock = known()
    readers.came("one", 1)
    clock.now += GONE_S - 0.1
    readers.came("two", 9)
    assert not readers.all_at(9)
    clock.now += 0.2
    assert readers.all_at(9)
    assert not readers.all_at(10)


def test_at_first_nobody_knows_who_will_ask() -> None:
    clock = Turned()
    readers = Readers(clock)
    readers.came("one", 9)
    assert not readers.all_at(9)
    clock.now += GONE_S + 0.1
    readers.came("one", 9)
    assert readers.all_at(9)
    readers.begin()
    assert not readers.all_at(9)


def test_no_more_are_known_than_have_room() -> None:
    readers, _ = known()
    readers.came("first", 1)
    for number in range(READERS_MAX):
        readers.came(f"follower-{number}", 9)
    assert readers.all_at(9)
