"""Ranges against sets of positions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from serve_app.migrate.intervals import Interval, Intervals, added, cut, missing, size, without

LAST = 60

ranges = st.tuples(st.integers(1, LAST), st.integers(1, LAST)).map(lambda pair: (min(pair), max(pair)))


def _all(ranges: list[Interval]) -> Intervals:
    done: Intervals = ()
    for one in ranges:
        done = added(done, one)
    return done


def _positions(intervals: Intervals) -> set[int]:
    return {at for first, last in intervals for at in range(first, last + 1)}


@given(st.lists(ranges))
def test_ranges_add_up_whatever_their_order(some: list[Interval]) -> None:
    done = _all(some)
    assert _positions(done) == _positions(tuple(some))
    assert all(one[1] + 1 < other[0] for one, other in pairwise(done)), done
    assert size(done) == len(_positions(done))
    assert _all(some[::-1]) == done


@given(st.lists(ranges), st.integers(0, LAST + 5))
def test_what_is_missing_is_all_that_is_not_done(some: list[Interval], last: int) -> None:
    done = _all(some)
    assert _positions(missing(done, last)) == set(range(1, last + 1)) - _positions(done)
    assert not missing(_all([*missing(done, last), *done]), last)


@given(st.lists(ranges), st.integers(1, LAST))
def test_one_position_is_taken_out(some: list[Interval], position: int) -> None:
    done = _all(some)
    assert _positions(without(done, position)) == _positions(done) - {position}


@given(st.lists(ranges), st.integers(1, 20))
def test_cuts_are_the_same_wherever_one_begins(some: list[Interval], length: int) -> None:
    done = _all(some)
    cuts = list(cut(done, length))
    assert [at for first, last in cuts for at in range(first, last + 1)] == sorted(_positions(done))
    assert all((first - 1) // length == (last - 1) // length for first, last in cuts)
