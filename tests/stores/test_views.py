"""A turn is written out with who said it, and on which day of the sender's calendar."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from serve_app.stores.views import contextual_text, day_number


def us(year: int, month: int, day: int, hour: int, minute: int) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1_000_000


def test_speaker_day_and_text() -> None:
    at = us(2023, 5, 8, 13, 56)
    assert contextual_text("Caroline", "user", at, 0, "Hey!") == "Caroline (8 May 2023): Hey!"
    assert contextual_text(None, "assistant", at, 0, "Hey!") == "assistant (8 May 2023): Hey!"


@pytest.mark.parametrize(("offset", "day"), [(0, 20240101), (-60, 20231231), (9 * 60, 20240101)])
def test_the_day_is_the_sender_s(offset: int, day: int) -> None:
    assert day_number(us(2024, 1, 1, 0, 30), offset) == day


def test_instants_before_the_epoch_and_beyond_the_calendar() -> None:
    assert day_number(us(1969, 12, 31, 23, 59), 0) == 19691231
    assert day_number(10**30, 0) // 10_000 == 9999
    assert day_number(-(10**30), 0) // 10_000 == 1
    assert day_number(us(9999, 12, 31, 23, 59), 14 * 60) // 10_000 == 9999
