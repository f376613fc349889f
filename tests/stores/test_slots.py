"""The layout of a hot index on a device: extents that never overlap, whatever comes and goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.errors import HotFull
from serve_app.stores.device import Halves
from serve_app.stores.slots import DEAD_MIN, EXTENT_DOUBLES_TO, Slots, Span

DIMENSION = 2
SLOTS = 128


def rows_of(*ids: int) -> np.ndarray:
    return np.array(ids, np.int64)


def halves_of(rows: np.ndarray) -> Halves:
    """Vectors that tell whose row they are of."""
    return np.column_stack([rows, -rows]).astype(np.float16)


class Mirror:
    """What a device would hold that is given the spans, and nothing else."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.held = np.zeros_like(slots.halves)

    def take(self, spans: list[Span]) -> None:
        for start, end in spans:
            self.held[start:end] = self.slots.halves[start:end]


def check(slots: Slots, mirror: Mirror, expected: dict[str, set[int]]) -> None:
    assert {owner: extent.live for owner, extent in slots.extents.items()} == {
        owner: len(rows) for owner, rows in expected.items() if rows
    }
    ends = [(one.start, one.start + one.size) for one in slots.extents.values()]
    for (_, end), (start, _) in zip(sorted(ends), sorted(ends)[1:], strict=False):
        assert end <= start
    everything = np.arange(-3, slots.slots_max + 3, dtype=np.int64)
    for owner, extent in slots.extents.items():
        live = everything[slots.live_in(extent, everything)]
        rows = slots.rows[live]
        assert sorted(rows.tolist()) == sorted(expected[owner])
        assert live.min() >= extent.start
        assert live.max() < extent.end
        np.testing.assert_array_equal(mirror.held[live], halves_of(rows))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.lists(st.integers(0, 60), max_size=30, unique=True)),
        st.tuples(st.just("remove"), st.sampled_from("abc"), st.lists(st.integers(0, 60), max_size=30)),
        st.tuples(st.just("drop"), st.sampled_from("abc"), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_whatever_comes_and_goes_each_slot_is_one_owners(steps: list[tuple[str, str, list[int]]]) -> None:
    slots = Slots(DIMENSION, SLOTS)
    mirror = Mirror(slots)
    expected: dict[str, set[int]] = {}
    for what, owner, ids in steps:
        if what == "add":
            rows = rows_of(*ids)
            try:
                mirror.take(slots.add(owner, rows, halves_of(rows)))
            except HotFull:
                pass
            else:
                expected.setdefault(owner, set()).update(ids)
        elif what == "remove":
            gone, spans = slots.remove(owner, rows_of(*ids))
            mirror.take(spans)
            assert gone == len(expected.get(owner, set()) & set(ids))
            expected.get(owner, set()).difference_update(ids)
        else:
            slots.remove(owner, None)
            expected.pop(owner, None)
        check(slots, mirror, expected)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    slots = Slots(DIMENSION, SLOTS)
    first = np.arange(50, dtype=np.int64)
    slots.add("a", first, halves_of(first))
    with pytest.raises(HotFull, match="128 slots"):
        slots.add("b", np.arange(90, dtype=np.int64), halves_of(np.arange(90)))
    assert "b" not in slots.extents
    assert sorted(slots.held("a")[0].tolist()) == first.tolist()


def test_room_between_extents_is_won_back_by_packing() -> None:
    slots = Slots(DIMENSION, SLOTS)
    mirror = Mirror(slots)
    rows = np.arange(16, dtype=np.int64)
    for owner in "abcdefgh":
        mirror.take(slots.add(owner, rows, halves_of(rows)))
    for owner in "aceg":
        slots.remove(owner, None)
    more = np.arange(60, dtype=np.int64)
    mirror.take(slots.add("z", more, halves_of(more)))
    assert slots.packings == 1
    check(slots, mirror, {**{owner: set(range(16)) for owner in "bdfh"}, "z": set(range(60))})


def test_an_extent_with_too_many_dead_slots_is_written_anew_in_its_place() -> None:
    slots = Slots(DIMENSION, 512)
    rows = np.arange(256, dtype=np.int64)
    slots.add("a", rows, halves_of(rows))
    start = slots.extents["a"].start
    _, spans = slots.remove("a", rows[: DEAD_MIN + 1])
    assert (spans, slots.extents["a"].dead) == ([], DEAD_MIN + 1)
    _, spans = slots.remove("a", rows[: DEAD_MIN + 100])
    assert (spans, slots.extents["a"].dead) == ([Span(start, start + 256 - DEAD_MIN - 100)], 0)


def test_a_large_extent_has_little_to_spare() -> None:
    slots = Slots(DIMENSION, 1 << 17)
    rows = np.arange(50_000, dtype=np.int64)
    slots.add("a", rows, halves_of(rows))
    assert slots.extents["a"].size <= 50_000 * 9 // 8 + EXTENT_DOUBLES_TO
