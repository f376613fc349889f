"""Service times of a running service: what one client waits for, stage by stage, and what many get from one process.

The interpreter's time of a request is what a closed loop of many gets it to: it does one thing at a time, and is busy
all the while (utilisation law; Lazowska et al., Quantitative System Performance, 1984, ch. 3). Kinds that need the
encoder are measured with queries whose vectors are known; what a new query costs beside the encoder's pass is the
ratio of their stages, alone. The encoder and the commits count their own seconds. Where other programs took part of
the cores meanwhile, all of these are scaled by the part that the service had.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.load import Slice
from benchmarks.programs import Ports, Program
from benchmarks.simulation.measured import EVEN, Calibration, Line, fitted, spread_of
from benchmarks.simulation.running import CALIBRATED, ENGINE, RUN, Figures, Running, middle
from benchmarks.workload import Request
from serve_app.client.http import Json

ALONE = 40
"""Requests of one client, of each kind and round."""

MANY = 16
SLICE_S, APPENDS_S = 1.5, 0.7
PASSES = (1, 6, 16)
"""Texts of one batch."""

PASS_REPEATS = 5
ASKED = ("search", "context", "lexical")
BEFORE = ("receive", "expand")
BATCH_S, BATCH_TOKENS_MIN, BATCH_TOKENS_MAX = 0.08, 512, 4_096
"""How the service's encoder sizes its batches."""

APPEND_BEFORE = 0.6
"""Of an append no stages are told: parsing and redaction come before the commit, a short answer after it."""

FOLLOWED_TURNS, FOLLOWED_BATCH, CATCH_UP_S = 600, 50, 3.0


class Alone(NamedTuple):
    """Stages of requests that had the service for themselves; milliseconds."""

    new: list[Json]
    known: list[Json]

    @property
    def own_ms(self) -> list[float]:
        """Without the encoder."""
        return [one["total"] - one.get("embed", 0.0) for one in self.new]


def calibrate(running: Running, rounds: int, follow_s: float | None = None) -> Calibration:
    """The median of each figure over the rounds. Raises MemstrataError."""
    before = os.getloadavg()[0]
    taken = [_round(running) for _ in range(rounds)]
    found = merged(taken)
    follow_s = _follow_s(running) if follow_s is None else follow_s
    return msgspec.structs.replace(found, load=(round(before, 1), round(os.getloadavg()[0], 1)), follow_s=follow_s)


def merged(taken: Sequence[Calibration]) -> Calibration:
    """Figure by figure the median, quantile by quantile that of the spreads."""

    def of(values: list[object]) -> object:
        first = values[0]
        if isinstance(first, dict):
            return {name: of([value[name] for value in values]) for name in first}  # type: ignore[index]
        if isinstance(first, tuple | list):
            return tuple(of([value[at] for value in values]) for at in range(len(first)))  # type: ignore[index]
        return middle(values) if isinstance(first, float) else first  # type: ignore[arg-type]

    merged_values = of([msgspec.to_builtins(one) for one in taken])
    return msgspec.convert(merged_values, Calibration, strict=False)


def _round(running: Running) -> Calibration:
    running.settle()
    alone = {kind: _alone(running, kind) for kind in ASKED}
    loads = running.loads(CALIBRATED)
    known = {"search": loads.cached_search(), "context": loads.cached_context(), "lexical": loads.lexical()}
    gateway_s = {
        kind: _busy(running, requests, MANY, SLICE_S)[1] * _new_to_known(alone[kind])
        for kind, requests in known.items()
    }
    one_lexical, _, did = _busy(running, loads.lexical(), 1, SLICE_S)
    encoder, pass_ratios, query_tokens, turn_tokens, handoff_s = _encoder(running)
    commit, gateway_s["append"] = _commits(running)
    spreads = {kind: spread_of(told.own_ms) for kind, told in alone.items()}
    parts = {kind: middle([_before(one) for one in told.new]) for kind, told in alone.items()}
    return Calibration(
        taken_on=time.strftime("%Y-%m-%d"),
        cores=os.cpu_count() or 1,
        load=(0.0, 0.0),
        engine=ENGINE,
        shards=running.shards(),
        wire_s=max(0.0, did.got * one_lexical.p50_ms / 1e3 - gateway_s["lexical"]),
        gateway_s=gateway_s,
        before_part=parts | {"append": APPEND_BEFORE},
        gateway_spread=spreads | {"append": spreads["lexical"]},
        query_tokens=query_tokens,
        turn_tokens=turn_tokens,
        encoder=encoder,
        encoder_spread=spread_of(pass_ratios),
        handoff_s=handoff_s,
        batch_tokens_max=min(max(BATCH_S / max(encoder.each_s, 1e-9), BATCH_TOKENS_MIN), BATCH_TOKENS_MAX),
        commit=commit,
        commit_spread=EVEN,
        follow_s=0.0,
    )


