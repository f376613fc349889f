"""The plan of shares: stages end one after the other, all of them in time for a smaller answer."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.memory.deadlines import NO_HURRY, Shares

shares = st.lists(st.floats(0.01, 0.99), min_size=6, max_size=6).map(sorted).map(lambda ends: Shares(*ends))


@given(shares, st.floats(0, 1e6), st.floats(0.001, 60))
def test_each_stage_ends_after_the_one_before_and_before_the_deadline(
    shares: Shares, started: float, deadline_s: float
) -> None:
    plan = shares.of(started, deadline_s)
    assert list(plan) == sorted(plan)
    assert started < plan.expand
    assert plan.answer < started + deadline_s
    assert all(end <= patient for end, patient in zip(plan, NO_HURRY, strict=True))


@given(st.permutations(list(msgspec.structs.astuple(Shares()))))
def test_shares_in_another_order_are_refused(ends: list[float]) -> None:
    if ends == sorted(ends):
        assert Shares(*ends) == Shares()
        return
    with pytest.raises(ValueError, match="after the one before"):
        Shares(*ends)


def test_the_plan_that_is_shipped_leaves_time_to_pack() -> None:
    assert 1 - Shares().answer >= 0.1
