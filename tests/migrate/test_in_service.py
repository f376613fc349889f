"""A trial over a whole service: contexts of its users, going back to the same bytes, and moments of before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from serve_app.compress.compressor import Compressor
from serve_app.memory.compressors import Opened
from serve_app.memory.configurations import set_in
from serve_app.memory.due import SummaryOptions
from serve_app.memory.memory import MemoryOptions
from serve_app.memory.reranking import RerankOptions
from serve_app.memory.serving import RERANKER_GONE
from serve_app.migrate.record import Kind, Migration, State, Terms
from serve_app.migrate.trials import CompressorTrials, RerankerTrials
from serve_app.models.summarise import CompressOptions
from serve_app.routing import drawn
from tests.api.running import Running
from tests.compress.saying import Scripted, heads
from tests.memory.test_serving import BY_MODEL
from tests.migrate.trying import fill, small

WAIT_S = 20.0
SHARDS = 2
ANN = "ann"
QUERY = "What stands by the harbour?"
NOW = (datetime.now(UTC) + timedelta(minutes=2)).isoformat()
"""Within the life of every summary."""

THINGS = ("boat", "kite", "lamp", "fence", "violin", "garden")


def opened(options: CompressOptions) -> Opened:
    compressor = Compressor(Scripted(heads, name="heads") if options.coarse.model else None)
    return Opened(options, compressor, compressor)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    quiet = {"every_turns": 1_000, "zone_tokens": 1_000_000}  # no summary comes but where one is asked for
    memory = MemoryOptions(summary=SummaryOptions(settle_s=0.01, **quiet))
    one = small(tmp_path, opened={"compressor": opened}, memory=memory)
    yield one
    one.stop()


class Trial:
    """Moves a migration of this kind as Control does, without waiting and without gates."""

    def __init__(self, running: Running, kind: Kind, options: msgspec.Struct, share: float = 1.0) -> None:
        self.serving = running.service.serving
        reranker = kind == "reranker"
        self.trials: Any = (
            RerankerTrials(running.service.rerankers) if reranker else CompressorTrials(running.service.compressors)
        )
        asked = Migration("m1", kind, "prepare", 0, Terms(canary_share=share), options=set_in(options))
        self.migration = replace(asked, **self.trials.open(asked))

    def enter(self, state: State, after: str = "0:0") -> None:
        """In force for what comes after this receipt."""
        self.migration = replace(self.migration, state=state)
        epoch = self.trials.epoch(self.serving.plan.now, self.migration)
        since = (int(after.partition(":")[2]) + 1,) * SHARDS
        self.serving.change(self.serving.plan.followed_by(replace(epoch, since=since)))


def context(running: Running, **more: Any) -> dict[str, Any]:
    """All of an answer but how long it took, and the receipt that names its state."""
    answer = running.context(ANN, QUERY, 1_000, now=NOW, **more)
    return {name: value for name, value in answer.items() if name not in ("timings", "timings_ms", "request_id")}


def bytes_of(answer: dict[str, Any]) -> bytes:
    return msgspec.json.encode({name: value for name, value in answer.items() if name not in ("as_of", "receipt")})


def test_going_back_from_a_reranker_gives_the_same_bytes_and_then_is_still_to_be_had(running: Running) -> None:
    fill(running, ANN, golden=0)
    before = context(running)
    trial = Trial(running, "reranker", RerankOptions(late=False))
    trial.enter("verify", before["receipt"])
    assert bytes_of(context(running, as_of=before["receipt"])) == bytes_of(before)
    trial.enter("canary", before["receipt"])
    running.append(ANN, "other", "Something else.", wait="indexed")
    tried = context(running)
    assert tried["context_id"] != before["context_id"]
    trial.enter("rolling_back", tried["receipt"])
    running.append(ANN, "third", "Something else again.", wait="indexed")
    assert bytes_of(context(running, as_of=before["receipt"])) == bytes_of(before)
    assert bytes_of(context(running, as_of=tried["receipt"])) == bytes_of(tried)
    trial.trials.withdraw(trial.migration)
    assert bytes_of(context(running, as_of=before["receipt"])) == bytes_of(before)
    gone = context(running, as_of=tried["receipt"])
    assert RERANKER_GONE in gone["degradation"]["reasons"]


def test_going_back_from_a_compressor_shows_the_summaries_of_before_at_once(running: Running) -> None:
    running.append(ANN, "s", "I am allergic to peanuts, so never cook with them.")
    running.append(
        ANN,
        "s",
        *[f"The {thing} by the harbour was number {n} on day {n}." for n in range(16) for thing in THINGS],
        wait="indexed",
    )
    running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": ANN})
    old = summary(running)
    before = context(running, session_id="s")
    trial = Trial(running, "compressor", BY_MODEL)
    trial.enter("canary", before["receipt"])
    context(running, session_id="s")  # who reads it has it made anew
    new = until(lambda: summary(running), lambda one: one["version"] != old["version"])
    assert new["version"] == trial.migration.names[0]
    tried = context(running, session_id="s")
    assert tried["context_id"] != before["context_id"]
    assert (before["summary"]["version"], tried["summary"]["version"]) == (old["version"], new["version"])
    assert tried["messages"] != before["messages"]
    trial.enter("rolling_back", tried["receipt"])
    assert summary(running) == old
    assert bytes_of(context(running, session_id="s")) == bytes_of(before)
    assert bytes_of(context(running, session_id="s", as_of=tried["receipt"])) == bytes_of(tried)
    trial.trials.withdraw(trial.migration)
    running.append(ANN, "s", "And one turn more.")
    running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": ANN})
    assert summary(running)["version"] == old["version"]
    assert summary(running)["last_seq"] > old["last_seq"]


def test_the_users_of_the_share_alone_have_summaries_by_the_new_one(running: Running) -> None:
    users = [f"user-{n}" for n in range(8)]
    share = sorted(drawn("m1", f"default\x1f{user}") for user in users)[3] + 1e-9
    trial = Trial(running, "compressor", BY_MODEL, share)
    trial.enter("canary")
    chosen = {user for user in users if drawn("m1", f"default\x1f{user}") < share}
    by_new = set()
    for user in users:
        running.append(user, "s", *[f"The {thing} is on the shelf." for thing in THINGS])
        made = running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": user})
        if made["version"] == trial.migration.names[0]:
            by_new.add(user)
    assert by_new == chosen
    body = {"turns": [{"role": "user", "content": "The budget is 100 euros."}], "target_tokens": 50}
    assert running.ok("POST", "/v1/compress", json=body)["version"] in (
        trial.migration.names[0] if drawn("m1", "default\x1f") < share else trial.migration.was_names[0]
    )
    trial.enter("cutover")
    assert running.ok("POST", "/v1/compress", json=body)["version"] == trial.migration.names[0]


def summary(running: Running) -> dict[str, Any]:
    found: dict[str, Any] = running.ok("GET", "/v1/sessions/s/summary", params={"user_id": ANN})
    return found


def until(asked: Callable[[], dict[str, Any]], reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_S
    while not reached(answer := asked()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return answer
