"""A load generator in a process of its own: `python -m benchmarks.generator` reads one JSON order, prints one answer.

Closed loop: each client sends its next request when it has its answer. Open loop: arrivals are drawn beforehand
(Poisson), a late answer delays none of them, and latency counts from the intended start, the wait for a connection
and the generator's own lateness included. Percentiles are exact. It knows no benchmark and no service.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import httptools
import uvloop

from benchmarks.workload import NUMBER, Request, read_requests

CONNECTIONS_MAX = 512
"""Of an open loop: requests that may be in flight; what comes beyond waits, and the wait counts as latency."""

ANSWER_S = 20.0
LEAD_S = 0.05
"""Before the first arrival, to have everything in place."""


class Answer(NamedTuple):
    kind: str
    status: int
    seconds: float
    send_lag_s: float


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection with at most one request in flight."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[int] | None = None
        self._parser = httptools.HttpResponseParser(self)

    @property
    def usable(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def ask(self, raw: bytes) -> asyncio.Future[int]:
        assert self.transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(raw)
        return self._answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        status, keep = self._parser.get_status_code(), self._parser.should_keep_alive()
        self._parser = httptools.HttpResponseParser(self)
        if not keep and self.transport is not None:
            self.transport.close()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(status)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionError("closed before the answer"))


class Pool:
    """Connections to one service, and requests as bytes."""

    def __init__(self, url: str, key: str, most: int) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(most)
        words = [f"Host: {address.netloc}", "Content-Type: application/json"]
        self._head = "\r\n".join([*words, *([f"Authorization: Bearer {key}"] if key else []), "Content-Length: "])

    def raw(self, request: Request, number: int) -> bytes:
        body = request.body.replace(NUMBER, str(number)).encode()
        return f"{request.method} {request.path} HTTP/1.1\r\n{self._head}{len(body)}\r\n\r\n".encode() + body

    async def ask(self, kind: str, raw: bytes, intended: float) -> Answer:
        """Status 0 stands for no answer."""
        sent, status = intended, 0
        async with self._room:
            try:
                connection = await self._connection()
                sent = time.perf_counter()
                status = await asyncio.wait_for(connection.ask(raw), ANSWER_S)
                self._idle.append(connection)
            except (OSError, TimeoutError, httptools.HttpParserError):
                pass  # counted as an error; the connection is not used again
        return Answer(kind, status, time.perf_counter() - intended, sent - intended)

    async def _connection(self) -> Connection:
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        made = asyncio.get_running_loop().create_connection(Connection, self._host, self._port)
        return (await asyncio.wait_for(made, ANSWER_S))[1]


async def closed(pool: Pool, requests: Iterator[tuple[str, bytes]], clients: int, seconds: float) -> list[Answer]:
    """Until the requests or the seconds are over."""
    answers: list[Answer] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        while (now := time.perf_counter()) < end and (request := next(requests, None)):
            answers.append(await pool.ask(*request, now))

    await asyncio.gather(*(client() for _ in range(clients)))
    return answers


async def opened(pool: Pool, requests: Iterator[tuple[str, bytes]], rate: float, seconds: float) -> list[Answer]:
    arrivals = list(_arrivals(rate, seconds))
    made = list(itertools.islice(requests, len(arrivals)))
    start = time.perf_counter() + LEAD_S
    asked = []
    for at, request in zip(arrivals, made, strict=True):
        await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
        asked.append(asyncio.create_task(pool.ask(*request, start + at)))
    return list(await asyncio.gather(*asked))


def _arrivals(rate: float, seconds: float) -> Iterator[float]:
    at = random.expovariate(rate)
    while at < seconds:
        yield at
        at += random.expovariate(rate)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _report(answers: list[Answer], seconds: float, cpu_s: float) -> dict[str, Any]:
    good = [answer for answer in answers if 200 <= answer.status < 300]
    return {
        "answers": len(good),
        "seconds": seconds,
        "errors": len(answers) - len(good),
        "statuses": {str(status): count for status, count in Counter(one.status for one in answers).items()},
        **_times(good),
        "send_lag_p99_ms": 1e3 * quantile(sorted(one.send_lag_s for one in answers), 0.99),
        "generator_cpu": cpu_s / seconds,
        "kinds": {kind: _times([one for one in good if one.kind == kind]) for kind in {one.kind for one in good}},
    }


def _times(answers: list[Answer]) -> dict[str, float]:
    ordered = sorted(one.seconds for one in answers)
    return {f"p{share}_ms": 1e3 * quantile(ordered, share / 100) for share in (50, 95, 99)}


async def _run(order: dict[str, Any]) -> dict[str, Any]:
    """`order`: url, requests (a file), seconds, first number, and clients or rate; `once` sends each request once."""
    most = order.get("clients") or CONNECTIONS_MAX
    pool = Pool(order["url"], os.environ.get("MEMSTRATA_KEY", ""), most)
    given = read_requests(Path(order["requests"]))
    cycle = given if order.get("once") else itertools.cycle(given)
    numbered = ((one.kind, pool.raw(one, number)) for number, one in enumerate(cycle, order["first"]))
    gc.collect()
    gc.freeze()
    gc.disable()
    started, cpu = time.perf_counter(), time.process_time()
    if order.get("rate"):
        answers = await opened(pool, numbered, order["rate"], order["seconds"])
    else:
        answers = await closed(pool, numbered, order["clients"], order["seconds"])
    return _report(answers, time.perf_counter() - started, time.process_time() - cpu)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_run(json.load(sys.stdin)))))
