"""Summaries are made of a session's turns wherever they lie, and not of what has expired or changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from serve_app.compress.compressor import Compressor
from serve_app.context.tokens import open_tokenizer
from serve_app.core import Turn
from serve_app.memory.compressors import Alone
from serve_app.memory.due import SummaryOptions
from serve_app.memory.reading import SessionLine, sessions
from serve_app.memory.refresher import Refresher
from serve_app.stores.lance import RecordTable
from serve_app.write.operations import AppendTurns, DeleteSession, EditTurn, NewTurn
from tests.write.shards import ANN, OneShard

NOW = 1_700_000_000_000_000 + 10**12
IDLE = SummaryOptions(every_turns=10**6)
"""For a refresher that makes a summary when it is told to."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., OneShard]]:
    shards: list[OneShard] = []

    def open_shard(**options: object) -> OneShard:
        shards.append(OneShard(tmp_path / "store", **options))  # type: ignore[arg-type]
        return shards[-1]

    yield open_shard
    for shard in shards:
        shard.close()


@pytest.fixture
def refreshing() -> Iterator[Callable[..., Refresher]]:
    made: list[Refresher] = []

    def start(shard: OneShard, options: SummaryOptions = IDLE) -> Refresher:
        made.append(Refresher(Alone(Compressor()), open_tokenizer(), options, lambda: NOW))
        made[-1].start([shard.writer])
        return made[-1]

    yield start
    for refresher in made:
        refresher.close()


@pytest.mark.parametrize("folded", [False, True], ids=["in the tail", "in the table"])
def test_a_session_whose_turns_left_memory_has_a_summary(
    opened: Callable[..., OneShard], refreshing: Callable[..., Refresher], folded: bool
) -> None:
    shard = opened(owner_turns_resident=8)
    shard.say(ANN, "old", "The boiler is serviced by Anna Kowalska in March.", "Her number is 555 0199.")
    shard.say(ANN, "new", *(f"Turn {n} of another session." for n in range(30)))
    if folded:
        shard.fold()
    assert not {1, 2} & shard.block(ANN).turns.keys()
    summary = refreshing(shard).refresh(shard.shard, ANN, "old")
    assert summary is not None
    assert "Anna Kowalska" in summary.text
    assert (summary.first_seq, summary.last_seq) == (1, 2)
    assert shard.block(ANN).summary_at("old", None) == summary


def test_a_long_session_is_summed_up_from_its_newest_turns_in_memory_or_not(
    opened: Callable[..., OneShard], refreshing: Callable[..., Refresher]
) -> None:
    shard = opened(owner_turns_resident=8)
    shard.say(ANN, "a", *(f"Turn {n} says something." for n in range(40)))
    refresher = refreshing(shard, SummaryOptions(every_turns=10**6, turns_max=20))
    summary = refresher.refresh(shard.shard, ANN, "a")
    assert summary is not None
    assert (summary.first_seq, summary.last_seq) == (21, 40)


def test_expired_turns_are_not_in_it(opened: Callable[..., OneShard], refreshing: Callable[..., Refresher]) -> None:
    shard = opened(owner_turns_resident=8)
    shard.do(AppendTurns(ANN, "a", [NewTurn("user", "The code is 4711.", ttl_seconds=1)]))
    refresher = refreshing(shard)
    assert refresher.refresh(shard.shard, ANN, "a") is None
    shard.say(ANN, "a", *(f"Turn {n} says something." for n in range(20)))
    summary = refresher.refresh(shard.shard, ANN, "a")
    assert summary is not None
    assert "4711" not in summary.text


class Overtaken:
    """The real table; before it gives turns, something else happens."""

    def __init__(self, inner: RecordTable) -> None:
        self.inner = inner
        self.meanwhile: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def turns(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        while self.meanwhile:
            self.meanwhile.pop()()
        return self.inner.turns(owner, seqs)


@pytest.mark.parametrize(
    ("change", "left"), [(EditTurn(ANN, "a", "1", "new words", None), "new words"), (DeleteSession(ANN, "a"), "none")]
)
def test_a_change_while_turns_are_read_from_the_table_makes_it_overtaken_and_made_again(
    opened: Callable[..., OneShard],
    refreshing: Callable[..., Refresher],
    change: EditTurn | DeleteSession,
    left: str,
) -> None:
    shard = opened(owner_turns_resident=8, table=Overtaken)
    shard.say_as(ANN, "a", "1", "old words")
    shard.say(ANN, "b", *(f"Turn {n}" for n in range(30)))
    shard.fold()
    refresher = refreshing(shard)
    shard.table.meanwhile.append(lambda: shard.do(change))
    made = refresher.refresh(shard.shard, ANN, "a")
    assert refresher.discarded == 1
    assert shard.block(ANN).summary_at("a", None) == made
    assert ("none" if made is None else made.text.partition(" ")[2]) == left


def test_the_list_of_sessions_counts_no_turn_that_has_expired(opened: Callable[..., OneShard]) -> None:
    shard = opened()
    brief = [NewTurn("user", "brief", created_at=300, ttl_seconds=1)]
    shard.do(AppendTurns(ANN, "a", [NewTurn("user", "stays", created_at=100), *brief]))
    shard.do(AppendTurns(ANN, "b", brief))
    block = shard.block(ANN)
    assert sessions(block, 300) == [SessionLine("a", 2, 300), SessionLine("b", 1, 300)]
    assert sessions(block, 300 + 1_000_000) == [SessionLine("a", 1, 100)]
