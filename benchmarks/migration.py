"""A whole migration of the encoder on a running service, while clients write and search all the time.

Writes a data set as users, keeps its queries as golden ones, measures recall, begins the migration by the API and
follows it to its end; then measures again. Held to bars: no request fails, no turn is lost, nothing that was deleted or
edited comes back, no score is of two versions, and a context as of the time before is the same to the byte at the end.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from benchmarks.conversation import spread
from benchmarks.migration_load import FAULTS, RATE, Faults, Load, LoadClient, Once
from benchmarks.migration_spaces import Spaces
from serve_app.client.data_sets import Case, Written, read_data_set, written
from serve_app.client.http import Client, Json, Refused
from serve_app.client.scores import ALL, DEPTHS, Ranked, scored
from serve_app.errors import MemstrataError

Then = Literal["done", "soak", "rollback", "stopped"]

ENDED = ("done", "rolled_back")
SERVING_ALL = ("cutover", "soak", "retire", "done")
POLL_S = 0.5
CONTEXTS = 20
BUDGET_TOKENS = 1_500
CLIENTS = 3
GOLDEN = 300
TIMEOUT_S = 1_800.0
NOTICED = (
    "context_id",
    "messages",
    "system",
    "zones",
    "total_tokens",
    "dropped",
    "retrieved",
    "summary",
    "now",
)
"""Of a context what has to be the same to the byte."""


class MigrationStuck(MemstrataError):
    """It did not come to where it was to come in the time that it had."""

    code = "migration_stuck"


@dataclass(frozen=True)
class Options:
    """`then`: how far it is followed. "stopped": it has to turn back by itself before all are served by the new one."""

    data: Path
    encoder: Json
    replaces: str | None = None
    terms: Json = field(default_factory=dict)
    then: Then = "done"
    clients: int = CLIENTS
    rate: float = RATE
    golden: int = GOLDEN
    timeout_s: float = TIMEOUT_S
    runner: str = "service"


def measure(client: Client, key: str, options: Options) -> Json:
    data = read_data_set(options.data)
    began = time.monotonic()
    with tqdm(total=data.turns, unit=" turns", disable=None) as bar, written(client, data, bar.update) as there:
        return _Run(client, key, options, there).measured() | {"seconds": round(time.monotonic() - began, 1)}


class _Run:
    def __init__(self, client: Client, key: str, options: Options, there: Written) -> None:
        self._client, self._options, self._there = client, options, there
        self._run = f"{there.run}{secrets.token_hex(3)}-"
        self._cases, self._faults, self._key = there.cases, Faults(), key
        self._steps: list[Json] = []
        self._backfill: Json = {}
        self._began = 0.0

    def measured(self) -> Json:
        texts = [
            entry.turn["content"] for one in self._there.data_set.conversations.values() for entry in one.turns.values()
        ]
        self._keep_golden()
        before = self._recall("recall before")
        contexts = self._contexts()
        with ExitStack() as open_here:
            asked = [open_here.enter_context(Once(self._client.url, self._key, self._faults)) for _ in self._clients]
            apart = open_here.enter_context(Once(self._client.url, self._key, self._faults))
            spaces = Spaces(apart, self._faults)
            clients = [
                LoadClient(once, self._run, number, self._cases, texts, self._faults, spaces)
                for number, once in enumerate(asked)
            ]
            try:
                with Load(clients, self._faults, self._options.rate):
                    followed = self._migrated(spaces, contexts)
                for client in tqdm(clients, unit=" clients", desc="settling", disable=None):
                    client.settle()
            finally:
                for client in clients:
                    for user in client.own:
                        self._client.erase(user)
            loaded = _load_figures([*asked, apart], clients)
        return self._result(before, followed, loaded | spaces.seen._asdict())

    @property
    def _clients(self) -> range:
        return range(self._options.clients)

    def _keep_golden(self) -> None:
        kept = [case for case in self._cases if "history" not in case.body][: self._options.golden]
        for case in tqdm(kept, unit=" golden", disable=None):
            gold = [{"session_id": session, "turn_id": turn} for session, turn in sorted(case.gold)]
            self._client.put_golden({"query": case.body["query"], "user_id": case.body["user_id"], "gold": gold})

    def _recall(self, what: str) -> Json:
        ranked = [self._ask(case) for case in tqdm(self._cases, desc=what, unit=" queries", disable=None)]
        figures: Json = scored({"": ranked})[""][ALL]
        return figures

    def _ask(self, case: Case) -> Ranked:
        started = time.perf_counter()
        answer = self._client.search(case.body | {"k": max(DEPTHS)})
        places = [(one["session_id"], one["id"]) for one in answer["results"]]
        return Ranked(case, places, time.perf_counter() - started, bool(answer["degradation"]["reasons"]))

    # ---- contexts

    def _contexts(self) -> list[tuple[Json, str]]:
        """Requests as of now, and what they give."""
        step = max(1, len(self._cases) // CONTEXTS)
        found: list[tuple[Json, str]] = []
        for case in self._cases[::step][:CONTEXTS]:
            name = case.group
            session = list(self._there.data_set.conversations[name].turns.values())[-1].session
            body = {"user_id": case.body["user_id"], "session_id": session, "query": case.body["query"]}
            body |= {"now": case.body["now"], "as_of": self._there.receipts[name], "budget_tokens": BUDGET_TOKENS}
            found.append((body, _bytes_of(self._client.context(body))))
        return found

    def _same(self, contexts: Sequence[tuple[Json, str]]) -> Json:
        same = sum(_bytes_of(self._client.context(body)) == before for body, before in contexts)
        return {"contexts": len(contexts), "same": same}

    # ---- the migration

    def _migrated(self, spaces: Spaces, contexts: Sequence[tuple[Json, str]]) -> Json:
        options = self._options
        body: Json = {"encoder": options.encoder, "terms": options.terms, "runner": options.runner}
        self._began = time.monotonic()
        begun = self._client.begin_migration(body | ({"replaces": options.replaces} if options.replaces else {}))
        bases = frozenset(begun.get("base") or ())
        found: Json = {"id": begun["id"]}
        goal = {"done": ("done",), "stopped": ENDED}.get(options.then, ("soak",))
        with self._followed(begun["id"], spaces, bases) as follow:
            reached = follow(goal)
            if reached["state"] in SERVING_ALL:
                found["contexts_after"] = self._same(contexts)
                found["after"] = self._recall("recall after")
            if options.then == "rollback" and reached["state"] == "soak":
                self._client.guide_migration(begun["id"], "rollback")
                reached = follow(("rolled_back",))
            if reached["state"] == "rolled_back":
                found["contexts_back"] = self._same(contexts)
                found["back"] = self._recall("recall after going back")
        return found | {"migration": reached}

    @contextmanager
    def _followed(self, name: str, spaces: Spaces, bases: frozenset[str]) -> Iterator[Any]:
        """Gives what waits for a state. A migration that is left under way by an error is turned back."""
        last: Json = {}

        def follow(goal: Sequence[str]) -> Json:
            nonlocal last
            ends = time.monotonic() + self._options.timeout_s
            while True:
                last = self._client.migration(name)
                self._note(last)
                if last.get("version"):
                    spaces.allowed = bases | set(last.get("base") or ()) | {last["version"]["name"]}
                if last["state"] in goal or last["state"] in ENDED:
                    return last
                if time.monotonic() > ends:
                    raise MigrationStuck(f"in {last['state']}: {last.get('trouble') or 'no trouble is told'}")
                time.sleep(POLL_S)

        try:
            yield follow
        finally:
            if last and last["state"] not in (*ENDED, "rolling_back", "retire"):
                with suppress(Refused):  # it may have gone on by itself since
                    self._client.guide_migration(name, "rollback")

    def _note(self, shown: Json) -> None:
        at = round(time.monotonic() - self._began, 1)
        if not self._steps or self._steps[-1]["state"] != shown["state"]:
            self._steps.append({"state": shown["state"], "at_s": at})
        if shown["state"] == "backfill" and shown.get("progress"):
            self._backfill = shown["progress"]

    # ---- told

    def _result(self, before: Json, followed: Json, load: Json) -> Json:
        shown, faults = followed.pop("migration"), self._faults
        entered = [step["state"] for step in self._steps]
        counts = {kind: faults.counts[kind] for kind in FAULTS}
        result = {
            "data": self._there.data_set.name,
            "turns": self._there.data_set.turns,
            "encoder": self._options.encoder,
            "then": self._options.then,
            "version": (shown.get("version") or {}).get("name"),
            "base": shown.get("base"),
            "target": shown.get("target"),
            "state": shown["state"],
            "steps": self._steps,
            "why": [step for step in shown["steps"] if step["why"]],
            "gates": [{name: gate[name] for name in ("state", "verdict", "reasons")} for gate in shown["gates"]],
            "gate_figures": [_gate_figures(gate) for gate in shown["gates"]],
            "backfill": self._backfill,
            "before": before,
            **followed,
            **counts,
            "examples": faults.examples,
            "load": load,
        }
        return result | {"missed": missed(result, entered)}


def missed(result: Json, entered: Sequence[str]) -> list[str]:
    """Bars, and what the migration was to come to."""
    missed = [f"{result[kind]} {kind}" for kind in FAULTS if result[kind]]
    wanted = {"done": "done", "soak": "soak", "rollback": "rolled_back", "stopped": "rolled_back"}[result["then"]]
    if result["state"] != wanted:
        missed.append(f"it ended in {result['state']}, not in {wanted}")
    if result["then"] == "stopped" and set(entered) & set(SERVING_ALL):
        missed.append("it was stopped after all were served by it")
    for name in ("contexts_after", "contexts_back"):
        told = result.get(name)
        if told and told["same"] != told["contexts"] and (name == "contexts_back" or result["then"] != "done"):
            missed.append(f"{told['contexts'] - told['same']} of {told['contexts']} {name} are others than before")
    return missed


def _gate_figures(gate: Json) -> Json:
    """Of both sides what is set beside the recall that was measured here."""
    figures = gate.get("figures") or {}
    sides = {side: figures.get(side) or {} for side in ("base", "target")}
    recalls = {side: {name: one for name, one in told.items() if "recall" in name} for side, told in sides.items()}
    return {"state": gate["state"], "verdict": gate["verdict"], "counts": figures.get("counts"), **recalls}


def _bytes_of(context: Json) -> str:
    return json.dumps({name: context.get(name) for name in NOTICED}, sort_keys=True)


def _load_figures(asked: Sequence[Once], clients: Sequence[LoadClient]) -> Json:
    requests: Counter[str] = Counter()
    for one in asked:
        requests.update(one.requests)
    searches = [1e3 * one for once in asked for one in once.seconds]
    return {
        "requests": dict(requests),
        "sent_away": sum(one.sent_away for one in asked),
        "turns_left": sum(client.turns for client in clients),
        "search_ms": spread(searches),
    }
