"""The file of migrations: compare-and-set among processes, steps, epochs in the same write, and its bounds."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from serve_app.errors import MigrationChanged, MigrationRunning, NotFound, StoreUnavailable
from serve_app.migrate.migration_file import ENDED_KEPT, GATES_KEPT, MIGRATIONS_FILE, STEPS_KEPT, MigrationFile
from serve_app.migrate.record import Gate, Migration, Terms
from serve_app.routing import EPOCHS_MAX, Epoch, Routing
from serve_app.stores.documents_disk import DiskDocuments


def a_file(folder: Path) -> MigrationFile:
    """Its clock goes on by ten with each look."""
    ticks = itertools.count(100, 10)
    return MigrationFile(DiskDocuments(folder), lambda: next(ticks))


def ended(file: MigrationFile) -> Migration:
    made = file.add("embedding", Terms())
    return file.change(made.id, made.revision, state="rolled_back")


def test_one_of_a_kind_at_a_time(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    first = file.add("embedding", Terms(k=5), options={"model": "hash-96"})
    assert (first.id, first.state, first.terms.k, first.steps[0].at) == ("m1", "prepare", 5, 100)
    with pytest.raises(MigrationRunning, match="m1"):
        file.add("embedding", Terms())
    assert file.add("reranker", Terms()).id == "m2"
    file.change("m1", 0, state="done")
    assert file.add("embedding", Terms()).id == "m3"


def test_a_change_is_to_the_revision_that_was_read(tmp_path: Path) -> None:
    file, other_process = a_file(tmp_path), a_file(tmp_path)
    file.add("embedding", Terms())
    assert other_process.change("m1", 0, state="dual_write", why="because").revision == 1
    with pytest.raises(MigrationChanged):
        file.change("m1", 0, state="rolling_back")
    found = file.find("m1")
    assert (found.state, [(one.state, one.why) for one in found.steps]) == (
        "dual_write",
        [("prepare", ""), ("dual_write", "because")],
    )
    assert file.change("m1", 1, trouble="late").steps == found.steps
    with pytest.raises(NotFound):
        file.change("m2", 0, trouble="late")


def test_of_many_that_decide_at_once_one_has_decided(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.add("embedding", Terms())
    won: list[str] = []

    def decide(word: str) -> None:
        try:
            a_file(tmp_path).change("m1", 0, trouble=word)
            won.append(word)
        except MigrationChanged:
            pass

    threads = [threading.Thread(target=decide, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [file.find("m1").trouble]


def test_an_amendment_sees_the_newest_state(tmp_path: Path) -> None:
    file, other = a_file(tmp_path), a_file(tmp_path)
    file.add("embedding", Terms())
    for one in (file, other, file):
        one.amend("m1", lambda found: {"fence": found.fence + 1})
    assert (file.find("m1").fence, file.find("m1").revision) == (3, 3)
    assert file.amend("m1", lambda found: {}).revision == 3  # nothing changes


def test_an_epoch_is_written_with_its_state(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.add("embedding", Terms())
    epoch = Epoch(Routing("a", "a"), (3, 4), 5, target=Routing("b", "b"), share=0.05, migration="m1")
    with pytest.raises(MigrationChanged):
        file.change("m1", 7, state="canary", epochs=[epoch])
    assert file.read().epochs == ()
    file.change("m1", 0, state="canary", epochs=[epoch])
    assert a_file(tmp_path).read().epochs == (epoch,)


def test_encoders_are_kept_until_their_version_goes(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.keep_encoder("new", {"model": "hash-96"})
    file.keep_encoder("other", {"model": "hash-32"})
    file.keep_encoder("new", None)
    assert a_file(tmp_path).read().encoders == {"other": {"model": "hash-32"}}


def test_everything_in_it_is_bounded_and_what_runs_is_never_forgotten(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    running = file.add("reranker", Terms())
    for _ in range(ENDED_KEPT + 3):
        ended(file)
    kept = file.read().migrations
    assert [one.id for one in kept] == [running.id, *(f"m{number}" for number in range(5, ENDED_KEPT + 5))]
    for number in range(max(STEPS_KEPT, EPOCHS_MAX) + 2):
        state = ("canary", "verify")[number % 2]
        running = file.change(running.id, running.revision, state=state, epochs=[Epoch(Routing("a", "a"), at=number)])
    gates = tuple(Gate("verify", "passed", at) for at in range(GATES_KEPT + 1))
    running = file.change(running.id, running.revision, gates=gates)
    assert (len(running.steps), len(running.gates), running.gates[-1].at) == (STEPS_KEPT, GATES_KEPT, GATES_KEPT)
    assert (len(file.read().epochs), file.read().epochs[0].at) == (EPOCHS_MAX, STEPS_KEPT + 2 - EPOCHS_MAX)


def test_a_damaged_file_keeps_what_was_read_and_takes_no_change(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.add("embedding", Terms())
    (tmp_path / MIGRATIONS_FILE).write_text("{")
    assert file.read().migrations[0].id == "m1"
    assert "cannot be read" in (file.trouble or "")
    with pytest.raises(StoreUnavailable):
        file.change("m1", 0, state="dual_write")
