"""A mixed load while something changes beneath it, and the ledger of what must and what must not be found.

A client appends, edits, deletes, searches, lists and asks for contexts, as users of its own and as users of a data set.
Each turn that it writes holds a word that stands nowhere else. A request is sent once: what fails is counted, not tried
again, but for one that is sent away for a moment (429).
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from serve_app.client.data_sets import Case
from serve_app.client.http import REQUEST_S, Json, quote

RATE = 2.0
"""Requests a second of one client. A load without pauses leaves a backfill nothing: it rests while anybody waits."""

USERS_A_CLIENT = 3
LIVE_MAX = 300
"""Turns of one user: beyond it they are deleted rather than written."""

GONE_REMEMBERED = 300
EXAMPLES_MAX = 10
K = 10
BUDGET_TOKENS = 1_500
SESSIONS = ("one", "two")
INDEXED_EVERY = 10
"""Of so many appends one waits for its vectors."""

SHARES = {"append": 30, "edit": 12, "delete": 8, "words": 14, "gone": 12, "list": 6, "case": 14, "context": 4}
"""How often a client does what."""


FAULTS = ("failed", "lost", "resurrected", "mixed")
"""Kinds of what may not happen."""


class Faults:
    """What went wrong, by kind, with the first examples; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def note(self, kind: str, example: str) -> None:
        with self._lock:
            self.counts[kind] += 1
            told = self.examples.setdefault(kind, [])
            if len(told) < EXAMPLES_MAX:
                told.append(example)


class Once:
    """Sends each request once. A context manager."""

    def __init__(self, url: str, key: str, faults: Faults) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=REQUEST_S, trust_env=False)
        self._faults = faults
        self.requests: Counter[str] = Counter()
        self.seconds: list[float] = []
        """Of searches."""
        self.sent_away = 0

    def __enter__(self) -> Once:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, kind: str, method: str, path: str, body: Json | None = None) -> Json | None:
        """The answer; None where the request failed, which is noted."""
        began = time.perf_counter()
        try:
            answer = self._http.request(method, path, json=body)
            while answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
                self.sent_away += 1
                time.sleep(float(answer.headers.get("Retry-After", "1")))
                began = time.perf_counter()
                answer = self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            self.requests[kind] += 1
            self._faults.note("failed", f"{method} {kind}: {type(error).__name__}")
            return None
        self.requests[kind] += 1
        if kind == "search":
            self.seconds.append(time.perf_counter() - began)
        if not answer.is_success:
            self._faults.note("failed", f"{method} {kind}: {answer.status_code} {answer.text[:200]}")
            return None
        found: Json = answer.json()
        return found


