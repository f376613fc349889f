"""Migrations over HTTP: from the first state to the last and back, refusals, restarts, replicas, and what serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serve_app.errors import EncoderUnavailable, InvalidRequest
from serve_app.migrate.record import FOLLOWS
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.ports import Embedder
from serve_app.write.follow import FollowOptions
from tests.api.running import Running, refused
from tests.migrate.migrated import (
    GOLD,
    NEW_NAME,
    OLD_NAME,
    QUICK,
    TERMS,
    begin,
    fill_in,
    filled,
    say,
    settings,
    shown,
    started,
    until,
)

LONG = "/" + "x" * 300
OTHER = {"encoder": {"model": "hash-32"}}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = started(tmp_path / "data")
    filled(running)
    yield running
    running.stop()


def states(migration: Any) -> list[str]:
    return [one["state"] for one in migration["steps"]]


def versions(running: Running) -> list[str]:
    return list(running.ok("GET", "/v1/admin/stats")["versions"])


def test_from_one_encoder_to_another(running: Running) -> None:
    before = running.found("ann", GOLD[1], mode="dense")
    migration = begin(running)
    waiting = until(running, migration, "backfill")
    assert (waiting["base"], waiting["target"], waiting["replaces"]) == ([OLD_NAME], [NEW_NAME], OLD_NAME)
    assert versions(running) == [OLD_NAME, NEW_NAME]
    running.append(
        "ann", "s", {"id": "late", "role": "user", "content": "the astrolabe lies on the shelf"}, wait="indexed"
    )
    fill_in(running, migration)
    done = until(running, migration, "done", "rolled_back")
    assert states(done) == list(FOLLOWS["embedding"])
    assert [(one["state"], one["verdict"]) for one in done["gates"]] == [("verify", "passed"), ("canary", "passed")]
    assert versions(running) == [NEW_NAME]
    assert running.found("ann", GOLD[1], mode="dense")[0] == before[0] == GOLD[1]
    assert running.found("ann", "the astrolabe lies on the shelf", mode="dense")[0].startswith("the astrolabe")
    running.append("ann", "s", "a barometer hangs there", wait="indexed")
    assert running.found("ann", "a barometer hangs there", mode="dense")[0].startswith("a barometer")


def test_going_back_gives_the_same_contexts(running: Running) -> None:
    asked = running.context("ann", GOLD[2])
    migration = begin(running, terms=TERMS | {"soak_s": 3_600})
    until(running, migration, "backfill")
    fill_in(running, migration)
    until(running, migration, "soak")
    running.append("ann", "s", "the astrolabe lies on the shelf", wait="indexed")
    serving = running.search("ann", "astrolabe", mode="dense")["results"]
    assert serving[0]["content"].startswith("the astrolabe")
    say(running, migration, "rollback")
    back = until(running, migration, "rolled_back")
    assert [one["why"] for one in back["steps"][-2:]] == ["asked for", "asked for"]
    assert versions(running) == [OLD_NAME]
    again = running.context("ann", GOLD[2], as_of=asked["as_of"], now=asked["now"])
    assert (again["messages"], again["context_id"]) == (asked["messages"], asked["context_id"])
    assert running.found("ann", "the astrolabe lies on the shelf", mode="dense")[0].startswith("the astrolabe")
    assert begin(running) == "m2"  # the version may come again


@pytest.mark.parametrize("state", ["backfill", "soak"])
def test_a_restart_takes_it_up_and_a_finished_one_counts_more_than_the_settings(running: Running, state: str) -> None:
    migration = begin(running, terms=TERMS | ({"soak_s": 3_600} if state == "soak" else {}))
    until(running, migration, "backfill")
    if state == "soak":
        fill_in(running, migration)
        until(running, migration, "soak")
    again = running.again(control=QUICK)
    try:
        assert versions(again) == [OLD_NAME, NEW_NAME]
        again.append("bob", "s", "the astrolabe lies on the shelf", wait="indexed")
        if state == "backfill":
            fill_in(again, migration)
        say(again, migration, "advance")
        until(again, migration, "done")
        last = again.again(control=QUICK)  # the settings still name the old one
        again = last
        assert versions(last) == [NEW_NAME]
        assert last.found("bob", "the astrolabe lies on the shelf", mode="dense")[0].startswith("the astrolabe")
    finally:
        again.stop()
    running.__init__(again.settings)  # type: ignore[misc] - for the fixture to stop


def test_a_new_encoder_that_does_not_open_again_leaves_the_base_serving(running: Running) -> None:
    migration = begin(running, terms=TERMS | {"soak_s": 3_600})
    until(running, migration, "backfill")
    fill_in(running, migration)
    until(running, migration, "soak")

    def without_new(options: EncoderOptions) -> Embedder:
        if options.model == "hash-96":
            raise EncoderUnavailable("its files are gone")
        return open_embedder(options)

    again = running.again(control=QUICK, encoder=without_new)
    try:
        assert again.found("ann", GOLD[1], mode="dense")[0] == GOLD[1]
        waiting = until(again, migration, "soak")
        while not waiting["trouble"]:
            waiting = shown(again, migration)
        assert "its files are gone" in waiting["trouble"]
        degraded = again.ok("GET", "/readyz", key=None)["degraded"]
        assert any(one["what"] == "migration" for one in degraded)
        say(again, migration, "rollback")
        until(again, migration, "rolled_back")
    finally:
        again.stop()
    running.__init__(again.settings)  # type: ignore[misc] - for the fixture to stop


def test_a_store_with_turns_takes_no_other_encoder_from_the_settings(tmp_path: Path) -> None:
    running = started(tmp_path / "data")
    running.stop()
    with pytest.raises(InvalidRequest, match="migrations start"):
        Running(settings(tmp_path / "data", "hash-96"))


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"encoder": {"model": "hash-64"}}, "serves already"),
        ({"encoder": {"model": "hash-96"}, "replaces": "hash_7"}, "hash_64"),
        ({"encoder": {"model": "no/such/folder"}}, "encoder"),
        ({"encoder": {"model": "x" * 5_000}}, "no encoder"),
        ({"encoder": {"model": "~nobody-of-this-name/x"}}, "no encoder"),
        ({"kind": "reranker", "reranker": {"model": "~nobody-of-this-name/x"}}, "there is no"),
        ({"kind": "reranker", "reranker": {"ranker": "~nobody-of-this-name/x"}}, "cannot be read"),
        (
            {"kind": "compressor", "compressor": {"coarse": {"backend": "transformers", "model": "/" + "x" * 300}}},
            "is no",
        ),
        ({"encoder": {"colour": 1}}, "colour"),
        ({"encoder": {"model": "hash-96"}, "terms": {"k": 0}}, "terms"),
        ({"encoder": {"model": "hash-96"}, "terms": {"colour": 1}}, "colour"),
        ({}, "needs encoder"),
        ({"kind": "reranker", "encoder": {"model": "hash-96"}}, "needs reranker"),
        ({"encoder": {"model": "hash-96"}, "reranker": {}}, "one thing"),
    ],
)
def test_what_cannot_be_begun_is_refused_in_words(running: Running, body: dict[str, Any], word: str) -> None:
    answer = running.call("POST", "/v1/admin/migrations", json=body)
    refused(answer, 422, "invalid_request")
    assert word in answer.json()["detail"]
    assert running.ok("GET", "/v1/admin/migrations") == {"migrations": []}


def test_words_that_the_state_does_not_allow_are_refused(running: Running) -> None:
    migration = begin(running)
    until(running, migration, "backfill")
    refused(running.call("POST", "/v1/admin/migrations", json=OTHER), 409, "migration_running")
    assert say(running, migration, "pause")["paused"]
    assert not say(running, migration, "resume")["paused"]
    say(running, migration, "rollback")
    until(running, migration, "rolled_back")
    for word in ("advance", "pause", "resume", "rollback"):
        refused(running.call("POST", f"/v1/admin/migrations/{migration}:{word}"), 409, "conflict")
    refused(running.call("POST", "/v1/admin/migrations/m9:advance"), 404, "not_found")


def test_it_is_listed_and_reported(running: Running) -> None:
    migration = begin(running, terms=TERMS | {"auto": False})
    listed = running.ok("GET", "/v1/admin/migrations")["migrations"]
    assert [(one["id"], one["terms"]["auto"]) for one in listed] == [(migration, False)]
    assert running.ok("GET", f"/v1/admin/migrations/{migration}/report")
    refused(running.call("GET", f"/v1/admin/migrations/{migration}/report?format=xml"), 422, "invalid_request")


def test_the_policy_gives_the_terms_that_are_not_said(running: Running) -> None:
    running.ok("PUT", "/v1/admin/policies/migration", json={"k": 3, "auto": False})
    terms = running.ok("POST", "/v1/admin/migrations", json=OTHER | {"terms": {"k": 4}})["terms"]
    assert (terms["k"], terms["auto"], terms["soak_s"]) == (4, False, 7 * 86_400)


@pytest.mark.slow
def test_a_replica_follows(running: Running, tmp_path: Path) -> None:
    following = msgspec.structs.replace(
        settings(tmp_path / "own"), role="replica", follow=FollowOptions(data=str(running.data), poll_s=0.05)
    )
    replica = Running(following)
    try:
        migration = begin(running)
        until(running, migration, "backfill")
        fill_in(running, migration)
        until(running, migration, "done")
        end = time.monotonic() + 20
        while versions_of(replica, running.key) != [NEW_NAME]:
            assert time.monotonic() < end
            time.sleep(0.1)
        body = {"user_id": "ann", "query": GOLD[1], "mode": "dense"}
        found = replica.ok("POST", "/v1/search", json=body, key=running.key)["results"]
        assert found[0]["content"] == GOLD[1]
        asked = replica.call("POST", "/v1/admin/migrations", json=OTHER, key=running.key)
        refused(asked, 503, "read_only_replica")
    finally:
        replica.stop()


def versions_of(replica: Running, key: str) -> list[str]:
    return list(replica.ok("GET", "/v1/admin/stats", key=key)["versions"])


def test_an_admin_sees_that_there_is_one_and_how_far_and_neither_guides_it_nor_sees_its_figures(
    running: Running,
) -> None:
    migration = begin(running)
    admin = running.make_key(role="admin")
    answer = running.call("GET", "/v1/admin/migrations", key=admin)
    assert answer.status_code == 200
    (shown,) = answer.json()["migrations"]
    assert (shown["id"], shown["kind"]) == (migration, "embedding")
    assert shown.keys() == {"id", "kind", "state", "begun_at", "paused", "steps", "gates"}
    assert all(step.keys() == {"state", "at"} for step in shown["steps"])
    for method, path in (("GET", ""), ("GET", "/report"), ("POST", ":advance"), ("POST", ":rollback")):
        refused(running.call(method, f"/v1/admin/migrations/{migration}{path}", key=admin), 403, "forbidden")
    refused(running.call("GET", "/v1/admin/migrations", key=running.make_key(role="app")), 403, "forbidden")
