"""Data sets of conversations and of queries with the turns that answer them, and golden queries that a service holds:
both as cases, the same for who measures and for who trains.

A data set is a folder with `conversations.jsonl` (see `conversations.py`) and `queries.jsonl`: `conversation_id, query,
evidence`, and `category, category_name, lang, timestamp, context` where there are any. Each conversation becomes a user
of its own. A query that was asked in the middle of a conversation does not see later turns; one that leans on the turns
before it (`context`) brings them along.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from serve_app.client.conversations import Entry, batches, read_entries
from serve_app.client.http import Client, Json
from serve_app.errors import InvalidRequest

BATCH_TURNS = 100
SAID_FIELDS = ("role", "speaker", "content", "created_at")

Place = tuple[str, str]
"""A turn by its session and id."""

ANSWERABLE = (1, 2, 3, 4)
"""Categories of the LoCoMo form whose queries have an answer."""


class Case(NamedTuple):
    """A query as it is asked of the service, and the turns that answer it."""

    id: str
    group: str
    """The conversation or user that it is about."""
    body: Json
    """Of a search, without `k` and what else a measurement decides."""
    gold: frozenset[Place]
    labels: tuple[str, ...] = ()
    """What it is reported under beside all of them: language, category."""
    as_of_seq: int | None = None
    """Turns after it are not seen: what finds them does not count."""


class Conversation(NamedTuple):
    """The turns of one conversation by their ids, in order, and the time of the last."""

    turns: dict[str, Entry]
    now: str


class DataSet(NamedTuple):
    name: str
    conversations: dict[str, Conversation]
    queries: list[Json]
    """Those that some turn answers."""

    @property
    def turns(self) -> int:
        return sum(len(one.turns) for one in self.conversations.values())


def read_data_set(folder: Path) -> DataSet:
    """Raises InvalidRequest for what is missing or cannot be read."""
    turns: dict[str, dict[str, Entry]] = {}
    for entry in read_entries(folder / "conversations.jsonl"):
        turns.setdefault(entry.user, {})[entry.turn["id"]] = entry
    conversations = {name: Conversation(held, _last(held.values())) for name, held in turns.items()}
    queries = [query for query in read_rows(folder / "queries.jsonl") if query["evidence"]]
    for query in queries:
        known = conversations.get(query["conversation_id"])
        if known is None or not {*query["evidence"], *query.get("context", ())} <= known.turns.keys():
            raise InvalidRequest(f"{folder / 'queries.jsonl'}: {query.get('query_id')} names what no conversation has")
    return DataSet(folder.name, conversations, queries)


def part_of(conversation: str) -> str:
    """Conversations of one part are named alike up to their last `-`: of the shipped set those of one author."""
    return conversation.rpartition("-")[0] or conversation


def joined(data_set: DataSet, size: int) -> DataSet:
    """The conversations of each part as memories of `size` together, their sessions by time, with all their queries.

    A part's last memory holds those that are left, if they are more than one. The name of a memory has its part.
    """
    parts: dict[str, list[str]] = {}
    for name in sorted(data_set.conversations):
        parts.setdefault(part_of(name), []).append(name)
    groups = {
        f"{part}-joined{at // size + 1}": names[at : at + size]
        for part, names in parts.items()
        for at in range(0, len(names), size)
        if len(names[at : at + size]) > 1
    }
    memory_of = {name: memory for memory, names in groups.items() for name in names}
    conversations = {
        memory: _as_one(memory, {name: data_set.conversations[name] for name in names})
        for memory, names in groups.items()
    }
    queries = [
        _moved(query, memory_of[query["conversation_id"]])
        for query in data_set.queries
        if query["conversation_id"] in memory_of
    ]
    return DataSet(f"{data_set.name}, joined", conversations, queries)


def _as_one(memory: str, members: dict[str, Conversation]) -> Conversation:
    sessions: dict[tuple[str, str], list[Entry]] = {}
    for name, conversation in members.items():
        for entry in conversation.turns.values():
            sessions.setdefault((name, entry.session), []).append(entry)
    by_time = sorted(sessions.items(), key=lambda one: (_moment(one[1][0].turn["created_at"]), one[0]))
    turns: dict[str, Entry] = {}
    for (name, session), entries in by_time:
        for entry in entries:
            turn = {**entry.turn, "id": _within(name, entry.turn["id"])}
            turns[turn["id"]] = Entry(memory, _within(name, session), turn)
    return Conversation(turns, _last(turns.values()))


def _moved(query: Json, memory: str) -> Json:
    name = query["conversation_id"]
    turns: Json = {
        field: [_within(name, turn) for turn in query[field]] for field in ("evidence", "context") if field in query
    }
    return {**query, "conversation_id": memory, **turns}


def _within(conversation: str, name: str) -> str:
    return f"{conversation}/{name}"


def read_rows(path: Path) -> list[Json]:
    """The objects of a file of JSON lines. Raises InvalidRequest."""
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:  # a text may hold other ends of lines
            rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path}: {error}") from error
    if not all(isinstance(row, dict) for row in rows):
        raise InvalidRequest(f"{path}: a line is not a JSON object")
    return rows


class Written(NamedTuple):
    """A data set as users of a service: `run` begins their names."""

    data_set: DataSet
    run: str
    receipts: dict[str, str]

    @property
    def cases(self) -> list[Case]:
        return [self._case(number, query) for number, query in enumerate(self.data_set.queries)]

    def _case(self, number: int, query: Json) -> Case:
        name = query["conversation_id"]
        conversation = self.data_set.conversations[name]
        now = asked_at(query, conversation)
        body: Json = {"user_id": self.run + name, "query": query["query"], "now": now}
        body["min_receipt"] = self.receipts[name]
        if _moment(now) < _moment(conversation.now):
            body["filters"] = {"to": now}
        if query.get("context"):
            body["history"] = _history(query["context"], conversation)
        gold = frozenset((conversation.turns[turn].session, turn) for turn in query["evidence"])
        return Case(str(query.get("query_id", number)), name, body, gold, _labels(query))


@contextmanager
def written(
    client: Client, data_set: DataSet, advance: Callable[[int], object], keep: bool = False
) -> Iterator[Written]:
    """The data set as users of the service, searchable; erased at the end. `advance` hears of turns as they are there.

    With `keep` the users stay.
    """
    run = f"bench-{secrets.token_hex(4)}-"
    receipts: dict[str, str] = {}
    begun: list[str] = []
    try:
        for name, conversation in data_set.conversations.items():
            begun.append(name)
            for batch in batches(conversation.turns.values(), BATCH_TURNS):
                answer = client.append(run + name, batch[0].session, [entry.turn for entry in batch], wait="indexed")
                receipts[name] = answer["receipt"]
                advance(len(batch))
        yield Written(data_set, run, receipts)
    finally:
        for name in () if keep else begun:
            client.erase(run + name)


def golden_cases(client: Client, user: str | None = None) -> list[Case]:
    """The golden queries that the key's tenant holds in the service, of all its users or of one."""
    return [_golden_case(one) for one in client.golden(user)]


