"""Kill each kind of process of a cluster under a steady load; prints one JSON object with a row a victim.

python -m tests.deployments.kill_drill [--victims gateway,writer,…] [--users N] [--pace S]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.deployments.cluster import ServedCluster
from tests.deployments.steady import SteadyLoad, account

BEFORE_S, AFTER_S = 8.0, 25.0
BACK_S = 60.0
CALM_S, CALM_LOOKS = 120.0, 10
NODES = {"head": {"head": 100}, "a": {"gateways": 50, "writers": 50}, "b": {"gateways": 50, "writers": 50}}
NODE, NODE_NAME = "node", "a"
CONTROLLER, PROXY, HAPROXY = b"ServeController", b"HAProxyManager", b"haproxy\0"


def main(words: list[str]) -> None:
    args = _arguments(words)
    with tempfile.TemporaryDirectory(prefix="d", ignore_cleanup_errors=True) as name:
        served = ServedCluster(Path(name), nodes=NODES, placement=args.placement)
        try:
            rows = asyncio.run(_drill(served.ready(), args))
        finally:
            served.end()
    print(json.dumps({"users": args.users, "pace_s": args.pace, "cpus": os.cpu_count(), "rows": rows}))


async def _drill(served: ServedCluster, args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for victim in args.victims.split(","):
        await asyncio.to_thread(_calm, served)
        row = await _round(served, victim, args)
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


async def _round(served: ServedCluster, victim: str, args: argparse.Namespace) -> dict[str, Any]:
    async with SteadyLoad(served.url, served.key, args.users, args.pace, victim) as load:
        await asyncio.sleep(BEFORE_S)
        killed_at = time.monotonic()
        killed = await asyncio.to_thread(VICTIMS[victim], served)
        back_s = await asyncio.to_thread(_back, served, killed, killed_at)
        await asyncio.sleep(max(0.0, AFTER_S - (time.monotonic() - killed_at)))
    told = account(load.done, killed_at)
    if victim == NODE:
        await asyncio.to_thread(served.add_node, NODE_NAME)
    lost = await load.read_back()
    return {"victim": victim, "acknowledged": len(load.acknowledged), "lost": len(lost), "back_s": back_s} | told


def _calm(served: ServedCluster) -> None:
    """Wait until what the round before did is over: everything runs, and answers for a while."""
    answers = 0
    ends = time.monotonic() + CALM_S
    while answers < CALM_LOOKS and time.monotonic() < ends:
        answers = answers + 1 if served.settled() and served.is_ready() else 0
        time.sleep(0.5)


def _back(served: ServedCluster, killed: Killed, since: float) -> float | None:
    """Seconds until everything that ought to run does, what was killed by another of its kind."""
    while time.monotonic() - since < BACK_S:
        if killed.replaced(served) and served.settled() and served.is_ready():
            return round(time.monotonic() - since, 1)
        time.sleep(0.25)
    return None


class Killed(NamedTuple):
    """Processes that are no more, and what their like is called."""

    there: Callable[[ServedCluster], set[int]]
    before: set[int]
    gone: set[int]

    def replaced(self, served: ServedCluster) -> bool:
        now = self.there(served)
        return not now & self.gone and len(now) >= len(self.before)


def _replica(deployment: str) -> Callable[[ServedCluster], Killed]:
    def there(served: ServedCluster) -> set[int]:
        return {one.process for one in served.replicas(deployment) if one.state == "RUNNING"}

    def kill(served: ServedCluster) -> Killed:
        before = there(served)
        first = min(before)
        os.kill(first, signal.SIGKILL)
        return Killed(there, before, {first})

    return kill


def _program(title: bytes) -> Callable[[ServedCluster], Killed]:
    def there(served: ServedCluster) -> set[int]:
        return set(served.processes(title))

    def kill(served: ServedCluster) -> Killed:
        before = there(served)
        for number in before:
            os.kill(number, signal.SIGKILL)
        return Killed(there, set(list(before)[:1]), before)  # HAProxy may have been two, one on its way out

    return kill


def _node(served: ServedCluster) -> Killed:
    """With all that runs there."""

    def there(served: ServedCluster) -> set[int]:
        return {one.process for one in served.replicas() if one.state == "RUNNING"}

    lost = {one.process for one in served.replicas() if one.node == served.nodes[NODE_NAME]}
    before = there(served)
    served.kill_node(NODE_NAME)
    return Killed(there, before, lost)


VICTIMS: dict[str, Callable[[ServedCluster], Killed]] = {
    "gateway": _replica("Gateway"),
    "writer": _replica("ShardWriter-0"),
    "control": _replica("Control"),
    "embedder": _replica("Embedder"),
    "controller": _program(CONTROLLER),
    "haproxy": _program(HAPROXY),
    "proxy": _program(PROXY),
    NODE: _node,
}


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--victims", default="gateway,writer,control,controller,haproxy,node")
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two writes of a user")
    parser.add_argument("--placement", default="inside", choices=("inside", "deployment"))
    return parser.parse_args(words)


if __name__ == "__main__":
    main(sys.argv[1:])
