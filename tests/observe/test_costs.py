"""Seconds and tokens by stage, and the compressor's share of their cost."""

from __future__ import annotations

import msgspec
import pytest

from serve_app.observe.costs import PriceOptions
from serve_app.observe.metrics import Metrics
from tests.observe.test_metrics import samples


def told(prices: PriceOptions | None = None) -> dict[str, float]:
    metrics = Metrics(prices)
    metrics.costs.embedded(3.0, 600)
    metrics.request({"retrieve": 500.0, "rerank": 250.0, "pack": 250.0, "embed": 9_000.0}, 1_000)
    metrics.request({"search": 1_000.0}, 0)
    metrics.summaries.summarised("extractive", "made", 5.0, 3_800, 200)
    metrics.summaries.drifted(0.0)
    metrics.summaries.drifted(0.5)
    return flat(metrics)


def flat(metrics: Metrics) -> dict[str, float]:
    return {" ".join(filter(None, key)): value for key, value in samples(metrics.text().decode()).items()}


def test_each_stage_is_counted_where_it_works() -> None:
    found = told()
    seconds = {stage: found[f"memstrata_stage_seconds_total {stage}"] for stage in ("embed", "compress")}
    assert seconds == {"embed": 3.0, "compress": 5.0}
    assert found["memstrata_stage_seconds_total retrieve"] == 1.5
    assert found["memstrata_stage_tokens_total pack"] == 1_000
    assert found["memstrata_stage_tokens_total compress"] == 4_000


def test_the_share_goes_by_seconds_until_there_are_prices() -> None:
    assert told()["memstrata_compressor_cost_share"] == pytest.approx(0.5)
    prices = PriceOptions(per_hour={"embed": 3_600}, per_million_tokens={"compress": 250})
    assert told(prices)["memstrata_compressor_cost_share"] == pytest.approx(1 / 4)


def test_nothing_spent_is_no_share() -> None:
    found = flat(Metrics())
    assert found["memstrata_compressor_cost_share"] == 0
    assert "memstrata_constraint_retention" not in found, "it is not measured yet"


def test_drift_is_the_mean_of_what_was_made_twice() -> None:
    found = told()
    assert (found["memstrata_summary_drift_rate"], found["memstrata_summary_drift_samples_total"]) == (0.25, 2)
    assert found["memstrata_summary_tokens_count"] == 1
    assert found["memstrata_compressor_duration_seconds_sum extractive made"] == 5.0


def test_a_price_of_an_unknown_stage_or_below_nothing_is_refused() -> None:
    for wrong in ({"per_hour": {"sleep": 1}}, {"per_million_tokens": {"embed": -1}}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, PriceOptions)
