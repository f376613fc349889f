"""Filters are exact: types count, times are half-open, and every condition must hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.core import Turn
from serve_app.paths import same
from serve_app.retrieve.filters import Filters

NOW = 10**16
TURN = Turn(
    id="t",
    session="s",
    role="tool",
    content="x",
    seq=1,
    arrived_at=1_000,
    created_at=100,
    tool_name="weather",
    metadata={"city": "Riga", "n": 3, "ok": True, "none": None, "deep": {"list": [1, {"a": 2.0}]}},
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 2.5]) | st.sampled_from(["", "1", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("filters", "admitted"),
    [
        (Filters(), True),
        (Filters(session="s"), True),
        (Filters(session="S"), False),
        (Filters(session=""), False),
        (Filters(roles=frozenset({"tool", "user"})), True),
        (Filters(roles=frozenset({"user"})), False),
        (Filters(start=100), True),
        (Filters(start=101), False),
        (Filters(end=101), True),
        (Filters(end=100), False),
        (Filters(start=100, end=100), False),
        (Filters(tool_name="weather"), True),
        (Filters(tool_name="Weather"), False),
        (Filters(metadata={"city": "Riga"}), True),
        (Filters(metadata={"city": "riga"}), False),
        (Filters(metadata={"n": 3.0}), True),
        (Filters(metadata={"n": "3"}), False),
        (Filters(metadata={"n": True}), False),
        (Filters(metadata={"ok": True}), True),
        (Filters(metadata={"ok": 1}), False),
        (Filters(metadata={"none": None}), True),
        (Filters(metadata={"missing": None}), False),
        (Filters(metadata={"deep": {"list": [1, {"a": 2}]}}), True),
        (Filters(metadata={"deep": {"list": [True, {"a": 2}]}}), False),
        (Filters(metadata={"deep": {}}), False),
        (Filters(metadata={"city": "Riga", "n": 4}), False),
        (Filters(session="s", roles=frozenset({"tool"}), start=0, end=200, tool_name="weather"), True),
    ],
)
def test_each_condition(filters: Filters, admitted: bool) -> None:
    assert filters.admit(TURN, NOW) is admitted
    assert filters.narrow is (filters != Filters())


def test_a_turn_without_metadata_meets_no_condition_on_it() -> None:
    plain = Turn(id="t", session="s", role="user", content="x", seq=1, arrived_at=1, created_at=1)
    assert not Filters(metadata={"a": None}).admit(plain, NOW)
    assert not Filters(tool_name="weather").admit(plain, NOW)


@given(json_values)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same(value, value)


@given(json_values, json_values)
def test_same_is_symmetric_and_never_takes_a_truth_for_a_number(one: Any, other: Any) -> None:
    assert same(one, other) is same(other, one)
    if isinstance(one, bool) is not isinstance(other, bool):
        assert not same(one, other)
    if same(one, other):
        assert one == other
