"""Scale a cluster out and back under a steady load, and what reads of hot users come to; prints one JSON object.

python -m tests.deployments.scale_drill [--users N] [--pace S] [--readers N]

1 gateway and 1 writer, then 3 gateways, then 2 writers, then back. At each size closed-loop readers ask for hot users
as fast as they are answered, beside the load; processor time of each kind of process says what saturates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.deployments.cluster import ServedCluster
from tests.deployments.steady import SteadyLoad, account

SIZES = ((1, 1), (3, 1), (3, 2), (1, 2), (1, 1))
"""Gateways and writers, one step after the other."""

SETTLE_S = 5.0
READ_S = 10.0
KINDS = {"gateway": b"Gateway", "writer": b"ShardWriter", "haproxy": b"haproxy\0", "store": b"moto.server"}


def main(words: list[str]) -> None:
    args = _arguments(words)
    with tempfile.TemporaryDirectory(prefix="d", ignore_cleanup_errors=True) as name:
        served = ServedCluster(Path(name), gateways=SIZES[0][0], writers=SIZES[0][1])
        try:
            found = asyncio.run(_drill(served.ready(), args))
        finally:
            served.end()
    print(json.dumps({"users": args.users, "pace_s": args.pace, "cpus": os.cpu_count()} | found))


async def _drill(served: ServedCluster, args: argparse.Namespace) -> dict[str, Any]:
    began, steps = time.monotonic(), []
    async with SteadyLoad(served.url, served.key, args.users, args.pace, "scaled") as load:
        for gateways, writers in SIZES:
            served.gateways, served.writers = gateways, writers
            changed = time.monotonic()
            await asyncio.to_thread(served.deploy)
            took_s = round(time.monotonic() - changed, 1)
            await asyncio.sleep(SETTLE_S)
            step = {"gateways": gateways, "writers": writers, "took_s": took_s} | await _read(
                served, load, args.readers
            )
            steps.append(step)
            print(json.dumps(step), file=sys.stderr, flush=True)
    lost = await load.read_back()
    told = account(load.done, began)
    told.pop("errors_outside_window")  # of a kill, and nothing is killed here
    ratio = round(steps[1]["reads_per_s"] / max(0.1, steps[0]["reads_per_s"]), 2)
    return {"steps": steps, "ratio": ratio, "acknowledged": len(load.acknowledged), "lost": len(lost)} | told


async def _read(served: ServedCluster, load: SteadyLoad, readers: int) -> dict[str, Any]:
    before, began = _processor_s(served), time.monotonic()
    served_reads, refused = await load.read_hot(readers, READ_S)
    took_s = time.monotonic() - began
    after = _processor_s(served)
    return {
        "reads_per_s": round(served_reads / took_s, 1),
        "refused": refused,
        "processors": {kind: round((after[kind] - before.get(kind, 0.0)) / took_s, 2) for kind in after},
    }


def _processor_s(served: ServedCluster) -> dict[str, float]:
    """Seconds of processor time, by kind of process."""
    return {kind: sum(_used_s(number) for number in served.processes(title)) for kind, title in KINDS.items()}


def _used_s(number: int) -> float:
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two writes of a user")
    parser.add_argument("--readers", type=int, default=16, help="that ask as fast as they are answered")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(sys.argv[1:])
