"""A service whose vectors lie on a device finds what one with CPU blocks finds, whatever becomes of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from serve_app.core import Owner
from serve_app.errors import InvalidRequest
from serve_app.placement import shard_of
from serve_app.ports import HotProducts
from serve_app.stores.device import gpu_count
from serve_app.stores.hot_indexes import HotOptions
from tests.api.running import Running, hash_settings

USERS = ("ada", "bo")
WORDS = ("river", "harbour", "lamp", "ticket", "garden")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(**hot: Any) -> Running:
        started.append(Running(hash_settings(tmp_path / str(len(started)), hot=HotOptions(**hot))))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


def told(running: Running) -> dict[str, list[Any]]:
    """What dense searches find, after turns came, changed and went."""
    for user in USERS:
        turns = [{"id": str(n), "role": "user", "content": f"{user} {WORDS[n % 5]} number {n}"} for n in range(120)]
        running.append(user, "s", *turns, wait="indexed")
        running.ok("DELETE", "/v1/turns/7", params={"user_id": user, "session_id": "s"})
    asked = [(user, f"{word} number") for user in USERS for word in WORDS]
    found = {f"{user} {query}": running.search(user, query, mode="dense", k=20)["results"] for user, query in asked}
    return {what: [(one["id"], one["score"]) for one in results] for what, results in found.items()}


@pytest.mark.parametrize(
    "device", ["host", pytest.param("cuda", marks=pytest.mark.skipif(gpu_count() == 0, reason="FAISS sees no GPU"))]
)
def test_a_device_finds_what_cpu_blocks_find(start: Callable[..., Running], device: str) -> None:
    running = start(device=device, memory_mib=1)
    assert told(running) == told(start())
    assert "memstrata_hot_devices_lost 0.0" in running.call("GET", "/metrics").text


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_a_gpu_that_is_not_there_ends_the_start_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"hot.device: no GPU 1 for FAISS"):
        Running(hash_settings(tmp_path, hot=HotOptions(device="cuda:1")))


def test_a_device_of_no_kind_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="tpu"):
        msgspec.convert({"device": "tpu"}, HotOptions)


def test_what_a_hot_shard_gives_is_what_is_found_without_it(start: Callable[..., Running]) -> None:
    """The shard's products stand in for the index of who asks, as long as both know the same vectors."""
    shard, gateway = start(device="host", memory_mib=1), start()
    assert told(shard) == told(gateway)
    for user in USERS:
        owner = Owner("default", user)
        number = shard_of(owner, 2)
        blocks = [one.service._writers[number].shard.block(owner.key) for one in (shard, gateway)]
        version = shard.service._writers[number].shard.versions[0]
        query = np.random.default_rng(1).standard_normal(version.dimension).astype(np.float32)
        given = shard.run(shard.service.hot_products(number, owner.key, version.name, query))
        own = blocks[1].dense(version.name, query, 119, None)
        np.testing.assert_allclose(own, blocks[1].dense(version.name, query, 119, None, given), atol=1e-5)
        marked = given._replace(scores=np.full_like(given.scores, 7.0))
        assert np.nanmax(blocks[1].dense(version.name, query, 119, None, marked)) == 7.0
        for useless in (
            marked._replace(newest=given.newest + 1),
            HotProducts(given.rows[:3], marked.scores[:3], given.newest),
        ):
            np.testing.assert_array_equal(own, blocks[1].dense(version.name, query, 119, None, useless))