class Ledger:
    """One user's turns as they must be, and words that must be nowhere."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.live: dict[str, tuple[str, str]] = {}
        """By id, the session and the content."""
        self.gone: list[str] = []
        self.receipt: str | None = None

    def written(self, turn: str, session: str, content: str) -> None:
        self.live[turn] = session, content

    def left(self, word: str) -> None:
        self.gone = [*self.gone, word][-GONE_REMEMBERED:]


def word_of(content: str) -> str:
    return content.rpartition(" ")[2]


class LoadClient:
    """One client: `step` sends one request, drawn by the shares. `seen` hears of each answer to a case of the data."""

    def __init__(
        self,
        once: Once,
        run: str,
        number: int,
        cases: Sequence[Case],
        texts: Sequence[str],
        faults: Faults,
        seen: Callable[[Case, Json], object],
    ) -> None:
        self._once, self._cases, self._texts, self._faults, self._seen = once, cases, texts, faults, seen
        self._chance = random.Random(f"{run}{number}")
        of_data = sorted({case.body["user_id"] for case in cases})[number::7][:1]
        self.own = [f"{run}mix-{number}-{at}" for at in range(USERS_A_CLIENT)]
        self.ledgers = [Ledger(user) for user in (*self.own, *of_data)]
        self._appends = 0

    def step(self) -> None:
        what = self._chance.choices(list(SHARES), list(SHARES.values()))[0]
        ledger = self._chance.choice(self.ledgers)
        if what in ("edit", "delete", "words") and not ledger.live:
            what = "append"
        if what == "append" and len(ledger.live) > LIVE_MAX:
            what = "delete"
        getattr(self, f"_{what}")(ledger)

    # ---- writing

    def _append(self, ledger: Ledger) -> None:
        session = f"{ledger.user}/{self._chance.choice(SESSIONS)}"
        turns = [self._turn() for _ in range(self._chance.randint(1, 3))]
        self._appends += 1
        body: Json = {"user_id": ledger.user, "turns": turns}
        if self._appends % INDEXED_EVERY == 0:
            body["wait"] = "indexed"
        answer = self._once.ask("append", "POST", f"/v1/sessions/{quote(session)}/turns", body)
        if answer is None:
            return
        ledger.receipt = answer["receipt"]
        for turn, result in zip(turns, answer["results"], strict=True):
            if result["status"] == "stored":
                ledger.written(turn["id"], session, turn["content"])
            else:
                self._faults.note("lost", f"an append was {result['status']}")

    def _turn(self) -> Json:
        return {"id": secrets.token_hex(8), "role": "user", "speaker": "Mix", "content": self._content()}

    def _content(self) -> str:
        return f"{self._chance.choice(self._texts)} {''.join(self._chance.choices('bdfghjklmnprtvz', k=12))}"

    def _edit(self, ledger: Ledger) -> None:
        turn, (session, content) = self._chance.choice(list(ledger.live.items()))
        new = self._content()
        answer = self._once.ask("edit", "PATCH", self._path(ledger, turn, session), {"content": new})
        if answer is not None:
            ledger.written(turn, session, new)
            ledger.left(word_of(content))
            ledger.receipt = answer["receipt"]

    def _delete(self, ledger: Ledger) -> None:
        turn, (session, content) = self._chance.choice(list(ledger.live.items()))
        answer = self._once.ask("delete", "DELETE", self._path(ledger, turn, session))
        if answer is not None:
            del ledger.live[turn]
            ledger.left(word_of(content))
            ledger.receipt = answer.get("receipt") or ledger.receipt

    def _path(self, ledger: Ledger, turn: str, session: str) -> str:
        return f"/v1/turns/{quote(turn)}?user_id={quote(ledger.user)}&session_id={quote(session)}"

    # ---- reading

    def _words(self, ledger: Ledger) -> None:
        """A turn that is there is found by its word; whatever is found holds nothing that is gone."""
        turn, (_, content) = self._chance.choice(list(ledger.live.items()))
        self.look_for(ledger, turn, content)

    def look_for(self, ledger: Ledger, turn: str, content: str) -> None:
        answer = self._search(ledger, word_of(content), "lexical")
        if answer is not None and turn not in [one["id"] for one in answer["results"]]:
            self._faults.note("lost", f"{ledger.user}: a turn is not found by its word")

    def _gone(self, ledger: Ledger) -> None:
        if ledger.gone:
            self._search(ledger, self._chance.choice(ledger.gone), self._chance.choice(("lexical", "dense", "hybrid")))

    def _search(self, ledger: Ledger, query: str, mode: str) -> Json | None:
        body: Json = {"user_id": ledger.user, "query": query, "k": K, "mode": mode}
        answer = self._once.ask("search", "POST", "/v1/search", self._after(ledger, body))
        if answer is not None:
            self._none_gone(ledger, [one["content"] for one in answer["results"]], f"search {mode}")
        return answer

    def _after(self, ledger: Ledger, body: Json) -> Json:
        return body | ({"min_receipt": ledger.receipt} if ledger.receipt else {})

    def _none_gone(self, ledger: Ledger, contents: Sequence[str], where: str) -> None:
        there = {word for content in contents for word in content.split()}
        for word in there.intersection(ledger.gone):
            self._faults.note("resurrected", f"{ledger.user}: {where} shows {word}")

    def _list(self, ledger: Ledger) -> None:
        """The sessions that this load has written, turn by turn."""
        for name in SESSIONS:
            session = f"{ledger.user}/{name}"
            path = f"/v1/sessions/{quote(session)}/turns?user_id={quote(ledger.user)}&limit=1000"
            answer = self._once.ask("list", "GET", path)
            if answer is None:
                continue
            there = {turn["id"]: turn["content"] for turn in answer["turns"]}
            wanted = {turn: content for turn, (of, content) in ledger.live.items() if of == session}
            for turn in wanted.keys() - there.keys():
                self._faults.note("lost", f"{ledger.user}: {turn} is not listed")
            for turn, content in there.items():
                if wanted.get(turn) != content:
                    self._faults.note("resurrected", f"{ledger.user}: {turn} is listed as it was, or was deleted")

    def _case(self, ledger: Ledger) -> None:
        case = self._chance.choice(self._cases)
        answer = self._once.ask("search", "POST", "/v1/search", case.body | {"k": K, "explain": True})
        if answer is not None:
            self._seen(case, answer)

    def _context(self, ledger: Ledger) -> None:
        body: Json = {"user_id": ledger.user, "query": self._chance.choice(self._texts)[:200]}
        body |= {"session_id": f"{ledger.user}/{SESSIONS[0]}", "budget_tokens": BUDGET_TOKENS}
        answer = self._once.ask("context", "POST", "/v1/context", self._after(ledger, body))
        if answer is not None:
            self._none_gone(ledger, [str(one.get("content")) for one in answer["messages"]], "context")

    def settle(self) -> None:
        """Everything once more, at the end."""
        for ledger in self.ledgers:
            self._list(ledger)
            for turn, (_, content) in list(ledger.live.items()):
                self.look_for(ledger, turn, content)
            for word in ledger.gone:
                for mode in ("lexical", "hybrid"):
                    self._search(ledger, word, mode)

    @property
    def turns(self) -> int:
        return sum(len(ledger.live) for ledger in self.ledgers)


class Load:
    """Clients in threads of their own, from entering to leaving; a defect in one ends it and is a fault."""

    def __init__(self, clients: Sequence[LoadClient], faults: Faults, rate: float = RATE) -> None:
        """`rate`: requests a second of each."""
        self._clients, self._faults, self._rate = clients, faults, rate
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in clients]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, client: LoadClient) -> None:
        chance = random.Random(secrets.token_hex(4))
        while not self._ended.wait(chance.expovariate(self._rate)):
            try:
                client.step()
            except (KeyError, ValueError, TypeError) as error:
                self._faults.note("failed", f"an answer that cannot be read: {type(error).__name__} {error}")
