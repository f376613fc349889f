"""One command for the figures of a GPU, in under eight minutes, as one JSON object: `python -m benchmarks.gpu`.

Encoders in tokens a second against the matrix peak (the packaged one, and a large one of random weights, since the
packaged one is too small for such a device), hot indexes of ten thousand to ten million vectors with every hit checked
for its owner, and searches over HTTP of a service that has both on the device. Each part is a process of its own with
a bound on its time; one that fails is named in `failed`, and the others are measured all the same.

Without a GPU it says so and ends with 1. `--cpu` measures the same on the CPU, which is for the script's own test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.latency import WORDS
from benchmarks.programs import Ports, Service
from serve_app.client.http import Client
from serve_app.errors import MemstrataError

Json = dict[str, Any]

BUDGET_S = 360.0
"""Of all parts but the service, which takes about a minute; what is left of it bounds each part, too."""

MACHINE_S = 60.0
SESSION = "bench"
BATCH_TURNS = 100
STEPS = 1, 3, 7, 11, 13, 17, 19, 23
"""From one text to the next, of each of its words."""


class Part(NamedTuple):
    name: str
    words: tuple[str, ...]
    limit_s: float


class Sizes(NamedTuple):
    parts: tuple[Part, ...]
    users: int
    turns: int
    clients: tuple[int, ...]
    seconds: float


def _encoder(name: str, limit_s: float, *words: str) -> Part:
    return Part(f"encoder {name}", ("encoder", *words), limit_s)


def _hot(rows: int, limit_s: float, *words: str) -> Part:
    return Part(f"hot {rows}", ("hot", "--rows", str(rows), *words), limit_s)


_BATCHES = ("--batch-tokens", "4096,16384,65536", "--seconds", "3")
_CLIENTS = ("--clients", "1,8,64", "--seconds", "4")
FULL = Sizes(
    (
        _encoder("packaged", 40, *_BATCHES),
        _encoder("large", 80, "--layers", "24", "--width", "1024", *_BATCHES),
        _hot(10_000, 30, *_CLIENTS),
        _hot(1_000_000, 60, "--snapshot", *_CLIENTS),
        _hot(10_000_000, 130, *_CLIENTS),
    ),
    users=20,
    turns=500,
    clients=(1, 8),
    seconds=8.0,
)

_FEW_BATCHES = ("--cpu", "--batch-tokens", "256", "--seconds", "0.05")
QUICK = Sizes(
    (
        _encoder("packaged", 120, *_FEW_BATCHES),
        _encoder("large", 120, "--layers", "2", "--width", "128", *_FEW_BATCHES),
        _hot(1_000, 120, "--cpu", "--clients", "1,4", "--seconds", "0.2", "--snapshot"),
    ),
    users=2,
    turns=20,
    clients=(1, 2),
    seconds=0.5,
)


def measure(*, cpu: bool, quick: bool) -> Json:
    """Every part, or why it is missing."""
    sizes = QUICK if quick else FULL
    started = time.monotonic()
    measured: Json = {"machine": _child(Part("machine", ("machine",), MACHINE_S), cpu=False), "failed": {}}
    if not (cpu or measured["machine"]["faiss_gpus"]):
        raise NoGpu(f"no GPU that torch and FAISS both see: {json.dumps(measured['machine'])}")
    for part in sizes.parts:
        left_s = BUDGET_S - (time.monotonic() - started)
        try:
            measured[part.name] = _child(part._replace(limit_s=min(part.limit_s, left_s)), cpu=cpu)
        except PartFailed as error:
            measured["failed"][part.name] = str(error)
    try:
        measured["search over HTTP"] = _served(sizes, cpu=cpu)
    except MemstrataError as error:
        measured["failed"]["search over HTTP"] = str(error)
    return {**measured, "took_s": round(time.monotonic() - started, 1)}


class NoGpu(MemstrataError):
    code = "no_gpu"


class PartFailed(MemstrataError):
    code = "part_failed"


def _child(part: Part, *, cpu: bool) -> Json:
    """What it prints last. Raises PartFailed."""
    words = [sys.executable, "-m", "serve_app.measuring_gpu", *part.words]
    words += ["--cpu"] if cpu and "--cpu" not in part.words else []
    if part.limit_s <= 0:
        raise PartFailed("no time was left for it")
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=part.limit_s, check=True)
        told: Json = json.loads(done.stdout.strip().splitlines()[-1])
        return told
    except subprocess.CalledProcessError as error:
        raise PartFailed("; ".join(error.stderr.strip().splitlines()[-1:])) from error
    except subprocess.TimeoutExpired as error:
        raise PartFailed(f"not done in {part.limit_s:.0f} s") from error
    except (ValueError, IndexError) as error:
        raise PartFailed("it printed no result") from error


def _served(sizes: Sizes, *, cpu: bool) -> Json:
    """A service with encoder and hot index on the device, on a store of its own."""
    with tempfile.TemporaryDirectory(prefix="mst-gpu-") as name:
        folder = Path(name)
        config = folder / "memstrata.toml"
        device, hot = ("cpu", "host") if cpu else ("cuda", "cuda")
        memory_mib = 16 if cpu else 4_096
        config.write_text(
            f'[encoder]\ndevice = "{device}"\n[hot]\ndevice = "{hot}"\nmemory_mib = {memory_mib}\n', "utf-8"
        )
        with Service("local", folder, Ports(0).take(), config) as service:
            users = [f"bench-{number}" for number in range(sizes.users)]
            with Client(service.url, service.target.key) as client:
                started = time.monotonic()
                for number, user in enumerate(users):
                    _fill(client, user, sizes.turns, number)
                filled_s = time.monotonic() - started
            rows = [_asked(service, users, clients, sizes.seconds) for clients in sizes.clients]
            return {
                "users": sizes.users,
                "turns": sizes.users * sizes.turns,
                "fill_s": round(filled_s, 1),
                "clients": rows,
                "device_lost": _lost(service),
                "host_bytes": service.memory_bytes(),
                "gpu_bytes": _gpu_bytes(),
            }


def _fill(client: Client, user: str, turns: int, number: int) -> None:
    for start in range(0, turns, BATCH_TURNS):
        texts = [_words(number * turns + at) for at in range(start, min(start + BATCH_TURNS, turns))]
        client.append(user, SESSION, [{"role": "user", "content": text} for text in texts], wait="indexed")


def _words(number: int) -> str:
    """Another text for each number."""
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in STEPS) + f" n{number}"


def _asked(service: Service, users: Sequence[str], clients: int, seconds: float) -> Json:
    """Text searches that no cache knows, by threads of this process. Raises MemstrataError where one fails."""
    ends = time.monotonic() + seconds
    taken: list[float] = []
    lacking: list[str] = []

    def ask(number: int) -> None:
        with Client(service.url, service.target.key) as client:
            asked = 0
            while (started := time.perf_counter()) and time.monotonic() < ends:
                query = f"{_words(asked)} {clients} {number}"
                answer = client.search({"user_id": users[(number + asked) % len(users)], "query": query})
                taken.append(1e3 * (time.perf_counter() - started))
                lacking.extend(answer["degradation"]["reasons"])
                asked += 1

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))
    times = sorted(taken)
    return {
        "clients": clients,
        "searches_per_s": round(len(times) / seconds, 1),
        "p50_ms": round(_at(times, 0.5), 2),
        "p95_ms": round(_at(times, 0.95), 2),
        "reasons": sorted(set(lacking)),
    }


def _at(times: Sequence[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0


def _lost(service: Service) -> bool:
    """Whether the service searched without its device in the end."""
    told = httpx.get(f"{service.url}/readyz", trust_env=False).json()
    return any(one["what"] == "hot" for one in told["degraded"])


def _gpu_bytes() -> int | None:
    """Of the first GPU, whoever takes them; None where nothing tells."""
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return int(subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout) << 20
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="on the CPU: no figures of a GPU")
    parser.add_argument("--quick", action="store_true", help="some seconds, with --cpu")
    args = parser.parse_args(words)
    if args.quick and not args.cpu:
        parser.error("--quick is for --cpu")
    try:
        measured = measure(cpu=args.cpu, quick=args.quick)
    except MemstrataError as error:
        print(f"memstrata: {error}", file=sys.stderr)
        return 1
    print(json.dumps(measured))
    return 1 if measured["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
