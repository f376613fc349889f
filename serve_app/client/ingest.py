"""Writes a file of turns through the HTTP API, in order, and counts what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from serve_app.client.conversations import batches, read_entries
from serve_app.client.http import Client

BATCH_TURNS = 100
EXAMPLES_MAX = 5


@dataclass
class Ingested:
    """Counts by status, and the first few rejections."""

    statuses: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.statuses["rejected"]


def ingest(client: Client, path: Path, advance: Callable[[int], object]) -> Ingested:
    """Write every turn of `path`; `advance` is told the turns of each batch once they are durable.

    Raises InvalidRequest for a line that cannot be read, Refused, Unreachable; what came before is stored, and a
    repeat finds it as duplicates.
    """
    done = Ingested()
    for batch in batches(read_entries(path), BATCH_TURNS):
        user, session, _ = batch[0]
        answer = client.append(user, session, [entry.turn for entry in batch])
        for result in answer["results"]:
            done.statuses[result["status"]] += 1
            if result["status"] == "rejected" and len(done.rejected) < EXAMPLES_MAX:
                done.rejected.append(f"{session} {result['id']}: {result.get('error')}")
        advance(len(batch))
    return done
