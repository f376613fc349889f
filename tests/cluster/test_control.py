"""Control by a clock that the tests turn: who is taken for dead, and when it does not judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serve_app.api.auth import KeyFile
from serve_app.cluster.control import Control, ControlBounds
from serve_app.cluster.founding import store_there
from serve_app.cluster.lease_file import LeaseFile
from serve_app.cluster.leases import held_by
from serve_app.cluster.messages import Beat, Leases
from serve_app.config import Settings, StoreOptions
from serve_app.errors import Conflict, StoreUnavailable
from serve_app.shards import read_identity
from serve_app.stores.documents_disk import DiskDocuments
from tests.api.running import hash_settings

BOUNDS = ControlBounds(silence_s=3.0, gather_s=1.0, look_s=0.01, held_up_s=1.0, poll_s=0.05)
STEP_S = 0.5


class Scene:
    """A Control, its clock, and writers that do as they are told."""

    def __init__(self, folder: Path) -> None:
        store = StoreOptions(shards=4, files_uri=str(folder / "store"))
        self.settings: Settings = hash_settings(folder / "control", store=store)
        self.now = 100.0
        self.said: list[str] = []
        self.open: dict[str, frozenset[int]] = {}

    async def start(self) -> Control:
        self.control = Control(self.settings, BOUNDS, lambda: self.now, self.said.append)
        await self.control.start()
        return self.control

    async def beat(self, name: str, incarnation: str = "1", *, leaving: bool = False) -> Leases:
        shards = tuple(sorted(self.open.get(name, ())))
        leases = await self.control.beat(Beat(name, incarnation, shards, leaving))
        self.open[name] = held_by(leases, name)
        return leases

    async def turn(self, seconds: float, *beating: str) -> Leases:
        """Time goes by in small steps; these writers beat meanwhile."""
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for name in beating:
                await self.beat(name)
            await asyncio.sleep(4 * BOUNDS.look_s)
        return await self.control.leases()


def played(folder: Path, act: Callable[[Scene], Awaitable[None]]) -> None:
    async def play() -> None:
        scene = Scene(folder)
        await scene.start()
        await act(scene)
        await scene.control.stop()

    asyncio.run(play())


def shares(leases: Leases) -> dict[str, int]:
    return {name: leases.writers.count(name) for name in sorted(set(leases.writers))}


def test_writers_that_start_together_get_their_shares_at_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        assert shares(await scene.turn(0.5, "a")) == {}
        leases = await scene.turn(1.5, "a", "b")
        assert (shares(leases), leases.revision) == ({"a": 2, "b": 2}, 1)
        assert LeaseFile(DiskDocuments(tmp_path / "store")).read() == leases

    played(tmp_path, act)


def test_a_silent_writer_loses_its_shards_after_the_bound_and_not_before(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.turn(2, "a", "b")
        assert shares(await scene.turn(2.5, "a")) == {"a": 2, "b": 2}
        assert shares(await scene.turn(1.5, "a")) == {"a": 4}

    played(tmp_path, act)


def test_the_last_writer_keeps_its_shards_for_when_it_is_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        before = await scene.turn(2, "a")
        assert await scene.turn(10) == before
        assert await scene.turn(1, "a") == before

    played(tmp_path, act)


def test_a_control_that_was_held_up_itself_gives_everybody_the_bound_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        before = await scene.turn(2, "a", "b")
        scene.now += 60
        assert await scene.turn(2.5, "a") == before
        assert shares(await scene.turn(1.5, "a")) == {"a": 4}

    played(tmp_path, act)


def test_a_control_that_starts_anew_does_so_too_and_goes_on_from_the_file(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        before = await scene.turn(2, "a", "b")
        await scene.control.stop()
        await scene.start()
        assert await scene.control.leases() == before
        assert await scene.turn(2.5, "a") == before
        after = await scene.turn(1.5, "a")
        assert (shares(after), after.revision) == ({"a": 4}, before.revision + 1)

    played(tmp_path, act)


def test_one_that_leaves_is_emptied_and_its_shards_given_on_when_it_has_closed_them(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.turn(2, "a", "b")
        held = scene.open["b"]
        await scene.beat("b", leaving=True)
        scene.open["b"] = held  # not closed yet
        between = await scene.turn(1, "a")
        assert shares(between) == {"": 2, "a": 2}
        scene.open["b"] = held
        await scene.beat("b", leaving=True)
        assert shares(await scene.turn(0.5, "a")) == {"": 2, "a": 2}
        await scene.beat("b", leaving=True)
        assert shares(await scene.turn(0.5, "a")) == {"a": 4}

    played(tmp_path, act)


def test_a_restarted_writer_keeps_its_shards_and_its_forerunner_is_told_to_let_go(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        before = await scene.turn(2, "a", "b")
        scene.open["a"] = frozenset()
        assert await scene.beat("a", "2") == before
        with pytest.raises(Conflict):
            await scene.beat("a", "1")

    played(tmp_path, act)


def test_a_process_that_was_given_up_does_not_take_its_name_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.turn(2, "a", "b")
        await scene.turn(4, "b")  # a is lost, and given up
        scene.open["a"] = frozenset()
        await scene.beat("a", "2")
        for _ in range(2):
            with pytest.raises(Conflict):
                await scene.beat("a", "1")
            await scene.turn(2, "b")
            assert held_by(await scene.beat("a", "2"), "a")
        await scene.turn(4, "b")  # now its successor is lost, too
        await scene.beat("a", "1")
        await scene.turn(2, "b")
        assert held_by(await scene.beat("a", "1"), "a")

    played(tmp_path, act)


def test_a_poll_for_news_is_answered_by_the_next_change_or_after_a_while(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        before = await scene.turn(2, "a")
        assert await scene.control.leases(before.revision) == before
        await scene.beat("b")
        after = await scene.control.leases(before.revision)
        assert after.revision == before.revision + 1

    played(tmp_path, act)


def test_another_controls_change_is_taken_over_and_not_undone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        before = await scene.turn(2, "a")
        others = Leases(before.revision + 5, ("a", "a", "a", "a"))
        assert LeaseFile(DiskDocuments(tmp_path / "store")).replace(before, others) == others
        leases = await scene.turn(1, "a", "b")
        assert leases.revision > others.revision

    played(tmp_path, act)


def test_the_first_start_makes_the_store_and_its_first_key_once(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        waiting = asyncio.create_task(store_there(scene.settings))
        key = (tmp_path / "store" / "admin.key").read_text().strip()
        assert KeyFile(DiskDocuments(tmp_path / "store")).principal(f"Bearer {key}".encode()).role == "operator"
        assert any(key in line for line in scene.said)
        assert (await waiting).shards == 4
        scene.said.clear()
        await scene.control.stop()
        await scene.start()
        assert scene.said == []

    assert read_identity(DiskDocuments(tmp_path / "store")) is None
    played(tmp_path, act)


def test_who_waits_for_a_store_that_nobody_makes_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="Control has not made the store yet"):
        asyncio.run(store_there(Scene(tmp_path).settings, 0.2))


def test_a_control_that_has_not_started_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        control = Control(Scene(tmp_path).settings)
        with pytest.raises(StoreUnavailable):
            await control.beat(Beat("a", "1"))
        with pytest.raises(StoreUnavailable):
            await control.leases()

    asyncio.run(scene())
