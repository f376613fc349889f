"""How a budget is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.context.layout import DEFAULT_LAYOUT, DEFAULT_SHARES, ZONES, Layout, shrunk
from serve_app.errors import InvalidRequest


@given(st.integers(0, 2_000_000))
def test_budgets_never_exceed_the_whole(budget):
    budgets = DEFAULT_LAYOUT.budgets(budget)
    assert tuple(budgets) == ZONES
    assert sum(budgets.values()) <= budget
    assert sum(budgets.values()) > budget - len(ZONES)


@given(st.dictionaries(st.sampled_from(ZONES), st.integers(0, 10_000)), st.integers(-5, 30_000))
def test_shrunk_budgets_fit_and_are_no_larger(budgets, tokens):
    smaller = shrunk(budgets, tokens)
    assert smaller.keys() == budgets.keys()
    assert sum(smaller.values()) <= max(tokens, 0) or smaller == budgets
    assert all(0 <= smaller[zone] <= budgets[zone] for zone in budgets)


@pytest.mark.parametrize(
    "shares",
    [
        {},
        {**DEFAULT_SHARES, "system": -1},
        {**DEFAULT_SHARES, "recent": 37},
        dict.fromkeys(ZONES[:-1], 10),
        {**DEFAULT_SHARES, "attic": 0},
    ],
)
def test_shares_that_are_no_division_are_refused(shares):
    with pytest.raises(InvalidRequest, match="odd"):
        Layout("odd", shares)
