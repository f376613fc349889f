"""Two services' writers on one shard, log and tables: turns of both are acknowledged once, or refused and not there."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from pathlib import Path

import pytest

from serve_app.errors import Fenced
from serve_app.write.operations import AppendTurns, NewTurn
from tests.write.shards import ANN, WAIT_S, OneShard

SHORT, LONG = 5, 200
TURNS = 15


def contest(folder: Path, number: int) -> tuple[list[str], int]:
    """Both open the shard at once and write; gives the ids that were acknowledged, and how many writers stopped."""
    start = threading.Barrier(2)
    acknowledged: list[str] = []
    refused: list[int] = []

    def write(side: int) -> None:
        start.wait()
        one = OneShard(folder)
        ids = [f"{number}-{side}-{step}" for step in range(TURNS)]
        asked = [one.writer.submit(AppendTurns(ANN, "s", [NewTurn("user", name, id=name)])) for name in ids]
        wait(asked, WAIT_S)
        faults = [future.exception() for future in asked]
        acknowledged.extend(name for name, fault in zip(ids, faults, strict=True) if fault is None)
        assert all(fault is None or isinstance(fault, Fenced) for fault in faults), faults
        if any(faults):
            refused.append(side)
            assert (one.shard.log.writable, one.shard.doubts) == (
                False,
                ("stale: another service has taken this shard over",),
            )
        one.close()

    sides = [threading.Thread(target=write, args=(side,)) for side in range(2)]
    for side in sides:
        side.start()
    for side in sides:
        side.join()
    return acknowledged, len(refused)


@pytest.mark.parametrize("rounds", [SHORT, pytest.param(LONG, marks=pytest.mark.slow)])
def test_of_two_writers_one_stops_and_no_turn_is_lost_or_doubled(tmp_path: Path, rounds: int) -> None:
    OneShard(tmp_path).close()
    told: list[str] = []
    stopped = 0
    for number in range(rounds):
        acknowledged, refused = contest(tmp_path, number)
        told += acknowledged
        stopped += refused
        assert refused <= 1
        if number % 10 == 9:
            judge(tmp_path, told)
    judge(tmp_path, told)
    print(f"\n{rounds} rounds: {len(told)} turns acknowledged, {stopped} writers stopped")


def judge(folder: Path, told: list[str]) -> None:
    one = OneShard(folder)
    contents = one.contents(ANN, "s")
    assert len(contents) == len(set(contents))
    assert set(told) <= set(contents)
    assert len(told) == len(set(told))
    one.fold()
    one.shard.log.drop_through(one.shard.folded_seq)
    one.close()
