"""What is written and asked: conversations and queries of a data set as requests, the same for all that take part.

A request is a line of a file: kind, method, path and body, parted by tabs. Where `NUMBER` stands in a body the load
generator puts a number that it never uses twice, so that no cache of texts helps; a load of few requests without it
is asked again and again, where a cache is what is measured.
"""

from __future__ import annotations

import json
import random
from calendar import month_name
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from serve_app.client.conversations import Entry, read_entries
from serve_app.client.data_sets import read_rows
from serve_app.client.http import Json
from serve_app.errors import InvalidRequest

NUMBER = "@NUMBER@"
LANGUAGE = "en"
"""What the default encoder reads, and the rivals with it. Rows that name no language count as this one."""

RESULTS = 10
BUDGET_TOKENS = 2_000
CACHED_QUERIES = 64
"""Distinct queries where a cached vector is measured: far below what the service keeps."""

SHORT_WORDS = 5
"""About 16 tokens, with the number that makes the text unique."""

SHORT_TEXTS = 512
WRITERS = 20
"""Users that appends are spread over; nobody searches theirs, so that what is searched stays the same."""

SESSION = "bench"
SEED = 7


class Request(NamedTuple):
    kind: str
    method: str
    path: str
    body: str

    @classmethod
    def post(cls, kind: str, path: str, body: Json) -> Request:
        return cls(kind, "POST", path, json.dumps(body, ensure_ascii=False))


NO_OP = (Request("no-op", "GET", "/healthz", ""),)


@dataclass(frozen=True)
class Corpus:
    """The turns in order, and who asks what. `name` is that of the folder."""

    name: str
    entries: tuple[Entry, ...]
    queries: tuple[tuple[str, str], ...]

    @property
    def users(self) -> list[str]:
        return sorted({entry.user for entry in self.entries})

    @property
    def texts(self) -> list[str]:
        """Each turn as the service embeds it: who said it, on which day, and what."""
        return [indexed_text(entry.turn) for entry in self.entries]

    @property
    def last_sessions(self) -> dict[str, str]:
        return {entry.user: entry.session for entry in self.entries}


def read_corpus(folder: Path, turns_max: int | None) -> Corpus:
    """The English conversations of a data set; with `turns_max` the first of them. Raises InvalidRequest."""
    path = folder / "conversations.jsonl"
    try:
        kept = {row["conversation_id"] for row in read_rows(path) if row.get("lang", LANGUAGE) == LANGUAGE}
        entries = [entry for entry in read_entries(path) if entry.user in kept][:turns_max]
        users = {entry.user for entry in entries}
        asked = read_rows(folder / "queries.jsonl")
        queries = [(row["conversation_id"], row["query"]) for row in asked if row["conversation_id"] in users]
    except KeyError as error:
        raise InvalidRequest(f"{folder}: a row has no {error}") from error
    if not queries:
        raise InvalidRequest(f"{folder}: no English conversation with a query")
    random.Random(SEED).shuffle(queries)
    return Corpus(folder.name, tuple(entries), tuple(queries))


def indexed_text(turn: Json) -> str:
    at = datetime.fromisoformat(turn["created_at"])
    return f"{turn['speaker']} ({at.day} {month_name[at.month]} {at.year}): {turn['content']}"


def short_texts() -> list[str]:
    """Texts of made-up words of two common syllables, each to be told from the others by a number."""
    source = random.Random(SEED)
    words = [first + last for first in ("over", "under", "after", "out") for last in ("time", "line", "work", "side")]
    texts = [" ".join(source.choice(words) for _ in range(SHORT_WORDS)) for _ in range(SHORT_TEXTS)]
    return [f"{text} {NUMBER}" for text in texts]


