"""A small service whose every part can be made to fail or hang, and clients that ask it meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

from serve_app.config import StoreOptions
from serve_app.memory.due import SummaryOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.memory.reranking import RerankOptions
from serve_app.models.rerank import CrossEncoding
from serve_app.policies import DAY_S
from serve_app.write.commit import microseconds
from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, hash_settings
from tests.faults.faulty import FaultyColdTable, FaultyEmbedder, FaultyPairs, FaultyTable, Switch, no_store

Part = Literal["embedder", "reranker", "warm", "cold"]
How = Literal["killed", "hung"]

CLIENTS = 8
DEADLINE_MS = 500
RECOVERY_S = 10.0
RESIDENT = 8
"""Turns of one user that stay in memory: of `here` and `away` all, of `large` a third."""

USERS = ("here", "large", "away-0", "away-1", "away-2", "away-3")


class Answer(NamedTuple):
    """What one request got, and when, in seconds since the clients began."""

    kind: str
    user: str
    status: int
    at_s: float
    ms: float
    level: str
    reasons: tuple[str, ...]


class Clock:
    """The service's, put forward by hand."""

    def __init__(self) -> None:
        self.ahead_days = 0.0

    def __call__(self) -> int:
        return microseconds() + int(self.ahead_days * DAY_S * 1_000_000)


class Faulty:
    """Of `here` all turns are in memory, of `large` some, of `away-…` none; each has turns that went cold."""

    def __init__(self, data: Path, rest_s: float, deadline_s: float = 10.0) -> None:
        self.faults: dict[str, Switch] = {
            "embedder": Switch(),
            "reranker": Switch(),
            "warm": Switch(no_store),
            "cold": Switch(no_store),
        }
        self._numbers = count()
        clock = Clock()
        memory = MemoryOptions(
            turns_resident=18,
            owner_turns_resident=RESIDENT,
            rest_s=rest_s,
            store_wait_s=1.0,
            deadline_s=deadline_s,
            summary=SummaryOptions(settle_s=60),  # it would bring users back into memory
        )
        fold = FoldOptions(age_s=1e9, purge_every_s=1e9, round_s=0.05)
        rerank = RerankOptions(late=False, ranker="none", model="pairs")
        settings = hash_settings(data, store=StoreOptions(shards=1), memory=memory, fold=fold, rerank=rerank)
        pairs = FaultyPairs(self.faults["reranker"])
        embedder = FaultyEmbedder(self.faults["embedder"])
        self.running = Running(
            settings,
            encoder=lambda _: embedder,
            reranker=lambda options: CrossEncoding(options.model, lambda: pairs),
            table=partial(FaultyTable, self.faults["warm"]),
            cold=partial(FaultyColdTable, self.faults["cold"]),
            clock=clock,
        )
        for user in USERS:
            self.running.append(user, "old", "an old boat of the harbour", wait="indexed")
        clock.ahead_days = 31
        self.running.fold()
        self.running.ok("POST", "/v1/admin/maintenance", json={"action": "demote"})
        for user in reversed(USERS):
            turns = [f"the boat number {n} of {user}" for n in range(3 * RESIDENT if user == "large" else 4)]
            self.running.append(user, "s", *turns, wait="indexed")
        self.running.fold()
        self.settle()

    def settle(self) -> None:
        """Of the users only `here` and `large` are in memory."""
        for user in reversed(USERS):
            self.ask_now("context", user)
        ends = time.monotonic() + RECOVERY_S
        while self.running.ok("GET", "/v1/admin/stats")["shards"][0]["owners_in_memory"] > 2:
            assert time.monotonic() < ends
            time.sleep(0.02)

    def stop(self) -> None:
        for fault in self.faults.values():
            fault.mend()
        self.running.stop()

    # ---- asking

    def ask_now(self, kind: str, user: str) -> Answer:
        return self.running.run(self.ask(kind, user, time.monotonic()))

    async def ask(self, kind: str, user: str, began: float) -> Answer:
        """Each query is new: its vector is in no cache."""
        query = f"which boat {next(self._numbers)} was it?"
        body: dict[str, Any] = {"user_id": user, "query": query, "deadline_ms": DEADLINE_MS}
        if kind == "context":
            body |= {"budget_tokens": 600, "session_id": "s"}
        else:
            body |= {"k": 5, "tiers": ["hot", "warm", "cold"] if kind == "cold search" else ["hot", "warm"]}
        started = time.monotonic()
        answer = await self.running.ask("POST", "/v1/context" if kind == "context" else "/v1/search", json=body)
        ended = time.monotonic()
        told = answer.json().get("degradation", {})
        level, reasons = told.get("level", ""), tuple(told.get("reasons", ()))
        return Answer(kind, user, answer.status_code, started - began, 1e3 * (ended - started), level, reasons)

    def under_load(self, seconds: float, kinds: Sequence[str], users: Sequence[str]) -> list[Answer]:
        """What `CLIENTS` clients get in so many seconds, each asking again as soon as it has its answer."""
        return self.running.run(self._under_load(seconds, kinds, users))

    async def _under_load(self, seconds: float, kinds: Sequence[str], users: Sequence[str]) -> list[Answer]:
        began = time.monotonic()

        async def client(number: int) -> list[Answer]:
            answers: list[Answer] = []
            while time.monotonic() - began < seconds:
                turn = number + len(answers)
                kind, user = kinds[turn % len(kinds)], users[turn // len(kinds) % len(users)]
                answers.append(await self.ask(kind, user, began))
                await asyncio.sleep(0.002)
            return answers

        return [one for each in await asyncio.gather(*map(client, range(CLIENTS))) for one in each]

    def recovered_after_s(self, kinds: Sequence[str]) -> float:
        """How long until nothing is missing any more; for ever counts as twice `RECOVERY_S`."""
        began = time.monotonic()
        while time.monotonic() - began < 2 * RECOVERY_S:
            if all(self._whole(kind, user) for kind in kinds for user in USERS[:3]):
                break
            time.sleep(0.02)
        return time.monotonic() - began

    def _whole(self, kind: str, user: str) -> bool:
        answer = self.ask_now(kind, user)
        return (answer.status, answer.level, answer.reasons) == (200, "full", ())

    # ---- looking

    def metric(self, name: str) -> dict[str, float]:
        """The samples of a metric, by their labels as they are written."""
        lines = self.running.call("GET", "/metrics", key=None).text.splitlines()
        return {
            line[len(name) : line.rindex(" ")]: float(line.split(" ")[-1])
            for line in lines
            if line.startswith((f"{name}{{", f"{name} "))
        }

    def told(self) -> list[str]:
        """What `/readyz` says of breakers."""
        found = self.running.ok("GET", "/readyz", key=None)["degraded"]
        return [one["detail"] for one in found if one["what"] == "breaker"]


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def shown(answers: Sequence[Answer]) -> str:
    """Levels and reasons, the most frequent first."""
    counts = Counter((one.kind, one.user.split("-")[0], one.level, one.reasons) for one in answers)
    return "\n".join(f"{count:5d} {' '.join(map(str, what))}" for what, count in counts.most_common())
