"""Rounds of a migration in which a real service, its job or both are killed at random instants, and what holds then.

A round is all of its seed: `Plan.of(seed)` says which migration, which kills, and whether it is called back. Whoever
would start a service again in earnest does so here; the job comes back by the service alone.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx

from tests.faults.clients import Clients, Said
from tests.faults.nursery import Forked, Nursery
from tests.faults.stored import faults_of_files

Victim = Literal["job", "service", "both"]

PROGRAM = Path(__file__).with_name("migrating_service.py")
ROOT = PROGRAM.parents[2]
FORWARD = ("prepare", "dual_write", "backfill", "verify", "canary", "cutover", "soak", "retire")
BEFORE_RETIRE = FORWARD[:-1]
ENDED = ("done", "rolled_back")
KILLS_MAX = 3
DELAY_S_MAX = 0.6

READY_S, END_S, SETTLED_S, STOP_S = 90, 180, 60, 30
TERMS = {
    "canary_share": 1.0,
    "canary_s": 1,
    "canary_reads": 0,
    "soak_s": 1,
    "queries_min": 4,
    "loss": 1.0,
    "tenant_loss": 1.0,
}


class Kill(NamedTuple):
    """Of `victim`, so long after the migration was first seen in `state`, or in one that follows it."""

    state: str
    delay_s: float
    victim: Victim


class Plan(NamedTuple):
    seed: int
    kills: tuple[Kill, ...]
    back_in: str | None
    """The state in which it is called back."""
    back_after_s: float

    @classmethod
    def of(cls, seed: int) -> Plan:
        drawn = random.Random(seed)
        back_in = drawn.choice(BEFORE_RETIRE) if drawn.random() < 0.3 else None
        states = [*FORWARD[: FORWARD.index(back_in) + 1], "rolling_back"] if back_in else [*FORWARD, "backfill"]
        kills = [_kill(drawn, drawn.choice(states)) for _ in range(drawn.randint(1, KILLS_MAX))]
        order = (*FORWARD, "rolling_back")
        kills.sort(key=lambda one: (order.index(one.state), one.delay_s))
        return cls(seed, tuple(kills), back_in, drawn.uniform(0, DELAY_S_MAX))


def _kill(drawn: random.Random, state: str) -> Kill:
    victims: tuple[Victim, ...] = ("job", "service", "both") if state == "backfill" else ("service",)
    return Kill(state, round(drawn.uniform(0, DELAY_S_MAX), 3), drawn.choice(victims))


class Round:
    """One round on a copy of a store. `faults` says what was wrong at the end."""

    def __init__(self, plan: Plan, template: Path, folder: Path, said: Said, nursery: Nursery | None = None) -> None:
        """Without a nursery the job is that of the product, and all is started as it is in earnest."""
        self.plan, self._nursery, self.data = plan, nursery, folder / "data"
        self.log = folder / "log"
        shutil.copytree(template, self.data)
        self.key = (self.data / "admin.key").read_text().strip()
        self.port = _free_port()
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=30,
            trust_env=False,
        )
        self.said = said
        self.killed: list[str] = []
        self.faults: list[str] = []
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def run(self) -> list[str]:
        """What was wrong. Raises AssertionError where it does not come to an end."""
        self._start()
        try:
            self._migrate()
        finally:
            self._stop()
        self.faults += faults_of_files(self.data, done=self.plan.back_in is None)
        return self.faults

    # ---- the migration

    def _migrate(self) -> None:
        before = self.said.contexts(self.http) if self.plan.back_in else []
        body = {"encoder": {"model": "hash-96"}, "terms": TERMS}
        begun = self.http.post("/v1/admin/migrations", json=body)
        assert begun.status_code == 201, begun.text
        self._path = f"/v1/admin/migrations/{begun.json()['id']}"
        clients = Clients(self.said, self.http, self.plan.seed, changes=self.plan.back_in is None)
        clients.start()
        try:
            state = self._guided()
        finally:
            clients.end()
        wanted = "rolled_back" if self.plan.back_in else "done"
        if state != wanted:
            self.faults.append(f"it ended as {state}, not {wanted}: {self._shown()['steps']}")
        self._settle()
        self.faults += clients.faults
        self.faults += self.said.faults(self.http)
        if before and before != (after := self.said.contexts(self.http)):
            differing = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
            shown = _first_difference(*differing[0])
            self.faults.append(f"{len(differing)} contexts are not those of before the migration: {shown}")

    def _guided(self) -> str:
        """Kills and calls back as planned, and waits for the end. Gives the last state."""
        kills, back = list(self.plan.kills), self.plan.back_in
        seen: dict[str, float] = {}
        end = time.monotonic() + END_S
        while True:
            shown = self._shown()
            state, now = shown["state"], time.monotonic()
            seen.setdefault(state, now)
            if back and self._is_due(back, self.plan.back_after_s, state, seen):
                back = None if self._call_back() else back
            elif kills and self._is_due(kills[0].state, kills[0].delay_s, state, seen):
                self._kill(kills.pop(0), state)
            elif state in ENDED:
                return str(state)
            assert now < end, f"seed {self.plan.seed}: {json.dumps(shown['steps'])} {shown['trouble']}\n{self._told()}"
            time.sleep(0.01)

    def _is_due(self, planned: str, after_s: float, state: str, seen: dict[str, float]) -> bool:
        """In its state, or past it: short ones may not have been seen at all."""
        order = (*FORWARD, "rolling_back", *ENDED)
        if state == planned:
            return time.monotonic() - seen[state] >= after_s
        return order.index(state) > order.index(planned)

    def _call_back(self) -> bool:
        try:
            return self.http.post(f"{self._path}:rollback").status_code < 500
        except httpx.TransportError:
            return False

    def _shown(self) -> dict[str, Any]:
        end = time.monotonic() + READY_S
        while True:
            try:
                answer = self.http.get(self._path)
                if answer.status_code == 200:
                    found: dict[str, Any] = answer.json()
                    return found
                told = answer.text
            except httpx.TransportError as error:
                told = str(error)
            assert time.monotonic() < end, f"seed {self.plan.seed}: {told}\n{self._told()}"
            time.sleep(0.02)

    def _settle(self) -> None:
        end = time.monotonic() + SETTLED_S
        while True:
            shards = self.http.get("/v1/admin/stats").json()["shards"]
            waiting = sum(one["pending_vectors"] + one.get("pending_vectors_target", 0) for one in shards)
            if not waiting:
                break
            assert time.monotonic() < end, f"seed {self.plan.seed}: {waiting} turns still wait for vectors"
            time.sleep(0.1)
        folded = self.http.post("/v1/admin/maintenance", json={"action": "fold"})
        assert folded.status_code < 300, folded.text

    # ---- processes

    def _kill(self, kill: Kill, state: str) -> None:
        self.killed.append(f"{kill.victim} in {state}")
        if kill.victim in ("job", "both"):
            for number in self._jobs():
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        if kill.victim in ("service", "both"):
            assert self._process is not None
            self._process.kill()
            self._process.wait(STOP_S)
            self._start()

    def _jobs(self) -> list[int]:
        """The drivers that fill in this store."""
        mine = [b"--migration", str(self.data).encode()]
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0") if folder.name.isdigit() else []
                if all(word in words for word in mine):
                    found.append(int(folder.name))
        return found

    def _start(self) -> None:
        words = [str(self.port), str(self.data)]
        own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(self.log.parent)}
        if self._nursery is not None:
            self._process = self._nursery.service([*words, str(self._nursery.address)], self.log, own)
        else:
            with self.log.open("ab") as log:
                program = [sys.executable, str(PROGRAM), *words, "ray"]
                self._process = subprocess.Popen(program, stdout=log, stderr=log, env=os.environ | own)
        end = time.monotonic() + READY_S
        while not self._ready():
            assert self._process.poll() is None, f"seed {self.plan.seed}: it does not start\n{self._told()}"
            assert time.monotonic() < end, self._told()
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def _stop(self) -> None:
        self.http.close()
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
            self.faults.append("it did not stop in order")
        for number in self._jobs():
            os.kill(number, signal.SIGKILL)
            self.faults.append("its job lived on")

    def _told(self) -> str:
        logs = [self.log, *(self.data / "migrations").glob("*.log")]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-3_000:]}" for path in logs)


def _first_difference(before: bytes, after: bytes) -> str:
    at = next((i for i, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    return f"…{before[max(0, at - 120) : at + 160]!r} and now …{after[max(0, at - 120) : at + 160]!r}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
