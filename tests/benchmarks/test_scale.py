"""`memstrata bench scale`: its sizes, its phases on a small store, and how its figures are judged."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import scale, scale_table
from benchmarks.scale import ScaleFailed, sized
from benchmarks.scale_load import ROUND_USERS, SESSION_TURNS, Words, batches, sentinel


def test_every_user_gets_as_many_turns_and_a_session_is_written_whole() -> None:
    users, turns = list(range(ROUND_USERS + 7)), SESSION_TURNS + 3
    wanted = list(batches(users, turns))
    written = Counter[int]()
    for batch in wanted:
        written[batch.user] += batch.turns
    assert set(written) == set(users)
    assert set(written.values()) == {turns}
    assert len({(batch.user, batch.session) for batch in wanted}) == len(wanted) == 2 * len(users)
    assert wanted == list(batches(users, turns)), "the same in every run"


def test_a_turn_holds_its_users_word_and_nobody_elses() -> None:
    text = Words().turn(random.Random(1), 12)
    assert sentinel(12) in text
    assert sentinel(13) not in text


def test_sizes_that_do_not_divide_are_said_before_anything_starts() -> None:
    with pytest.raises(ScaleFailed):
        scale.measure(sized(scale.QUICK, turns=1_001))


def test_the_phases_on_a_small_store(tmp_path: Path) -> None:
    options = sized(scale.QUICK, phases=("ingest", "restart", "erase"), data=tmp_path)
    told = scale.measure(options)
    assert told == json.loads((tmp_path / scale.RESULT).read_text())
    assert told["ingest"]["first"]["turns"] + told["ingest"]["rest"]["turns"] == options.turns
    assert told["restart"]["warm_disk_ms"]["requests"] > 0
    erased = told["erase"]
    assert erased["files_before"] > 0, "the scan would find the word"
    assert (erased["files_after"], erased["found_after"]) == (0, 0)
    assert (erased["receipt_right"], erased["others_unchanged"]) == (True, True)
    shown = scale_table.table(told)
    assert all(name in shown for name, *_ in scale_table.lines(told))
    assert "bar" not in shown, "a tiny store meets or misses nothing"


def test_a_figure_over_its_bar_is_named() -> None:
    told = {"memory": {"bytes_a_turn": scale_table.BYTES_A_TURN, "process_bytes": 1}}
    assert scale_table.missed(told) == []
    told["memory"]["bytes_a_turn"] += 1
    assert scale_table.missed(told) == ["memory of a turn in the hot tier"]
    assert "bar 8,192: missed" in scale_table.table(told | {"turns": 1, "users": 1, "machine": {"cores": 1}})
    assert scale_table.missed(told | {"bars": False}) == []
