"""The gate over a whole service that holds two versions: what it lets through, what it stops, and whom it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serve_app.core import Owner
from serve_app.migrate.gate import Gates
from serve_app.migrate.page import page
from serve_app.migrate.record import Gate, Migration
from serve_app.migrate.report import of_migration, shown
from serve_app.routing import drawn
from tests.api.running import Running, word
from tests.migrate.two_versions import MIXED, asked, fill, first_of, migration, two_versions
from tests.write.shards import wait_until


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two users with golden queries; nothing of it is changed."""
    running = two_versions(tmp_path_factory.mktemp("whole"))
    for user in ("ann", "bob"):
        fill(running, user, turns=30, golden=13)
    yield running
    running.stop()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Running]:
    running = two_versions(tmp_path)
    yield running
    running.stop()


def gates(running: Running) -> Gates:
    found = running.service.gates
    assert found is not None
    return found


def gate(running: Running, state: str = "verify", **terms: Any) -> Gate:
    found = gates(running).of(migration(**terms), state)  # type: ignore[arg-type]
    assert found is not None
    return found


def counts(found: Gate) -> dict[str, int]:
    return dict(found.figures["counts"])


def plain(user: str, at: int) -> str:
    """In a word of the turn itself: those who judge by words know an answer."""
    return f"who was {word(first_of(user) + at)}?"


def log_searches(running: Running, wanted: bool = True) -> None:
    running.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": wanted})


# ---- verdicts


def test_a_version_that_finds_the_same_passes(whole: Running) -> None:
    found = gate(whole)
    assert (found.verdict, counts(found)["golden"], found.state) == ("passed", 26, "verify")
    assert found.figures["overall"]["base"] > 0.5
    assert [row["name"] for row in found.figures["tenants"]] == ["default"]


@pytest.mark.parametrize("logged", [False, True])
def test_a_broken_version_fails_with_few_queries(tmp_path: Path, logged: bool) -> None:
    """Each of its texts has the vectors of another: known answers show it, and judged ones do, too."""
    running = two_versions(tmp_path, broken=True)
    fill(running, "ann", turns=60, golden=0 if logged else 20)
    if logged:
        log_searches(running)
        for at in range(20):
            running.search("ann", plain("ann", at))
    found = gate(running)
    assert found.verdict == "failed", found.reasons
    assert counts(found)["logged" if logged else "golden"] == 20
    running.stop()


def test_with_too_little_it_says_nothing(whole: Running) -> None:
    assert gate(whole, queries_min=27).verdict == "undecided"
    assert gate(whole, queries=5).verdict == "undecided"
    assert counts(gate(whole, queries=5))["drawn"] == 5


def test_a_memory_that_is_found_whole_tells_nothing(small: Running) -> None:
    fill(small, "ann", turns=4, golden=4)
    found = gate(small, queries_min=1)
    assert (counts(found)["small"], counts(found)["golden"], found.verdict) == (4, 0, "undecided")


# ---- whom it asks for


def test_it_asks_the_same_again_and_leaves_nothing_behind(whole: Running) -> None:
    before = whole.ok("GET", "/v1/admin/stats"), metrics(whole)
    first, second = (gate(whole, queries=20) for _ in range(2))
    timed = {"base", "target", "seconds"}
    same = [{name: one for name, one in found.figures.items() if name not in timed} for found in (first, second)]
    assert same[0] == same[1]
    assert first.figures["base"]["curve"] == second.figures["base"]["curve"]
    assert (whole.ok("GET", "/v1/admin/stats"), metrics(whole)) == before


def metrics(running: Running) -> list[str]:
    """What is counted of searches."""
    text = running.call("GET", "/metrics").text
    names = ("memstrata_tier_reads", "memstrata_rerank", "memstrata_degraded")
    return [line for line in text.splitlines() if line.startswith(names)]


def test_it_can_be_stopped(whole: Running) -> None:
    looks = iter([False, False, True])
    assert gates(whole).of(migration(), "verify", lambda: next(looks)) is None
    assert gates(whole).progress == (2, 26)


