"""A summary made a second time is the same one, and one that is not is told on; retention is measured, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from serve_app.compress.compressor import Compressed, Compressor
from serve_app.context.tokens import open_tokenizer
from serve_app.core import Summary, Turn
from serve_app.memory.measures import SAMPLE_EVERY, SummaryMeasures
from serve_app.ports import Tokenizer
from tests.write.shards import WAIT_S

AT = 1_700_000_000_000_000
TURNS = [Turn(f"{n}", "s", "user", f"The order {n} must be here by noon.", n, AT, AT, rev=n) for n in range(1, 9)]


class Told:
    def __init__(self) -> None:
        self.drifts: list[float] = []
        self.retentions: list[float] = []

    def summarised(self, backend: str, result: str, seconds: float, read_tokens: int, tokens: int) -> None:
        raise AssertionError("measuring is no summary of anybody's")

    def drifted(self, distance: float) -> None:
        self.drifts.append(distance)

    def retained(self, share: float) -> None:
        self.retentions.append(share)


class Wavering(Compressor):
    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        return super().compress(turns[:3], target_tokens, tokenizer, deadline_s)

    def afresh(self) -> Compressor:
        return self


def summary(*reasons: str) -> Summary:
    made = Compressor().compress(TURNS, 80, open_tokenizer())
    return Summary(
        "s", made.text, 1, 8, made.tokens, Compressor().version, "h", 9, AT, AT, target_tokens=80, reasons=reasons
    )


def measured(compressor: Compressor, told: Told, until: Callable[[], object], *made: Summary) -> None:
    measures = SummaryMeasures(compressor, open_tokenizer(), told, 10.0, first_after_s=0.0)
    measures.start()
    for one in made:
        measures.made(one, TURNS)
    deadline = time.monotonic() + WAIT_S
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    measures.close()
    assert not measures.alive


def test_the_default_does_not_drift_and_retention_is_told_at_the_start() -> None:
    told = Told()
    measured(Compressor(), told, lambda: told.drifts and told.retentions, summary())
    assert told.drifts == [0.0]
    assert 0 < told.retentions[0] <= 1


def test_one_that_wavers_is_told_on() -> None:
    told = Told()
    measured(Wavering(), told, lambda: told.drifts, summary())
    assert told.drifts[0] > 0.2


def test_one_of_many_is_a_sample_and_a_degraded_one_never() -> None:
    told = Told()
    measured(Compressor(), told, lambda: len(told.drifts) == 2, *[summary()] * (SAMPLE_EVERY + 1))
    measures = SummaryMeasures(Compressor(), open_tokenizer(), told, 10.0, first_after_s=0.0)
    measures.made(summary("coarse: deadline"), TURNS)
    measures.start()
    time.sleep(0.2)
    measures.close()
    assert len(told.drifts) == 2
