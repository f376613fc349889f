"""A steady load of writes and reads by clients that repeat nothing, and the account of it.

Each user has a client that writes a turn with a word of its own, then asks for it by its receipt, and so on at a fixed
pace, whatever the answers are. A write counts as acknowledged when its answer says `stored`; `read_back` looks for
every one of them in the end.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import httpx

TIMEOUT_S = 30.0
"""Longer than the service takes at the most: it is the one to say that it was too long."""

READ_BACK_S = 60.0
SAID_MAX = 600
WINDOW_S = 2.0
"""After a kill, within which errors are to be expected."""

REFUSED = 0
"""Instead of a status: no answer, the connection was refused or broken."""


class Done(NamedTuple):
    at: float
    """When it was sent, by the monotonic clock."""
    took_s: float
    kind: str
    """`write` or `read`."""
    status: int
    wrong: bool
    """Answered, and not as it had to be."""
    said: str = ""
    """Of an error, its code; of a wrong answer, what it was."""


class SteadyLoad:
    """`async with SteadyLoad(url, key, users, pace_s) as load:` runs until the block's end."""

    def __init__(self, url: str, key: str, users: int, pace_s: float, name: str = "u") -> None:
        self._url, self._key, self._pace_s = url, key, pace_s
        self._users = [f"{name}-{number}" for number in range(users)]
        self.done: list[Done] = []
        self.acknowledged: list[tuple[str, str]] = []
        """Users and ids of turns."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> SteadyLoad:
        self._tasks = [
            asyncio.create_task(self._use(user, self._pace_s * number / len(self._users)))
            for number, user in enumerate(self._users)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def read_back(self, within_s: float = READ_BACK_S) -> list[tuple[str, str]]:
        """The acknowledged turns that are not there, nor come in that time: gateways follow, some of them late."""
        ends = time.monotonic() + within_s
        async with self._client("reader") as client:
            while True:
                try:
                    lost = set(self.acknowledged) - await self._held(client)
                except httpx.HTTPError:
                    if time.monotonic() > ends:
                        raise
                    lost = set(self.acknowledged)
                if not lost or time.monotonic() > ends:
                    return sorted(lost)
                await asyncio.sleep(1.0)

    async def read_hot(self, readers: int, seconds: float) -> tuple[int, int]:
        """Ask for what the users were told, as fast as it is answered: how many were answered, and how many not."""
        counts, ends = Counter[bool](), time.monotonic() + seconds

        async def read(user: str) -> None:
            body = {"user_id": user, "query": "what was said", "mode": "lexical", "k": 5}
            async with self._client(user) as client:
                while time.monotonic() < ends:
                    try:
                        counts[(await client.post("/v1/search", json=body)).status_code == 200] += 1
                    except httpx.TransportError:
                        counts[False] += 1

        await asyncio.gather(*(read(self._users[number % len(self._users)]) for number in range(readers)))
        return counts[True], counts[False]

    async def _held(self, client: httpx.AsyncClient) -> set[tuple[str, str]]:
        return {(user, turn["id"]) for user in self._users for turn in await self._all_turns(client, user)}

    async def _use(self, user: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        async with self._client(user) as client:
            number, due = 0, time.monotonic()
            while True:
                word = f"{user.replace('-', 'x')}word{number}"
                receipt = await self._write(client, user, word)
                if receipt is not None:
                    await self._read(client, user, word, receipt)
                number, due = number + 1, due + self._pace_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _write(self, client: httpx.AsyncClient, user: str, word: str) -> str | None:
        body = {"user_id": user, "turns": [{"id": word, "role": "user", "content": f"the {word} was said"}]}
        answer, told = await self._asked(client, "write", "/v1/sessions/s/turns", body)
        if answer is None:
            return None
        stored = answer["results"][0]["status"] == "stored"
        if stored:
            self.acknowledged.append((user, word))
        self.done.append(told._replace(wrong=not stored, said="" if stored else json.dumps(answer)))
        return answer["receipt"] if stored else None

    async def _read(self, client: httpx.AsyncClient, user: str, word: str, receipt: str) -> None:
        body = {"user_id": user, "query": word, "mode": "lexical", "k": 1, "min_receipt": receipt}
        answer, told = await self._asked(client, "read", "/v1/search", body)
        if answer is not None:
            found = [one["id"] for one in answer["results"]]
            self.done.append(told._replace(wrong=found != [word], said="" if found == [word] else json.dumps(answer)))

    async def _asked(
        self, client: httpx.AsyncClient, kind: str, path: str, body: dict[str, Any]
    ) -> tuple[dict[str, Any] | None, Done]:
        began = time.monotonic()
        try:
            answer = await client.post(path, json=body)
            status, said = answer.status_code, answer.text[:SAID_MAX]
        except httpx.TransportError as error:
            status, said = REFUSED, type(error).__name__
        told = Done(began, time.monotonic() - began, kind, status, False, said)
        if 200 <= status < 300:
            return answer.json(), told
        self.done.append(told)
        return None, told

    async def _all_turns(self, client: httpx.AsyncClient, user: str) -> list[dict[str, Any]]:
        turns: list[dict[str, Any]] = []
        after = ""
        while True:
            answer = await client.get(f"/v1/sessions/s/turns?user_id={user}&limit=500{after}")
            answer.raise_for_status()
            page = answer.json()
            turns += page["turns"]
            if page["next_after_seq"] is None:
                return turns
            after = f"&after_seq={page['next_after_seq']}"

    def _client(self, user: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self._key}", "X-Memstrata-Route": user}
        return httpx.AsyncClient(base_url=self._url, headers=headers, timeout=TIMEOUT_S, trust_env=False)


def account(done: Iterable[Done], killed_at: float) -> dict[str, Any]:
    """What came of the requests around a kill."""
    every = sorted(done)
    failed = [one for one in every if not 200 <= one.status < 300]
    ends = [one.at + one.took_s - killed_at for one in failed]
    after = [one for one in every if one.at + one.took_s >= killed_at]
    return {
        "requests": len(every),
        "errors": len(failed),
        "error_share": round(len(failed) / max(1, len(every)), 5),
        "errors_by_status": {str(status): count for status, count in Counter(one.status for one in failed).items()},
        "errors_outside_window": sum(not 0 <= end <= WINDOW_S for end in ends),
        "last_error_s": round(max(ends), 2) if ends else None,
        "errors_by_code": dict(Counter(f"{one.kind} {_code(one)}" for one in failed)),
        "said": sorted({one.said for one in failed})[:4],
        "wrong": sum(one.wrong for one in every),
        "wrong_said": [one.said for one in every if one.wrong][:2],
        "longest_s": {kind: _longest(after, kind) for kind in ("write", "read")},
        "p50_ms": {kind: _middle_ms(every, kind) for kind in ("write", "read")},
    }


def _code(failed: Done) -> str:
    try:
        return str(json.loads(failed.said)["code"])
    except (ValueError, KeyError):
        return failed.said[:40]


def _longest(done: list[Done], kind: str) -> float:
    return round(max((one.took_s for one in done if one.kind == kind), default=0.0), 2)


def _middle_ms(done: list[Done], kind: str) -> float | None:
    took = sorted(one.took_s for one in done if one.kind == kind)
    return round(1_000 * took[len(took) // 2], 1) if took else None
