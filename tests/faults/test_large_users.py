"""A migration and its way back for a user of whom most turns are not in memory: found as before, byte for byte."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.api.running import Running
from tests.faults import plain_backfill
from tests.faults.migrating_service import RESIDENT, small_settings
from tests.migrate.migrated import QUICK, begin, say, until

pytestmark = pytest.mark.slow

USER, TURNS = "large", 3 * RESIDENT
SAID = [f"the boat number{at} stood by the harbour of place{at % 17}" for at in range(TURNS)]
TERMS = {"canary_s": 0, "canary_reads": 0, "soak_s": 3_600, "queries_min": 1, "loss": 1.0, "canary_share": 1.0}
WAIT_S = 60.0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    settings = small_settings(tmp_path / "data")
    roomy = msgspec.structs.replace(settings.memory, turns_resident=10_000)
    one = Running(msgspec.structs.replace(settings, memory=roomy), control=QUICK)
    yield one
    one.stop()


def test_a_large_user_is_found_during_a_migration_and_answered_as_before_after_its_way_back(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_backfill, "UNIT_REST_S", 0.0)
    turns = [{"id": f"t{at}", "role": "user", "content": text} for at, text in enumerate(SAID)]
    running.append(USER, "a", *turns, wait="indexed")
    gold = [{"session_id": "a", "turn_id": "t3"}]
    running.ok("POST", "/v1/golden", json={"user_id": USER, "query": SAID[3], "gold": gold})
    running.fold()
    until_archived(running)
    before, moment = answers(running), running.context(USER, session_id="a")
    contexts = context(running, moment)
    migration = begin(running, terms=TERMS)
    until(running, migration, "backfill")
    key_file = running.data / "admin.key"
    words = ["--url", running.listen(), "--migration", migration, "--data", str(running.data)]
    plain_backfill.main([*words, "--key-file", str(key_file)])  # Control may see that all is there before it says so
    until(running, migration, "soak")
    assert [text for text, found in answers(running).items() if text not in dict(found)] == []
    say(running, migration, "rollback")
    until(running, migration, "rolled_back")
    assert answers(running) == before
    assert context(running, moment) == contexts


def until_archived(running: Running) -> None:
    end = time.monotonic() + WAIT_S
    while True:
        running.search(USER, "harbour")
        if sum(writer.shard.archived() for writer in running.service._writers) >= TURNS - RESIDENT:
            return
        assert time.monotonic() < end
        time.sleep(0.1)


def answers(running: Running) -> dict[str, list[tuple[str, float]]]:
    """What is found of each of some texts by its vector, with the scores."""
    found = {text: running.search(USER, text, k=3, mode="dense")["results"] for text in SAID[::5]}
    return {text: [(one["content"], one["score"]) for one in results] for text, results in found.items()}


def context(running: Running, moment: dict[str, Any]) -> list[dict[str, Any]]:
    """As of that moment, but for what names it and what it took."""
    asked = {"session_id": "a", "as_of": moment["as_of"], "now": moment["now"], "budget": 700}
    found = [running.context(USER, query, **asked) for query in SAID[::9]]
    return [{name: one[name] for name in one.keys() - {"as_of", "timings_ms"}} for one in found]
