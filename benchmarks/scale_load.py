"""The turns and requests of `memstrata bench scale`: made from a seed, the same in every run, never kept as a whole.

Each user has as many turns as any other, in sessions that lie apart in time: a user's rows are spread over the tables.
A turn is about 40 tokens of made-up words, of which few are frequent and many are rare, as in language. Every turn of a
user holds one word that nobody else has: what is left of it after an erasure shows in any file.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

import httpx

from benchmarks.load import Target
from serve_app.client.http import Json, Refused
from serve_app.errors import MemstrataError

SEED = 20_241_130
VOCABULARY = 30_000
WORDS_A_TURN = 24
"""Of some two syllables and 1.6 tokens each: about 40 tokens with the word of the user."""

SESSION_TURNS = 50
ROUND_USERS = 500
"""Users that are written at a time, a session each by turns; after each round they are complete."""

REQUEST_S = 120.0
BUSY_RETRIES_MAX = 2_000
BUSY_S = 0.1
"""A service that is full says so; a turn that it will not take for so long fails the run."""

QUERY_WORDS = 4
RESULTS = 10

_SYLLABLES = [
    first + last for first in "bcdfghjklmnprstvwz" for last in ("a", "e", "i", "o", "u", "an", "el", "ir", "os")
]


class Batch(NamedTuple):
    """One append: turns of one session."""

    user: int
    session: int
    turns: int


def user_name(user: int) -> str:
    return f"user-{user:06d}"


def sentinel(user: int) -> str:
    return f"zq{user:06d}xkw"


def batches(users: Sequence[int], turns_a_user: int) -> Iterator[Batch]:
    """Round by round; in each the sessions of its users in a random order."""
    source = random.Random(SEED)
    for start in range(0, len(users), ROUND_USERS):
        sizes = [min(SESSION_TURNS, turns_a_user - at) for at in range(0, turns_a_user, SESSION_TURNS)]
        for session, size in enumerate(sizes):
            those = list(users[start : start + ROUND_USERS])
            source.shuffle(those)
            yield from (Batch(user, session, size) for user in those)


class Words:
    """Draws of made-up words, by a law like Zipf's."""

    def __init__(self) -> None:
        source = random.Random(SEED)
        self._words = sorted({"".join(source.choices(_SYLLABLES, k=source.choice((2, 3)))) for _ in range(VOCABULARY)})
        source.shuffle(self._words)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, len(self._words) + 1)))

    def turn(self, source: random.Random, user: int) -> str:
        return " ".join([*source.choices(self._words, cum_weights=self._weights, k=WORDS_A_TURN), sentinel(user)])

    def query(self, source: random.Random) -> str:
        return " ".join(source.choices(self._words, cum_weights=self._weights, k=QUERY_WORDS))


class Door:
    """One client of the service; a context manager. Each call gives the answer's JSON."""

    def __init__(self, target: Target) -> None:
        headers = {"Authorization": f"Bearer {target.key}"}
        self._http = httpx.Client(base_url=target.url, headers=headers, timeout=REQUEST_S, trust_env=False)

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def append(self, user: int, session: str, texts: Sequence[str]) -> Json:
        body = {"user_id": user_name(user), "turns": [{"role": "user", "content": text} for text in texts]}
        return self._told("POST", f"/v1/sessions/{session}/turns", body)

    def search(self, user: int, query: str, **more: object) -> Json:
        return self._told("POST", "/v1/search", {"user_id": user_name(user), "query": query, "k": RESULTS, **more})

    def stats(self) -> list[Json]:
        shards: list[Json] = self._told("GET", "/v1/admin/stats")["shards"]
        return shards

    def maintain(self, action: str, shard: int) -> None:
        self._told("POST", "/v1/admin/maintenance", {"action": action, "shard": shard})

    def turns(self, user: int) -> int:
        """How many turns the user has, by the list of sessions."""
        listed = self._told("GET", f"/v1/sessions?user_id={user_name(user)}")
        return sum(int(one["turns"]) for one in listed["sessions"])

    def erase(self, user: int) -> str:
        return str(self._told("DELETE", f"/v1/users/{user_name(user)}")["erasure_id"])

    def erasure(self, erasure_id: str) -> Json:
        return self._told("GET", f"/v1/erasures/{erasure_id}")

    def _told(self, method: str, path: str, body: Json | None = None) -> Json:
        """Raises Refused, or ProgramFailed where nobody answers."""
        for _ in range(BUSY_RETRIES_MAX):
            answer = self._http.request(method, path, json=body)
            if answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
                break
            time.sleep(BUSY_S)
        told: Json = answer.json()
        if not answer.is_success:
            raise Refused(answer.status_code, told)
        return told


def write(
    target: Target, words: Words, wanted: Sequence[Batch], clients: int, advance: Callable[[int], object]
) -> None:
    """All batches, by several clients; `advance` is told the turns of each once they are durable."""
    queue, lock = iter(wanted), threading.Lock()

    def client() -> None:
        with Door(target) as door:
            while True:
                with lock:
                    batch = next(queue, None)
                if batch is None:
                    return
                source = random.Random(f"{SEED}-{batch.user}-{batch.session}")
                texts = [words.turn(source, batch.user) for _ in range(batch.turns)]
                door.append(batch.user, f"s{batch.session}", texts)
                advance(batch.turns)

    with ThreadPoolExecutor(clients) as pool:
        for done in as_completed([pool.submit(client) for _ in range(clients)]):
            done.result()


class Beside:
    """Appends and searches that go on while something else is done, one client each; a context manager.

    `taken` holds milliseconds as the client saw them.
    """

    def __init__(self, target: Target, words: Words, users: Sequence[int], pause_s: float) -> None:
        self._target, self._words, self._users, self._pause_s = target, words, users, pause_s
        self.taken: dict[str, list[float]] = {"append": [], "search": []}
        self._over = threading.Event()
        self._failed: list[MemstrataError | httpx.HTTPError] = []
        self._threads = [threading.Thread(target=self._run, args=(kind,)) for kind in self.taken]

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self, kind: str) -> None:
        source = random.Random(f"{SEED}-{kind}")
        try:
            with Door(self._target) as door:
                while not self._over.wait(self._pause_s):
                    user = source.choice(self._users)
                    started = time.perf_counter()
                    if kind == "append":
                        door.append(user, "beside", [self._words.turn(source, user)])
                    else:
                        door.search(user, self._words.query(source))
                    self.taken[kind].append(1e3 * (time.perf_counter() - started))
        except (MemstrataError, httpx.HTTPError) as error:
            self._failed.append(error)
