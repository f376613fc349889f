"""What one long conversation costs turn by turn, and what contexts notice of summaries that are made beside them."""

from __future__ import annotations

import math
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from tqdm import tqdm

from benchmarks.dialogues import Dialogue, endless
from serve_app.client.http import Client, Json
from serve_app.drift import distance

HUNDRED = 100
REFRESH_EVERY = 5
SESSION = "replay"

ROUNDS = 6
"""Of contexts with summaries made beside them and without, in turn."""

BESIDE_TURNS = 2_000
WRITES_A_S = 20
CONTEXT_TOKENS = 4_000
NEVER = {"every_turns": 10_000, "max_age_s": 86_400}
"""The policy under which no summary is made while this runs."""


def replayed(client: Client, dialogues: Sequence[Dialogue], length: int, summary_tokens: int) -> Json:
    """Turn by turn with a summary after every few; then the whole of it at once, which must give the same summary."""
    turns = list(islice(endless(dialogues), length))
    rolling, at_once = (f"bench-{secrets.token_hex(4)}-{name}" for name in ("rolling", "at-once"))
    append_ms: list[float] = []
    refresh_ms: list[float] = []
    longest = 0
    try:
        for number, turn in enumerate(tqdm(turns, unit=" turns", disable=None), 1):
            append_ms.append(_timed(client.append, rolling, SESSION, [turn])[0])
            if number % REFRESH_EVERY == 0:
                ms, summary = _timed(client.refresh_summary, rolling, SESSION)
                refresh_ms.append(ms)
                longest = max(longest, summary["tokens"])
        last = client.refresh_summary(rolling, SESSION)
        for start in range(0, len(turns), HUNDRED):
            client.append(at_once, SESSION, turns[start : start + HUNDRED])
        again = client.refresh_summary(at_once, SESSION)
    finally:
        for user in (rolling, at_once):
            client.erase(user)
    return {
        "turns": len(turns),
        "tokens_max": longest,
        "over_target": int(longest > summary_tokens),
        "drift": distance(last["text"], again["text"]),
        "append_ms": _by_part(append_ms),
        "refresh_ms": _by_part(refresh_ms),
    }


def _timed(call: Callable[..., Json], *arguments: Any) -> tuple[float, Json]:
    began = time.perf_counter()
    answer = call(*arguments)
    return 1e3 * (time.perf_counter() - began), answer


def _by_part(ms: Sequence[float]) -> Json:
    """Tenths in order: the median of each, and how the last compares with the first."""
    size = max(1, len(ms) // 10)
    medians = [round(statistics.median(ms[start : start + size]), 2) for start in range(0, len(ms), size)][:10]
    return {"tenths_p50": medians, "last_to_first": round(medians[-1] / medians[0], 2), **spread(ms)}


def beside(client: Client, dialogues: Sequence[Dialogue], seconds: float) -> Json:
    """Contexts of a long session while turns are written to it and to others: with summaries made in the background,
    and with a policy that puts them off. In turn, so that a slow moment of the machine is no difference.
    """
    user = f"bench-{secrets.token_hex(4)}-beside"
    turns = list(islice(endless(dialogues), BESIDE_TURNS))
    found: dict[str, list[float]] = {"on": [], "off": []}
    before = client.policy("summary")
    try:
        for start in range(0, BESIDE_TURNS, HUNDRED):
            client.append(user, SESSION, turns[start : start + HUNDRED], wait="indexed")
        client.refresh_summary(user, SESSION)
        writing = _Writing(client, user, turns)
        for number in tqdm(range(2 * ROUNDS), unit=" rounds", disable=None):
            name = ("off", "on")[number % 2]
            client.put_policy("summary", NEVER if name == "off" else before)
            with writing:
                found[name] += _contexts(client, user, seconds / (2 * ROUNDS))
    finally:
        client.put_policy("summary", before)
        client.erase(user)
    spreads = {name: spread(ms) for name, ms in found.items()}
    ratios = {name: round(spreads["on"][name] / spreads["off"][name], 3) for name in ("p50", "p99")}
    return {"ms": spreads, "on_to_off": ratios, "written": writing.written}


def _contexts(client: Client, user: str, seconds: float) -> list[float]:
    """Milliseconds inside the service; the first is left out."""
    body = {"user_id": user, "session_id": SESSION, "query": "the order of the kettle", "budget_tokens": CONTEXT_TOKENS}
    client.context(body)
    found: list[float] = []
    end = time.perf_counter() + seconds
    while not found or time.perf_counter() < end:
        found.append(client.context(body)["timings_ms"]["total"])
    return found


class _Writing:
    """While it is entered, turns are written by a thread, to the session that is read and to others in turn."""

    def __init__(self, client: Client, user: str, turns: Sequence[Json]) -> None:
        self._client = client
        self._user = user
        self._turns = turns
        self.written = 0

    def __enter__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._done.wait(1 / WRITES_A_S):
            self.written += 1
            session = SESSION if self.written % 2 else f"other{self.written % 10}"
            turn = self._turns[self.written % len(self._turns)] | {"id": f"w{self.written}"}
            self._client.append(self._user, session, [turn])


def at(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else 0.0


def spread(ms: Sequence[float]) -> dict[str, float]:
    return {name: round(at(ms, share), 2) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
