"""A context as of a moment stays the same whatever comes later, after a restart and a fold, with what explains it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from serve_app.memory.reranking import RerankOptions
from serve_app.stores.lexical import QUERY_TERMS_MAX
from tests.api.running import Running, hash_settings

NOW = "2026-12-01T03:00:00Z"
WORDS = ["river", "stone", "cloud", "market", "engine", "violin", "garden", "winter", "copper", "paper", "bridge"]
LATER_WORDS = [f"later{number}" for number in range(QUERY_TERMS_MAX)]

QUERIES = (
    "the river stone with Alice Moore and Quark in Berlin",  # who and what is named later only
    "what did Zoe say about copper?",  # speaks later only
    " ".join(WORDS + LATER_WORDS),  # longer than what is scored
)


def turns(first: int, count: int, names: list[str], speakers: tuple[str, str]) -> list[dict[str, Any]]:
    chance = random.Random(first)
    return [
        {
            "id": f"t{number}",
            "role": ("user", "assistant")[number % 2],
            "speaker": speakers[number % 2],
            "content": f"{' '.join(chance.choices(WORDS, k=8))} in {chance.choice(names)}",
        }
        for number in range(first, first + count)
    ]


def contexts(running: Running, as_of: str) -> list[dict[str, Any]]:
    """With the features of all that was found, which no cache answers."""
    given = []
    for query in QUERIES:
        one = running.context("u", query, 3_000, session_id="s", as_of=as_of, now=NOW, explain=True)
        whys = [(found["id"], found["score"], found["explain"]) for found in one["retrieved"]]
        given.append({"messages": one["messages"], "found": whys, "entities": one["explain"]["entities"]})
    return given


def test_what_came_later_and_how_it_is_held_change_no_context_as_of_before(tmp_path: Path) -> None:
    settings = hash_settings(tmp_path, rerank=RerankOptions(ranker="shipped", deadline_ms=30_000))
    running = Running(settings)
    try:
        running.append("u", "s", *turns(0, 60, ["Alice Moore", "Lake Tahoe"], ("Ann", "Ben")), wait="indexed")
        for number in range(20, 30):  # their ordinals are there until the block is loaded anew
            running.ok("DELETE", f"/v1/turns/t{number}", params={"user_id": "u", "session_id": "s"})
        as_of = running.context("u")["as_of"]
        before = contexts(running, as_of)
        assert all(found for found in (one["found"] for one in before))
        running.append("u", "s", *turns(100, 100, ["Berlin", "Dr. Quark"], ("Zoe", "Zed")), wait="indexed")
        running.append("u", "other", " ".join(LATER_WORDS), wait="indexed")
        assert contexts(running, as_of) == before
        running = running.again()
        assert contexts(running, as_of) == before
        running.fold()
        running = running.again()
        assert contexts(running, as_of) == before
    finally:
        running.stop()
