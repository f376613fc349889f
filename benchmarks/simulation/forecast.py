"""`memstrata bench simulate`: the model held against a running service, or asked for replicas and costs. The table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tqdm import tqdm

from benchmarks.simulation import calibrate, validate
from benchmarks.simulation.deployment import SHIPPED, Deployment, read_deployment
from benchmarks.simulation.measured import Calibration, read_calibration
from benchmarks.simulation.plan import REQUESTS, Plan, plan
from serve_app.client.http import Json

CALIBRATION = Path(__file__).with_name("calibration.json")
WIDTH, NAME_WIDTH = 16, 30


@dataclass(frozen=True)
class Options:
    """`rounds`: of measuring first, on a service that is started for it; 0 takes `calibration` as it is."""

    calibration: Path = CALIBRATION
    deployment: Path = SHIPPED
    rates: tuple[float, ...] = ()
    rounds: int = 0
    seconds: float = validate.OPEN_S
    port: int = 0
    plot: Path | None = None
    requests: int = REQUESTS


def measure(options: Options) -> Json:
    """Raises MemstrataError."""
    wanted = read_deployment(options.deployment)
    checked: Json | None = None
    if options.rounds:
        times, checked = validate.measure(validate.Options(options.rounds, options.seconds, options.port))
        calibrate.save(times, options.calibration)
    else:
        times = read_calibration(options.calibration)
    plans = forecast(times, wanted, options.rates or wanted.rates, options.requests)
    if options.plot:
        from benchmarks.simulation import plot

        plot.draw(times, options.plot, checked)
    told: Json = {"calibration": _summary(times), "assumed": msgspec.to_builtins(wanted), "validation": checked}
    return told | {"plans": [msgspec.to_builtins(one) | {"month_total": one.month_total} for one in plans]}


def forecast(times: Calibration, wanted: Deployment, rates: Sequence[float], requests: int) -> list[Plan]:
    asked = [(encoder, rate) for encoder in wanted.encoders for rate in rates]
    return [plan(times, wanted, encoder, rate, requests) for encoder, rate in tqdm(asked, unit="plan", disable=None)]


def missed(told: Json) -> list[str]:
    """Figures whose error is over the bar, and plans that do not hold the goal."""
    off = validate.missed(told["validation"]) if told["validation"] else []
    late = [f"{one['rate']:,.0f}/s by {one['encoder']}" for one in told["plans"] if not one["met"]]
    return [*off, *late]


def faults(told: Json) -> list[str]:
    points = told["validation"]["points"] if told["validation"] else []
    return sorted({fault for point in points for fault in point["faults"]})


def table(told: Json) -> str:
    return "\n".join([*_calibrated(told["calibration"]), *_validated(told["validation"]), *_planned(told)])


def _summary(times: Calibration) -> Json:
    told: Json = msgspec.to_builtins(times)
    return {name: value for name, value in told.items() if not name.endswith("spread")}


def _calibrated(told: Json) -> Iterator[str]:
    encoder, commit = told["encoder"], told["commit"]
    of_kinds = ", ".join(f"{kind} {1e3 * one:.2f}" for kind, one in told["gateway_s"].items())
    tokens = f"a query has {told['query_tokens']:.0f} tokens, a turn {told['turn_tokens']:.0f}"
    follower = f"a follower {1e3 * told['follow_s']:.3f} a record"
    yield f"measured {told['taken_on']}, {told['cores']} cores, load {told['load'][0]:g} to {told['load'][1]:g}; ms:"
    yield f"  of the interpreter: {of_kinds}"
    yield f"  encoder {1e3 * encoder['base_s']:.2f} + {1e3 * encoder['each_s']:.4f} a token; {tokens}"
    yield f"  commit {1e3 * commit['base_s']:.2f} + {1e3 * commit['each_s']:.4f} a record; {follower}"


def _validated(told: Json | None) -> Iterator[str]:
    for point in told["points"] if told else ():
        yield ""
        head = f"{point['part_of_knee']:.0%} of the knee, {point['rate']:g}/s"
        yield f"{head:<{NAME_WIDTH}}" + _cells("measured", "model", "error")
        for row in point["rows"]:
            mark = "" if row["error"] <= validate.ERROR_MAX else " ✗"
            cells = _cells(f"{row['measured']:g}", f"{row['predicted']:g}", f"{row['error']:.0%}")
            yield f"{row['figure']:<{NAME_WIDTH}}{cells}{mark}"
        yield from (f"void: {fault}" for fault in point["faults"])


def _planned(told: Json) -> Iterator[str]:
    assumed = told["assumed"]
    goal = f"p95 of each kind at most {assumed['slo_p95_ms']:g} ms"
    yield ""
    yield f"{assumed['load']['turns']:,.0f} turns; {goal}; prices: {assumed['prices']['as_of']}"
    for encoder, parts in assumed["encoders"].items():
        plans = [one for one in told["plans"] if one["encoder"] == encoder]
        yield ""
        yield f"encoder on {encoder} (times {'measured' if parts['base_s'] is None else 'NOT measured'})"
        for name, values in _rows(plans):
            yield f"{name:<{NAME_WIDTH}}" + _cells(*values)


def _rows(plans: Sequence[Json]) -> Iterator[tuple[str, list[str]]]:
    yield "requests/s", [f"{one['rate']:,.0f}" for one in plans]
    yield "cells", [f"{one['cells']:,}" for one in plans]
    for name in ("gateways", "encoders", "writers"):
        yield f"{name} in all", [f"{one['cells'] * one['counts'][name]:,}" for one in plans]
    yield "reads from memory", [f"{one['hit_part']:.0%}" for one in plans]
    yield "gateway used; to follow", [f"{one['used']['gateway']:.0%}; {one['follow_part']:.0%}" for one in plans]
    for kind in plans[0]["p95_ms"] if plans else ():
        yield f"{kind}, p95, ms", [f"{one['p95_ms'][kind]:,.0f}" for one in plans]
    yield "goal", ["met" if one["met"] else "missed" for one in plans]
    yield "memory for users, GB", [f"{one['hot_gb']:,.0f}" for one in plans]
    yield "object store, GB", [f"{one['store_gb']:,.0f}" for one in plans]
    yield "PUTs/s; GETs/s", [f"{one['puts_per_s']:,.0f}; {one['gets_per_s']:,.0f}" for one in plans]
    yield "GETs/s more without a relay", [f"{one['polls_per_s']:,.0f}" for one in plans]
    for name in plans[0]["month"] if plans else ():
        yield f"{name}, a month", [f"{one['month'][name]:,.0f}" for one in plans]
    yield "in all, a month", [f"{one['month_total']:,.0f}" for one in plans]


def _cells(*values: str) -> str:
    return "".join(f"{value:>{WIDTH}}" for value in values)
