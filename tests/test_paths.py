"""Paths are read and written both ways; documents lose what expires and nothing else, to the last digit."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app import paths
from serve_app.errors import InvalidRequest
from serve_app.paths import EACH, PATH_CHARACTERS_MAX, PATH_STEPS_MAX, places, steps_of, values, without, written_step

keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["'", "\\", "\\'", "a\\", '"', "a.b", "[0]", "*", "", " ", "$", "字"]
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$", ()),
        ("$.a", ("a",)),
        ("a", ("a",)),
        ("order.total", ("order", "total")),
        ("$['a b'].c", ("a b", "c")),
        ('$["a b"]', ("a b",)),
        ("['x.y'][0]", ("x.y", 0)),
        ("[*].price", (EACH, "price")),
        ("$.rows[*][10]", ("rows", EACH, 10)),
        ("$['it\\'s']", ("it's",)),
        ("$['a\\\\']", ("a\\",)),
        ("$['a\\b']", ("a\\b",)),
        ("$['']", ("",)),
        ("$.实况.气温", ("实况", "气温")),
        ("$ref.a", ("$ref", "a")),
        ("$.0", ("0",)),
    ],
)
def test_a_path_is_read(path: str, steps: tuple[str | int, ...]) -> None:
    assert steps_of(path) == steps


@pytest.mark.parametrize(
    "path",
    ["", " ", "$.", "$..a", "$.a.*", "$[-1]", "$.a b", "$[1", "$['a]", "$['a'", "a[x]", "a..b", "$.a.", "$[0]a", "a]"],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        steps_of(path)


def test_paths_are_bounded() -> None:
    assert len(steps_of("$" + ".a" * PATH_STEPS_MAX)) == PATH_STEPS_MAX
    for path in ("$" + ".a" * (PATH_STEPS_MAX + 1), "x" * (PATH_CHARACTERS_MAX + 1)):
        with pytest.raises(InvalidRequest, match="at most"):
            steps_of(path)


@given(keys)
def test_a_key_is_read_as_it_was_written(key: str) -> None:
    assert steps_of("$" + written_step(key)) == (key,)


@given(documents)
def test_each_place_is_found_again_by_its_path(document: Any) -> None:
    for steps in [(), (EACH,), (EACH, EACH), ("",), ("'",), (0,), (EACH, "\\")]:
        found = list(places(document, steps))
        assert [place.value for place in found] == values(document, steps)
        assert [place.position for place in found] == sorted(place.position for place in found)
        for place in found:
            (again,) = values(document, steps_of(place.path))
            assert again is place.value


def test_places_stand_in_the_order_of_the_document() -> None:
    document = json.loads('{"b": [{"v": 1}, {"w": 2}, {"v": 3}], "a": {"v": 4}}')
    assert [place.path for place in places(document, steps_of("b[*].v"))] == ["$.b[0].v", "$.b[2].v"]
    assert [place.path for place in places(document, steps_of("$.b[7]"))] == []
    assert [place.path for place in places(document, steps_of("$.a[0]"))] == []
    assert [place.path for place in places({"a b": [1]}, steps_of("$['a b'][*]"))] == ["$['a b'][0]"]


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        (["$.a"], '{"n":123456789012345678901234567890,"d":1.10}'),
        (["a[0]"], '{"a":[null,{"b":2,"c":3}],"n":123456789012345678901234567890,"d":1.10}'),
        (["a[*]"], '{"a":[],"n":123456789012345678901234567890,"d":1.10}'),
        (["a[*].b"], '{"a":[1,{"c":3}],"n":123456789012345678901234567890,"d":1.10}'),
        (["a[9]", "x.y", "$.n.n", "d[0]"], None),
        (["n", "d"], '{"a":[1,{"b":2,"c":3}]}'),
    ],
)
def test_a_document_loses_what_is_named(cut: list[str], left: str | None) -> None:
    whole = '{"a":[1,{"b":2,"c":3}],"n":123456789012345678901234567890,"d":1.10}'
    assert without(whole.encode(), cut) == (left or whole).encode()


def test_the_whole_can_go() -> None:
    assert without(b'{"a":1}', ["$"]) is None


def test_numbers_are_read_to_the_last_digit() -> None:
    assert paths.parsed("[0.1, 12345678901234567.89, 9007199254740993, 1e400]") == [
        Decimal("0.1"),
        Decimal("12345678901234567.89"),
        9007199254740993,
        Decimal("1e400"),
    ]