def _busy(running: Running, requests: list[Request], clients: int, seconds: float) -> tuple[Slice, float, Figures]:
    """A closed loop, the interpreter's time of each request, and what the service counted meanwhile.

    At most what the process computed beside its encoder, which works through what was appended.
    """
    before = running.figures()
    ran = running.closed(requests, clients, seconds)
    did = running.figures().since(before)
    computed_s = did.process_cpu_s - did.got * did.encoder_s
    return ran, min(1 / ran.rate, computed_s / did.requests if computed_s > 0 else 1.0), did


def _alone(running: Running, kind: str) -> Alone:
    corpus = running.halves[CALIBRATED]
    told = Alone([], [])
    for user, query in corpus.queries[:ALONE]:
        text, session = f"{query} {next(running.numbers)}", corpus.last_sessions[user]
        for into in told:  # the second time its vector is known
            into.append(running.ask(kind, user, text, session))
    return told


def _new_to_known(told: Alone) -> float:
    """How much more a new query takes beside the encoder."""
    known = middle([one["total"] - one.get("embed", 0.0) for one in told.known])
    return max(1.0, middle(told.own_ms) / known)


def _before(stages: Json) -> float:
    own = stages["total"] - stages.get("embed", 0.0)
    return min(1.0, sum(stages.get(name, 0.0) for name in BEFORE) / own) if own else 0.5


def _encoder(running: Running) -> tuple[Line, list[float], float, float, float]:
    """Seconds of a pass by tokens: of single queries, and of turns that are written together.

    Also how passes of one size differ, tokens of a query and of a turn, and the way to the encoder and back.
    """
    corpus = running.halves[CALIBRATED]
    before = running.figures()
    embeds = [
        running.ask("search", user, f"{query} {next(running.numbers)}", "")["embed"] / 1e3
        for user, query in corpus.queries[:ALONE]
    ]
    did = running.figures().since(before)
    alone_got = did.got
    query_tokens, query_s = did.encoder_tokens / len(embeds), did.got * did.encoder_s / len(embeds)
    points, turn_tokens = [(query_tokens, query_s)], 0.0
    texts = [entry.turn["content"] for entry in corpus.entries]
    for number in PASSES:
        passes = []
        for repeat in range(PASS_REPEATS):
            turns = [
                {"role": "user", "content": f"{text} {next(running.numbers)}"}
                for text in texts[repeat * number : (repeat + 1) * number]
            ]
            before = running.figures()
            running.client.append(f"{RUN}-passes", "s", turns, wait="indexed")
            did = running.figures().since(before)
            passes.append((did.encoder_tokens, did.got * did.encoder_s))
        points.append((middle([tokens for tokens, _ in passes]), middle([seconds for _, seconds in passes])))
        turn_tokens = points[-1][0] / number
    line = fitted(points)
    way_s = max(0.0, alone_got * middle(embeds) - query_s)
    return line, [max(one - way_s, 1e-6) for one in embeds], query_tokens, turn_tokens, way_s


def _commits(running: Running) -> tuple[Line, float]:
    """Of one record and of as many as come together; and the interpreter's time of an append."""
    points, each_s = [], 1.0
    for clients in (1, MANY):
        _, each_s, did = _busy(running, running.loads(CALIBRATED).append(), clients, APPENDS_S)
        points.append((did.records / did.commits, did.got * did.commit_s / did.commits))
        running.settle()
    if points[0][0] == points[1][0]:
        return Line(points[0][1], 0.0), each_s
    return fitted(points), each_s


def _follow_s(running: Running) -> float:
    """Processor time of a replica for each record that the writer writes, beyond what it takes while nothing comes."""
    folder = running.service.data.parent / "replica"
    folder.mkdir(exist_ok=True)
    port = Ports(0).take()
    words = [sys.executable, "-m", "serve_app.cli", "serve", "--engine", ENGINE, "--data", str(folder / "data")]
    words += ["--port", str(port), "--follow", str(running.service.data)]
    with Program("a replica", words, folder / "replica.log") as replica:
        replica.wait_ready(f"http://127.0.0.1:{port}/readyz")
        before = replica.cpu_seconds()
        time.sleep(CATCH_UP_S)
        idle_part = (replica.cpu_seconds() - before) / CATCH_UP_S
        before, began = replica.cpu_seconds(), time.monotonic()
        _write(running)
        time.sleep(CATCH_UP_S)
        used = replica.cpu_seconds() - before - idle_part * (time.monotonic() - began)
        return max(0.0, used) / FOLLOWED_TURNS


def _write(running: Running) -> None:
    for batch in range(FOLLOWED_TURNS // FOLLOWED_BATCH):
        turns = [{"role": "user", "content": f"what was said {next(running.numbers)}"} for _ in range(FOLLOWED_BATCH)]
        running.client.append(f"{RUN}-followed-{batch}", "s", turns)
    running.settle()


def save(calibration: Calibration, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(calibration)) + b"\n")
