"""The job's way to the service: claims a migration, sends units with the fence, waits where it is told to.

What it sends may arrive twice; the service records a turn's vectors once. A link may be used by several threads.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import httpx
import msgspec

from jobs.embedding import Embedded
from serve_app.client.http import quote
from serve_app.errors import MemstrataError
from serve_app.migrate.units import MSGPACK, Claim, Item, Taken, Units

REQUEST_S = 60.0
WAIT_MAX_S = 300.0
"""How long a service may be away, or full, before the job ends; what is recorded stays."""

RETRY_AFTER_S, RETRY_AFTER_S_MAX = 0.5, 30.0
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 507})

CLAIM_WAIT_S = 15.0
"""For the silence of a job that was killed: longer than the service waits for a sign of life."""

CLAIM_EVERY_S = 1.0
BEAT_S = 0.2
"""Between two signs of life; each brings how much to rest."""

CALL_BYTES, RESTING_CALL_BYTES = 1 << 20, 128 << 10
"""Of vectors in one call; fewer while somebody else wants the service."""

CODE_CLAIMED = "migration_claimed"

Listener = Callable[[float], object]
"""Told how much to rest."""


class Refused(MemstrataError):
    """The service refuses what the job wants, for good."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code = status, code


class Away(MemstrataError):
    code = "service_away"


class Link:
    def __init__(self, url: str, key: str, migration: str, wait_max_s: float = WAIT_MAX_S) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=REQUEST_S, trust_env=False)
        self._path = f"/v1/admin/migrations/{quote(migration)}"
        self._wait_max_s = wait_max_s

    def claim(self, worker: str, wait_s: float = CLAIM_WAIT_S) -> Claim:
        """Waits for a job before this one to count as dead. Raises Refused, Away."""
        end = time.monotonic() + wait_s
        while True:
            try:
                body = msgspec.json.encode({"worker": worker})
                answer = self._patiently("POST", f"{self._path}:claim", body, "application/json")
                return msgspec.msgpack.decode(answer, type=Claim)
            except Refused as error:
                if error.code != CODE_CLAIMED or time.monotonic() > end:
                    raise
            time.sleep(CLAIM_EVERY_S)

    def put(self, units: Units) -> Taken:
        """Durable when it returns. Raises Refused, Away."""
        answer = self._patiently("PUT", f"{self._path}/units", msgspec.msgpack.encode(units), MSGPACK)
        return msgspec.msgpack.decode(answer, type=Taken)

    def beat(self, fence: int) -> float:
        """A sign of life; gives how much to rest. Asks once. Raises Refused, Away."""
        answer = self._asked("PUT", f"{self._path}/units", msgspec.msgpack.encode(Units(fence)), MSGPACK)
        if answer is None or answer.status_code in RETRIED:
            raise Away("the service does not answer")
        return msgspec.msgpack.decode(_read(answer), type=Taken).rest_s

    def close(self) -> None:
        self._http.close()

    def _patiently(self, method: str, path: str, body: bytes, kind: str) -> bytes:
        end = time.monotonic() + self._wait_max_s
        while True:
            answer = self._asked(method, path, body, kind)
            if answer is not None and answer.status_code not in RETRIED:
                return _read(answer)
            if time.monotonic() > end:
                told = "it cannot be reached" if answer is None else f"it answers {answer.status_code}"
                raise Away(f"the service takes nothing for {self._wait_max_s:.0f} s: {told}")
            time.sleep(_retry_after(answer) * random.uniform(1.0, 1.25))

    def _asked(self, method: str, path: str, body: bytes, kind: str) -> httpx.Response | None:
        try:
            return self._http.request(method, path, content=body, headers={"Content-Type": kind})
        except httpx.TransportError:
            return None


class Beats:
    """A thread that gives signs of life from the claim on; what the service says of resting goes to `told`."""

    def __init__(self, link: Link, fence: int, every_s: float = BEAT_S) -> None:
        self._link, self._fence, self._every_s = link, fence, every_s
        self._listener: Listener | None = None
        self._telling = threading.Lock()
        self._end = threading.Event()
        self.rest_s = 0.0
        self.refused: Refused | None = None
        """Why the job is to end at once."""
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)
        self._thread.start()

    @contextmanager
    def telling(self, listener: Listener) -> Iterator[None]:
        """Within, `listener` is called with each answer, and never after."""
        self._hear(listener)
        try:
            yield
        finally:
            self._hear(None)

    def _hear(self, listener: Listener | None) -> None:
        with self._telling:
            self._listener = listener

    def close(self) -> None:
        self._end.set()
        self._thread.join(REQUEST_S)

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            try:
                self.rest_s = self._link.beat(self._fence)
            except Refused as error:
                self.refused = error
                return
            except Away:
                continue  # who sends units waits, and says so
            with self._telling:
                if self._listener is not None:
                    self._listener(self.rest_s)


class Sink:
    """Sends units, and counts them only then."""

    def __init__(self, link: Link, fence: int, beats: Beats) -> None:
        self._link, self._fence, self._beats = link, fence, beats

    def send(self, unit: Embedded) -> Taken:
        """What became of the unit's turns. Raises Refused, Away: nothing of it counts then."""
        parts = list(_parts(unit.items, RESTING_CALL_BYTES if self._beats.rest_s else CALL_BYTES)) or [()]
        total = Taken()
        for at, items in enumerate(parts):
            if self._beats.refused is not None:
                raise self._beats.refused
            last = at == len(parts) - 1
            more = {"done": (unit.first, unit.last), "cold": unit.cold, "dead": unit.dead} if last else {}
            began = time.monotonic()
            taken = self._link.put(Units(self._fence, unit.shard, tuple(items), **more))
            total = _sum(total, taken)
            if taken.rest_s:
                time.sleep(min(taken.rest_s * (time.monotonic() - began), RETRY_AFTER_S_MAX))
        return total


def _sum(one: Taken, other: Taken) -> Taken:
    names = ("written", "stale", "gone", "cold", "dead")
    return Taken(**{name: getattr(one, name) + getattr(other, name) for name in names}, rest_s=other.rest_s)


def _parts(items: Sequence[Item], most: int) -> Iterator[list[Item]]:
    part: list[Item] = []
    held = 0
    for item in items:
        size = len(item.vectors.vectors) + len(item.vectors.tokens)
        if part and held + size > most:
            yield part
            part, held = [], 0
        part.append(item)
        held += size
    if part:
        yield part


def _read(answer: httpx.Response) -> bytes:
    if answer.is_success:
        return answer.content
    try:
        told = answer.json()
    except ValueError:
        told = {}
    raise Refused(answer.status_code, str(told.get("code", "")), str(told.get("detail", "no reason is given")))


def _retry_after(answer: httpx.Response | None) -> float:
    try:
        asked = float(answer.headers["Retry-After"]) if answer is not None else RETRY_AFTER_S
    except (KeyError, ValueError):
        asked = RETRY_AFTER_S
    return min(max(asked, RETRY_AFTER_S), RETRY_AFTER_S_MAX)
