"""What it costs that a change is shown by every gateway once it is answered, and what it spares.

    python -m tests.api.removals [ROUNDS]

One process: a service a shard and two gateways, by turns with and without a relay of new segments. In each round a fact
is put and deleted through one gateway and read through the other, without a receipt.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from serve_app.stores.readers import GONE_S
from tests.api.clustered import Clustered
from tests.api.running import Running

FACT = "/v1/users/ann/facts/home"


def measured(asked: Running, other: Running, rounds: int) -> tuple[list[float], int]:
    """Seconds of each change, and how many reads gave what was there before."""
    took: list[float] = []
    stale = 0
    for number in range(rounds):
        took.append(timed(asked, "PUT", json={"value": str(number)}))
        stale += other.call("GET", FACT).json().get("value") != str(number)
        took.append(timed(asked, "DELETE"))
        stale += other.call("GET", FACT).status_code != 404
    return took, stale


def timed(asked: Running, method: str, **more: object) -> float:
    began = time.perf_counter()
    asked.ok(method, FACT, **more)
    return time.perf_counter() - began


def main(rounds: int = 200) -> None:
    for relayed in (False, True, False, True):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Clustered(Path(folder), relayed=relayed)
            asked, other = cluster.start(), cluster.start()
            time.sleep(GONE_S + 0.2)  # until the writers know who follows them
            took, stale = measured(asked, other, rounds)
            cluster.stop()
        p50, p95 = (statistics.quantiles(took, n=20)[place] * 1000 for place in (9, 18))
        how = "with" if relayed else "without"
        print(f"{how} a relay: p50 {p50:.1f} ms, p95 {p95:.1f} ms; {stale} of {2 * rounds} reads stale", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
