"""Rerankers and compressors as migrations: what is refused, who is served in each state, what a start makes of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from serve_app.errors import InvalidRequest, MemstrataError, RerankerUnavailable, SummariserFailed
from serve_app.memory.configurations import name_of, set_in
from serve_app.memory.requests import AsOf
from serve_app.memory.reranking import RerankOptions
from serve_app.migrate.in_force import in_force
from serve_app.migrate.migration_file import ENDED_KEPT, MigrationFile
from serve_app.migrate.record import Kind, Migration, Migrations, State, Terms
from serve_app.migrate.trials import CompressorTrials, RerankerTrials, adopted, resumed, settled_plan
from serve_app.ports import SummaryTask
from serve_app.stores.documents_disk import DiskDocuments
from tests.memory.test_serving import BARE, BY_MODEL, EXTRACTIVE, LATE, OWNERS, Place


def of(kind: Kind, options: msgspec.Struct | dict[str, Any], state: State = "prepare", **fields: Any) -> Migration:
    given = options if isinstance(options, dict) else set_in(options)
    return Migration("m7", kind, state, 0, Terms(canary_share=0.3), options=given, **fields)


def opened(place: Place, kind: Kind, options: msgspec.Struct) -> Migration:
    switch = RerankerTrials(place.rerankers) if kind == "reranker" else CompressorTrials(place.compressors)
    asked = of(kind, options)
    return replace(asked, **switch.open(asked))


def entered(place: Place, migration: Migration, state: State) -> Migration:
    """As Control does it."""
    switch = RerankerTrials(place.rerankers) if migration.kind == "reranker" else CompressorTrials(place.compressors)
    moved = replace(migration, state=state)
    place.serving.change(place.serving.plan.followed_by(switch.epoch(place.serving.plan.now, moved)))
    return moved


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"ranker": "/nowhere/ranker.json"}, InvalidRequest, "/nowhere/ranker.json"),
        ({"ranker": __file__}, InvalidRequest, "test_trials.py"),
        ({"model": "/nowhere/model"}, RerankerUnavailable, "/nowhere/model"),
        ({"depth": 3}, InvalidRequest, "depth"),
        ({"deadline_ms": 0}, InvalidRequest, "deadline_ms"),
    ],
)
def test_a_reranker_that_cannot_be_opened_is_refused_and_leaves_nothing(
    options: dict[str, Any], error: type[MemstrataError], named: str
) -> None:
    place = Place()
    with pytest.raises(error, match=named):
        RerankerTrials(place.rerankers).open(of("reranker", options))
    assert place.rerankers.stage(place.rerankers.base, ["hash_64"]).names == ("late",)


def test_what_is_in_force_already_is_no_migration() -> None:
    place = Place()
    for switch, options in (
        (RerankerTrials(place.rerankers), LATE),
        (CompressorTrials(place.compressors), EXTRACTIVE),
    ):
        with pytest.raises(InvalidRequest, match="in force already"):
            switch.begin(set_in(options))
    with pytest.raises(InvalidRequest, match="replaces"):
        RerankerTrials(place.rerankers).begin(set_in(BARE), "minilm")
    assert RerankerTrials(place.rerankers).begin(set_in(BARE)) == {}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("reranker", {"ranker": "/nowhere/ranker.json"}),
        ("reranker", {"model": "/nowhere/model"}),
        ("reranker", {"depth": 3}),
        ("compressor", {"coarse": {"backend": "transformers", "model": "~/nowhere/model.gguf"}}),
        ("compressor", {"fine": {"backend": "openai", "model": "m"}}),
    ],
)
def test_what_can_be_known_is_refused_before_it_begins(kind: Kind, options: dict[str, Any]) -> None:
    place = Place()
    switch = RerankerTrials(place.rerankers) if kind == "reranker" else CompressorTrials(place.compressors)
    with pytest.raises(InvalidRequest, match="options"):
        switch.begin(options)


@pytest.mark.parametrize("url", ["http://me:secret@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?key=secret"])
def test_a_key_stands_in_no_option(url: str) -> None:
    options = {"coarse": {"backend": "openai", "url": url, "model": "m"}}
    with pytest.raises(InvalidRequest, match="key_env") as refused:
        CompressorTrials(Place().compressors).begin(options)
    assert "secret" not in str(refused.value)


def test_a_compressor_whose_model_gives_nothing_is_refused_and_closed() -> None:
    def down(task: SummaryTask) -> str:
        raise SummariserFailed("down")

    place = Place(answer=down)
    with pytest.raises(InvalidRequest, match="does not answer"):
        CompressorTrials(place.compressors).open(of("compressor", BY_MODEL))
    assert not place.compressors.holds(name_of(BY_MODEL))


@pytest.mark.parametrize(("kind", "options"), [("reranker", BARE), ("compressor", BY_MODEL)])
def test_each_state_serves_whom_it_should(kind: Kind, options: msgspec.Struct) -> None:
    place = Place()
    migration = opened(place, kind, options)
    before = {owner: place.names(owner) for owner in OWNERS}
    moved = {}
    for state in ("verify", "canary", "cutover", "soak", "rolling_back"):
        migration = entered(place, migration, state)
        moved[state] = {owner for owner in OWNERS if place.names(owner) != before[owner]}
    assert moved["verify"] == moved["rolling_back"] == set()
    assert moved["cutover"] == moved["soak"] == set(OWNERS)
    assert 80 < len(moved["canary"]) < 160
    migration = entered(place, migration, "canary")
    assert {owner for owner in OWNERS if place.names(owner) != before[owner]} == moved["canary"]


def test_retired_the_old_one_is_closed_and_withdrawn_the_new_one_is() -> None:
    place, other = Place(), Place()
    migration = entered(place, opened(place, "reranker", BARE), "retire")
    trials = RerankerTrials(place.rerankers)
    assert trials.retire(migration)
    assert trials.retire(migration)
    assert place.rerankers.base == name_of(BARE)
    assert not place.rerankers.holds(name_of(LATE))
    migration = entered(other, opened(other, "reranker", BARE), "rolling_back")
    for _ in range(2):
        RerankerTrials(other.rerankers).withdraw(migration)
    assert other.rerankers.base == name_of(LATE)
    assert not other.rerankers.holds(name_of(BARE))


def test_a_start_in_the_canary_serves_the_same_owners_by_the_same(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    migration = entered(place, opened(place, "reranker", BARE), "canary")
    served = {owner: place.names(owner) for owner in OWNERS}
    assert len(set(served.values())) == 2
    stored = msgspec.json.decode(msgspec.json.encode(Migrations((migration,))), type=Migrations)
    again = Place(*place.serving.plan.epochs)
    resumed(again.rerankers, again.compressors, stored)
    again.serving.change(settled_plan(again.serving.plan, again.rerankers, again.compressors))
    assert {owner: again.names(owner) for owner in OWNERS} == served
    assert adopted("reranker", LATE, stored) == LATE
    assert not caplog.records


def test_a_trial_that_does_not_open_at_a_start_serves_nobody_and_takes_nobody_along(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    place = Place()
    migration = entered(place, opened(place, "reranker", BARE), "canary")
    broken = replace(migration, options={"ranker": str(tmp_path / "gone.json")})
    again = Place()
    before = again.names(OWNERS[0])
    with caplog.at_level(logging.WARNING):
        resumed(again.rerankers, again.compressors, Migrations((broken,)))
    assert "cannot be opened" in caplog.text
    plan = settled_plan(place.serving.plan, again.rerankers, again.compressors)
    again.serving.change(plan)
    assert {again.names(owner) for owner in OWNERS} == {before}


@pytest.mark.parametrize("state", ["retire", "done"])
def test_what_a_migration_has_put_in_force_counts_until_the_file_says_something_new(
    state: State, caplog: pytest.LogCaptureFixture
) -> None:
    done = Migrations((of("reranker", BARE, state, was={}, names=("new",), was_names=("late",)),))
    assert in_force("reranker", BARE, done) == (BARE, "")
    with caplog.at_level(logging.WARNING):
        assert adopted("reranker", LATE, done) == BARE
    assert "[rerank] of the settings is not what is in force" in caplog.text
    third = RerankOptions(ranker="none")
    assert in_force("reranker", third, done) == (third, "")
    assert in_force("reranker", LATE, Migrations()) == (LATE, "")


def test_while_a_migration_runs_the_file_changes_nothing_but_a_warning() -> None:
    running = Migrations((of("compressor", BY_MODEL, "soak", was={}, names=("new",), was_names=("old",)),))
    assert in_force("compressor", EXTRACTIVE, running) == (EXTRACTIVE, "")
    options, warning = in_force("compressor", BY_MODEL, running)
    assert options == EXTRACTIVE
    assert "m7" in warning
    back = Migrations((replace(running.migrations[0], state="rolled_back"),))
    assert in_force("compressor", BY_MODEL, back) == (BY_MODEL, "")


def test_what_the_file_puts_in_force_later_serves_from_the_start_on() -> None:
    place = Place()
    entered(place, opened(place, "reranker", RerankOptions(ranker="none", deadline_ms=99)), "retire")
    again = Place()
    plan = settled_plan(place.serving.plan, again.rerankers, again.compressors, (40,), 4_000)
    again.serving.change(plan)
    assert plan.now.since == (40,)
    assert "late" in again.names(OWNERS[0])
    assert settled_plan(plan, again.rerankers, again.compressors) == plan
    assert again.serving.of(OWNERS[0], as_of=AsOf(seq=41)).reasons == ()


def test_the_file_keeps_what_is_in_force_however_many_migrations_come_after(tmp_path: Path) -> None:
    file = MigrationFile(DiskDocuments(tmp_path), lambda: 1)
    kept = file.add("reranker", Terms(), options=set_in(BARE))
    file.change(kept.id, kept.revision, state="done")
    for _ in range(ENDED_KEPT + 5):
        one = file.add("embedding", Terms())
        file.change(one.id, one.revision, state="rolled_back")
    assert file.find(kept.id).options == set_in(BARE)
    assert len(file.read().migrations) == ENDED_KEPT + 1
