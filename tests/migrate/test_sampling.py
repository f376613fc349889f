"""Which queries are drawn: fairly, the same ones each time, the known before the judged."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.migrate.sampling import chosen, fair, moment, parts, script_of


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=8), st.integers(0, 200))
def test_shares_are_fair(counts: dict[str, int], total: int) -> None:
    shares = fair(counts, total, "m")
    assert sum(shares.values()) == min(total, sum(counts.values()))
    assert all(shares[tenant] <= counts[tenant] for tenant in counts)
    cut = [shares[tenant] for tenant in counts if shares[tenant] < counts[tenant]]
    assert not cut or max(shares.values()) <= min(cut) + 1


def test_the_same_ones_each_time_and_others_for_another_migration() -> None:
    items = [(f"g-{at}", at) for at in range(500)]
    assert chosen(items, 20, "m-1") == chosen(reversed(items), 20, "m-1")
    assert chosen(items, 20, "m-1") != chosen(items, 20, "m-2")
    more = chosen([*items, ("new", -1)], 20, "m-1")
    assert sum((Counter(more) - Counter(chosen(items, 20, "m-1"))).values()) <= 1


@pytest.mark.parametrize(
    ("golden", "logged", "expected"),
    [
        (0, 0, (0, 0)),
        (500, 0, (100, 0)),
        (500, 10, (90, 10)),
        (500, 500, (75, 25)),
        (10, 500, (10, 90)),
        (3, 4, (3, 4)),
    ],
)
def test_known_ones_come_first(golden: int, logged: int, expected: tuple[int, int]) -> None:
    assert parts(golden, logged, 100) == expected


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Where is it?", "Latin"),
        ("他在哪里？", "Han"),
        ("いつ東京に行く", "Kana"),
        ("где это", "Cyrillic"),
        ("어디", "Hangul"),
        ("12?", "none"),
        ("", "none"),
    ],
)
def test_scripts(text: str, script: str) -> None:
    assert script_of(text) == script


def test_moments_as_golden_queries_have_them() -> None:
    assert moment(None).seq is moment(None).time is None
    assert moment(7).seq == moment("3:7").seq == moment("3:7@2").seq == moment("7").seq == 7
    assert moment("2026-12-01T00:00:00Z").time == moment("2026-12-01t01:00:00+01:00@4").time == 1_796_083_200_000_000
