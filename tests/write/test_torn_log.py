"""What a shard makes of a log whose newest turns are damaged while their vectors and summaries stand behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve_app.core import Summary
from serve_app.stores.segment import decode
from serve_app.write.derived import PutSummary
from tests.write.shards import ANN, OneShard

SUMMARY = Summary(
    session="a", text="amber, birch", first_seq=1, last_seq=2, tokens=3, version="1", input_hash="", seq=0,
    created_at=0, expires_at=2**60,
)  # fmt: skip


def newest_turns(shard: OneShard) -> Path:
    """The newest segment that holds a turn."""
    segments = sorted((shard.folder / "log").glob("*.seg"))
    headers = [(path, decode(path.read_bytes()).header) for path in segments]
    return next(path for path, header in reversed(headers) if header and header.count and not header.derived)


@pytest.fixture
def written(shard: OneShard) -> OneShard:
    """Two turns, each in a segment of its own, then the vectors of both and a summary, in two further ones."""
    shard.say_as(ANN, "a", "1", "amber")
    shard.say_as(ANN, "a", "2", "birch")
    shard.embed(ANN, *shard.shard.turns(ANN, [1, 2]))
    shard.do(PutSummary(ANN, SUMMARY, shard.block(ANN).applied_seq))
    return shard


@pytest.mark.parametrize("folded_first", [False, True])
@pytest.mark.parametrize("header_lost", [False, True])
def test_vectors_and_summaries_of_lost_turns_are_forgotten_and_made_again(
    written: OneShard, folded_first: bool, header_lost: bool
) -> None:
    shard = written
    shard.close()
    torn = newest_turns(shard)
    torn.write_bytes(b"" if header_lost else torn.read_bytes()[:-1])
    shard.open("torn_tail")
    for _ in range(3):
        block = shard.block(ANN)
        assert [turn.content for turn in block.turns.values()] == ["amber"]
        assert (block.vectors.came, block.summaries) == ({}, {})
        assert shard.shard.pending.keys() == {1}
        assert shard.shard.pending.awaits(1, ANN, 1)
        shard.restart()
    again = shard.say_as(ANN, "a", "2", "birch")
    assert (again.status, (again.seq or 0) > 4) == ("stored", True)
    shard.embed(ANN, *shard.shard.turns(ANN, [1, again.seq or 0]))
    if folded_first:
        shard.housekeeper().fold_now(0)
    for _ in range(2):
        shard.restart()
        assert shard.block(ANN).vectors.came.keys() == {1, again.seq}
        assert shard.shard.pending == {}
        assert shard.contents(ANN, "a") == ["amber", "birch"]


def test_only_what_is_derived_says_so(written: OneShard) -> None:
    headers = [decode(path.read_bytes()).header for path in sorted((written.folder / "log").glob("*.seg"))]
    assert [(one.fence, one.derived) for one in headers if one] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
        (False, True),
    ]
