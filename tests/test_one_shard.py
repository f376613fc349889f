"""Two services that write one store, a shard each: each has its own users and sends the other's away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.api.auth import KeyFile
from serve_app.config import StoreOptions
from serve_app.core import Owner
from serve_app.errors import ShardElsewhere
from serve_app.placement import shard_of
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.write.shard_writers import ShardWriters
from tests.api.running import Running, hash_settings, refused

SHARDS = 2


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Running]]:
    started: dict[int, Running] = {}

    def begin(number: int) -> Running:
        store = StoreOptions(shards=SHARDS, files_uri=str(tmp_path / "store"))
        if number in started:
            started.pop(number).stop()
        one = started[number] = Running(hash_settings(tmp_path / f"shard-{number}", store=store), only=[number])
        (one.data / "admin.key").write_text(
            KeyFile(DiskDocuments(tmp_path / "store")).create(tenant="default", role="operator", user=None)[1]
        )
        return one

    yield begin
    for running in started.values():
        running.stop()


def user_in(shard: int) -> str:
    return next(f"user-{n}" for n in range(100) if shard_of(Owner("default", f"user-{n}"), SHARDS) == shard)


def test_each_writes_its_own_users_and_sends_others_away(start: Callable[[int], Running]) -> None:
    services = [start(number) for number in range(SHARDS)]
    for number, service in enumerate(services):
        mine, others = user_in(number), user_in(1 - number)
        answer = service.append(mine, "s", "the river was high", wait="indexed")
        assert answer["receipt"].startswith(f"{number}:")
        assert service.search(mine, "river")["results"][0]["content"] == "the river was high"
        asked: dict[str, Any] = {"user_id": others, "turns": [{"role": "user", "content": "x"}]}
        refused(service.call("POST", "/v1/sessions/s/turns", json=asked), 503, "shard_elsewhere")
        assert [one["shard"] for one in service.ok("GET", "/v1/admin/stats")["shards"]] == [number]


def test_maintenance_and_a_restart_are_of_the_own_shard(start: Callable[[int], Running]) -> None:
    one = start(1)
    user = user_in(1)
    one.append(user, "s", "first", wait="indexed")
    assert [done["shard"] for done in one.ok("POST", "/v1/admin/maintenance", json={"action": "fold"})["shards"]] == [1]
    held = start(1).ok("GET", f"/v1/sessions/s/turns?user_id={user}")["turns"]
    assert [turn["content"] for turn in held] == ["first"]


def test_what_is_in_trouble_is_told_whichever_shard_it_is(start: Callable[[int], Running]) -> None:
    one = start(1)
    assert one.ok("GET", "/readyz")["degraded"] == []
    assert one.service.devices_lost == []


def test_numbers_that_the_store_does_not_have_are_not_elsewhere() -> None:
    none_here = ShardWriters([], 2)
    assert list(none_here) == []
    assert len(none_here) == 2
    with pytest.raises(ShardElsewhere):
        none_here[1]
    with pytest.raises(IndexError):
        none_here[2]
