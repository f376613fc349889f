"""Each of a session's turns is shown, lies in the span of the summary that is shown, or is listed as left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.compress.compressor import Compressor
from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import build_context
from serve_app.core import Turn
from serve_app.memory import reading
from serve_app.memory.assembly import Moment, Retrieval, assemble, with_older
from serve_app.memory.compressors import Alone
from serve_app.memory.due import SummaryOptions
from serve_app.memory.expansion import Resolved
from serve_app.memory.refresher import Refresher
from serve_app.memory.requests import AsOf, ContextRequest
from serve_app.write.lifecycle import MoveTurns
from serve_app.write.operations import AppendTurns, DeleteTurn, EditTurn, NewTurn
from tests.write.shards import ANN, OneShard

WINDOW = 12
"""Turns that a context chooses from here, so that short sessions are longer than it."""

COLD = 2
NOW = 1_800_000_000_000_000
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OneShard, Refresher]]:
    folder: Path = tmp_path_factory.mktemp("between")
    shard = OneShard(folder, owner_turns_resident=16)
    options = SummaryOptions(every_turns=10**6, turns_max=20, max_age_s=10**6, target_tokens=120)
    refresher = Refresher(Alone(Compressor()), open_tokenizer(), options, lambda: NOW)
    refresher._writers = [shard.writer]  # it acts when it is told to
    yield shard, refresher
    shard.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 9)),
        st.tuples(st.just("refresh"), st.just(0)),
        st.tuples(st.sampled_from(["edit", "delete", "cold"]), st.integers(0, 30)),
    ),
    min_size=3,
    max_size=10,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, budget=st.integers(40, 1_500), back=st.integers(0, 8))
def test_every_turn_is_accounted_for(
    place: tuple[OneShard, Refresher],
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[str, int]],
    budget: int,
    back: int,
) -> None:
    monkeypatch.setattr(reading, "WINDOW_TURNS_MAX", WINDOW)
    shard, refresher = place
    session = f"s{next(NUMBERS)}"
    for act, number in steps:
        perform(shard, refresher, session, act, number)
    index = shard.block(ANN).sessions.get(session)
    if index is None:
        return
    as_of = max(index.seqs[0], shard.shard.applied_seq - back)
    request = ContextRequest("kettle?", budget, session, whole_user=False, as_of=AsOf(as_of))
    retrieval = Retrieval(Resolved("kettle?", None), None)
    state = assemble(shard.shard, ANN, request, retrieval, (), Moment(NOW, NOW, ("v",)))
    made = with_older(build_context(state.inputs, DEFAULT_LAYOUT, open_tokenizer()), state.older)
    held = [turn for turn in shard.shard.turns(ANN, index.seqs) if turn.seq <= as_of]
    text = "\n".join(message["content"] for message in made.messages)
    dropped = {one.id for one in made.dropped}
    span = (made.summary.first_seq, made.summary.last_seq) if made.summary else (0, -1)
    neither = [turn.id for turn in held if not (shown(turn, text) or span[0] <= turn.seq <= span[1])]
    assert set(neither) <= dropped
    assert made.total_tokens <= budget


def shown(turn: Turn, text: str) -> bool:
    return turn.content in text


def perform(shard: OneShard, refresher: Refresher, session: str, act: str, number: int) -> None:
    index = shard.block(ANN).sessions.get(session)
    if act == "say":
        said = [NewTurn("user", f"#{next(NUMBERS)}# the kettle is {'very ' * (n % 5)}hot") for n in range(number)]
        shard.do(AppendTurns(ANN, session, said))
    elif index is None:
        return
    elif act == "refresh":
        refresher.refresh(shard.shard, ANN, session)
    else:
        turn_id, seq = list(index.ids.items())[number % len(index.ids)]
        if act == "edit":
            if not shard.block(ANN).moved.is_cold(seq):
                shard.do(EditTurn(ANN, session, turn_id, f"#{next(NUMBERS)}# edited", None))
        elif act == "delete":
            shard.do(DeleteTurn(ANN, session, turn_id))
        else:
            shard.fold()
            shard.do(MoveTurns(ANN, session, COLD, [seq], index.seqs[-1]))
