"""The model of a cluster: nothing is lost in it, it repeats itself, and more load never makes it faster."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from benchmarks.simulation.clock import SimulationFailed
from benchmarks.simulation.cluster import Cold, Load, Outcome, Shape, simulate
from benchmarks.simulation.measured import EVEN, Calibration, Line

KINDS = ("search", "context", "append", "lexical")
TIMES = Calibration(
    taken_on="2026-01-01",
    cores=2,
    load=(0.0, 0.0),
    engine="local",
    shards=4,
    wire_s=0.0005,
    gateway_s={"search": 0.002, "context": 0.004, "append": 0.001, "lexical": 0.001},
    before_part=dict.fromkeys(KINDS, 0.4),
    gateway_spread=dict.fromkeys(KINDS, (0.5, 0.8, 1.0, 1.7)),
    query_tokens=12,
    turn_tokens=30,
    encoder=Line(0.004, 0.0001),
    encoder_spread=(0.9, 1.0, 1.1),
    handoff_s=0.0003,
    batch_tokens_max=1_024,
    commit=Line(0.001, 0.00005),
    commit_spread=EVEN,
    follow_s=0.0001,
)
MIX = {"search": 6, "context": 2, "append": 2}


def ran(rate: float, shape: Shape | None = None, seed: int = 1, seconds: float = 60, **load: float) -> Outcome:
    return simulate(TIMES, shape or Shape(), Load(rate, MIX, seconds, **load), seed)


@pytest.mark.parametrize("rate", [50, 5_000], ids=["calm", "far beyond the knee"])
def test_what_arrived_is_answered_refused_or_under_way(rate: float) -> None:
    outcome = ran(rate, seconds=5)
    assert outcome.arrived == outcome.done + outcome.rejected + outcome.in_flight
    assert (outcome.rejected > 0) == (rate > 1_000), "a bound is met beyond the knee, and there alone"
    assert outcome.in_flight <= Shape().in_flight_max


def test_the_same_seed_gives_the_same_figures_and_another_gives_others() -> None:
    assert ran(150) == ran(150)
    assert ran(150) != ran(150, seed=2)


def test_more_load_takes_longer_and_uses_more() -> None:
    outcomes = [ran(rate) for rate in (40, 120, 200, 260, 320)]
    assert all(one.all.p95_ms < later.all.p95_ms for one, later in pairwise(outcomes))
    assert all(one.used["gateway"] < later.used["gateway"] for one, later in pairwise(outcomes))


def test_alone_a_request_takes_what_its_stations_take() -> None:
    even = msgspec.structs.replace(TIMES, gateway_spread=dict.fromkeys(KINDS, EVEN), encoder_spread=EVEN)
    times = simulate(even, Shape(), Load(0.5, {"search": 1}, 400)).kinds["search"]
    assert times.p50_ms == pytest.approx(1e3 * (0.0005 + 0.002 + 0.004 + 12 * 0.0001 + 0.0003), rel=1e-6)


def test_a_station_is_busy_by_the_utilisation_law() -> None:
    outcome = ran(150, seconds=200)
    demand_s = sum(MIX[kind] / 10 * TIMES.gateway_s[kind] for kind in MIX)
    assert outcome.used["gateway"] == pytest.approx(150 * demand_s, rel=0.03)


def test_twice_the_cluster_holds_twice_the_load() -> None:
    one = ran(150, Shape(writers=1))
    two = ran(300, Shape(gateways=2, encoders=2, writers=2, shards=8))
    assert two.per_second == pytest.approx(2 * one.per_second, rel=0.05)
    assert two.all.p95_ms < 1.2 * one.all.p95_ms


def test_what_is_known_needs_no_encoder() -> None:
    assert ran(150, known_part=1.0).all.p50_ms < ran(150).all.p50_ms - 3


def test_cold_reads_take_the_stores_time_and_are_counted() -> None:
    cold = ran(20, Shape(cold=Cold(part=1.0, gets=3, get_s=0.1)))
    assert cold.kinds["search"].p50_ms > ran(20).kinds["search"].p50_ms + 300
    assert cold.gets_per_s == pytest.approx(3 * 20 * 0.8, rel=0.1)


def test_records_of_others_take_the_time_of_every_gateway() -> None:
    alone, beside = (ran(50, Shape(gateways=2, followed_per_s=records)) for records in (0, 4_000))
    assert beside.used["gateway"] - alone.used["gateway"] == pytest.approx(4_000 * TIMES.follow_s, rel=0.05)


def test_folds_take_their_part_of_the_writers_time() -> None:
    alone, beside = (ran(50, Shape(writers=2, background_part=part)) for part in (0, 0.25))
    assert beside.used["writer"] - alone.used["writer"] == pytest.approx(0.25, rel=0.05)


def test_slower_commits_hold_more_records_each() -> None:
    disk, store = (ran(200, Shape(put_s=put_s, shards=1)) for put_s in (0.0, 0.2))
    assert store.records_a_commit > 2 * disk.records_a_commit
    assert store.commits_per_s < 5.1


def test_a_mix_of_what_was_not_measured_is_said() -> None:
    with pytest.raises(SimulationFailed):
        simulate(TIMES, Shape(), Load(1, {"dream": 1}, 1))
