"""What was removed or changed through one gateway is not shown by another one once that is answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.write.follow import FollowOptions
from tests.api.clustered import Clustered
from tests.api.running import Running
from tests.write.shards import wait_until

STALE_S = 1.6
"""Far more than it takes here, however busy the machine is."""

TURNS = [{"id": "first", "content": "the river"}, {"id": "second", "content": "the lake"}]

FACT = "/v1/users/ann/facts/home"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    """What its gateways show comes from the writers alone: they look into the store once a minute."""
    folder = tmp_path_factory.mktemp("removed")
    one = Clustered(folder, relayed=True, follow=FollowOptions(poll_s=60, look_s=60, stale_s=STALE_S))
    one.start(), one.start()
    wait_until(lambda: all(ring.readers.all_at(0) for ring in one.rings.values()))
    yield one
    one.stop()


@pytest.fixture
def asked(cluster: Clustered) -> Running:
    return cluster.gateways[0]


@pytest.fixture
def other(cluster: Clustered) -> Iterator[Running]:
    """It hears of everything late."""
    cluster.ring_ways[1].slow_s = 0.03
    yield cluster.gateways[1]
    cluster.ring_ways[1].slow_s = 0.0


def held(gateway: Running) -> str | None:
    answer = gateway.call("GET", FACT)
    return answer.json()["value"] if answer.status_code == 200 else None


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_fact_that_was_changed_or_removed_is_nowhere_shown(asked: Running, other: Running, rounds: int) -> None:
    for number in range(rounds):
        for said in (f"{number} here", f"{number} there"):
            asked.ok("PUT", FACT, json={"value": said})
            assert held(other) == said
        asked.ok("DELETE", FACT)
        assert held(other) is None
        assert asked.call("DELETE", FACT).status_code == 404


def test_turns_sessions_and_users_that_were_removed_or_changed_are_nowhere_shown(
    asked: Running, other: Running
) -> None:
    for number in range(5):
        session = f"s{number}"
        asked.append("bob", session, *(said | {"role": "user"} for said in TURNS))
        receipt = asked.append("bob", session, "the sea")["receipt"]
        other.search("bob", "river", min_receipt=receipt)
        asked.ok("PATCH", f"/v1/turns/first?user_id=bob&session_id={session}", json={"content": "the hill"})
        assert [turn["content"] for turn in other.turns("bob", session)] == ["the hill", "the lake", "the sea"]
        asked.ok("DELETE", f"/v1/turns/second?user_id=bob&session_id={session}")
        assert [turn["content"] for turn in other.turns("bob", session)] == ["the hill", "the sea"]
        asked.ok("DELETE", f"/v1/sessions/{session}?user_id=bob")
        assert other.turns("bob", session) == []
        asked.append("bob", "kept", "the wood")
        asked.ok("DELETE", "/v1/users/bob")
        assert other.search("bob", "wood")["results"] == []


def test_who_appends_waits_for_nobody(cluster: Clustered, asked: Running, other: Running) -> None:
    cluster.ring_ways[1].slow_s = STALE_S / 2
    began = time.monotonic()
    for _ in range(10):
        asked.append("ann", "s", "one more")
    assert time.monotonic() - began < 5 * STALE_S / 2


def test_a_follower_that_does_not_ask_costs_the_bound_and_soon_nothing(tmp_path: Path) -> None:
    stale_s = 0.3
    one = Clustered(tmp_path, shards=1, relayed=True, follow=FollowOptions(poll_s=0.02, stale_s=stale_s))
    one.start(), one.start()
    asked, other = one.gateways
    ring = one.rings[0]
    wait_until(lambda: ring.readers.all_at(0))
    one.ring_ways[1].dead = True
    wait_until(lambda: took_s(asked) >= stale_s)  # what it asked last is on its way still
    assert took_s(asked) < stale_s + 2
    wait_until(lambda: took_s(asked) < stale_s)
    asked.ok("PUT", FACT, json={"value": "here"})
    wait_until(lambda: held(other) == "here")  # by the store
    one.stop()


def took_s(gateway: Running) -> float:
    began = time.monotonic()
    gateway.ok("PUT", FACT, json={"value": "here"})
    return time.monotonic() - began
