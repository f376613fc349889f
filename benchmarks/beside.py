"""What those who search notice of a backfill: the times of searches with it and without it, in turns, in one run.

    python -m benchmarks.beside --url URL [--data DIR] [--turns plain] [--model NAME] [--share 0.5] [--rounds 3]

Writes a data set, finds how many searches a second the service answers at most, and sends a share of that by an open
loop: while nothing else runs, then while a migration of the encoder is backfilled, and so on; the migration is paused
in between, and turned back at the end. The key is read from MEMSTRATA_KEY. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.core import GOLDEN
from benchmarks.load import Load, Slice, Target
from benchmarks.workload import NUMBER, Request
from serve_app.client.data_sets import Written, read_data_set, written
from serve_app.client.http import Client, Json
from serve_app.errors import MemstrataError

CLIENTS = 4
CAPACITY_S = 8.0
POLL_S = 0.25
BACKFILL_S = 300.0
"""What a job has to come up."""

SETTLE_S = 2.0


class NothingToMeasure(MemstrataError):
    code = "nothing_to_measure"


def measure(client: Client, key: str, args: argparse.Namespace) -> Json:
    data = read_data_set(args.data)
    with tempfile.TemporaryDirectory() as folder, written(client, data, lambda count: None) as there:
        load, target = Load(Path(folder)), Target(client.url, key)
        requests = load.prepared(_searches(there))
        load.closed(target, requests, CLIENTS, CAPACITY_S)
        capacity = load.closed(target, requests, CLIENTS, CAPACITY_S).rate
        rate = args.share * capacity

        def timed() -> Slice:
            return load.own(target, requests, rate=rate, seconds=args.seconds)

        told = _in_turns(client, {"model": args.model, "turns": args.turns}, args.rounds, timed)
    return {"data": data.name, "turns": data.turns, "capacity": round(capacity, 1), "rate": round(rate, 1), **told}


def _searches(there: Written) -> list[Request]:
    return [
        Request.post("search", "/v1/search", {**case.body, "query": f"{case.body['query']} {NUMBER}", "k": 10})
        for case in there.cases
    ]


def _in_turns(client: Client, encoder: Json, rounds: int, timed: Callable[[], Slice]) -> Json:
    alone, beside, filled = [timed()], [], []
    wanted = {name: value for name, value in encoder.items() if value is not None}
    migration = client.begin_migration({"encoder": wanted, "terms": {"queries_min": 1_000}})["id"]
    try:
        for number in range(rounds):
            before = _filling(client, migration)
            began = time.monotonic()
            beside.append(timed())
            shown = client.migration(migration)
            if shown["state"] != "backfill":
                raise NothingToMeasure(f"the migration came to {shown['state']} meanwhile: more turns are needed")
            filled.append((shown["progress"]["done"] - before) / (time.monotonic() - began))
            client.guide_migration(migration, "pause")
            time.sleep(SETTLE_S)
            alone.append(timed())
            if number + 1 < rounds:
                client.guide_migration(migration, "resume")
    finally:
        client.guide_migration(migration, "rollback")
    pairs = [_p95(one) / statistics.mean((_p95(alone[at]), _p95(alone[at + 1]))) for at, one in enumerate(beside)]
    return {
        "p95_alone_ms": [round(_p95(one), 1) for one in alone],
        "p95_beside_ms": [round(_p95(one), 1) for one in beside],
        "ratio": round(statistics.median(pairs), 3),
        "ratios": [round(one, 3) for one in pairs],
        "turns_a_second_beside": [round(one, 1) for one in filled],
        "errors": sum(one.errors for one in (*alone, *beside)),
        "faults": sorted({fault for one in (*alone, *beside) for fault in one.all_faults}),
    }


def _p95(one: Slice) -> float:
    return float(one.kinds["search"]["p95_ms"])


def _filling(client: Client, migration: str) -> int:
    """Waits until the job writes; gives how many turns are done."""
    ends, first = time.monotonic() + BACKFILL_S, None
    while time.monotonic() < ends:
        shown: dict[str, Any] = client.migration(migration)
        done = (shown.get("progress") or {}).get("done")
        if shown["state"] == "backfill" and done is not None:
            first = done if first is None else first
            if done > first:
                return int(done)
        time.sleep(POLL_S)
    raise NothingToMeasure(f"no turn was backfilled: {shown.get('trouble')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--data", type=Path, default=GOLDEN)
    parser.add_argument("--model")
    parser.add_argument("--turns", choices=("contextual", "plain"))
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    key = os.environ["MEMSTRATA_KEY"]
    with Client(args.url, key) as client:
        print(json.dumps(measure(client, key, args)))


if __name__ == "__main__":
    main()
