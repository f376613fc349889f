"""Sequences in parts, and things by what they belong to."""

from __future__ import annotations

from serve_app.stores.parts import grouped, parts


def test_parts_hold_everything_in_order_and_none_is_longer() -> None:
    assert list(parts(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(parts(range(6), 3)) == [[0, 1, 2], [3, 4, 5]]
    assert list(parts((), 3)) == []


def test_groups_keep_the_order_in_which_things_come() -> None:
    found = grouped([("b", 2), ("a", 1), ("b", 1)])
    assert list(found.items()) == [("b", [2, 1]), ("a", [1])]
