"""What one client waits for: each kind of request, and an append to a short and to a long session.

Texts are made of random words from a fixed seed; every query is asked once, so that no cache of
query vectors helps but where that is what is measured. The user is erased at the end.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator

from tqdm import tqdm

from serve_app.client.http import Client, Json

SEED = 7
WORDS_A_TURN = 16
SHORT_TURNS = 100
BATCH_TURNS = 100
WORDS = (
    "river", "tea", "garden", "coffee", "mountain", "travel", "doctor", "school", "meeting", "project", "deadline",
    "birthday", "music", "book", "winter", "lamp", "bridge", "harbour", "invoice", "museum", "ticket", "breakfast",
    "window", "kitchen", "allergy", "budget", "hotel", "train", "station", "letter",
)  # fmt: skip


def measure(client: Client, turns: int, repeats: int) -> Json:
    """Milliseconds, p50 and p95, of each kind of request."""
    words = _words(random.Random(SEED))
    user = f"bench-{secrets.token_hex(4)}"
    _fill(client, user, "short", SHORT_TURNS, words)
    try:
        measured = {
            "text search": _timed(repeats, lambda: client.search(_search(user, next(words)))),
            "lexical search": _timed(repeats, lambda: client.search(_search(user, next(words), mode="lexical"))),
            "search, cached vector": _timed(repeats, lambda: client.search(_search(user, "the harbour bridge"))),
            "context, cached vector": _timed(repeats, lambda: client.context(_context(user))),
            f"append at {SHORT_TURNS} turns": _timed(repeats, lambda: _append(client, user, "short", next(words))),
        }
        _fill(client, user, "long", turns, words)
        measured[f"append at {turns} turns"] = _timed(repeats, lambda: _append(client, user, "long", next(words)))
    finally:
        client.erase(user)
    ratio = measured[f"append at {turns} turns"]["p50"] / measured[f"append at {SHORT_TURNS} turns"]["p50"]
    return {"ms": measured, "append_long_to_short": round(ratio, 2)}


def table(measured: Json) -> str:
    lines = [f"{'milliseconds':<26}{'p50':>9}{'p95':>9}"]
    lines += [f"{name:<26}{times['p50']:>9.2f}{times['p95']:>9.2f}" for name, times in measured["ms"].items()]
    return "\n".join([*lines, f"append, long session to short: {measured['append_long_to_short']:.2f}"])


def _words(source: random.Random) -> Iterator[str]:
    while True:
        yield " ".join([source.choice(WORDS) for _ in range(WORDS_A_TURN)]) + f" n{source.randrange(10**9)}"


def _fill(client: Client, user: str, session: str, turns: int, words: Iterator[str]) -> None:
    for start in tqdm(range(0, turns, BATCH_TURNS), unit=" batches", disable=None):
        batch = [_turn(next(words)) for _ in range(min(BATCH_TURNS, turns - start))]
        client.append(user, session, batch, wait="indexed")


def _append(client: Client, user: str, session: str, text: str) -> None:
    client.append(user, session, [_turn(text)])


def _turn(text: str) -> Json:
    return {"role": "user", "content": text}


def _search(user: str, query: str, **more: str) -> Json:
    return {"user_id": user, "query": query, **more}


def _context(user: str) -> Json:
    return {"user_id": user, "session_id": "short", "query": "the harbour bridge", "budget_tokens": 2_000}


def _timed(repeats: int, call: Callable[[], object]) -> dict[str, float]:
    call()
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - started))
    taken.sort()
    return {"p50": round(statistics.median(taken), 2), "p95": round(taken[int(0.95 * len(taken))], 2)}
