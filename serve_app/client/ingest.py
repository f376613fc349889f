"""Writes a file of turns through the HTTP API, in order, and counts what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from serve_app.client.conversations import Ending, Entry, FactEntry, batches, read_entries, read_items
from serve_app.client.http import Client, Json, Refused, Unreachable
from serve_app.errors import MemstrataError

BATCH_TURNS = 100
EXAMPLES_MAX = 5


class IngestStopped(MemstrataError):
    """A batch was not taken; `code` is why. Says which lines of the file it came from."""

    def __init__(self, path: Path, batch: Sequence[Entry | FactEntry], why: MemstrataError, *, first: bool) -> None:
        self.code = why.code
        before = "nothing was written before" if first else "the lines before are written"
        super().__init__(f"{path}: lines {batch[0].line} to {batch[-1].line} were not taken ({before}): {why}")


class Survey(NamedTuple):
    """What a file holds."""

    turns: int
    without_id: int
    facts: int = 0
    cut: bool = False
    """It is an export, and does not hold all that was exported, or not the line that says so."""


@dataclass
class Ingested:
    """Counts by status, and the first few rejections."""

    statuses: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    facts: int = 0

    @property
    def complete(self) -> bool:
        return not self.statuses["rejected"]


def survey(path: Path) -> Survey:
    """Read the whole file once, and write nothing. Raises InvalidRequest for a line that cannot be read."""
    turns = without_id = facts = exported = 0
    told = Ending(0, 0)
    for item in read_items(path):
        match item:
            case Entry():
                turns, without_id = turns + 1, without_id + ("id" not in item.turn)
                exported += item.exported
            case FactEntry():
                facts += 1
            case Ending():  # of one export; a file may hold several
                told = Ending(told.turns + item.turns, told.facts + item.facts)
    return Survey(turns, without_id, facts, cut=told != (exported, facts))


def ingest(client: Client, path: Path, advance: Callable[[int], object], user: str | None = None) -> Ingested:
    """Write every turn and fact of `path`; `advance` is told the turns of each batch once they are durable.

    With `user` all of it becomes that user's. Raises InvalidRequest for a line that cannot be read, IngestStopped for
    a batch that was not taken; what came before is stored, and a repeat finds those that have ids as duplicates.
    """
    done = Ingested()
    for batch in batches(read_entries(path), BATCH_TURNS):
        try:
            results = _written(client, batch, user)
        except (Refused, Unreachable) as error:
            raise IngestStopped(path, batch, error, first=not done.statuses) from error
        for result in results:
            done.statuses[result["status"]] += 1
            if result["status"] == "rejected" and len(done.rejected) < EXAMPLES_MAX:
                done.rejected.append(f"{batch[0].session} {result['id']}: {result.get('error')}")
        advance(len(batch))
    for fact in (item for item in read_items(path) if isinstance(item, FactEntry)):
        try:
            client.put_fact(user or fact.user, fact.key, fact.fact)
        except (Refused, Unreachable) as error:
            raise IngestStopped(path, [fact], error, first=not (done.statuses or done.facts)) from error
        done.facts += 1
    return done


def _written(client: Client, batch: list[Entry], user: str | None) -> list[Json]:
    """What became of each turn of the batch."""
    answer = client.append(user or batch[0].user, batch[0].session, [entry.turn for entry in batch])
    results: list[Json] = answer["results"]
    return results
