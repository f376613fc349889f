"""`POST /v1/embeddings` against infinity-emb: the same weights, the same number format, one text a request.

    python -m venv INF
    INF/bin/pip install torch==2.13.0 'infinity-emb[server,torch]==0.0.77' 'transformers<5' 'click<8.2'
    python -m benchmarks.peers.infinity --infinity INF/bin/infinity_emb --data FOLDER

Two services and two infinity servers run all the time, one of each in each number format; all but one are idle. Short
and mixed texts, 16 and 64 clients, take turns among them for several rounds; the medians are compared, and the texts a
second of the server's processor time, which a machine that others use, too, changes less. One JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.load import Load, Target
from benchmarks.programs import Ports, Program, Service, quiet
from benchmarks.rivals import INFINITY_MODEL, encoder_folder
from benchmarks.workload import Loads, Request, read_corpus
from serve_app.client.http import Json

FORMATS = ("bfloat16", "float32")
CLIENTS = (16, 64)
ROUNDS, SECONDS = 3, 4.0
WARM_S = 2.0
TURNS_MAX = 2_000
BAR = 1.2


class Server(NamedTuple):
    program: Program
    target: Target
    requests: dict[str, Path]
    """By kind of text."""


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m benchmarks.peers.infinity")
    words.add_argument("--infinity", required=True, help="the program infinity_emb")
    words.add_argument("--data", type=Path, required=True, help="a folder with conversations.jsonl")
    words.add_argument("--rounds", type=int, default=ROUNDS)
    words.add_argument("--seconds", type=float, default=SECONDS)
    words.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    args = words.parse_args()
    print(json.dumps(measured(args.infinity, args.data, args.rounds, args.seconds, args.formats), indent=1))
    return 0


def measured(infinity: str, data: Path, rounds: int, seconds: float, formats: Sequence[str]) -> Json:
    loads = Loads(read_corpus(data, TURNS_MAX), "infinity")
    texts = {"short": loads.short_embeddings(), "mixed": loads.turn_embeddings()}
    with tempfile.TemporaryDirectory(prefix="mst-inf-") as name, ExitStack() as programs:
        folder, ports = Path(name), Ports(0)
        load = Load(folder)
        found: Json = {"load_average_before": os.getloadavg()[0], "formats": {}}
        for number_format in formats:
            servers = {
                "service": _service(number_format, folder, ports, texts, load, programs),
                "infinity": _infinity(infinity, number_format, folder, ports, texts, load, programs),
            }
            found["formats"][number_format] = _of_format(servers, load, rounds, seconds)
        return found | {"load_average_after": os.getloadavg()[0]}


def _of_format(servers: dict[str, Server], load: Load, rounds: int, seconds: float) -> Json:
    for server in servers.values():
        for requests in server.requests.values():
            load.closed(server.target, requests, CLIENTS[0], WARM_S)
    rows = [(kind, clients) for kind in ("short", "mixed") for clients in CLIENTS]
    rates: dict[tuple[str, int, str], list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for kind, clients in rows:
            for name, server in servers.items():
                rates.setdefault((kind, clients, name), []).append(_rate(server, load, kind, clients, seconds))
    return {f"{kind}, {clients} clients": _compared(rates, kind, clients) for kind, clients in rows}


def _rate(server: Server, load: Load, kind: str, clients: int, seconds: float) -> tuple[float, float]:
    """Texts a second, and a second of the server's processor time."""
    cpu_s, began = server.program.cpu_seconds(), time.perf_counter()
    ran = load.closed(server.target, server.requests[kind], clients, seconds)
    share = (server.program.cpu_seconds() - cpu_s) / (time.perf_counter() - began)
    if ran.errors:
        raise RuntimeError(f"{ran.errors} errors")
    return ran.rate, ran.rate / share if share else 0.0


def _compared(rates: dict[tuple[str, int, str], list[tuple[float, float]]], kind: str, clients: int) -> Json:
    ours, theirs = rates[kind, clients, "service"], rates[kind, clients, "infinity"]
    told: Json = {}
    for at, what in enumerate(("a second", "a second of processor time")):
        middle = [statistics.median(one[at] for one in found) for found in (ours, theirs)]
        told[what] = {"service": round(middle[0], 1), "infinity": round(middle[1], 1)}
        told[what]["ratio"] = round(middle[0] / middle[1], 2) if middle[1] else None
    return told


def _service(
    number_format: str, folder: Path, ports: Ports, texts: dict[str, list[Request]], load: Load, programs: ExitStack
) -> Server:
    own = folder / f"ours-{number_format}"
    own.mkdir()
    config = own / "memstrata.toml"
    config.write_text(f'[encoder]\nnumber_format = "{number_format}"\ndevice = "cpu"\n')
    service = programs.enter_context(Service("local", own, ports.take(), config))
    return Server(service, service.target, {kind: load.prepared(requests) for kind, requests in texts.items()})


def _infinity(
    command: str,
    number_format: str,
    folder: Path,
    ports: Ports,
    texts: dict[str, list[Request]],
    load: Load,
    programs: ExitStack,
) -> Server:
    port = ports.take()
    words = [command, "v2", "--model-id", str(encoder_folder()), "--served-model-name", INFINITY_MODEL]
    words += ["--engine", "torch", "--device", "cpu", "--dtype", number_format, "--no-bettertransformer"]
    words += ["--no-model-warmup", "--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    log, environment = folder / f"infinity-{number_format}.log", quiet(INFINITY_ANONYMOUS_USAGE_STATS="0")
    program = programs.enter_context(Program(f"infinity in {number_format}", words, log, **environment))
    target = Target(f"http://127.0.0.1:{port}")
    program.wait_ready(f"{target.url}/health")
    return Server(program, target, {kind: load.prepared(_as_theirs(requests)) for kind, requests in texts.items()})


def _as_theirs(requests: Sequence[Request]) -> list[Request]:
    return [one._replace(path="/embeddings", body=f'{{"model": "{INFINITY_MODEL}", {one.body[1:]}') for one in requests]


if __name__ == "__main__":
    sys.exit(main())
