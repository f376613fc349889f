"""A turn as it is at a moment: without what has expired, and the same object where nothing has."""

from __future__ import annotations

import msgspec
import pytest

from serve_app.core import FieldExpiry, Turn

DATA = b'{"price":42.50,"rows":[1,2],"order":123456789012345678901234567890}'


def turn(*fields: tuple[int, str], data: bytes | None = DATA, expires_at: int | None = None) -> Turn:
    ends = tuple(FieldExpiry(at, path) for at, path in fields)
    return Turn("t", "s", "tool", "", 1, 1, 1, data=data, expires_at=expires_at, fields_expire=ends)


def test_a_turn_loses_its_fields_one_after_the_other() -> None:
    whole = turn((10, "$.price"), (20, "$.rows[0]"), (20, "$.missing"), (30, "$.order"))
    assert whole.at(9) is whole
    first, second = whole.at(10), whole.at(29)
    assert first.text == '{"rows":[1,2],"order":123456789012345678901234567890}'
    assert second.text == '{"rows":[null,2],"order":123456789012345678901234567890}'
    assert [field.path for field in second.fields_expire] == ["$.order"]
    assert second.fields_gone == ("$.price", "$.rows[0]", "$.missing")
    assert first.at(29) == second
    assert second.at(29) is second
    assert whole.text == DATA.decode()


def test_all_of_the_data_can_go() -> None:
    left = turn((10, "$")).at(10)
    assert (left.data, left.text) == (None, "")
    assert turn((10, "$"), (11, "$.price")).at(11).data is None


@pytest.mark.parametrize(
    ("one", "first"),
    [
        (turn(), None),
        (turn(expires_at=7), 7),
        (turn((10, "a"), (20, "b")), 10),
        (turn((10, "a"), expires_at=7), 7),
        (turn((10, "a"), expires_at=70), 10),
    ],
)
def test_when_the_first_of_it_expires(one: Turn, first: int | None) -> None:
    assert one.first_expiry == first
    assert one.lasting is (first is None)


def test_turns_of_older_stores_are_read_and_take_no_more_room() -> None:
    plain = msgspec.msgpack.encode(turn())
    assert b"fields" not in plain
    assert msgspec.msgpack.decode(plain, type=Turn) == turn()
    kept = turn((10, "$.price")).at(10)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Turn) == kept
