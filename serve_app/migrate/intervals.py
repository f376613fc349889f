"""Which positions of a log are done: ranges with both ends included, in order, none of which touch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Interval = tuple[int, int]

Intervals = tuple[Interval, ...]


def added(done: Iterable[Interval], new: Interval) -> Intervals:
    """With one more range; those that it meets or touches become one with it."""
    first, last = new
    if first > last:
        raise ValueError(f"a range from {first} to {last}")
    before: list[Interval] = []
    behind: list[Interval] = []
    for one in done:
        if one[1] + 1 < first:
            before.append(one)
        elif last + 1 < one[0]:
            behind.append(one)
        else:
            first, last = min(first, one[0]), max(last, one[1])
    return (*before, (first, last), *behind)


def without(done: Iterable[Interval], position: int) -> Intervals:
    """Without one position."""
    left: list[Interval] = []
    for first, last in done:
        parts = [(first, min(last, position - 1)), (max(first, position + 1), last)]
        left += [part for part in parts if part[0] <= part[1]] if first <= position <= last else [(first, last)]
    return tuple(left)


def missing(done: Sequence[Interval], last: int) -> Intervals:
    """What of 1 to `last` is not done."""
    starts = [1, *(end + 1 for _, end in done)]
    ends = [*(start - 1 for start, _ in done), last]
    gaps = ((start, min(end, last)) for start, end in zip(starts, ends, strict=True))
    return tuple(gap for gap in gaps if gap[0] <= gap[1])


def cut(ranges: Iterable[Interval], length: int) -> Iterator[Interval]:
    """The same positions in ranges of at most `length`, cut at its multiples: the same cuts whoever begins where."""
    for first, last in ranges:
        start = first
        while start <= last:
            end = min(last, (start - 1) // length * length + length)
            yield start, end
            start = end + 1


def size(ranges: Iterable[Interval]) -> int:
    return sum(last - first + 1 for first, last in ranges)
