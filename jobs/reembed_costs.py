"""What a backfill takes: its rate against a plain loop of the same encoder, and the memory of all its processes.

    python -m jobs.reembed_costs --data /data/locomo_dev                      # rate, packaged encoder
    python -m jobs.reembed_costs --turns 1000000 --model hash-64              # memory over time

Makes a table of turns in a temporary folder, and runs the job against a stub of the service, so that the job alone is
measured. The proportional set size of the job's processes is sampled twice a second. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.workload import read_rows
from jobs.embedding import Worker
from jobs.reading import ShardTable
from jobs.stub_service import StubService
from serve_app.backup.layout import TABLES, table_name
from serve_app.config import load_settings
from serve_app.core import Owner, Turn
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.weights import PACKAGED
from serve_app.stores.lance import RecordTable
from serve_app.stores.parts import parts
from serve_app.stores.rows import turn_row

MERGE_ROWS = 8_192
SAMPLE_S = 0.5
TIMED_UNITS = 8
"""Parts of the run whose rates are compared: whether the time of a turn stays the same."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a data set of conversations (JSON lines)")
    parser.add_argument("--turns", type=int, default=10_000, help="turns that are made up, without --data")
    parser.add_argument("--model", default=PACKAGED)
    parser.add_argument("--loop", action="store_true", help="also embed them in a plain loop in this process")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count = _table(Path(folder), _said(args.data) if args.data else _made_up(args.turns))
        found = {"turns": count, "model": args.model, **_run(Path(folder), args.model, count)}
        if args.loop or args.data:
            found["loop_rate"] = round(_loop(Path(folder), args.model, count), 1)
            found["of_the_loop"] = round(found["rate"] / found["loop_rate"], 3)
    print(json.dumps(found))


def _said(data: Path) -> Iterator[tuple[str, Turn]]:
    for seq, row in enumerate(read_rows(data / "conversations.jsonl"), 1):
        owner = Owner("default", str(row.get("conversation_id", "u"))).key
        yield owner, Turn(f"t{seq}", "s", "user", row["text"], seq, 0, 0, speaker=row.get("speaker"), rev=seq)


def _made_up(turns: int) -> Iterator[tuple[str, Turn]]:
    for seq in range(1, turns + 1):
        said = f"number {seq} of these says something about the {seq % 97} tables in room {seq % 31} and a walk home"
        yield Owner("default", f"u{seq % 1_000}").key, Turn(f"t{seq}", "s", "user", said, seq, 0, 0, rev=seq)


def _table(folder: Path, said: Iterator[tuple[str, Turn]]) -> int:
    """One shard's table of these turns, as a fold leaves it."""
    layout = load_settings(folder).layout
    table = RecordTable(layout.tables[TABLES], table_name(0), [], {})
    rows = [turn_row(owner, turn, []) for owner, turn in said]
    for part in parts(rows, MERGE_ROWS):
        table.merge(part, part[-1].seq)
        table.compact()
    return len(rows)


def _run(folder: Path, model: str, count: int) -> dict[str, Any]:
    options = EncoderOptions(model=model)
    stub = StubService(open_embedder(options).version, {"model": model}, [count], keep=False)
    (folder / "key").write_text("none")
    words = ["--url", stub.url, "--data", str(folder), "--migration", "m", "--key-file", str(folder / "key"), "--json"]
    job = subprocess.Popen(
        [sys.executable, "-m", "jobs.reembed", *words], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    sampled, ended = Sampled(job.pid, stub), threading.Event()
    watching = threading.Thread(target=sampled.run, args=(ended,))
    watching.start()
    out, _ = job.communicate()
    ended.set()
    watching.join()
    stub.close()
    if job.returncode:
        raise SystemExit(f"the job ended with {job.returncode}")
    told = json.loads(out.splitlines()[-1])
    kept = {name: told[name] for name in ("ready_s", "start_s", "rate", "seconds", "units")}
    return kept | {"written": stub.written, "estimated_s": told["estimate"]["seconds"]} | sampled.told()


class Sampled:
    """The memory of a process and all that it started, and how much had come, over time."""

    def __init__(self, pid: int, stub: StubService) -> None:
        self._pid, self._stub = pid, stub
        self._rows: list[tuple[float, int, dict[str, int]]] = []

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_S):
            self._rows.append((time.monotonic(), self._stub.written, _pss_bytes(self._pid)))

    def told(self) -> dict[str, Any]:
        sums = [sum(of.values()) for _, _, of in self._rows]
        peak = max(range(len(sums)), key=sums.__getitem__)
        by_name = {name: round(size / 1e6) for name, size in sorted(self._rows[peak][2].items()) if size > 10e6}
        running = [(at, written) for at, written, _ in self._rows if 0 < written < self._rows[-1][1]]
        return {"peak_pss_mb": round(sums[peak] / 1e6), "at_the_peak_mb": by_name, "rates": _rates(running)}


def _rates(running: list[tuple[float, int]]) -> list[int]:
    """Turns a second in equal parts of the time."""
    size = max(1, len(running) // TIMED_UNITS)
    marks = running[::size]
    return [round((b[1] - a[1]) / (b[0] - a[0])) for a, b in pairwise(marks) if b[0] > a[0]]


def _pss_bytes(root: int) -> dict[str, int]:
    """By the name of what runs, of a process and everything below it."""
    found: dict[str, int] = {}
    for pid in _below(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        size = next((int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
        name = b" ".join(words[:3]).decode(errors="replace").rpartition("/")[2][:40]
        found[name] = found.get(name, 0) + size
    return found


def _below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        left += children.get(pid, [])
    return found


def _loop(folder: Path, model: str, count: int) -> float:
    """Turns a second of the same encoder over the same units, the median of three stretches of the whole."""
    worker = Worker(open_embedder(EncoderOptions(model=model)))
    units = list(ShardTable(load_settings(folder).layout, 0).units(1, count, count))
    worker.embed(units[0])
    rates: list[float] = []
    for part in (units[at::3] for at in range(3)):
        if turns := sum(len(unit.turns) for unit in part):
            began = time.monotonic()
            for unit in part:
                worker.embed(unit)
            rates.append(turns / (time.monotonic() - began))
    return statistics.median(rates)


if __name__ == "__main__":
    main()
