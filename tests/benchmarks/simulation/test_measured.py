"""What is fitted to measurements, on data whose answer is known; and the memory of users against a real cache."""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict

import msgspec
import pytest

from benchmarks.simulation.calibrate import merged
from benchmarks.simulation.forecast import CALIBRATION
from benchmarks.simulation.measured import Calibration, Line, fitted, quantiles, read_calibration, spread_of
from benchmarks.simulation.tiers import hit_part
from serve_app.errors import InvalidRequest


def test_a_line_is_found_again_through_noise() -> None:
    source, line = random.Random(3), Line(0.004, 0.0002)
    points = [(weight, line(weight) * source.uniform(0.97, 1.03)) for weight in (8, 12, 40, 200, 900) for _ in range(9)]
    found = fitted(points)
    assert found.base_s == pytest.approx(line.base_s, rel=0.05)
    assert found.each_s == pytest.approx(line.each_s, rel=0.05)


@pytest.mark.parametrize(
    ("points", "expected"),
    [([(1, 1.0), (10, 20.0)], (0.0, None)), ([(1, 2.0), (10, 1.0)], (None, 0.0))],
    ids=["steeper than through the origin", "falling"],
)
def test_no_part_of_a_line_is_negative(
    points: list[tuple[float, float]], expected: tuple[float | None, float | None]
) -> None:
    found = msgspec.structs.astuple(fitted(points))
    assert min(found) == 0
    assert max(found) > 0
    assert all(value is None or value == got for value, got in zip(expected, found, strict=True))


@pytest.mark.parametrize("points", [[(3, 1.0), (3, 2.0)], [(1, 0.0), (2, 1.0)]], ids=["one weight", "no time"])
def test_what_gives_no_line_is_said(points: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidRequest):
        fitted(points)


def test_a_spread_has_mean_one_and_the_shape_of_what_was_measured() -> None:
    source = random.Random(4)
    times = [source.lognormvariate(0, 0.5) for _ in range(5_000)]
    spread = spread_of(times)
    assert sum(spread) / len(spread) == pytest.approx(1, abs=1e-3)
    measured, kept = quantiles(times), quantiles(spread)
    assert kept.p95_ms / kept.p50_ms == pytest.approx(measured.p95_ms / measured.p50_ms, rel=0.05)


def test_rounds_are_merged_by_the_median() -> None:
    one = read_calibration(CALIBRATION)
    changed = [msgspec.structs.replace(one, handoff_s=seconds, follow_s=one.follow_s * 2) for seconds in (3.0, 9.0)]
    found = merged([one, *changed])
    assert (found.handoff_s, found.follow_s) == (3.0, 2 * one.follow_s)
    assert (found.gateway_spread, found.encoder) == (one.gateway_spread, one.encoder)


def test_a_file_that_is_no_calibration_is_said(tmp_path) -> None:
    (tmp_path / "other.json").write_text('{"cores": 2}')
    with pytest.raises(InvalidRequest, match=r"other\.json"):
        read_calibration(tmp_path / "other.json")


def test_the_shipped_calibration_can_be_read() -> None:
    assert isinstance(read_calibration(CALIBRATION), Calibration)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.1])
def test_hits_are_those_of_a_cache_that_forgets_who_came_least_recently(exponent: float) -> None:
    users, held, reads, source = 2_000, 300, 60_000, random.Random(6)
    weights = list(itertools.accumulate(rank**-exponent for rank in range(1, users + 1)))
    memory, hits = OrderedDict[int, None](), 0
    for number, user in enumerate(source.choices(range(users), cum_weights=weights, k=2 * reads)):
        hits += user in memory and number >= reads
        memory[user] = None
        memory.move_to_end(user)
        if len(memory) > held:
            memory.popitem(last=False)
    assert hit_part(users, held, exponent) == pytest.approx(hits / reads, abs=0.015)


def test_memory_for_all_misses_nobody_and_none_misses_all() -> None:
    assert hit_part(1_000, 1_000, 0.9) == 1
    assert hit_part(1_000, 0, 0.9) == 0
    assert hit_part(5e6, 1e6, 0.9) < hit_part(5e6, 2e6, 0.9) < 1
