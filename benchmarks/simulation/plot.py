"""Latency against load as the model has it, with the measured points, as PNG."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.simulation.cluster import Load, Shape, simulate
from benchmarks.simulation.measured import Calibration
from benchmarks.simulation.validate import MIX
from serve_app.client.http import Json

STEPS = 14
SECONDS = 30.0


def draw(times: Calibration, path: Path, checked: Json | None) -> None:
    """Of one process on the machine of the calibration, up to what its busiest station can do."""
    shape = Shape(shards=times.shards)
    rates = [_most(times) * step / STEPS for step in range(1, STEPS + 1)]
    outcomes = [simulate(times, shape, Load(rate, MIX, SECONDS)) for rate in rates]
    figure = Figure(figsize=(8, 5))
    axes = figure.add_subplot()
    for name, style in (("p50_ms", "-"), ("p95_ms", "--")):
        taken = [getattr(one.kinds["search"], name) for one in outcomes]
        axes.plot(rates, taken, style, color="tab:blue", label=f"search, {name[:3]}, model")
        points = [(point["rate"], _measured(point, name)) for point in (checked or {}).get("points", ())]
        if points:
            axes.plot(*zip(*points, strict=True), "o" if style == "-" else "s", label=f"search, {name[:3]}, measured")
    axes.set(xlabel="requests/s (six searches, two contexts, two appends of ten)", ylabel="ms", yscale="log")
    axes.set_title(f"One process, {times.cores} cores, measured {times.taken_on}")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def _most(times: Calibration) -> float:
    """Requests a second at which the interpreter or the encoder has no rest."""
    whole = sum(MIX.values())
    interpreter_s = sum(part / whole * times.gateway_s[kind] for kind, part in MIX.items())
    token_s = times.encoder.each_s + times.encoder.base_s / times.batch_tokens_max
    appends = MIX["append"] / whole
    encoder_s = token_s * ((1 - appends) * times.query_tokens + appends * times.turn_tokens)
    return 0.97 / max(interpreter_s, encoder_s)


def _measured(point: Json, name: str) -> float:
    return float(next(row["measured"] for row in point["rows"] if row["figure"] == f"search {name[:3]}, ms"))
