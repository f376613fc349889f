"""How much of the data of turns a search looks at: counted, bounded, ended by the deadline."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.core import Turn
from serve_app.errors import DeadlinePassed, InvalidRequest
from serve_app.paths import same
from serve_app.retrieve.conditions import cheapest_first, condition, exactly, matched_paths
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.members import ALIKE_MAX, Members
from serve_app.retrieve.work import CLOCK_EVERY, LOOKED_AT_MAX, Work

NOW = 1_000
MANY = 20_000
LONG_PAST = 0.0


def turn(data: Any) -> Turn:
    text = json.dumps(data, separators=(",", ":")).encode()
    return Turn(id="t", session="s", role="tool", content="", seq=1, arrived_at=1, created_at=1, data=text)


def looked_at(data: Any, *conditions: tuple[str, Any, Any]) -> int:
    work = Work()
    Filters(data=tuple(condition(*one) for one in conditions)).admit(turn(data), NOW, work)
    return work.looked_at


def test_one_of_many_values_costs_one_look_a_value() -> None:
    wanted = [f"s{number}" for number in range(200)]
    filters, work = Filters(data=(condition("v[*]", "in", wanted),)), Work()
    numbers = [turn({"v": list(range(MANY))}) for _ in range(2)]
    before = time.process_time()
    assert not any(filters.admit(one, NOW, work) for one in numbers)
    assert time.process_time() - before < 0.5  # of CPU; compared one by one, these are eight million comparisons
    assert 2 * MANY < work.looked_at < 2.1 * MANY


def test_what_lies_inside_a_value_is_counted_where_it_is_compared() -> None:
    list_of_numbers = list(range(MANY))
    assert looked_at({"v": list_of_numbers}, ("v", "contains", -1)) > MANY
    assert looked_at({"v": [list_of_numbers]}, ("v", "contains", list_of_numbers)) > MANY
    assert looked_at({"v": list_of_numbers}, ("v", "in", [list_of_numbers, [*list_of_numbers[1:], 0]])) > 2 * MANY
    assert looked_at({"v": list_of_numbers}, ("v", "ne", {"a": list_of_numbers})) < MANY


def test_cheap_conditions_spare_the_costly_ones() -> None:
    costly, cheap = condition("v[*]", "gt", 1), condition("n", "eq", 1)
    ordered, work = cheapest_first([costly, cheap]), Work()
    assert ordered == (cheap, costly)
    assert not Filters(data=ordered).admit(turn({"v": list(range(MANY)), "n": 2}), NOW, work)
    assert work.looked_at < MANY


def test_beyond_the_bound_a_search_is_refused() -> None:
    work = Work()
    filters = Filters(data=tuple(condition("v[*]", "gte", 0) for _ in range(32)))
    one, most = turn({"v": list(range(MANY))}), LOOKED_AT_MAX // (32 * MANY)
    for _ in range(most):
        assert filters.admit(one, NOW, work)
    assert work.looked_at <= LOOKED_AT_MAX
    with pytest.raises(InvalidRequest, match="narrow the search"):
        filters.admit(one, NOW, work)
    assert work.looked_at <= LOOKED_AT_MAX + MANY + 1
    with pytest.raises(InvalidRequest, match="narrow the search"):  # what is told of results counts, too
        matched_paths(filters.data, one, work)


def test_texts_count_by_their_length() -> None:
    assert looked_at({"v": "x" * (1 << 20)}, ("v", "contains", "y")) > 2 * 4_096


def test_a_deadline_ends_it_and_a_small_search_does_not_ask_for_the_time() -> None:
    work, filters = Work(LONG_PAST), Filters(data=(condition("v[*]", "gte", 0),))
    assert filters.admit(turn({"v": [1]}), NOW, work)
    with pytest.raises(DeadlinePassed):
        filters.admit(turn({"v": [1] * CLOCK_EVERY}), NOW, work)
    assert filters.admit(turn({"v": [1] * CLOCK_EVERY}), NOW, Work(time.monotonic() + 3_600))


LEAVES = st.sampled_from([None, True, False, 0, 1, 2, -1, -2, 1.0, 0.5, 3.0, 1e300, 10**30, "", "1", "a", "null"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=5
)


@given(st.lists(VALUES, max_size=8), VALUES)
def test_members_are_what_is_the_same_as_any(wanted: list[Any], value: Any) -> None:
    wanted, value = exactly(wanted), exactly(value)
    assert Members(wanted).has(value) is any(same(value, one) for one in wanted)


def test_numbers_that_share_a_hash_are_few() -> None:
    period = (1 << 61) - 1
    few = [number * period for number in range(ALIKE_MAX)]
    assert all(Members(few * 2).has(one) for one in few)
    with pytest.raises(InvalidRequest, match="alike"):
        Members([number * period for number in range(ALIKE_MAX + 1)])