class Loads:
    """The requests of one run to a service, whose users have names of this run's own."""

    def __init__(self, corpus: Corpus, run: str) -> None:
        self._corpus, self._run = corpus, run

    def user(self, name: str) -> str:
        return f"{self._run}-{name}"

    @property
    def users(self) -> list[str]:
        """Everybody who is written for in a run, to be erased where the service goes on."""
        return [self.user(name) for name in (*self._corpus.users, *self._writers(), "short", "long", *batch_users())]

    def search(self) -> list[Request]:
        return [self._search("search", user, f"{query} {NUMBER}") for user, query in self._corpus.queries]

    def lexical(self) -> list[Request]:
        bodies = [(user, f"{query} {NUMBER}") for user, query in self._corpus.queries]
        return [self._search("lexical", user, query, mode="lexical") for user, query in bodies]

    def cached_search(self) -> list[Request]:
        return [self._search("cached search", user, query) for user, query in self._corpus.queries[:CACHED_QUERIES]]

    def cached_context(self) -> list[Request]:
        return [self._context(user, query) for user, query in self._corpus.queries[:CACHED_QUERIES]]

    def append(self) -> list[Request]:
        writers = [self.user(name) for name in self._writers()]
        texts = [entry.turn["content"] for entry in self._corpus.entries]
        return [
            self.append_to(writers[at % WRITERS], [{"role": "user", "content": f"{text} {NUMBER}"}])
            for at, text in enumerate(texts)
        ]

    def mix(self) -> list[Request]:
        """Of ten requests six searches, two contexts and two appends, every query new: bound by the encoder."""
        source = random.Random(SEED)
        contexts = [self._context(user, f"{query} {NUMBER}") for user, query in self._corpus.queries]
        kinds = (self.search(), contexts, self.append())
        return [source.choice(kinds[at]) for at in source.choices((0, 1, 2), (6, 2, 2), k=len(self._corpus.queries))]

    def short_embeddings(self) -> list[Request]:
        return [_embeddings(text) for text in short_texts()]

    def turn_embeddings(self) -> list[Request]:
        return [_embeddings(f"{text} {NUMBER}") for text in self._corpus.texts]

    def append_to(self, user: str, turns: Sequence[Json], kind: str = "append") -> Request:
        return Request.post(kind, f"/v1/sessions/{SESSION}/turns", {"user_id": user, "turns": turns})

    def _writers(self) -> list[str]:
        return [f"writer-{number}" for number in range(WRITERS)]

    def _search(self, kind: str, user: str, query: str, **more: str) -> Request:
        body = {"user_id": self.user(user), "query": query, "k": RESULTS, "rerank": False, **more}
        return Request.post(kind, "/v1/search", body)

    def _context(self, user: str, query: str) -> Request:
        session = self._corpus.last_sessions[user]
        body = {"user_id": self.user(user), "session_id": session, "query": query, "budget_tokens": BUDGET_TOKENS}
        return Request.post("context", "/v1/context", body)


def batch_users() -> list[str]:
    return [f"batches-{number}" for number in range(WRITERS)]


def rival_searches(corpus: Corpus) -> list[Request]:
    """The service's searches as the ceiling and the peers take them."""
    bodies = [{"user_id": user, "query": f"{query} {NUMBER}", "k": RESULTS} for user, query in corpus.queries]
    return [Request.post("search", "/search", body) for body in bodies]


def rival_appends(corpus: Corpus) -> list[Request]:
    bodies = [{"user_id": entry.user, "text": f"{entry.turn['content']} {NUMBER}"} for entry in corpus.entries]
    return [Request.post("append", "/add", body) for body in bodies]


def write_requests(requests: Iterable[Request], path: Path) -> Path:
    path.write_text("".join("\t".join(request) + "\n" for request in requests), encoding="utf-8")
    return path


def read_requests(path: Path) -> list[Request]:
    with path.open(encoding="utf-8") as lines:
        return [Request(*line.rstrip("\n").split("\t", 3)) for line in lines]


def _embeddings(text: str) -> Request:
    return Request.post("embeddings", "/v1/embeddings", {"input": text})
