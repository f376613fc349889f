"""A lane of an import: writes what it is given through the HTTP API, in that order, and waits where it is asked to.

What the service refuses is narrowed down to the turns that are to blame; the others are written. Only where nothing
can be written (the key, the disk, the service itself) does a lane stop.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from jobs.import_rows import Letter, Ordered, unpacked
from serve_app.client.conversations import Entry, batches
from serve_app.client.http import RETRIED, Client, Json, Refused, Unreachable

BATCH_TURNS = 100
PATIENCE_S = 600.0
"""How long one batch is tried again while the service is busy or away."""

PAUSE_S: Final = 2.0
"""Before it is tried again, beside the pauses that the service asks for."""

OF_THE_TURNS: Final = (400, 409, 413, 422)
"""Statuses that mean what was sent, not the state of the service."""

T = TypeVar("T")


class Done(msgspec.Struct, frozen=True):
    """What became of some rows: counts by status, and dead letters."""

    statuses: dict[str, int]
    letters: tuple[Letter, ...] = ()
    stopped: tuple[str, str] = ("", "")
    """Code and reason, where nothing more can be written."""


class Lane:
    """Writes the rows that it is given, one payload after the other."""

    def __init__(self, url: str, key: str, patience_s: float = PATIENCE_S) -> None:
        self._client = Client(url, key)
        self._patience_s = patience_s

    def write(self, payload: bytes) -> bytes:
        """A packed `Done`."""
        orders, stopped = unpacked(payload), ("", "")
        statuses: Counter[str] = Counter()
        letters: list[Letter] = []
        try:
            for batch in _batches(orders):
                self._append(batch, statuses, letters)
            self._put_last([one for one in orders if one.key], statuses, letters)
        except (Refused, Unreachable) as error:
            stopped = error.code, str(error)
        return msgspec.msgpack.encode(Done(statuses, tuple(letters), stopped))

    def _append(self, batch: Sequence[Ordered], statuses: Counter[str], letters: list[Letter]) -> None:
        turns = [one.body for one in batch]
        try:
            results: list[Json] = self._patiently(lambda: self._client.append(batch[0].user, batch[0].session, turns))[
                "results"
            ]
        except Refused as error:
            if error.status not in OF_THE_TURNS:
                raise
            if len(batch) == 1:
                letters.append(_letter(batch[0], error.code, str(error)))
                statuses["refused"] += 1
                return
            half = len(batch) // 2
            self._append(batch[:half], statuses, letters)
            self._append(batch[half:], statuses, letters)
            return
        for order, result in zip(batch, results, strict=True):
            statuses[result["status"]] += 1
            if result["status"] == "rejected":
                letters.append(_letter(order, "rejected", str(result.get("error"))))

    def _put_last(self, facts: Sequence[Ordered], statuses: Counter[str], letters: list[Letter]) -> None:
        """Of several values of one fact the last."""
        last = {(one.user, one.key): one for one in facts}
        statuses["facts_replaced"] += len(facts) - len(last)
        for fact in last.values():
            self._put(fact, statuses, letters)

    def _put(self, fact: Ordered, statuses: Counter[str], letters: list[Letter]) -> None:
        """A fact that says the same already stays as it is: setting it again would be another version of it."""
        try:
            there = self._patiently(lambda: self._client.fact(fact.user, fact.key))
            if there is not None and there["value"] == fact.body.get("value"):
                statuses["facts_there"] += 1
                return
            self._patiently(lambda: self._client.put_fact(fact.user, fact.key, fact.body))
            statuses["facts_set"] += 1
        except Refused as error:
            if error.status not in OF_THE_TURNS:
                raise
            letters.append(_letter(fact, error.code, str(error)))
            statuses["refused"] += 1

    def _patiently(self, call: Callable[[], T]) -> T:
        """The client waits as long as it is asked to, a few times; this goes on with it."""
        ends = time.monotonic() + self._patience_s
        while True:
            try:
                return call()
            except Refused as error:
                if error.status not in RETRIED or time.monotonic() > ends:
                    raise
            except Unreachable:
                if time.monotonic() > ends:
                    raise
            time.sleep(PAUSE_S)


def _batches(orders: Iterable[Ordered]) -> Iterable[list[Ordered]]:
    """Neighbouring turns of one session; the users of a lane one after the other, each in the order of the files."""
    of_users: dict[str, list[Ordered]] = {}
    for one in orders:
        if not one.key:
            of_users.setdefault(one.user, []).append(one)
    for theirs in of_users.values():
        entries = (Entry(one.user, one.session, one.body, place) for place, one in enumerate(theirs))
        for batch in batches(entries, BATCH_TURNS):
            yield [theirs[entry.line] for entry in batch]


def _letter(order: Ordered, code: str, reason: str) -> Letter:
    return Letter(order.file, order.offset, code, reason, str(order.body.get("id", order.key)))
