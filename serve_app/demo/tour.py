"""The tour itself: writes the sample conversation over HTTP, asks for a context, and gives both answers.

All ids are fixed, so that a second tour finds its turns stored already.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from serve_app.client.conversations import batches, read_entries
from serve_app.client.http import Client, Json

CONVERSATION = Path(__file__).with_name("conversation.jsonl")
USER = "lin"
SESSION = "kyoto-changes"
SYSTEM = "You are a travel concierge. Keep every limit that the traveller has set."
QUERY = "妈妈的过敏和酒店预算上限是多少?订单 ZX-81Q 包含早餐吗?"
BUDGET_TOKENS = 1_000
BATCH_TURNS = 100
FOUND_MAX = 100
READY_S = 120.0


@dataclass(frozen=True)
class Tour:
    """What was written (turns by status) and the answer of POST /v1/context."""

    written: Counter[str]
    request: Json
    context: Json

    @property
    def seen_before(self) -> bool:
        return self.written["stored"] == 0


def take_tour(client: Client) -> Tour:
    """Wait until the service is ready, write, ask. Raises Unreachable, Refused."""
    client.wait_ready(READY_S)
    written: Counter[str] = Counter()
    for batch in batches(read_entries(CONVERSATION), BATCH_TURNS):
        user, session, _ = batch[0]
        answer = client.append(user, session, [entry.turn for entry in batch], wait="indexed")
        written.update(result["status"] for result in answer["results"])
    client.refresh_summary(USER, SESSION)
    request = {
        "user_id": USER,
        "session_id": SESSION,
        "system": SYSTEM,
        "query": QUERY,
        "budget_tokens": BUDGET_TOKENS,
        "explain": True,
    }
    found = client.search({"user_id": USER, "query": QUERY, "k": FOUND_MAX, "explain": True})
    return Tour(written, request, _explained(client.context(request), found["results"]))


def _explained(context: Json, results: list[Json]) -> Json:
    """The context, its retrieved turns with the text and the scores that a search for the same query tells."""
    told = {(result["session_id"], result["id"]): result for result in results}
    retrieved = [told.get((hit.get("session_id"), hit["id"]), {}) | hit for hit in context["retrieved"]]
    return context | {"retrieved": retrieved}
