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
QUERY = "What may the hotel cost at most, what is my mother allergic to, and does order ZX-81Q include breakfast?"
BUDGET_TOKENS = 1_000
BATCH_TURNS = 100
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
        user, session = batch[0].user, batch[0].session
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
    return Tour(written, request, client.context(request))
