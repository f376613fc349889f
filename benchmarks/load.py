"""Puts load on a service, from another process: by `wrk` where it is installed, else by the generator beside this file.

Owns the numbers that make requests unique: no two runs of one `Load` share one. A slice that the generator itself
may have held back says so.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.workload import Request, write_requests
from serve_app.errors import MemstrataError

GENERATOR_CPU_MAX = 0.8
"""Of one core. Above it the generator may be what was measured."""

SEND_LAG_MS_MAX = 5.0
"""At the 99th percentile of an open loop: later sends than this are not the arrivals that were drawn."""

GENERATOR_LIMIT = "the load generator was the limit"
SENT_LATE = "ms late (limit"

NUMBERS_A_RUN = 1_000_000
ANSWER_S = 20
GRACE_S = 60.0
"""What a generator may take beyond its time before it is given up."""

SCRIPT = Path(__file__).with_name("wrk.lua")


class LoadFailed(MemstrataError):
    code = "load_failed"


@dataclass(frozen=True)
class Target:
    url: str
    key: str = ""


@dataclass(frozen=True)
class Slice:
    """What came of one run of load. Times in milliseconds; `kinds` only from the Python generator."""

    rate: float
    p50_ms: float
    p99_ms: float
    errors: int
    generator_cpu: float
    send_lag_p99_ms: float | None = None
    kinds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def bound_by_generator(self) -> bool:
        return self.generator_cpu > GENERATOR_CPU_MAX

    @property
    def faults(self) -> list[str]:
        """Why this is no measurement."""
        late = (self.send_lag_p99_ms or 0.0) > SEND_LAG_MS_MAX
        return [
            *([f"{self.errors} errors"] if self.errors else []),
            *([f"sent {self.send_lag_p99_ms:.1f} {SENT_LATE} {SEND_LAG_MS_MAX:g})"] if late else []),
        ]

    @property
    def all_faults(self) -> list[str]:
        return [*self.faults, *([GENERATOR_LIMIT] if self.bound_by_generator else [])]


def of_the_machine(fault: str) -> bool:
    """Whether a fault tells of a machine that was busy, and not of the service."""
    return fault == GENERATOR_LIMIT or SENT_LATE in fault


class Load:
    """Makes request files in `folder` and runs them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wrk = shutil.which("wrk")
        self._first = itertools.count(secrets.randbelow(900) * NUMBERS_A_RUN, NUMBERS_A_RUN)
        self._names = itertools.count()

    @property
    def tool(self) -> str:
        return "wrk" if self._wrk else "the Python generator"

    def prepared(self, requests: Sequence[Request]) -> Path:
        return write_requests(requests, self._folder / f"requests-{next(self._names)}")

    def closed(self, target: Target, requests: Path, clients: int, seconds: float) -> Slice:
        """As many requests as `clients` get answered."""
        if self._wrk and seconds >= 1:
            return self._by_wrk(target, requests, clients, round(seconds))
        return self.own(target, requests, clients=clients, seconds=seconds)

    def own(self, target: Target, requests: Path, **order: Any) -> Slice:
        """`clients` or `rate`, `seconds`, and `once` to send each request one time; see generator.py."""
        words = [sys.executable, "-m", "benchmarks.generator"]
        given = {"url": target.url, "requests": str(requests), "first": next(self._first), **order}
        told, _ = _output(words, target, order["seconds"], json.dumps(given))
        lag = told["send_lag_p99_ms"] if order.get("rate") else None
        return _slice(told, told["generator_cpu"], send_lag_p99_ms=lag, kinds=told["kinds"])

    def _by_wrk(self, target: Target, requests: Path, clients: int, seconds: int) -> Slice:
        assert self._wrk
        words = [self._wrk, "--threads", "1", "--connections", str(clients), "--duration", f"{seconds}s"]
        words += ["--timeout", f"{ANSWER_S}s", "--script", str(SCRIPT), target.url]
        words += ["--", str(requests), str(next(self._first))]
        told, cpu_s = _output(words, target, seconds)
        return _slice(told, cpu_s / told["seconds"])


def _slice(told: dict[str, Any], cpu: float, **more: Any) -> Slice:
    rate = told["answers"] / told["seconds"]
    return Slice(rate, told["p50_ms"], told["p99_ms"], told["errors"], cpu, **more)


def _output(words: Sequence[str], target: Target, seconds: float, order: str = "") -> tuple[dict[str, Any], float]:
    """The JSON of a generator's last line, and the seconds of a core that it took."""
    environment = os.environ | {"MEMSTRATA_KEY": target.key}
    before = _children_cpu_s()
    try:
        done = subprocess.run(
            words, env=environment, input=order, capture_output=True, text=True, timeout=seconds + GRACE_S, check=True
        )
        return json.loads(done.stdout.strip().splitlines()[-1]), _children_cpu_s() - before
    except subprocess.CalledProcessError as error:
        raise LoadFailed(f"{words[0]}: {error.stderr.strip().splitlines()[-1:]}") from error
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise LoadFailed(f"{words[0]} gave no result: {error}") from error


def _children_cpu_s() -> float:
    """Of children that have ended: between two readings, of the generator alone."""
    times = os.times()
    return times.children_user + times.children_system
