"""Rewriting a shard's files while it is written and read: nothing waits for it long, nothing is lost by it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from serve_app.stores import table_files
from serve_app.write.operations import DeleteTurn
from tests.write.shards import ANN, BOB, OneShard, told

ROUNDS = 12


@pytest.fixture
def small_fragments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each round has something to merge, and more than one full fragment comes of it."""
    monkeypatch.setattr(table_files, "FRAGMENT_ROWS", 30)
    monkeypatch.setattr(table_files, "SMALL_FRAGMENTS_MAX", 2)


@pytest.mark.usefixtures("small_fragments")
def test_appends_and_reads_go_on_while_files_are_rewritten(tmp_path: Path) -> None:
    shard = OneShard(tmp_path, turns_resident=1)
    keeper = shard.housekeeper()
    over, failed = threading.Event(), []

    def until_over(act: object) -> None:
        try:
            while not over.is_set():
                act()  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failed.append(error)

    def touch() -> None:
        """As a first touch: whoever reads a block finds what was there before."""
        shard.shard.evict()
        assert len(shard.block(BOB).turns) == 20

    shard.say(BOB, "b", *(f"number{at}" for at in range(20)))
    acts = [lambda: keeper.purge_now(0), lambda: keeper.fold_now(0), touch]
    threads = [threading.Thread(target=until_over, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    written = []
    for round_ in range(ROUNDS):
        written += [one.id for one in shard.say(ANN, "a", *(f"word{round_} of {at}" for at in range(10)))]
        shard.do(DeleteTurn(ANN, "a", written.pop(0)))
    over.set()
    for thread in threads:
        thread.join()
    assert failed == []
    keeper.purge_now(0)
    assert list(shard.block(ANN).sessions["a"].ids) == written
    assert told(shard.rebuilt(ANN)[0]) == told(shard.block(ANN))
    assert len(shard.table.turns(ANN, list(shard.block(ANN).turns))) == len(written)
    shard.close()
