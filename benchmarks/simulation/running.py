"""A service that is measured: started on a store of its own, filled with the shipped conversations, its figures read.

Users fall into two halves, so that what was fitted on the one can be held against the other.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load import Load, Slice
from benchmarks.programs import Ports, Service
from benchmarks.workload import BUDGET_TOKENS, RESULTS, Corpus, Loads, Request, read_corpus
from serve_app.client.conversations import batches
from serve_app.client.http import Client, Json
from serve_app.errors import MemstrataError

ENGINE = "local"
GOLDEN = Path(__file__).parent.parent / "data" / "golden"
INDEXED_S, POLL_S = 300.0, 0.1
BATCH_TURNS = 100
RUN = "simulated"
CALIBRATED, VALIDATED = 0, 1
"""Halves of the users."""


class NotMeasured(MemstrataError):
    code = "not_measured"


class Figures(NamedTuple):
    """Counted by the service since its start."""

    encoder_s: float
    encoder_tokens: float
    commit_s: float
    commits: float
    records: float
    requests: float
    process_cpu_s: float
    at: float

    def since(self, before: Figures) -> Figures:
        return Figures(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def got(self) -> float:
        """The part of this time that the service had a core for, 1 at most: less, where others took theirs."""
        return min(1.0, self.process_cpu_s / self.at) if self.process_cpu_s and self.at else 1.0


@dataclass
class Running:
    service: Service
    client: Client
    load: Load
    halves: tuple[Corpus, Corpus]
    numbers: Iterator[int]

    def loads(self, half: int) -> Loads:
        return Loads(self.halves[half], RUN)

    def closed(self, requests: list[Request], clients: int, seconds: float) -> Slice:
        ran = self.load.own(self.service.target, self.load.prepared(requests), clients=clients, seconds=seconds)
        return _sound(ran)

    def opened(self, requests: list[Request], rate: float, seconds: float) -> Slice:
        return self.load.own(self.service.target, self.load.prepared(requests), rate=rate, seconds=seconds)

    def ask(self, kind: str, user: str, query: str, session: str) -> Json:
        """Gives the answer's stages."""
        if kind == "context":
            body: Json = {"session_id": session, "budget_tokens": BUDGET_TOKENS}
            answer = self.client.context({"user_id": f"{RUN}-{user}", "query": query, **body})
        else:
            mode = {"mode": "lexical"} if kind == "lexical" else {}
            answer = self.client.search(
                {"user_id": f"{RUN}-{user}", "query": query, "k": RESULTS, "rerank": False, **mode}
            )
        timings: Json = answer["timings_ms"]
        return timings

    def figures(self) -> Figures:
        text = httpx.get(f"{self.service.url}/metrics", trust_env=False).text
        told: defaultdict[tuple[str, str], float] = defaultdict(float)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                told[sample.name, sample.labels.get("stage", "")] += sample.value
        return Figures(
            encoder_s=told["memstrata_stage_seconds_total", "embed"],
            encoder_tokens=told["memstrata_stage_tokens_total", "embed"],
            commit_s=told["memstrata_commit_duration_seconds_sum", ""],
            commits=told["memstrata_commit_duration_seconds_count", ""],
            records=told["memstrata_commit_records_sum", ""],
            requests=told["memstrata_http_requests_total", ""],
            process_cpu_s=self.service.cpu_seconds(),
            at=time.monotonic(),
        )

    def settle(self) -> None:
        """Until every turn has its vectors and the encoder rests. Raises NotMeasured."""
        end = time.monotonic() + INDEXED_S
        while any(shard["pending_vectors"] for shard in self._shards()):
            if time.monotonic() > end:
                raise NotMeasured(f"turns were without vectors for {INDEXED_S:.0f} s")
            time.sleep(POLL_S)

    def shards(self) -> int:
        return len(self._shards())

    def _shards(self) -> list[Json]:
        key = {"Authorization": f"Bearer {self.service.target.key}"}
        answer = httpx.get(f"{self.service.url}/v1/admin/stats", headers=key, trust_env=False)
        found: list[Json] = answer.json()["shards"]
        return found


@contextmanager
def started(folder: Path, port: int = 0) -> Iterator[Running]:
    """The service, with all conversations written and indexed."""
    corpus = read_corpus(GOLDEN, None)
    with Service(ENGINE, folder, Ports(port).take()) as service, Client(service.url, service.target.key) as client:
        numbers = itertools.count(random.Random().randrange(10**9, 2 * 10**9))
        running = Running(service, client, Load(folder), _halves(corpus), numbers)
        for group in batches(corpus.entries, BATCH_TURNS):
            user, session = f"{RUN}-{group[0].user}", group[0].session
            client.append(user, session, [entry.turn for entry in group])
        running.settle()
        yield running


def _halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    sides = [set(corpus.users[half::2]) for half in (CALIBRATED, VALIDATED)]
    first, second = (
        Corpus(
            corpus.name,
            tuple(entry for entry in corpus.entries if entry.user in side),
            tuple((user, query) for user, query in corpus.queries if user in side),
        )
        for side in sides
    )
    return first, second


def _sound(ran: Slice) -> Slice:
    """Raises NotMeasured where requests failed."""
    if ran.errors:
        raise NotMeasured(f"{ran.errors} requests failed")
    return ran


def middle(values: list[float]) -> float:
    return float(statistics.median(values))
