"""What batches by length give an encoder: `python -m jobs.encoder_batching --data FOLDER`, one JSON on standard output.

Turns of mixed length arrive in no order, as clients send them. Three ways to embed them take turns, some seconds each,
for several rounds in one process, and the medians are compared:

service   `EmbedService` of the encoder, as it serves: `--clients` callers, each with the next text as soon as it has
          its vector
unsorted  transformers, batches of 32 as they come, padded to the longest
ceiling   transformers, batches of 32 texts of about one length: all texts are known and sorted before

Beside texts a second there are texts a second of this process's processor time: on a machine that others use, too, the
first says more of them than of the three ways.

All read the same texts by the same weights in the same number format on one thread; there is no HTTP in between.
`FOLDER` holds `conversations.jsonl`, a turn a line with its `text`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.ceiling import Encoder
from serve_app.models.batching import EmbedService
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.weights import PACKAGED, encoder_files

ROUNDS, SECONDS, CLIENTS = 5, 4.0, 64
BATCH_TEXTS = 32
TEXTS_MAX = 512
SEED = 5
ANSWER_S = 60.0
"""What one client waits for its vector at most."""

Format = Literal["float32", "bfloat16"]


class Served:
    """Clients of one service, without a thread each: who has its vector asks for the next text."""

    def __init__(self, number_format: Format, texts: list[str], clients: int) -> None:
        self._service = EmbedService(open_embedder(EncoderOptions(number_format=number_format)))
        self._texts, self._clients = texts, clients

    def rate(self, seconds: float) -> float:
        """Texts a second."""
        run = _Run(self._service, self._texts, time.perf_counter() + seconds)
        began = time.perf_counter()
        for _ in range(self._clients):
            run.ask()
        for _ in range(self._clients):
            if not run.ended.acquire(timeout=seconds + ANSWER_S):
                raise TimeoutError("the encoder does not answer")
        return run.done / (time.perf_counter() - began)

    def close(self) -> None:
        self._service.close()


class _Run:
    def __init__(self, service: EmbedService, texts: list[str], until: float) -> None:
        self._service, self._until = service, until
        self._next = itertools.cycle(texts)
        self._lock = threading.Lock()
        self.done, self.ended = 0, threading.Semaphore(0)

    def ask(self) -> None:
        with self._lock:
            text = next(self._next)
        self._service.passages_counted([text]).add_done_callback(self._came)

    def _came(self, answer: Future[Any]) -> None:
        answer.result()
        with self._lock:
            self.done += 1
        if time.perf_counter() < self._until:
            self.ask()
        else:
            self.ended.release()


class Plain:
    """transformers, in batches that somebody else chose, in an order of chance."""

    def __init__(self, encoder: Encoder, texts: list[str]) -> None:
        self._encoder = encoder
        self._batches = [texts[at : at + BATCH_TEXTS] for at in range(0, len(texts), BATCH_TEXTS)]
        random.Random(SEED).shuffle(self._batches)

    def rate(self, seconds: float) -> float:
        done, began = 0, time.perf_counter()
        for batch in itertools.cycle(self._batches):
            self._encoder(batch)
            done += len(batch)
            if (took := time.perf_counter() - began) >= seconds:
                break
        return done / took


def texts_of(data: Path) -> list[str]:
    """Turns in an order of chance."""
    turns = [json.loads(line)["text"] for line in (data / "conversations.jsonl").read_text("utf-8").splitlines()]
    return random.Random(SEED).sample(turns, min(TEXTS_MAX, len(turns)) // BATCH_TEXTS * BATCH_TEXTS)


def measured(data: Path, number_format: Format, rounds: int, seconds: float, clients: int) -> dict[str, Any]:
    texts = texts_of(data)
    served = Served(number_format, texts, clients)
    encoder = Encoder(encoder_files(PACKAGED, None).folder, number_format)
    ways = {
        "service": served,
        "unsorted": Plain(encoder, texts),
        "ceiling": Plain(encoder, sorted(texts, key=len)),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    by_cpu: dict[str, list[float]] = {name: [] for name in ways}
    for one in ways.values():
        one.rate(min(seconds, 2.0))  # loads the weights, and the service learns its pace
    for _ in range(rounds):
        for name, one in ways.items():
            cpu_s, began = time.process_time(), time.perf_counter()
            rate = one.rate(seconds)
            rates[name].append(round(rate, 1))
            share = (time.process_time() - cpu_s) / (time.perf_counter() - began)
            by_cpu[name].append(round(rate / share, 1))
    served.close()
    return {
        "number_format": number_format,
        "clients": clients,
        "a second": _compared(rates),
        "a second of processor time": _compared(by_cpu),
        "load_average": os.getloadavg()[0],
    }


def _compared(rates: dict[str, list[float]]) -> dict[str, Any]:
    middle = {name: statistics.median(found) for name, found in rates.items()}
    against = {f"service/{name}": round(middle["service"] / middle[name], 2) for name in ("unsorted", "ceiling")}
    return {"texts": middle, **against, "rounds": rates}


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m jobs.encoder_batching")
    words.add_argument("--data", type=Path, required=True)
    words.add_argument("--number-format", choices=get_args(Format), default="bfloat16")
    words.add_argument("--rounds", type=int, default=ROUNDS)
    words.add_argument("--seconds", type=float, default=SECONDS)
    words.add_argument("--clients", type=int, default=CLIENTS)
    args = words.parse_args()
    print(json.dumps(measured(args.data, args.number_format, args.rounds, args.seconds, args.clients), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
