"""What `/metrics` tells of a migration: its state, whether it goes on, how far its backfill is; then nothing."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from serve_app.observe.metrics import Metrics
from serve_app.observe.migrations import BackfillNow, MigrationFigures, MigrationNow
from tests.api.running import Running
from tests.migrate.migrated import begin, fill_in, filled, say, started, until

Samples = dict[tuple[str, ...], float]


def samples(text: str) -> Samples:
    """Of migrations and backfills, by name and the values of labels."""
    families = text_string_to_metric_families(text)
    told = [one for family in families for one in family.samples]
    own = ("memstrata_migration_", "memstrata_backfill_")
    return {(one.name, *one.labels.values()): one.value for one in told if one.name.startswith(own)}


def shown(running: Running) -> Samples:
    return samples(running.call("GET", "/metrics", key=None).text)


def test_a_migration_of_each_kind_has_its_series() -> None:
    now = [
        MigrationNow("embedding", "backfill", True, BackfillNow(30, 100, 2, 7.5)),
        MigrationNow("reranker", "canary", False),
    ]
    metrics = Metrics()
    metrics.watch(MigrationFigures(lambda: now))
    assert samples(metrics.text().decode()) == {
        ("memstrata_migration_state", "embedding", "backfill"): 1,
        ("memstrata_migration_state", "reranker", "canary"): 1,
        ("memstrata_migration_hindered", "embedding"): 1,
        ("memstrata_migration_hindered", "reranker"): 0,
        ("memstrata_backfill_turns_done",): 30,
        ("memstrata_backfill_turns",): 100,
        ("memstrata_backfill_turns_failed",): 2,
        ("memstrata_backfill_silent_seconds",): 7.5,
    }


def test_a_service_tells_of_its_migration_until_it_ends(tmp_path: Path) -> None:
    running = started(tmp_path / "data")
    try:
        assert shown(running) == {}
        filled(running)
        migration = begin(running)
        until(running, migration, "backfill")
        told = shown(running)
        assert told["memstrata_migration_state", "embedding", "backfill"] == 1
        assert told["memstrata_migration_hindered", "embedding"] == 0
        assert 0 <= told["memstrata_backfill_silent_seconds",] < 30, "no job yet: since it could have begun"
        assert ("memstrata_backfill_turns",) not in told
        say(running, migration, "pause")
        assert ("memstrata_backfill_silent_seconds",) not in shown(running), "whoever rests is not silent"
        say(running, migration, "resume")
        fill_in(running, migration)
        until(running, migration, "done")
        assert shown(running) == {}
    finally:
        running.stop()
