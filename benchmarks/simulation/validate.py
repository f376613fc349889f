"""The model held against what was measured and not fitted: open loops of a mix, of other users, at two loads.

Rounds of calibration and measurement take turns, so that a slow minute of the machine falls on both; medians count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.load import Slice
from benchmarks.simulation import calibrate
from benchmarks.simulation.cluster import Load, Outcome, Shape, simulate
from benchmarks.simulation.measured import Calibration
from benchmarks.simulation.running import VALIDATED, Running, middle, started
from serve_app.client.http import Json

MIX = {"search": 6.0, "context": 2.0, "append": 2.0}
"""Of `workload.Loads.mix`: every query is new."""

LOADS = (0.4, 0.75)
"""Of the knee."""

KNEE_CLIENTS, KNEE_S = 32, 3.0
OPEN_S = 12.0
SIMULATED_S = 600.0
ERROR_MAX = 0.15


class Options(NamedTuple):
    rounds: int = 3
    seconds: float = OPEN_S
    port: int = 0


class Point(NamedTuple):
    """Measured once. `encoder`: part of the time that it was busy."""

    rate: float
    slice: Slice
    encoder: float


class Checked(msgspec.Struct, frozen=True):
    figure: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        return abs(self.predicted / self.measured - 1) if self.measured else 0.0


def measure(options: Options) -> tuple[Calibration, Json]:
    """Raises MemstrataError."""
    with tempfile.TemporaryDirectory(prefix="mst-sim-") as name, started(Path(name), options.port) as running:
        taken: list[Calibration] = []
        points: dict[float, list[Point]] = {share: [] for share in LOADS}
        mix = running.loads(VALIDATED).mix()
        knee = running.closed(mix, KNEE_CLIENTS, KNEE_S).rate
        for number in range(options.rounds):
            follow_s = taken[0].follow_s if number else None
            taken.append(calibrate.calibrate(running, 1, follow_s))
            for share in LOADS:
                points[share].append(_open(running, share * knee, options.seconds))
    times = msgspec.structs.replace(calibrate.merged(taken), load=(taken[0].load[0], taken[-1].load[1]))
    return times, compared(times, points, knee)


def compared(times: Calibration, points: dict[float, list[Point]], knee: float) -> Json:
    told: Json = {"knee_per_s": round(knee, 1), "points": []}
    for share, taken in points.items():
        outcome = simulate(times, Shape(shards=times.shards), Load(taken[0].rate, MIX, SIMULATED_S))
        rows = [
            {"figure": one.figure, "measured": one.measured, "predicted": one.predicted, "error": round(one.error, 3)}
            for one in _checked(taken, outcome)
        ]
        faults = sorted({fault for one in taken for fault in one.slice.all_faults})
        told["points"].append({"part_of_knee": share, "rate": round(taken[0].rate, 1), "rows": rows, "faults": faults})
    return told


def missed(told: Json) -> list[str]:
    return [
        f"{row['figure']} at {point['part_of_knee']:g} of the knee: {row['error']:.0%} off"
        for point in told["points"]
        for row in point["rows"]
        if row["error"] > ERROR_MAX
    ]


def _open(running: Running, rate: float, seconds: float) -> Point:
    running.settle()
    requests = running.loads(VALIDATED).mix()
    before = running.figures()
    ran = running.opened(requests, rate, seconds)
    did = running.figures().since(before)
    return Point(rate, ran, did.encoder_s / did.at)


def _checked(taken: Sequence[Point], outcome: Outcome) -> list[Checked]:
    def of(figure: str, measured: list[float], predicted: float) -> Checked:
        return Checked(figure, float(f"{middle(measured):.4g}"), float(f"{predicted:.4g}"))

    rows = [
        of("p50, ms", [one.slice.p50_ms for one in taken], outcome.all.p50_ms),
        of("answers/s", [one.slice.rate for one in taken], outcome.per_second),
        of("encoder busy", [one.encoder for one in taken], outcome.used["encoder"]),
    ]
    for kind in MIX:
        for name in ("p50_ms", "p95_ms"):
            measured = [one.slice.kinds[kind][name] for one in taken]
            rows.append(of(f"{kind} {name[:3]}, ms", measured, getattr(outcome.kinds[kind], name)))
    return rows
