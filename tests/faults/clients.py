"""Who writes while a migration goes on, and what they have been told: the service has to know all of it at the end."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import httpx

from tests.api.running import Running, quoted, word

TURNS = {"large-0": 120, "large-1": 90, "mid-0": 40, "mid-1": 40, "small-0": 12, "small-1": 8}
STILL = {"golden": 24, "still-0": 20, "still-1": 12}
"""They say nothing any more, and are whole in memory: contexts of larger users may differ by what happens to be there.
The gates ask for what `golden` has said."""

CHANGED, USERS = tuple(TURNS), (*TURNS, *STILL)
SESSIONS = ("a", "b")
DENSE_ASKED = 24
PAUSE_S = 0.03
RETRY_S = 0.1
END_S = 90
STARTED = datetime(2024, 5, 8, 9, 0, tzinfo=UTC)
QUERIES = ("what stood by the harbour?", "which boat was it", "and then?")
NAMED = re.compile(rb'@[0-9]+~[0-9]+(?=","receipt")')
TOLD = frozenset({408, 429, 500, 502, 503, 504})


class Place(NamedTuple):
    user: str
    session: str
    turn: str


class Said:
    """What was acknowledged: of each turn its content, or that it is gone; and the words of what is past."""

    def __init__(self) -> None:
        self.turns: dict[Place, str | None] = {}
        self.past: list[tuple[str, str]] = []
        """(user, a word that only a content had that is no more)."""
        self.number = 0
        self.as_of: dict[str, str] = {}
        """By user, when the contexts that are compared are of."""
        self.now = ""

    def next_content(self) -> str:
        """Like no other: it has a word of its own."""
        self.number += 1
        return f"the boat {word(self.number)} stood by {word(self.number % 97 + 50_000)}"

    def keep(self, place: Place, content: str | None) -> None:
        before = self.turns.get(place)
        if before is not None and before != content:
            self.past.append((place.user, before.split()[2]))
        self.turns[place] = content

    def living(self, users: tuple[str, ...] = CHANGED) -> list[Place]:
        return [place for place, content in self.turns.items() if content is not None and place.user in users]

    # ---- asking

    def contexts(self, http: httpx.Client) -> list[bytes]:
        """Of each user some, as of one moment, byte for byte as they are shown; but for the name of the moment, which
        says after a migration which epoch served then."""
        return [
            NAMED.sub(b"", _post(http, "/v1/context", self._asked(user, query)).content.partition(b'"timings_ms"')[0])
            for user in STILL
            for query in QUERIES
        ]

    def _asked(self, user: str, query: str) -> dict[str, Any]:
        asked = {"user_id": user, "query": query, "budget_tokens": 700, "session_id": "a", "deadline_ms": 30_000}
        return asked | {"now": self.now, "as_of": self.as_of[user]}

    def faults(self, http: httpx.Client) -> list[str]:
        """Where the service says anything else than what it acknowledged."""
        return [*self._of_lists(http), *self._of_past(http), *self._of_dense(http)]

    def _of_lists(self, http: httpx.Client) -> list[str]:
        found = {}
        for user in USERS:
            for session in SESSIONS:
                asked = {"user_id": user, "limit": 1000}
                shown = http.get(f"/v1/sessions/{quoted(session)}/turns", params=asked).json().get("turns", [])
                found |= {Place(user, session, turn["id"]): turn["content"] for turn in shown}
        wanted = {place: content for place, content in self.turns.items() if content is not None}
        lost, other = wanted.keys() - found.keys(), found.keys() - wanted.keys()
        changed = [place for place in wanted.keys() & found.keys() if wanted[place] != found[place]]
        told = (("lost", lost), ("come back", other), ("not as they were written", changed))
        return [f"{len(those)} turns are {how}: {sorted(those)[:3]}" for how, those in told if those]

    def _of_past(self, http: httpx.Client) -> list[str]:
        faults = []
        for user, own in self.past[-60:]:
            for mode in ("dense", "lexical"):
                body = {"user_id": user, "query": own, "k": 10, "mode": mode}
                results = _post(http, "/v1/search", body).json()["results"]
                if any(own in one["content"] for one in results):
                    faults.append(f"{mode} search of {user} finds the past {own!r}")
        return faults

    def _of_dense(self, http: httpx.Client) -> list[str]:
        """What is asked for word for word is found by its vector."""
        faults = []
        for place in random.Random(0).sample(self.living(USERS), DENSE_ASKED):
            body = {"user_id": place.user, "query": self.turns[place], "k": 10, "mode": "dense"}
            answer = _post(http, "/v1/search", body).json()
            if self.turns[place] not in [one["content"] for one in answer["results"]]:
                faults.append(f"dense search does not find {place}: {answer['degradation']}")
        return faults


def _post(http: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


class Clients:
    """One thread that writes, edits and deletes; each until it is acknowledged. `changes` off: it writes alone."""

    def __init__(self, said: Said, http: httpx.Client, seed: int, *, changes: bool) -> None:
        self._said, self._http, self._drawn, self._changes = said, http, random.Random(seed), changes
        self.faults: list[str] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clients")

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join(END_S)
        if self._thread.is_alive():
            self.faults.append("a write is not acknowledged")

    def _run(self) -> None:
        while not self._ends.wait(PAUSE_S):
            living = self._said.living()
            draw = self._drawn.random()
            if not self._changes or draw < 0.5:
                self._append()
            elif draw < 0.8:
                self._edit(self._drawn.choice(living))
            else:
                self._delete(self._drawn.choice(living))

    def _append(self) -> None:
        user, session = self._drawn.choice(CHANGED), self._drawn.choice(SESSIONS)
        contents = [self._said.next_content() for _ in range(self._drawn.randint(1, 3))]
        turns = [{"id": content.split()[2], "role": "user", "content": content} for content in contents]
        body = {"user_id": user, "turns": turns}
        self._until_told(lambda: self._http.post(f"/v1/sessions/{session}/turns", json=body), {200, 201})
        for turn in turns:
            self._said.keep(Place(user, session, turn["id"]), turn["content"])

    def _edit(self, place: Place) -> None:
        content = self._said.next_content()
        self._until_told(
            lambda: self._http.patch(_address(place), params=_where(place), json={"content": content}), {200}
        )
        self._said.keep(place, content)

    def _delete(self, place: Place) -> None:
        """Asked again after it was done, the service says 404."""
        self._until_told(lambda: self._http.delete(_address(place), params=_where(place)), {200, 202, 404})
        self._said.keep(place, None)

    def _until_told(self, ask: Callable[[], httpx.Response], wanted: set[int]) -> None:
        end = time.monotonic() + END_S
        while time.monotonic() < end:
            try:
                answer = ask()
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code not in TOLD:
                if answer.status_code not in wanted:
                    self.faults.append(f"{answer.status_code} {answer.text[:200]}")
                return
            time.sleep(RETRY_S)
        self.faults.append("a write is not acknowledged")


def _address(place: Place) -> str:
    return f"/v1/turns/{quoted(place.turn)}"


def _where(place: Place) -> dict[str, str]:
    return {"user_id": place.user, "session_id": place.session}


def fill(running: Running) -> Said:
    """A store of some hundreds of turns of several users, with golden queries; nothing of it is new."""
    said = Said()
    for user in USERS:
        for session in SESSIONS:
            contents = [said.next_content() for _ in range((TURNS | STILL)[user] // len(SESSIONS))]
            at = STARTED
            turns = []
            for content in contents:
                at += timedelta(minutes=7)
                turn = content.split()[2]
                turns.append({"id": turn, "role": "user", "content": content, "created_at": at.isoformat()})
                said.keep(Place(user, session, turn), content)
            running.append(user, session, *turns, wait="indexed")
    for place in said.living(("golden",)):
        gold = [{"session_id": place.session, "turn_id": place.turn}]
        body = {"user_id": "golden", "query": f"which {place.turn} was it?", "gold": gold}
        running.ok("POST", "/v1/golden", json=body)
    running.fold()
    for user in USERS:
        context = running.context(user, QUERIES[0], session_id="a")
        said.as_of[user], said.now = context["as_of"], context["now"]
    return said
