"""What one client waits for: each kind of request, and an append to a short and to a long session.

Texts are made of random words from a seed of the run's own; every query is asked once, so that no cache of
query vectors helps but where that is what is measured. The appends to either session take turns, so that a slow
moment of the machine is no difference between them. The users are erased at the end.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

from tqdm import tqdm

from serve_app.client.http import Client, Json

SEED_BITS = 32
WORDS_A_TURN = 16
SHORT_TURNS = 100
BATCH_TURNS = 100
SESSION = "bench"
CACHED_QUERY = "the harbour bridge"
WORDS = (
    "river", "tea", "garden", "coffee", "mountain", "travel", "doctor", "school", "meeting", "project", "deadline",
    "birthday", "music", "book", "winter", "lamp", "bridge", "harbour", "invoice", "museum", "ticket", "breakfast",
    "window", "kitchen", "allergy", "budget", "hotel", "train", "station", "letter",
)  # fmt: skip


def measure(client: Client, turns: int, repeats: int) -> Json:
    """Milliseconds, p50 and p95, of each kind of request; and the seed of the words."""
    seed = secrets.randbits(SEED_BITS)
    words = _words(random.Random(seed))
    short, long = (f"bench-{secrets.token_hex(4)}-{length}" for length in ("short", "long"))
    at_short, at_long = f"append at {SHORT_TURNS} turns", f"append at {turns} turns"
    try:
        _fill(client, short, SHORT_TURNS, words)
        measured = {
            **_timed(repeats, {"text search": lambda: client.search(_search(short, next(words)))}),
            **_timed(repeats, {"lexical search": lambda: client.search(_search(short, next(words), mode="lexical"))}),
            **_timed(repeats, {"search, cached vector": lambda: client.search(_search(short, CACHED_QUERY))}),
            **_timed(repeats, {"context, cached vector": lambda: client.context(_context(short))}),
        }
        _fill(client, long, turns, words)
        appends = {at_short: lambda: _append(client, short, words), at_long: lambda: _append(client, long, words)}
        measured |= _timed(repeats, appends)
    finally:
        for user in (short, long):
            client.erase(user)
    ratio = measured[at_long]["p50"] / measured[at_short]["p50"]
    return {"seed": seed, "ms": measured, "append_long_to_short": round(ratio, 2)}


def table(measured: Json) -> str:
    lines = [f"{'milliseconds':<26}{'p50':>9}{'p95':>9}"]
    lines += [f"{name:<26}{times['p50']:>9.2f}{times['p95']:>9.2f}" for name, times in measured["ms"].items()]
    return "\n".join([*lines, f"append, long session to short: {measured['append_long_to_short']:.2f}"])


def _words(source: random.Random) -> Iterator[str]:
    while True:
        yield " ".join([source.choice(WORDS) for _ in range(WORDS_A_TURN)]) + f" n{source.randrange(10**9)}"


def _fill(client: Client, user: str, turns: int, words: Iterator[str]) -> None:
    for start in tqdm(range(0, turns, BATCH_TURNS), unit=" batches", disable=None):
        batch = [_turn(next(words)) for _ in range(min(BATCH_TURNS, turns - start))]
        client.append(user, SESSION, batch, wait="indexed")


def _append(client: Client, user: str, words: Iterator[str]) -> None:
    client.append(user, SESSION, [_turn(next(words))])


def _turn(text: str) -> Json:
    return {"role": "user", "content": text}


def _search(user: str, query: str, **more: str) -> Json:
    return {"user_id": user, "query": query, **more}


def _context(user: str) -> Json:
    return {"user_id": user, "session_id": SESSION, "query": CACHED_QUERY, "budget_tokens": 2_000}


def _timed(repeats: int, calls: Mapping[str, Callable[[], object]]) -> dict[str, dict[str, float]]:
    """Each call once untimed, then all in turn, `repeats` times."""
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            taken[name].append(1e3 * (time.perf_counter() - started))
    return {name: _spread(sorted(times)) for name, times in taken.items()}


def _spread(times: list[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(times), 2), "p95": round(times[int(0.95 * len(times))], 2)}
