"""Control: takes each migration from state to state. One thread of the service that writes the store.

Owns no state but what it can do without: whatever counts is in the file of migrations, where each change names the
revision that it was decided on. So Control may be killed at any instant and goes on where the file stands; what a step
does to the service is done again then, and is done once (`switching.py`). What the base serves never depends on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from serve_app.core import SECOND_US
from serve_app.errors import InvalidRequest, MemstrataError, MigrationChanged
from serve_app.memory.requests import Trouble
from serve_app.migrate.asked import Asked
from serve_app.migrate.migration_file import Fields, MigrationFile
from serve_app.migrate.record import Gate, Kind, Migration, Migrations, State, next_state
from serve_app.migrate.switching import Backfill, Gates, Runner, Shadows, Switch
from serve_app.routing import Epoch

_log = logging.getLogger(__name__)

ASKED_FOR = "asked for"
WAITS = "waits for :advance"
FEW_READS = "too few searches have been answered by both"
ASKED_AGAIN = "it is asked again; :advance goes on without it"
LACKING = "turns still lack vectors of the new version"

NOTHING: Fields = MappingProxyType({})


class ControlBounds(msgspec.Struct, frozen=True):
    """In seconds, but for `opens`."""

    poll_s: float = 0.5
    grace_s: float = 75.0
    """From when a version serves nobody until it goes: longer than any request may take, by its `deadline_ms`."""
    again_s: float = 5.0
    """After something failed, before it is tried again."""
    ask_again_s: float = 60.0
    """After a gate could not decide, before it is asked again."""
    opens: int = 5
    """Tries to load what is new, before the migration is given up."""


class Outcome(NamedTuple):
    """Of one look at a migration: whether its state has done what it is there for; if not, why it does not go on."""

    done: bool
    why: str = ""
    fields: Fields = NOTHING
    """What is to be kept with the next state."""


DONE, GOES_ON = Outcome(True), Outcome(False)


class Parts(NamedTuple):
    """What Control works with; switches and gates by the kinds that they are for, shadows by those that have some."""

    switches: Mapping[Kind, Switch]
    gates: Mapping[Kind, Gates]
    shadows: Mapping[Kind, Shadows]
    backfill: Backfill
    runner: Runner


class Control:
    def __init__(
        self,
        file: MigrationFile,
        parts: Parts,
        publish: Callable[[Migrations], None],
        first: Epoch,
        seqs: Callable[[], tuple[int, ...]],
        clock: Callable[[], int],
        bounds: ControlBounds | None = None,
    ) -> None:
        """`publish` puts in force what the file says; `first` is what serves where it says nothing.

        `seqs` gives of each shard the seq that its next record will have at the least.
        """
        self._file = file
        self._parts = parts
        self._publish = publish
        self._first = first
        self._seqs = seqs
        self._clock = clock
        self._bounds = bounds or ControlBounds()
        self._held: set[str] = set()  # migrations that this process has taken up
        self._finished: dict[str, tuple[State, Fields]] = {}  # by migration, a state that has done its part
        self._asked: dict[str, Asked] = {}  # by migration, the gate that is being asked
        self._opens: dict[str, int] = {}
        self._rests_until: dict[str, int] = {}
        self.troubles: dict[str, str] = {}
        """By migration, what failed last, until it does not."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="migrations", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def shown_troubles(self) -> list[Trouble]:
        """What `/readyz` tells."""
        found = [Trouble("migration", f"{name}: {why}") for name, why in self.troubles.copy().items()]
        return found if self._thread.is_alive() else [*found, Trouble("worker_stopped", "migrations has stopped")]

    def close(self) -> None:
        """A gate that is being asked is left alone; it is asked again at the next start."""
        self._closed.set()
        for asked in list(self._asked.values()):
            asked.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self._parts.runner.stop()

    def _run(self) -> None:
        while not self._closed.wait(self._bounds.poll_s):
            try:
                self.tick()
            except Exception:  # noqa: BLE001 - a file that cannot be read, or a defect: the next look may do better
                _log.exception("migrations cannot be looked at")

    # ---- one look

    def tick(self) -> None:
        stored = self._file.read()
        self._publish(stored)
        for migration in stored.migrations:
            if not migration.ended and self._clock() >= self._rests_until.get(migration.id, 0):
                self._tend(migration)

    def _tend(self, migration: Migration) -> None:
        """One step of it; what it says or throws becomes its trouble."""
        try:
            why = self._step(migration)
            self.troubles.pop(migration.id, None)
        except MigrationChanged:
            return  # somebody was first: at the next look it is read as it is then
        except MemstrataError as error:
            why = self._failed(migration, str(error))
        except Exception as error:  # noqa: BLE001 - a defect of one step must not end the others
            _log.exception("migration %s, state %s", migration.id, migration.state)
            why = self._failed(migration, f"defect: {type(error).__name__}")
        self._note(migration.id, why)

    def _failed(self, migration: Migration, why: str) -> str:
        if self.troubles.get(migration.id) != why:
            _log.warning("migration %s, state %s, will be tried again: %s", migration.id, migration.state, why)
        self.troubles[migration.id] = why
        self._rests_until[migration.id] = self._clock() + int(self._bounds.again_s * SECOND_US)
        return why

    def _note(self, migration_id: str, why: str) -> None:
        try:
            self._file.amend(migration_id, lambda found: {} if found.trouble == why else {"trouble": why})
        except MemstrataError as error:
            _log.warning("migration %s: what hinders it cannot be noted: %s", migration_id, error)

    def _step(self, migration: Migration) -> str:
        """Gives why it does not go on, if so."""
        if migration.state == "rolling_back":
            return self._withdraw(migration)
        if migration.wish == "rollback" and migration.state != "retire":
            return self._turn_back(migration, ASKED_FOR)
        if migration.paused:
            self._rest(migration)
        if not self._taken_up(migration) or migration.paused:
            return ""
        outcome = self._outcome(migration)
        if not outcome.done:
            return outcome.why
        if not (migration.terms.auto or migration.wish == "advance" or migration.state == "retire"):
            return WAITS
        why = ASKED_FOR if migration.wish == "advance" else ""
        self._enter(migration, next_state(migration), outcome.why or why, outcome.fields)
        return ""

    def _outcome(self, migration: Migration) -> Outcome:
        """Of the state's work, which is not done again by a process that has seen it done."""
        state, fields = self._finished.get(migration.id, (None, NOTHING))
        if state == migration.state:
            return Outcome(True, "", fields)
        outcome = self._work[migration.state](self, migration)
        if outcome.done and not outcome.why:
            self._finished[migration.id] = migration.state, outcome.fields
        return outcome

    def _taken_up(self, migration: Migration) -> bool:
        """Whether the service holds what is new, as it has to in all states but the first two."""
        if migration.state in ("prepare", "dual_write") or migration.id in self._held:
            return True
        return self._hold(migration)

    def _hold(self, migration: Migration) -> bool:
        known = self._parts.switches[migration.kind].hold(migration)
        if known:
            self._file.change(migration.id, migration.revision, **known)
            return False
        self._held.add(migration.id)
        return True

    def _rest(self, migration: Migration) -> None:
        """Nothing goes on; what is written and what serves stay as they are."""
        if migration.state == "backfill":
            self._parts.runner.stop()
        self._forget_question(migration.id)

    # ---- the states

    def _prepare(self, migration: Migration) -> Outcome:
        tries = self._opens[migration.id] = self._opens.get(migration.id, 0) + 1
        try:
            return Outcome(True, "", self._parts.switches[migration.kind].open(migration))
        except InvalidRequest as error:
            return Outcome(False, self._turn_back(migration, str(error)))
        except MemstrataError as error:
            if tries < self._bounds.opens:
                raise
            return Outcome(False, self._turn_back(migration, str(error)))

    def _dual_write(self, migration: Migration) -> Outcome:
        return DONE if self._hold(migration) else GOES_ON

    def _backfill(self, migration: Migration) -> Outcome:
        if self._parts.backfill.complete(migration):
            self._parts.runner.stop()
            return DONE
        return Outcome(False, self._parts.runner.tend(migration) if migration.runner == "service" else "")

    def _verify(self, migration: Migration) -> Outcome:
        if migration.kind == "embedding" and not self._parts.backfill.complete(migration):
            self._enter(migration, "backfill", LACKING)
            return GOES_ON
        return self._judged(migration)

    def _canary(self, migration: Migration) -> Outcome:
        shadows = self._parts.shadows.get(migration.kind)
        if shadows is not None:
            shadows.watch(migration)
        if not self._waited(migration, migration.terms.canary_s):
            return GOES_ON
        few = shadows is not None and shadows.reads < migration.terms.canary_reads
        if few and migration.wish != "advance":
            return Outcome(False, FEW_READS)
        return self._judged(migration)

    def _cutover(self, migration: Migration) -> Outcome:
        return DONE

    def _soak(self, migration: Migration) -> Outcome:
        return DONE if self._waited(migration, migration.terms.soak_s) else GOES_ON

    def _retire(self, migration: Migration) -> Outcome:
        if not self._since(migration, self._bounds.grace_s):
            return GOES_ON
        return DONE if self._parts.switches[migration.kind].retire(migration) else GOES_ON

    _work: Mapping[State, Callable[[Control, Migration], Outcome]] = MappingProxyType(
        {
            "prepare": _prepare,
            "dual_write": _dual_write,
            "backfill": _backfill,
            "verify": _verify,
            "canary": _canary,
            "cutover": _cutover,
            "soak": _soak,
            "retire": _retire,
        }
    )

    def _withdraw(self, migration: Migration) -> str:
        self._rest(migration)
        self._parts.runner.stop()
        if self._since(migration, self._bounds.grace_s):
            self._parts.switches[migration.kind].withdraw(migration)
            if migration.kind == "embedding":
                self._parts.backfill.discard(migration)
            self._enter(migration, "rolled_back", migration.steps[-1].why)
        return ""

    # ---- from one to another

    def _turn_back(self, migration: Migration, why: str) -> str:
        """What is new serves nobody from here on; gives why it does not go on: nothing hinders it."""
        self._enter(migration, "rolling_back", why, {"paused": False})
        return ""

    def _enter(self, migration: Migration, state: State, why: str, fields: Fields = NOTHING) -> None:
        """The state and what serves in it are one change of the file: who is killed has changed both or neither."""
        stored = self._file.read()
        now = stored.epochs[-1] if stored.epochs else self._first
        entering = replace(migration, state=state, **fields)
        epoch = self._parts.switches[migration.kind].epoch(now, entering)
        epochs: tuple[Epoch, ...] = ()
        if epoch != now:
            begun = replace(epoch, since=self._seqs(), at=self._clock(), number=now.number + 1)
            epochs = (begun,) if stored.epochs else (self._first, begun)
        changed = {"wish": "", "trouble": "", **fields, "state": state}
        self._file.change(migration.id, migration.revision, why=why, epochs=epochs, **changed)
        self._publish(self._file.read())
        _log.info("migration %s: %s after %s%s", migration.id, state, migration.state, f" ({why})" if why else "")
        for known in (self._finished, self._opens, self.troubles):
            known.pop(migration.id, None)
        self._forget_question(migration.id)
        if migration.state == "canary" and (shadows := self._parts.shadows.get(migration.kind)) is not None:
            shadows.unwatch()
        if entering.ended:
            self._held.discard(migration.id)

    def _since(self, migration: Migration, seconds: float) -> bool:
        """Whether its state is that old."""
        return self._clock() - migration.steps[-1].at >= seconds * SECOND_US

    def _waited(self, migration: Migration, seconds: int) -> bool:
        return migration.wish == "advance" or self._since(migration, seconds)

    # ---- gates

    def _judged(self, migration: Migration) -> Outcome:
        """As its gate says. A gate that has failed is never passed over; one that could not decide is by `:advance`."""
        gate = _gate_of(migration)
        if gate is None or (gate.verdict == "undecided" and migration.wish != "advance" and self._is_old(gate)):
            self._ask(migration)
            return GOES_ON if gate is None else Outcome(False, f"{_undecided(gate)}; {ASKED_AGAIN}")
        if gate.verdict == "failed":
            return Outcome(False, self._turn_back(migration, f"gate failed: {'; '.join(gate.reasons)}"))
        if gate.verdict == "passed":
            return DONE
        if migration.wish == "advance":
            return Outcome(True, f"{ASKED_FOR}; {_undecided(gate)}")
        return Outcome(False, f"{_undecided(gate)}; {ASKED_AGAIN}")

    def _is_old(self, gate: Gate) -> bool:
        return self._clock() - gate.at >= self._bounds.ask_again_s * SECOND_US

    def _ask(self, migration: Migration) -> None:
        """Begin, or take what has been answered; a gate that could not decide gives way to the next of its state."""
        asked = self._asked.get(migration.id)
        if asked is None:
            asked = self._asked[migration.id] = Asked(self._parts.gates[migration.kind], migration)
        if not asked.answered:
            return
        self._asked.pop(migration.id)
        if (answer := asked.answer()) is None:
            return
        gate = replace(answer, state=migration.state, at=self._clock())
        before = _gate_of(migration)
        others = tuple(one for one in migration.gates if one is not before)
        self._file.change(migration.id, migration.revision, gates=(*others, gate))

    def _forget_question(self, migration_id: str) -> None:
        asked = self._asked.pop(migration_id, None)
        if asked is not None:
            asked.stop()


def _gate_of(migration: Migration) -> Gate | None:
    """The newest that was asked since the migration came into its state."""
    entered = migration.steps[-1].at
    asked = (one for one in reversed(migration.gates) if one.state == migration.state and one.at >= entered)
    return next(asked, None)


def _undecided(gate: Gate) -> str:
    return f"the gate could not decide: {'; '.join(gate.reasons)}"
