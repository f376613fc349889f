"""Replicas, costs and what they rest on: more load needs more of all, and what is assumed is checked and shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.simulation import forecast
from benchmarks.simulation.deployment import SHIPPED, Deployment, read_deployment
from benchmarks.simulation.forecast import CALIBRATION, Options
from benchmarks.simulation.measured import Calibration, Line, read_calibration
from benchmarks.simulation.plan import Plan
from benchmarks.simulation.plan import plan as planned
from serve_app import cli
from serve_app.errors import InvalidRequest

FAST = {"search": 0.001, "context": 0.002, "append": 0.001, "lexical": 0.001}


@pytest.fixture
def times() -> Calibration:
    shipped = read_calibration(CALIBRATION)
    parts = dict.fromkeys(FAST, 0.4)
    return msgspec.structs.replace(
        shipped,
        gateway_s=FAST,
        before_part=parts,
        gateway_spread=dict.fromkeys(FAST, (1.0,)),
        encoder=Line(0.004, 0.0001),
        encoder_spread=(1.0,),
        commit=Line(0.001, 0.00005),
        query_tokens=12.0,
        turn_tokens=30.0,
        batch_tokens_max=1_024.0,
        follow_s=0.0001,
        handoff_s=0.0005,
        wire_s=0.0005,
    )


@pytest.fixture
def wanted() -> Deployment:
    """With a goal that cold reads do not come near."""
    return msgspec.structs.replace(read_deployment(), slo_p95_ms=500)


def plan(times: Calibration, wanted: Deployment, encoder: str, rate: float) -> Plan:
    """From fewer requests than a forecast takes."""
    return planned(times, wanted, encoder, rate, requests=2_000)


def replicas(found: Plan) -> tuple[int, int, int]:
    gateways, encoders, writers = msgspec.structs.astuple(found.counts)
    return found.cells * gateways, found.cells * encoders, found.cells * writers


def test_ten_times_the_load_needs_more_of_all_and_costs_more(times: Calibration, wanted: Deployment) -> None:
    small, large = (plan(times, wanted, "cpu", rate) for rate in (500, 5_000))
    assert all(few < many for few, many in zip(replicas(small), replicas(large), strict=True))
    assert small.month_total < large.month_total
    assert small.met
    assert large.met
    assert small.store_gb == large.store_gb, "storage is that of the turns"


def test_what_gateways_apply_of_others_bounds_a_cell(times: Calibration, wanted: Deployment) -> None:
    """Each gateway takes every shard's log: appends of a cell times the cost of one stay under the part for it."""
    found = plan(times, wanted, "gpu", 40_000)
    assert found.cells == 4
    assert found.follow_part == pytest.approx(0.2)
    cheaper = msgspec.structs.replace(times, follow_s=times.follow_s / 8)
    assert plan(cheaper, wanted, "gpu", 40_000).cells == 1


def test_more_replicas_come_until_the_goal_is_met(times: Calibration, wanted: Deployment) -> None:
    """Users that memory holds, and stations that are all but full."""
    use = msgspec.structs.replace(wanted.use, gateway=0.995, encoder=0.995)
    few = msgspec.structs.replace(wanted.load, turns=1e6)
    strict = msgspec.structs.replace(wanted, use=use, load=few, slo_p95_ms=110)
    anything = msgspec.structs.replace(strict, slo_p95_ms=1e6)
    loose, held = (planned(times, one, "cpu", 2_000, requests=8_000) for one in (anything, strict))
    assert max(loose.p95_ms.values()) > strict.slo_p95_ms
    assert held.met
    assert sum(replicas(held)) > sum(replicas(loose))


def test_a_goal_below_what_a_request_takes_alone_is_missed_and_said(times: Calibration, wanted: Deployment) -> None:
    assert not plan(times, msgspec.structs.replace(wanted, slo_p95_ms=1), "cpu", 200).met


def test_the_months_cost_is_that_of_its_parts(times: Calibration, wanted: Deployment) -> None:
    found, prices = plan(times, wanted, "gpu", 1_000), wanted.prices
    gpus = found.counts.encoders * prices.gpu_h * prices.month_h
    assert found.month["encoders"] > gpus
    assert found.month["PUTs"] == pytest.approx(found.puts_per_s * 3.6 * prices.month_h * prices.puts_1000)
    assert found.month["storage"] == pytest.approx(found.store_gb * prices.storage_gb_month)
    free = msgspec.structs.replace(wanted, prices=msgspec.structs.replace(prices, gpu_h=0.0))
    cheaper = plan(times, free, "gpu", 1_000)
    assert found.month["encoders"] - cheaper.month["encoders"] == pytest.approx(gpus)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("slo_p95_ms = 250", "slo_p95_ms = -1"),
        ("slo_p95_ms = 250", "slo_p95 = 250"),
        ("follow = 0.25", "follow = 0.75"),
        ("[prices]", "[prices"),
    ],
    ids=["negative", "unknown", "no time left", "no TOML"],
)
def test_a_wrong_deployment_is_named(tmp_path: Path, line: str, instead: str) -> None:
    text = SHIPPED.read_text()
    assert line in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(line, instead, 1))
    with pytest.raises(InvalidRequest, match=r"mine\.toml"):
        read_deployment(path)


def test_the_table_says_what_was_not_measured(times: Calibration, wanted: Deployment) -> None:
    told = forecast.measure(Options(rates=(200.0,), requests=1_000))
    shown = forecast.table(told)
    assert "encoder on gpu (times NOT measured)" in shown
    assert "encoder on cpu (times measured)" in shown
    assert f"prices: {wanted.prices.as_of}" in shown
    assert told == forecast.measure(Options(rates=(200.0,), requests=1_000)), "the same figures again"


@pytest.mark.slow
def test_the_command_prints_json_last_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "load.png"
    cli.main(["bench", "simulate", "--rates", "200", "--plot", str(drawn), "--json"])
    told = msgspec.json.decode(capsys.readouterr().out.strip().splitlines()[-1])
    assert [one["rate"] for one in told["plans"]] == [200, 200]
    assert drawn.read_bytes().startswith(b"\x89PNG")
