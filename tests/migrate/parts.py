"""Small real implementations of what Control leans on, with a memory of their own that a restart does not touch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from serve_app.core import SECOND_US
from serve_app.errors import InvalidRequest, MemstrataError
from serve_app.migrate.control import Control, ControlBounds, Parts
from serve_app.migrate.migration_file import Fields, MigrationFile
from serve_app.migrate.plan import plan_of
from serve_app.migrate.record import Gate, Migration, Migrations, State, Terms
from serve_app.routing import Epoch, Routing, VersionPlan
from serve_app.stores.documents_disk import DiskDocuments

OLD, NEW = Routing("old", "old"), Routing("new", "new")
TICKS = 25
BOUNDS = ControlBounds(grace_s=75, again_s=5, ask_again_s=60, opens=3)


class Killed(BaseException):
    """Stands for a kill -9: nothing in the process catches it."""


@dataclass
class World:
    """What outlives a process: the store, and what there is around it."""

    folder: Path
    now: int = 1_000 * SECOND_US
    held: set[str] = field(default_factory=lambda: {"old"})
    base: Routing = OLD
    dual: tuple[int, ...] = ()
    lacking: int = 3
    running: bool = False
    verdict: str = "passed"
    slow: bool = False
    """A gate that is asked thinks until it is told to stop."""
    asking: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    watched: str = ""
    reads: int = 1_000
    gates: list[str] = field(default_factory=list)
    fault: MemstrataError | None = None
    """Opening and holding raise it."""
    unfit: str = ""
    """Why the new one never will do."""
    kill_at: int = -1
    """The instant at which the process is killed, counted from 0: before and after each effect, at each look at the
    clock, of which there is one before each new state is written, and before it is put in force.
    """
    instants: int = 0
    plan: VersionPlan | None = None

    def instant(self) -> None:
        self.instants += 1
        if self.instants - 1 == self.kill_at:
            raise Killed

    def clock(self) -> int:
        self.instant()
        self.now += 1
        return self.now

    def later(self, seconds: float) -> None:
        self.now += int(seconds * SECOND_US)

    def effect(self, change: Callable[[], None]) -> None:
        self.instant()
        change()
        self.instant()


class WorldSwitch:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dual_here = False
        self._held_here: set[str] = set(world.held)

    def begin(self, options: Mapping[str, Any], replaces: str) -> Fields:
        return {"base": OLD, "target": NEW, "options": dict(options)}

    def open(self, migration: Migration) -> Fields:
        if self._world.fault is not None:
            raise self._world.fault
        if self._world.unfit:
            raise InvalidRequest(self._world.unfit)
        return {}

    def hold(self, migration: Migration) -> Fields:
        if self._world.fault is not None:
            raise self._world.fault
        self._world.effect(lambda: self._world.held.add("new"))
        self._held_here.add("new")
        if not migration.dual_from:
            return {"dual_from": (7,)}
        self._world.effect(lambda: setattr(self._world, "dual", migration.dual_from))
        self._dual_here = True
        return {}

    def epoch(self, now: Epoch, migration: Migration) -> Epoch:
        if migration.state in ("canary", "cutover", "soak"):
            share = migration.terms.canary_share if migration.state == "canary" else 1.0
            return replace(now, base=OLD, target=NEW, share=share, migration=migration.id)
        retired = migration.state in ("retire", "done")
        return replace(now, base=NEW if retired else OLD, target=None, share=0.0, migration="")

    def retire(self, migration: Migration) -> bool:
        assert self._dual_here
        self._world.effect(lambda: setattr(self._world, "base", NEW))
        self._world.effect(lambda: self._world.held.discard("old"))
        return True

    def withdraw(self, migration: Migration) -> None:
        self._world.effect(lambda: setattr(self._world, "dual", ()))
        self._world.effect(lambda: self._world.held.discard("new"))


class WorldGates:
    def __init__(self, world: World) -> None:
        self._world = world

    def of(self, migration: Migration, state: State, stopped: Callable[[], bool]) -> Gate | None:
        self._world.gates.append(state)
        if self._world.slow:
            self._world.asking.set()
            while not stopped():
                time.sleep(0.001)
            self._world.stopped.set()
            return None
        return Gate(state, self._world.verdict, 0, ("recall fell",))  # type: ignore[arg-type]

    def watch(self, migration: Migration) -> None:
        self._world.watched = migration.id

    def unwatch(self) -> None:
        self._world.watched = ""

    @property
    def reads(self) -> int:
        return self._world.reads


class WorldBackfill:
    def __init__(self, world: World) -> None:
        self._world = world

    def complete(self, migration: Migration) -> bool:
        return self._world.lacking == 0

    def discard(self, migration: Migration) -> None:
        self._world.lacking = 3

    def tend(self, migration: Migration) -> str:
        """As `Runner`: a job that fills in one turn at each look."""
        self._world.running = True
        self._world.lacking -= 1
        return ""

    def stop(self) -> None:
        self._world.running = False


class Process:
    """One life of the service's Control."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.file = MigrationFile(DiskDocuments(world.folder), world.clock)
        backfill = WorldBackfill(world)
        switch, gates = WorldSwitch(world), WorldGates(world)
        parts = Parts({"embedding": switch}, {"embedding": gates}, {"embedding": gates}, backfill, backfill)
        first = Epoch(world.base)
        self.control = Control(self.file, parts, self._publish, first, lambda: (world.now,), world.clock, BOUNDS)

    def begin(self, **terms: Any) -> Migration:
        known = WorldSwitch(self.world).begin({"model": "new"}, "")
        return self.file.add("embedding", Terms(**terms), **known)

    @property
    def migration(self) -> Migration:
        return self.file.read().migrations[-1]

    def tick(self) -> Migration:
        self.control.tick()
        return self.migration

    def until(self, state: State, ticks: int = TICKS) -> Migration:
        """A gate answers on a thread of its own."""
        for _ in range(ticks):
            if self.migration.state == state:
                return self.migration
            self.tick()
            time.sleep(0.001)
        raise AssertionError(f"{self.migration.state}, not {state}: {self.migration.trouble}")

    def settled(self) -> Migration:
        """After so many looks that nothing happens any more."""
        for _ in range(TICKS):
            self.tick()
            time.sleep(0.001)
        return self.migration

    def _publish(self, stored: Migrations) -> None:
        self.world.instant()
        self.world.plan = plan_of(stored, Epoch(self.world.base), sorted(self.world.held))
