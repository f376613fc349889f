"""Claims, fences and units over HTTP: what is written, what is refused, what outlasts a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.migrate.backfill import Backfills
from serve_app.migrate.record import Terms
from serve_app.migrate.units import Dead, Units
from tests.api.running import Running, refused
from tests.migrate.backfilled import Client, backfills, begin, enter, small


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = small(tmp_path)
    yield running
    running.stop()


def _all_of(client: Client, skip: tuple[int, int] | None = None) -> int:
    """Everything that a job would send, but for one turn of a shard; gives how many were written."""
    written = 0
    for left in client.claim().shards:
        items = [one for one in client.items(left.shard) if (left.shard, one.vectors.turn_seq) != skip]
        written += client.put(left.shard, *items, done=(1, left.through)).written
    return written


def test_a_backfill_from_the_claim_to_the_end(running: Running) -> None:
    migration = begin(running)
    client = Client(running, migration)
    claim = client.claim()
    assert claim.version == migration.version
    assert claim.options == {"model": "hash-32"}
    assert [(one.shard, one.through) for one in claim.shards] == list(enumerate(migration.dual_from))
    assert not client.put(finish=True).complete
    assert _all_of(client) == 30
    assert client.put(finish=True).complete
    assert backfills(running).complete(migration)
    shown = backfills(running).progress(migration)
    assert (shown.done, shown.written, shown.stale, shown.gone, shown.dead, shown.worker) == (30, 30, 0, 0, 0, "w")


def test_what_is_left_is_counted_and_told(running: Running) -> None:
    migration = begin(running)
    client = Client(running, migration)
    client.claim()
    assert backfills(running).progress(migration).total is None
    client.put(left=30)
    items = client.items(0)
    client.put(0, *items, done=(1, migration.dual_from[0]))
    shown = backfills(running).progress(migration)
    assert (shown.total, shown.done) == (30, len(items))
    assert shown.heard_s is not None


def test_ranges_that_are_done_outlast_a_restart(running: Running, tmp_path: Path) -> None:
    migration = begin(running)
    client = Client(running, migration)
    client.claim()
    client.put(1, done=(1, 3))
    client.put(1, done=(7, 9))
    again = running.again()
    try:
        left = Client(again, migration).claim().shards
        assert [one.done for one in left] == [(), ((1, 3), (7, 9))]
    finally:
        again.stop()
    running.__init__(running.settings)  # type: ignore[misc] - for the fixture to stop


def test_a_second_job_is_refused_while_the_first_is_alive(running: Running) -> None:
    migration = begin(running)
    Client(running, migration).claim()
    other = Client(running, migration, "other")
    refused(running.call("POST", f"{other.path}:claim", json={"worker": "other"}), 409, "migration_claimed")
    Client(running, migration).claim()  # the same job may begin anew


def test_the_fence_moves_on_when_a_job_is_silent(running: Running) -> None:
    migration = begin(running)
    first = Client(running, migration)
    first.claim()
    there = backfills(running)
    there._silent_s = 0.0
    second = Client(running, migration, "other")
    assert second.claim().fence == first.fence + 1
    refused(first.send(Units(first.fence, 0, tuple(first.items(0)), done=(1, 5))), 409, "migration_fenced")
    assert second.claim().shards[0].done == ()


def test_units_are_for_operators(running: Running) -> None:
    client = Client(running, begin(running))
    client.claim()
    for role in ("app", "admin"):
        key = running.make_key(role=role)
        refused(client.send(Units(client.fence), key=key), 403, "forbidden")
        refused(running.call("POST", f"{client.path}:claim", json={"worker": "x"}, key=key), 403, "forbidden")


def test_a_migration_in_another_state_is_not_backfilled(running: Running) -> None:
    migration = begin(running)
    client = Client(running, migration)
    client.claim()
    enter(running, migration, "rolling_back")
    refused(client.send(Units(client.fence)), 409, "conflict")
    refused(running.call("POST", f"{client.path}:claim", json={"worker": "w"}), 409, "conflict")
    client.path = "/v1/admin/migrations/m99"
    refused(client.send(Units(client.fence)), 404, "not_found")


def test_what_is_no_unit_is_refused(running: Running) -> None:
    client = Client(running, begin(running))
    client.claim()
    path = f"{client.path}/units"
    refused(running.call("PUT", path, content=b"{}"), 422, "invalid_request")
    refused(running.call("PUT", path, content=b"\xc1"), 422, "invalid_request")
    refused(client.send(Units(client.fence, 7)), 422, "invalid_request")
    item = client.items(0)[0]
    torn = Units(client.fence, 0, (type(item)(item.owner, type(item.vectors)(1, 1, "s", "t", b"abc")),), done=(1, 9))
    refused(client.send(torn), 422, "invalid_request")
    refused(client.send(Units(client.fence, 0, done=(9, 1))), 422, "invalid_request")
    refused(client.send(Units(client.fence, 0, done=(1, 10**6))), 422, "invalid_request")
    refused(client.send(Units(client.fence, 0, dead=(Dead(3, 1, 1, "no such shard"),))), 422, "invalid_request")
    assert client.claim().shards[0].done == ()


def test_an_edit_and_a_deletion_between_read_and_write_stand(running: Running) -> None:
    migration = begin(running)
    client = Client(running, migration)
    client.claim()
    read = [client.items(shard) for shard in range(2)]
    running.ok("PATCH", "/v1/turns/t3", params={"user_id": "ann", "session_id": "s"}, json={"content": "edited"})
    running.ok("DELETE", "/v1/turns/t4", params={"user_id": "ann", "session_id": "s"})
    running.ok("DELETE", "/v1/users/bob")
    became = [client.put(shard, *items, done=(1, 5)) for shard, items in enumerate(read)]
    assert sum(one.written for one in became) == 18
    assert sum(one.stale for one in became) == 1
    assert sum(one.gone for one in became) == 11
    assert [turn["content"] for turn in running.turns("ann", "s")][3:5] == ["edited", "ann 5"]
    assert running.turns("bob", "s") == []


def test_what_the_tables_lack_is_to_be_done_again(running: Running) -> None:
    migration = begin(running)
    client = Client(running, migration)
    client.claim()
    forgotten = client.items(0)[0].vectors.turn_seq
    assert _all_of(client, skip=(0, forgotten)) == 29
    answer = client.put(finish=True)
    assert not answer.complete
    done = answer.shards[0].done
    assert not any(first <= forgotten <= last for first, last in done)
    assert any(last == answer.shards[0].through for _, last in done)
    item = next(one for one in client.items(0) if one.vectors.turn_seq == forgotten)
    client.put(0, item, done=(forgotten, forgotten))
    assert client.put(finish=True).complete


def test_dead_letters_are_kept_and_not_waited_for(running: Running) -> None:
    migration = begin(running)
    client = Client(running, migration)
    client.claim()
    bad = client.items(1)[2].vectors
    _all_of(client, skip=(1, bad.turn_seq))
    client.put(1, dead=(Dead(1, bad.turn_seq, bad.rev, "ValueError"),))
    assert client.put(finish=True).complete
    assert [one.seq for one in backfills(running).dead(migration)] == [bad.turn_seq]


def test_more_dead_letters_than_the_terms_allow_end_it(running: Running) -> None:
    migration = begin(running, terms=Terms(dead_share=0.05))
    client = Client(running, migration)
    client.claim()
    dead = tuple(Dead(0, one.vectors.turn_seq, one.vectors.rev, "ValueError") for one in client.items(0)[:4])
    client.put(0, dead=dead, left=30)
    refused(client.send(Units(client.fence, finish=True)), 409, "conflict")


def test_a_claim_brings_the_tables_up_to_where_writing_double_began(running: Running) -> None:
    running.append("eve", "s", "not in the tables yet")
    migration = begin(running)
    shards = [writer.shard for writer in running.service._writers]
    assert any(one.folded_seq < through for one, through in zip(shards, migration.dual_from, strict=True))
    Client(running, migration).claim()
    assert all(one.folded_seq >= through for one, through in zip(shards, migration.dual_from, strict=True))


def test_a_job_rests_while_somebody_searches(running: Running) -> None:
    client = Client(running, begin(running))
    client.claim()
    for _ in range(60):
        running.search("ann", "ann 3")
    assert client.put().rest_s > 0
    assert isinstance(backfills(running), Backfills)