def test_searches_are_asked_where_the_policy_consents(small: Running) -> None:
    fill(small, "ann", turns=30, golden=0)
    small.search("ann", "before it was wanted?")
    assert counts(gate(small))["drawn"] == 0
    log_searches(small)
    for at in range(3):
        small.search("ann", plain("ann", at))
    assert counts(gate(small))["logged"] == 3
    log_searches(small, False)
    assert counts(gate(small))["drawn"] == 0


def test_who_is_erased_or_has_deleted_is_not_asked_for(small: Running) -> None:
    for user in ("ann", "bob"):
        fill(small, user, turns=30, golden=3)
    log_searches(small)
    small.search("ann", plain("ann", 0))
    assert (counts(gate(small))["golden"], counts(gate(small))["logged"]) == (6, 1)
    small.ok("DELETE", "/v1/turns/t0", params={"user_id": "bob", "session_id": "s"})
    small.ok("DELETE", "/v1/users/ann")
    found = counts(gate(small))
    assert found["golden"] + found["small"] == 2
    assert found["logged"] == 0
    assert found["drawn"] - found["gone"] == 2


def test_what_came_after_a_query_is_not_counted(small: Running) -> None:
    fill(small, "ann", turns=30, golden=0)
    before = small.append("ann", "s", "a word before", wait="indexed")
    told = small.append("ann", "s", {"id": "g", "role": "user", "content": "walrus walks"}, wait="indexed")["receipt"]
    small.append("ann", "s", *[f"walrus walrus walrus {at}" for at in range(20)], wait="indexed")
    body = {"user_id": "ann", "query": "walrus?", "gold": [{"session_id": "s", "turn_id": "g"}]}
    small.ok("POST", "/v1/golden", json={**body, "as_of": told})
    found = gate(small, queries_min=1)
    assert found.figures["base"]["recall_1"] == found.figures["target"]["recall_1"] == 1.0
    assert before["receipt"] != told


def test_a_canary_asks_for_its_own_users_and_counts_shadow_reads(whole: Running) -> None:
    one = migration(canary_share=0.5, shadow_share=1.0, queries_min=1)
    chosen = [user for user in ("ann", "bob") if drawn(one.id, Owner("default", user).key) < 0.5]
    gates(whole).watch(one)
    for at in range(4):
        whole.search("ann", plain("ann", at))
    wait_until(lambda: gates(whole).reads == 4)
    found = gates(whole).of(one, "canary")
    assert found is not None
    assert counts(found)["golden"] == 13 * len(chosen)
    assert (counts(found)["shadow"], found.figures["shadow"]["reads"]) == (4, 4)
    gates(whole).unwatch()
    whole.search("ann", asked(first_of("ann")))
    assert gates(whole).reads == 0


# ---- what is left of it


def test_neither_words_nor_users_are_in_the_report(whole: Running) -> None:
    found = gate(whole)
    done = msgspec.structs.replace(migration(), gates=(found,))
    html, told = page(of_migration(done)), msgspec.json.encode(shown(done)).decode()
    secret = [asked(first_of(user) + at)[:-1] for user in ("ann", "bob") for at in range(13)]
    for text in (html, told):
        assert not [
            word for word in (*secret, MIXED, "yesterday", "ann", "bob") if f">{word}<" in text or f'"{word}"' in text
        ]
        assert not [word for word in secret if word in text]
    assert "passed" in html


def test_metrics_tell_of_the_last_gate(whole: Running) -> None:
    found = gate(whole)
    told = {line.partition(" ")[0]: line.partition(" ")[2] for line in whole.call("GET", "/metrics").text.splitlines()}
    assert float(told["memstrata_gate_recall_base"]) == found.figures["base"]["recall_k"]
    assert float(told["memstrata_gate_recall_target"]) == found.figures["target"]["recall_k"]


def test_without_two_sides_there_is_nothing_to_compare(whole: Running) -> None:
    bare = Migration("m", "embedding", "verify", 0, migration().terms)
    with pytest.raises(ValueError, match="nothing to compare"):
        gates(whole).of(bare, "verify")
