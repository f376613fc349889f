"""Conditions on data: each operator on each kind of value, exact and strict about types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.core import FieldExpiry, Turn
from serve_app.errors import InvalidRequest
from serve_app.retrieve.conditions import MATCHED_PATHS_MAX, PARSED_CHARACTERS_MAX, VALUES_MAX, condition, matched_paths
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.work import Work

NOW = 1_000


def turn(data: Any, **more: Any) -> Turn:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Turn(
        id="t", session="s", role="tool", content="", seq=1, arrived_at=1, created_at=1, data=text.encode(), **more
    )


def met(value_json: str, op: Any, wanted: Any) -> bool:
    """Whether a value, as JSON, meets the operator."""
    filters = Filters(data=(condition("$.v", op, wanted),))
    return filters.admit(turn(f'{{"v":{value_json}}}'), NOW)


@pytest.mark.parametrize(
    ("value", "op", "wanted", "expected"),
    [
        ("3", "eq", 3, True),
        ("3", "eq", 3.0, True),
        ("3.0", "eq", 3, True),
        ('"3"', "eq", 3, False),
        ("3", "eq", "3", False),
        ("1", "eq", True, False),
        ("true", "eq", 1, False),
        ("true", "eq", True, True),
        ("null", "eq", None, True),
        ("0", "eq", None, False),
        ("[1,{}]", "eq", [1.0, {}], True),
        ("[1]", "eq", [True], False),
        ("9007199254740993", "eq", 9007199254740993, True),
        ("9007199254740993", "eq", 9007199254740992, False),
        ("9007199254740993", "eq", 9007199254740992.0, False),
        ("123456789012345678901234567890", "eq", 123456789012345678901234567890, True),
        ("123456789012345678901234567890", "eq", 123456789012345678901234567891, False),
        ("0.1", "eq", 0.1, True),
        ("[0.1]", "eq", [0.1], True),
        ("1", "ne", 2, True),
        ("1", "ne", 1.0, False),
        ('"1"', "ne", 1, True),
        ("null", "ne", 1, True),
        ("2", "in", [1, 2.0], True),
        ('"2"', "in", [1, 2], False),
        ("null", "in", [None], True),
        ("1", "in", [], False),
        ("5", "gt", 4, True),
        ("5", "gt", 5, False),
        ("5", "gte", 5.0, True),
        ('"5.5"', "gt", 5, True),
        ('"007"', "gte", 7, True),
        ('"2e-4"', "lt", 0.001, True),
        ('"-3.5"', "lt", "-3.4", True),
        ('"+1"', "num_eq", 1, True),
        ('" 12 "', "num_eq", 12, True),
        ('".5"', "num_eq", 0.5, True),
        ("9007199254740993", "gt", 9007199254740992, True),
        ('"9007199254740993"', "gt", "9007199254740992.5", True),
        ("1e400", "gt", 10**300, True),
        ("0.30000000000000004", "gt", 0.3, True),
        *[
            (value, "gte", -1, False)
            for value in ("null", "true", '""', '"NaN"', '"inf"', '"12%"', '"¥520"', "[1]", "{}")
        ],
        *[
            (value, "gte", -1, False)
            for value in ('"1,200.00"', '"7,5"', '"198_000"', '"0x40"', '"5."', '"1e9999999999999999999"')
        ],
        *[(value, "gte", -1, False) for value in ('"٣"', '"３"', '"1٣"', '"1.３"', '"1e३"')],
        ('" 3 "', "gte", 3, True),
        ('"3e0"', "num_eq", 3, True),
        ("3", "num_eq", "3.00", True),
        ('"3"', "num_eq", 3, True),
        ("true", "num_eq", 1, False),
        ('"abc"', "contains", "b", True),
        ('"abc"', "contains", "B", False),
        ("[1,2]", "contains", 2.0, True),
        ('["2"]', "contains", 2, False),
        ('["abc"]', "contains", "b", False),
        ("123", "contains", "2", False),
        ("[null]", "contains", None, True),
        ('{"b":1}', "contains", "b", False),
        ('"abc"', "startswith", "ab", True),
        ('"abc"', "startswith", "b", False),
        ('["ab"]', "startswith", "ab", False),
        ("null", "is_null", None, True),
        ("0", "is_null", None, False),
        ("null", "exists", None, True),
        ('""', "exists", True, True),
        ('"2025-06-11T12:00:00+02:00"', "before", "2025-06-11T10:00:01Z", True),
        ('"2025-06-11T12:00:00+02:00"', "before", "2025-06-11T10:00:00Z", False),
        ('"2025-06-11T12:00:00+02:00"', "after", "2025-06-11T09:59:59.999Z", True),
        ('"2025-06-11T12:00:00"', "after", "2000-01-01T00:00:00Z", False),
        ('"2025-06-11"', "after", "2000-01-01T00:00:00Z", False),
        ('"soon"', "after", "2000-01-01T00:00:00Z", False),
        ("1750000000", "after", "2000-01-01T00:00:00Z", False),
        ('"0001-01-01T00:00:00+14:00"', "before", "9999-12-31T23:59:59-14:00", True),
    ],
)
def test_each_operator(value: str, op: str, wanted: Any, expected: bool) -> None:
    assert met(value, op, wanted) is expected


@pytest.mark.parametrize(
    "op", ["eq", "ne", "in", "gt", "num_eq", "contains", "startswith", "is_null", "exists", "after"]
)
def test_what_is_not_there_meets_nothing(op: Any) -> None:
    wanted = {"in": [1], "startswith": "", "after": "2000-01-01T00:00:00Z", "is_null": None, "exists": None}.get(op, 1)
    assert not Filters(data=(condition("$.v.w", op, wanted),)).admit(turn({"v": 1, "x": None}), NOW)
    plain = Turn(id="t", session="s", role="user", content="v", seq=1, arrived_at=1, created_at=1)
    assert not Filters(data=(condition("$", "exists", None),)).admit(plain, NOW)


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        ("in", 1),
        ("in", None),
        ("in", [1] * (VALUES_MAX + 1)),
        *[("gt", wrong) for wrong in (None, True, "many", "12%", [1], {}, "")],
        ("num_eq", "1,200"),
        ("num_eq", "٣"),
        ("startswith", 1),
        ("before", "2025-06-11"),
        ("before", "2025-06-11T12:00:00"),
        ("after", 5),
        ("is_null", "x"),
        ("exists", False),
    ],
)
def test_a_value_that_the_operator_cannot_use_is_refused(op: Any, wanted: Any) -> None:
    with pytest.raises(InvalidRequest, match=op):
        condition("$.v", op, wanted)


def test_all_conditions_must_hold_and_any_place_will_do() -> None:
    flights = turn({"currency": "EUR", "flights": [{"price": 142}, {"price": "188.40"}, {"price": "n/a"}]})
    cheap, in_euro = condition("flights[*].price", "lt", 150), condition("currency", "eq", "EUR")
    assert Filters(data=(cheap, in_euro)).admit(flights, NOW)
    assert not Filters(data=(cheap, condition("currency", "eq", "USD"))).admit(flights, NOW)
    assert matched_paths([condition("$.flights[*].price", "lt", 200), in_euro], flights, Work()) == (
        "$.currency",
        "$.flights[0].price",
        "$.flights[1].price",
    )


def test_the_paths_that_are_told_are_bounded() -> None:
    many = turn(list(range(MATCHED_PATHS_MAX + 5)))
    told = matched_paths([condition("$[*]", "exists", None)], many, Work())
    assert (len(told), told[-1]) == (MATCHED_PATHS_MAX, f"$[{MATCHED_PATHS_MAX - 1}]")


def test_what_has_expired_meets_nothing() -> None:
    priced = turn({"price": 5, "order": 7}, fields_expire=(FieldExpiry(NOW, "$.price"),))
    there = Filters(data=(condition("price", "exists", None),))
    assert there.admit(priced, NOW - 1)
    assert not there.admit(priced, NOW)
    assert Filters(data=(condition("order", "eq", 7),)).admit(priced, NOW)


@given(st.integers(0, 2 * PARSED_CHARACTERS_MAX))
def test_long_and_short_data_are_read_alike(length: int) -> None:
    long = turn({"pad": "x" * length, "v": 1})
    for _ in range(2):
        assert Filters(data=(condition("v", "eq", 1),)).admit(long, NOW)
