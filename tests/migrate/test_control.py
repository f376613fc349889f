"""Control: from state to state by the file alone, with gates, waits and the operator's words, killed at any instant."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from serve_app.errors import EncoderUnavailable
from serve_app.migrate.migration_file import MigrationFile
from serve_app.migrate.record import FOLLOWS, Migration, State, Terms, next_state
from serve_app.routing import Epoch, Routing
from serve_app.stores.documents_disk import DiskDocuments
from tests.migrate.parts import BOUNDS, NEW, OLD, Killed, Process, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def states(migration: Migration) -> list[State]:
    return [one.state for one in migration.steps]


def serves(world: World, user: str = "t\x1fu") -> Routing:
    assert world.plan is not None
    return world.plan.now.of_owner(user)


def through(process: Process) -> Migration:
    """To the end of one on usual terms, as time goes by."""
    world = process.world
    process.until("canary")
    world.later(3_600)
    process.until("soak")
    world.later(7 * 86_400)
    process.until("retire")
    world.later(BOUNDS.grace_s)
    return process.until("done")


def test_each_state_has_one_that_follows_it() -> None:
    for kind, order in FOLLOWS.items():
        for state, following in itertools.pairwise(order):
            assert next_state(Migration("m", kind, state, 0, terms=Terms())) == following
        with pytest.raises((ValueError, IndexError)):
            next_state(Migration("m", kind, "rolling_back", 0, terms=Terms()))


def test_a_migration_goes_through_its_states_in_order(world: World) -> None:
    process = Process(world)
    process.begin()
    done = through(process)
    assert states(done) == list(FOLLOWS["embedding"])
    assert [one.state for one in done.gates] == ["verify", "canary"] == world.gates
    assert (world.base, world.held, world.running, serves(world)) == (NEW, {"new"}, False, NEW)
    assert (done.dual_from, world.dual, done.wish, done.trouble) == ((7,), (7,), "", "")


def test_what_serves_follows_the_state_and_is_remembered(world: World) -> None:
    process = Process(world)
    process.begin(canary_share=0.25)
    process.until("canary")
    assert 0.2 < sum(serves(world, f"t\x1f{number}") == NEW for number in range(1_000)) / 1_000 < 0.3
    world.later(3_600)
    process.until("soak")
    assert serves(world) == NEW
    world.later(7 * 86_400)
    process.until("retire")
    assert (serves(world), world.held, world.plan.held if world.plan else ()) == (NEW, {"old", "new"}, ("new",))
    epochs = process.file.read().epochs
    assert [(one.base, one.target, one.share) for one in epochs] == [
        (OLD, None, 0.0),
        (OLD, NEW, 0.25),
        (OLD, NEW, 1.0),
        (NEW, None, 0.0),
    ]
    assert epochs[0].since == ()
    assert [one.since for one in epochs] == sorted(one.since for one in epochs)


@pytest.mark.parametrize("state", ["verify", "canary"])
def test_a_failed_gate_turns_back_by_itself(world: World, state: State) -> None:
    process = Process(world)
    process.begin(canary_s=10)
    process.until(state)
    world.verdict = "failed"
    world.later(10)
    turning = process.until("rolling_back")
    assert turning.steps[-1].why == "gate failed: recall fell"
    assert (serves(world), world.held) == (OLD, {"old", "new"})
    process.settled()
    assert world.held == {"old", "new"}  # somebody may still be answered by it
    world.later(BOUNDS.grace_s)
    ended = process.until("rolled_back")
    assert (ended.steps[-1].why, world.held, world.dual, world.lacking) == (
        "gate failed: recall fell",
        {"old"},
        (),
        3,
    )


def test_a_gate_that_cannot_decide_waits_and_is_asked_again(world: World) -> None:
    world.verdict = "undecided"
    process = Process(world)
    process.begin()
    process.until("verify")
    waiting = process.settled()
    trouble = "the gate could not decide: recall fell; it is asked again; :advance goes on without it"
    assert (waiting.state, waiting.trouble) == ("verify", trouble)
    assert (len(waiting.gates), len(world.gates)) == (1, 1)
    world.later(BOUNDS.ask_again_s)
    assert (len(process.settled().gates), len(world.gates)) == (1, 2)
    world.verdict = "passed"
    world.later(BOUNDS.ask_again_s)
    assert process.until("canary").trouble == ""


def test_an_operator_goes_on_where_a_gate_could_not_decide(world: World) -> None:
    world.verdict = "undecided"
    process = Process(world)
    process.begin()
    process.until("verify")
    wish(process, "advance")
    went = process.until("canary")
    assert went.steps[-1].why == "asked for; the gate could not decide: recall fell"
    assert process.settled().state == "canary"  # the word was for one state


@pytest.mark.parametrize("state", ["verify", "canary"])
def test_no_word_passes_over_a_failed_gate(world: World, state: State) -> None:
    process = Process(world)
    process.begin()
    process.until(state)
    world.verdict = "failed"
    wish(process, "advance")
    process.until("rolling_back")


def test_advance_ends_the_waits_of_canary_and_soak(world: World) -> None:
    process = Process(world)
    process.begin()
    process.until("canary")
    assert process.settled().state == "canary"
    wish(process, "advance")
    process.until("soak")
    assert process.settled().state == "soak"
    wish(process, "advance")
    assert process.until("retire").steps[-1].why == "asked for"
    assert world.gates == ["verify", "canary"]


def test_a_canary_goes_on_until_enough_searches_are_compared(world: World) -> None:
    world.reads = 9
    process = Process(world)
    process.begin(canary_reads=10)
    process.until("canary")
    world.later(3_600)
    waiting = process.settled()
    assert (waiting.state, world.watched, world.gates) == ("canary", "m1", ["verify"])
    assert waiting.trouble == "too few searches have been answered by both"
    world.reads = 10
    process.until("soak")
    assert world.watched == ""


def test_without_auto_each_state_waits_for_a_word(world: World) -> None:
    process = Process(world)
    process.begin(auto=False, canary_s=0, soak_s=0)
    for state in FOLLOWS["embedding"][:-2]:
        waiting = process.settled()
        assert (waiting.state, waiting.trouble) == (state, "waits for :advance")
        wish(process, "advance")
    process.until("retire")
    world.later(BOUNDS.grace_s)
    process.until("done")
    assert world.gates == ["verify", "canary"]  # once each


@pytest.mark.parametrize("word", [{"wish": "rollback"}, {"paused": True}])
def test_a_gate_that_nobody_needs_any_more_is_told_so(world: World, word: dict[str, Any]) -> None:
    world.slow = True
    process = Process(world)
    process.begin()
    process.until("verify")
    process.tick()
    assert world.asking.wait(5)
    process.file.amend("m1", lambda _: word)
    process.settled()
    assert world.stopped.wait(5)
    assert not process.migration.gates


def test_while_paused_nothing_goes_on_and_nothing_is_undone(world: World) -> None:
    process = Process(world)
    process.begin()
    process.until("backfill")
    process.tick()
    assert world.running
    process.file.amend("m1", lambda _: {"paused": True})
    paused = process.settled()
    assert (paused.state, world.running, world.lacking, world.dual) == ("backfill", False, 2, (7,))
    world.dual = ()  # as after a restart
    Process(world).settled()
    assert (world.dual, world.running) == ((7,), False)
    process.file.amend("m1", lambda _: {"paused": False})
    process.until("canary")


@pytest.mark.parametrize("state", FOLLOWS["embedding"][:-2])
def test_there_is_a_way_back_from_each_state_before_retire(world: World, state: State) -> None:
    process = Process(world)
    process.begin(canary_s=0, auto=False)
    while process.settled().state != state:
        wish(process, "advance")
    wish(process, "rollback", paused=True)
    assert process.until("rolling_back").steps[-1].why == "asked for"
    assert (serves(world), world.base, world.running) == (OLD, OLD, False)
    world.later(BOUNDS.grace_s)
    process.until("rolled_back")
    assert (world.held, world.dual, world.base) == ({"old"}, (), OLD)


def test_there_is_no_way_back_from_retire(world: World) -> None:
    process = Process(world)
    process.begin(canary_s=0, soak_s=0)
    process.until("retire")
    wish(process, "rollback")
    world.later(BOUNDS.grace_s)
    process.until("done")


def test_what_cannot_be_loaded_is_tried_again_and_then_given_up(world: World) -> None:
    world.fault = EncoderUnavailable("no weights")
    process = Process(world)
    process.begin()
    trying = process.settled()
    assert (trying.state, trying.trouble, process.control.troubles) == ("prepare", "no weights", {"m1": "no weights"})
    for _ in range(BOUNDS.opens):
        world.later(BOUNDS.again_s)
        process.tick()
    assert process.migration.steps[-1].why == "no weights"
    world.fault = None
    world.later(BOUNDS.grace_s)
    process.until("rolled_back")
    assert process.control.troubles == {}


def test_what_never_will_do_is_given_up_at_once(world: World) -> None:
    world.unfit = "its vectors are not of unit length"
    process = Process(world)
    process.begin()
    process.tick()
    assert (process.migration.state, process.migration.steps[-1].why) == ("rolling_back", world.unfit)


def test_an_encoder_that_does_not_open_after_a_restart_leaves_the_base_serving(world: World) -> None:
    process = Process(world)
    process.begin()
    process.until("canary")
    world.fault = EncoderUnavailable("no weights")
    world.held.discard("new")
    again = Process(world)
    assert again.settled().trouble == "no weights"
    assert {serves(world, f"t\x1f{number}").primary for number in range(100)} == {"old"}
    world.fault = None
    world.later(BOUNDS.again_s)
    again.settled()
    assert {serves(world, f"t\x1f{number}").primary for number in range(100)} == {"old", "new"}


def test_turns_that_lack_vectors_after_all_are_filled_in(world: World) -> None:
    process = Process(world)
    process.begin()
    process.until("verify")
    world.lacking = 2
    process.until("backfill")
    went = process.until("canary")
    assert states(went)[3:] == ["verify", "backfill", "verify", "canary"]


def killed_at(folder: Path, instant: int, back: bool) -> tuple[World, Migration] | None:
    """A migration whose process is killed at that instant, and taken up by another; None where it ended before."""
    world = World(folder, kill_at=instant)
    try:
        process = Process(world)
        process.begin(canary_s=0, soak_s=0)
        run(process, back)
    except Killed:
        world.kill_at = -1
    else:
        return None
    process = Process(world)
    if not process.file.read().migrations:
        process.begin(canary_s=0, soak_s=0)
    return world, run(process, back)


def epochs_of(world: World) -> tuple[Epoch, ...]:
    return MigrationFile(DiskDocuments(world.folder), world.clock).read().epochs


def run(process: Process, back: bool) -> Migration:
    world = process.world
    if back and process.migration.state not in ("rolling_back", "rolled_back"):
        process.until("canary")
        wish(process, "rollback")
        process.until("rolling_back")
    if not back and process.migration.state != "done":
        process.until("retire")
    world.later(BOUNDS.grace_s)
    return process.until("rolled_back" if back else "done")


@pytest.mark.parametrize("back", [False, True])
def test_killed_at_any_instant_it_ends_as_if_it_had_not_been(tmp_path: Path, back: bool) -> None:
    instant = 0
    while (ended := killed_at(tmp_path / str(instant), instant, back)) is not None:
        world, migration = ended
        assert states(migration) == (
            [*FOLLOWS["embedding"][:5], "rolling_back", "rolled_back"] if back else list(FOLLOWS["embedding"])
        )
        assert (world.base, world.held) == ((OLD, {"old"}) if back else (NEW, {"new"}))
        assert (serves(world), len(epochs_of(world))) == (OLD if back else NEW, 3 if back else 4)
        instant += 1
    assert instant > 40  # or hardly anything was killed


def wish(process: Process, word: str, **more: bool) -> None:
    process.file.amend(process.migration.id, lambda _: {"wish": word, **more})
