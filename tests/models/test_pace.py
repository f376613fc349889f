"""Batches grow and shrink with the device, within bounds."""

import pytest

from serve_app.models.pace import BATCH_S, TELLING_TOKENS, TOKENS_MIN, Pace


def after(pace: Pace, token_s: float, batches: int = 50) -> int:
    for _ in range(batches):
        pace.learn(pace.batch_tokens, pace.batch_tokens * token_s)
    return pace.batch_tokens


@pytest.mark.parametrize("token_s", [2e-5, 1e-4, 1.5e-4])
def test_a_batch_takes_about_as_long_as_it_may(token_s: float) -> None:
    assert after(Pace(4096), token_s) * token_s == pytest.approx(BATCH_S, rel=0.02)


def test_however_fast_or_slow_there_are_bounds() -> None:
    assert after(Pace(4096), 0.0) == 4096
    assert after(Pace(4096), 10.0) == TOKENS_MIN
    assert after(Pace(60), 10.0) == 60


def test_it_recovers_from_both_ends() -> None:
    pace = Pace(4096)
    after(pace, 0.0)
    assert after(pace, 1e-4) == pytest.approx(BATCH_S / 1e-4, rel=0.02)
    after(pace, 10.0, 3)
    assert after(pace, 1e-4) == pytest.approx(BATCH_S / 1e-4, rel=0.02)


def test_the_batch_that_loads_the_weights_says_nothing() -> None:
    pace = Pace(4096)
    before = pace.batch_tokens
    pace.learn(TELLING_TOKENS - 1, 30.0)
    assert pace.batch_tokens == before