def _golden_case(golden: Json) -> Case:
    body: Json = {"user_id": golden["user_id"], "query": golden["query"]}
    gold = frozenset((one["session_id"], one["turn_id"]) for one in golden["gold"])
    as_of, seq = golden.get("as_of"), None
    state = "" if as_of is None else str(as_of).partition("@")[0]  # behind it stands a revision of layouts
    if "T" in state.upper():
        body |= {"now": state, "filters": {"to": state}}
    elif state:
        seq = int(state.rpartition(":")[2])
    return Case(golden["id"], golden["user_id"], body, gold, as_of_seq=seq)


def asked_at(query: Json, conversation: Conversation) -> str:
    """The query's own time where it has one, else that of the last turn."""
    return with_offset(str(query.get("timestamp") or conversation.now))


def with_offset(timestamp: str) -> str:
    """A time without an offset is taken as UTC."""
    return timestamp if _has_offset(timestamp) else f"{timestamp}Z"


def _has_offset(timestamp: str) -> bool:
    time_of_day = timestamp.partition("T")[2]
    return timestamp.endswith(("Z", "z")) or "+" in time_of_day or "-" in time_of_day


def _last(entries: Iterable[Entry]) -> str:
    times: list[str] = [entry.turn["created_at"] for entry in entries]
    return max(times, key=_moment)


def _moment(time: str) -> datetime:
    return datetime.fromisoformat(time)


def _history(context: Iterable[str], conversation: Conversation) -> list[Json]:
    """In the order of the conversation, whatever that of the names."""
    wanted = frozenset(context)
    said = [entry.turn for turn, entry in conversation.turns.items() if turn in wanted]
    return [{field: turn[field] for field in SAID_FIELDS} for turn in said]


def _labels(query: Json) -> tuple[str, ...]:
    answerable = ("cat1-4",) if query.get("category") in ANSWERABLE else ()
    language = (str(query["lang"])[:2],) if query.get("lang") else ()
    category = str(query["category_name"]) if query.get("category_name") else None
    return (*answerable, *language, *((category,) if category else ()))
