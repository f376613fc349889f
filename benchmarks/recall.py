"""Recall of the turns that answer a query, over a whole conversation, through the public write and search paths.

A data set is a folder with `conversations.jsonl` (see `serve_app/client/conversations.py`) and
`queries.jsonl`: `conversation_id, query, evidence, category_name`, optional `lang`, `timestamp` and
`context`. Each conversation becomes a user of its own and is erased at the end. recall@k is the mean
over queries of the share of `evidence` among the first k results. A query that was asked in the
middle of a conversation does not see later turns; one that leans on the turns before it brings them along.
"""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from benchmarks.workload import read_rows
from serve_app.client.conversations import Entry, batches, read_entries
from serve_app.client.http import Client, Json

DEPTHS = (5, 10, 25, 50)
BATCH_TURNS = 100
SESSION_DEPTH = 10


class Conversation(NamedTuple):
    """The turns of one conversation by their ids, in order, and the time of the last."""

    turns: dict[str, Entry]
    now: str


class Asked(NamedTuple):
    """One query, what was found (ids, sessions), and how long that took."""

    query: Json
    ids: list[str]
    sessions: list[str]
    gold_sessions: set[str]
    seconds: float


def measure(client: Client, data: Path, mode: str) -> Json:
    """Write, ask, erase; gives the recall of all queries and of each group."""
    conversations = _conversations(data)
    queries = [query for query in read_rows(data / "queries.jsonl") if query["evidence"]]
    run = f"bench-{secrets.token_hex(4)}-"
    receipts = _write(client, conversations, run)
    try:
        asked = [
            _ask(client, run, conversations, receipts, query, mode)
            for query in tqdm(queries, unit=" queries", disable=None)
        ]
    finally:
        for name in conversations:
            client.erase(run + name)
    return {"data": data.name, "mode": mode, "groups": {name: _score(group) for name, group in _groups(asked).items()}}


def table(measured: Json) -> str:
    """One line a group."""
    head = f"{'':<14}{'queries':>8}" + "".join(f"{f'@{depth}':>8}" for depth in DEPTHS) + f"{'session':>9}{'p50 ms':>9}"
    lines = [head]
    for name, score in measured["groups"].items():
        recalls = "".join(f"{score[f'recall@{depth}']:>8.3f}" for depth in DEPTHS)
        session = score[f"session_hit@{SESSION_DEPTH}"]
        lines.append(f"{name:<14}{score['queries']:>8}{recalls}{session:>9.3f}{score['p50_ms']:>9.1f}")
    return "\n".join(lines)


def _conversations(data: Path) -> dict[str, Conversation]:
    turns: dict[str, dict[str, Entry]] = {}
    for entry in read_entries(data / "conversations.jsonl"):
        turns.setdefault(entry.user, {})[entry.turn["id"]] = entry
    return {name: Conversation(held, list(held.values())[-1].turn["created_at"]) for name, held in turns.items()}


def _write(client: Client, conversations: dict[str, Conversation], run: str) -> dict[str, str]:
    """Gives the last receipt of each conversation."""
    receipts: dict[str, str] = {}
    everything = [entry for conversation in conversations.values() for entry in conversation.turns.values()]
    with tqdm(total=len(everything), unit=" turns", disable=None) as bar:
        for batch in batches(everything, BATCH_TURNS):
            user, session = batch[0].user, batch[0].session
            answer = client.append(run + user, session, [entry.turn for entry in batch], wait="indexed")
            receipts[user] = answer["receipt"]
            bar.update(len(batch))
    return receipts


def _ask(
    client: Client, run: str, conversations: dict[str, Conversation], receipts: dict[str, str], query: Json, mode: str
) -> Asked:
    name = query["conversation_id"]
    conversation = conversations[name]
    now = _asked_at(query, conversation)
    body: Json = {"user_id": run + name, "query": query["query"], "k": max(DEPTHS), "mode": mode, "now": now}
    body["min_receipt"] = receipts[name]
    if now != conversation.now:
        body["filters"] = {"to": now}
    if query.get("context"):
        fields = ("role", "speaker", "content", "created_at")
        turns = [conversation.turns[turn].turn for turn in query["context"]]
        body["history"] = [{field: turn[field] for field in fields} for turn in turns]
    started = time.perf_counter()
    results = client.search(body)["results"]
    seconds = time.perf_counter() - started
    gold = {conversation.turns[turn].session for turn in query["evidence"]}
    return Asked(query, [one["id"] for one in results], [one["session_id"] for one in results], gold, seconds)


def _asked_at(query: Json, conversation: Conversation) -> str:
    """The query's own time where it has one, else that of the last turn."""
    return str(query.get("timestamp") or conversation.now)


def _groups(asked: Iterable[Asked]) -> dict[str, list[Asked]]:
    groups: dict[str, list[Asked]] = {"all": []}
    for one in asked:
        for name in ("all", one.query.get("lang"), one.query["category_name"]):
            if name:
                groups.setdefault(name, []).append(one)
    return groups


def _score(group: list[Asked]) -> Json:
    score: Json = {"queries": len(group)}
    for depth in DEPTHS:
        score[f"recall@{depth}"] = round(statistics.fmean(_recall(one, depth) for one in group), 4)
    hits = [bool(one.gold_sessions & set(one.sessions[:SESSION_DEPTH])) for one in group]
    score[f"session_hit@{SESSION_DEPTH}"] = round(statistics.fmean(hits), 4)
    seconds = sorted(one.seconds for one in group)
    return score | {"p50_ms": _ms(seconds, 0.5), "p95_ms": _ms(seconds, 0.95)}


def _recall(one: Asked, depth: int) -> float:
    evidence = set(one.query["evidence"])
    return len(evidence & set(one.ids[:depth])) / len(evidence)


def _ms(ordered: list[float], share: float) -> float:
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
