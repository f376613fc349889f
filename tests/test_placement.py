"""Placement is fixed for the life of a store: these answers never change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from serve_app.core import Owner
from serve_app.placement import shard_of


def test_an_owner_lies_where_every_release_has_put_it() -> None:
    placed = [shard_of(Owner(*pair), 16) for pair in [("default", "ann"), ("acme", "ann"), ("acme", "李雷"), ("", "")]]
    assert placed == [14, 12, 9, 9]


@given(st.text(), st.text(), st.integers(1, 1_000))
def test_every_owner_has_one_of_the_shards(tenant: str, user: str, shards: int) -> None:
    assert 0 <= shard_of(Owner(tenant, user), shards) < shards


def test_owners_are_spread_evenly() -> None:
    counts = Counter(shard_of(Owner("acme", f"user {n}"), 8) for n in range(8_000))
    assert len(counts) == 8
    assert 850 < min(counts.values()) <= max(counts.values()) < 1_150


def test_tenant_and_user_do_not_run_into_each_other() -> None:
    assert len({shard_of(Owner(*pair), 2**60) for pair in [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]}) == 4
