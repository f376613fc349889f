"""What a context of one long session takes inside the service, by its own `timings_ms`.

The session is filled with turns of the golden conversations. Every query is asked once, so that its vector is cached
from then on; then asked again of the same state, and again after one more turn each time, so that nothing but the
vector is the same. The user is erased at the end.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

from tqdm import tqdm

from serve_app.client.data_sets import read_rows, with_offset
from serve_app.client.http import Client, Json

BATCH_TURNS = 100
SESSION = "bench"
LANGUAGE = "en"


def measure(client: Client, data: Path, turns: int, queries: int, budget_tokens: int) -> Json:
    """Milliseconds by stage, p50 and p95, of contexts: new queries, the same state again, and after one more turn."""
    said = [row for row in read_rows(data / "conversations.jsonl") if row["lang"] == LANGUAGE]
    asked = [row["query"] for row in read_rows(data / "queries.jsonl") if row["lang"] == LANGUAGE][:queries]
    user = f"bench-{secrets.token_hex(4)}-context"

    def timings(query: str) -> Json:
        answer = client.context(
            {"user_id": user, "session_id": SESSION, "query": query, "budget_tokens": budget_tokens}
        )
        return dict(answer["timings_ms"])

    def after_a_turn(query: str) -> Json:
        client.append(user, SESSION, [{"role": "user", "content": f"One more thing: {query}"}], wait="indexed")
        return timings(query)

    try:
        _fill(client, user, list(islice(cycle(said), turns)))
        steps: dict[str, Callable[[str], Json]] = {
            "new queries": timings,
            "the same state again": timings,
            "cached vector, after one more turn": after_a_turn,
            "cached vector, other state, nothing appended": timings,
        }
        found = {name: _spread([ask(query) for query in tqdm(asked, disable=None)]) for name, ask in steps.items()}
    finally:
        client.erase(user)
    return {"turns": turns, "queries": len(asked), "budget_tokens": budget_tokens, "ms": found}


def table(measured: Json) -> str:
    lines = [
        f"{measured['turns']:,} turns, budget {measured['budget_tokens']:,}; milliseconds in the service, p50 / p95"
    ]
    for name, stages in measured["ms"].items():
        total = stages["total"]
        shown = "  ".join(f"{stage} {one['p50']:.2f}" for stage, one in stages.items() if stage != "total")
        lines.append(f"{name:<46}{total['p50']:>7.2f} {total['p95']:>7.2f}   {shown}")
    return "\n".join(lines)


def _fill(client: Client, user: str, rows: Sequence[Json]) -> None:
    for start in tqdm(range(0, len(rows), BATCH_TURNS), unit=" batches", disable=None):
        client.append(user, SESSION, [_turn(row) for row in rows[start : start + BATCH_TURNS]], wait="indexed")


def _turn(row: Json) -> Json:
    role = row["role"] if row["role"] in ("user", "assistant") else "user"
    created_at = with_offset(row["timestamp"])
    return {"role": role, "content": row["text"], "speaker": row["speaker"], "created_at": created_at}


def _spread(answers: Sequence[Json]) -> Json:
    stages = dict.fromkeys(stage for one in answers for stage in one)
    by_stage = {stage: sorted(one.get(stage, 0.0) for one in answers) for stage in stages}
    return {
        stage: {"p50": round(statistics.median(ms), 2), "p95": round(ms[int(0.95 * len(ms))], 2)}
        for stage, ms in by_stage.items()
    }
