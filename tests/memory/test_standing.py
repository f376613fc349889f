"""What binds a user for good stands in the facts zone of every session's contexts, as quoted data, while its turn does.

Summaries are put by hand, so that what binds does not hang on how a ledger reads a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.context.layout import DEFAULT_LAYOUT
from serve_app.context.tokens import open_tokenizer
from serve_app.context.window import Context, build_context
from serve_app.core import Constraint, Summary
from serve_app.memory.assembly import Moment, Retrieval, assemble
from serve_app.memory.expansion import Resolved
from serve_app.memory.requests import AsOf, ContextRequest
from serve_app.memory.standing import STANDING_MAX
from serve_app.stores.block import SUMMARY_VERSIONS_MAX
from serve_app.write.derived import PutSummary
from serve_app.write.facts import PutFact
from serve_app.write.operations import DeleteSession, DeleteTurn, EditTurn
from tests.write.shards import ANN, BOB, OneShard

NOW = 1_700_000_000_000_000
LATER = NOW + 10**13
ALLERGY = "I am allergic to peanuts."


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[OneShard]:
    shard = OneShard(tmp_path / "store")
    yield shard
    shard.close()


def said(shard: OneShard, session: str, turn_id: str, text: str, owner: str = ANN, **more: object) -> Summary:
    """A turn, and the summary of its session with that as its only entry; gives what was stored."""
    seq = shard.say_as(owner, session, turn_id, text).seq
    assert seq is not None
    entry = Constraint(text, turn_id, seq, lasting=True)
    return put(shard, session, (entry,), seq, owner, **more)


def put(
    shard: OneShard, session: str, entries: tuple[Constraint, ...], seq: int, owner: str = ANN, **more: object
) -> Summary:
    values = {"expires_at": LATER} | more
    made = Summary(session, "text", seq, seq, 1, "v", "h", 0, NOW, constraints=entries, **values)  # type: ignore[arg-type]
    stored = shard.do(PutSummary(owner, made, shard.shard.applied_seq))
    assert isinstance(stored, Summary)
    return stored


def context(
    shard: OneShard, session: str | None = "new", query: str = "What for dinner?", seq: int | None = None,
    whole_user: bool = True, notes: tuple[str, ...] = (), now: int = NOW, owner: str = ANN, budget: int = 2_000,
) -> Context:  # fmt: skip
    request = ContextRequest(query, budget, session, notes=notes, whole_user=whole_user, as_of=AsOf(seq))
    retrieval = Retrieval(Resolved(query, None), None)
    state = assemble(shard.shard, owner, request, retrieval, (), Moment(now, now, ("v",)))
    return build_context(state.inputs, DEFAULT_LAYOUT, open_tokenizer())


def zone(made: Context) -> list[str]:
    """The lines of the facts zone, without their mark and date."""
    text = next((one["content"] for one in made.messages if one["content"].startswith("Facts")), "")
    return [line.partition(" ")[2] for line in text.splitlines()[1:-1]]


def test_it_stands_in_other_sessions_with_its_source_and_date(shard: OneShard) -> None:
    said(shard, "old", "t", ALLERGY)
    (line,) = zone(context(shard))
    assert line == f"2023-11-14, said in session old:] {ALLERGY}"
    assert zone(context(shard, None)) == [line]
    assert zone(context(shard, "old", whole_user=False)) == [line]
    assert not zone(context(shard, "new", whole_user=False))
    assert not zone(context(shard, owner=BOB))


def test_it_comes_after_facts_and_what_is_sent_along(shard: OneShard) -> None:
    said(shard, "old", "t", ALLERGY)
    shard.do(PutFact(ANN, "diet", "vegetarian", None, None))
    lines = zone(context(shard, notes=("speaks French",)))
    assert [line.partition("] ")[2] for line in lines] == ["vegetarian", "speaks French", ALLERGY]


def test_what_a_fact_says_anyway_is_not_said_again(shard: OneShard) -> None:
    said(shard, "old", "t", ALLERGY)
    said(shard, "other", "t", "I am  ALLERGIC to peanuts")
    assert len(zone(context(shard))) == 1
    shard.do(PutFact(ANN, "health", f"She said: {ALLERGY}", None, None))
    assert len(zone(context(shard))) == 1


def test_superseded_and_passing_entries_are_not_shown(shard: OneShard) -> None:
    seq = shard.say_as(ANN, "old", "t", "never peanuts. 5 euros today. no fish").seq
    assert seq is not None
    entries = (
        Constraint("never peanuts", "t", seq, "superseded", seq + 1, lasting=True),
        Constraint("5 euros today", "t", seq),
        Constraint("no fish", "t", seq, lasting=True),
    )
    put(shard, "old", entries, seq)
    assert [line.partition("] ")[2] for line in zone(context(shard))] == ["no fish"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ALLERGY, "I am no longer allergic to peanuts."),
        ("I only want aisle seats.", "From now on I only want window seats."),
        ("我对青霉素过敏。", "我已经不对青霉素过敏了。"),
    ],
)
def test_what_a_later_session_has_ended_is_not_shown(shard: OneShard, before: str, after: str) -> None:
    first = said(shard, "old", "t", before)
    said(shard, "beside", "t", "I never eat pork.")
    said(shard, "new", "u", after)
    assert [line.partition("] ")[2] for line in zone(context(shard))] == [after, "I never eat pork."]
    assert [line.partition("] ")[2] for line in zone(context(shard, seq=first.seq))] == [before]
    shard.do(DeleteSession(ANN, "new"))
    assert [line.partition("] ")[2] for line in zone(context(shard))] == ["I never eat pork.", before]


@pytest.mark.parametrize(
    "change",
    [EditTurn(ANN, "old", "t", "I eat anything.", None), DeleteTurn(ANN, "old", "t"), DeleteSession(ANN, "old")],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_it_goes_with_its_turn(shard: OneShard, change: EditTurn | DeleteTurn | DeleteSession, restarted: bool) -> None:
    said(shard, "old", "t", ALLERGY)
    assert zone(context(shard))
    shard.do(change)
    if restarted:
        shard.fold()
        shard.restart()
    assert not zone(context(shard))


@pytest.mark.parametrize("restarted", [False, True])
def test_it_outlives_the_text_of_its_summary(shard: OneShard, restarted: bool) -> None:
    said(shard, "old", "t", ALLERGY, expires_at=NOW + 1)
    said(shard, "passing", "p", "x", expires_at=NOW + 1)
    keeper = shard.housekeeper()
    keeper.perform("expire", 0)
    if restarted:
        shard.restart()
    made = context(shard, "old", now=NOW + 10**9)
    assert made.summary is None
    assert any(ALLERGY in line for line in zone(made))


def test_a_state_of_the_past_shows_what_stood_then(shard: OneShard) -> None:
    before = shard.say_as(ANN, "new", "n", "hello").seq
    first = said(shard, "old", "t", ALLERGY)
    then = context(shard, seq=first.seq)
    said(shard, "third", "t", "I never eat fish.")
    assert not zone(context(shard, seq=before))
    again = context(shard, seq=first.seq)
    assert (again.messages, again.context_id) == (then.messages, then.context_id)
    assert len(zone(context(shard))) == 2


def test_the_beginning_stays_while_turns_and_queries_change(shard: OneShard) -> None:
    said(shard, "old", "t", ALLERGY)
    first = context(shard, "old")
    for n in range(12):
        shard.say(ANN, "old", f"Turn {n}: I am allergic to peanuts, as I said.")
        other = context(shard, "old", f"And what about number {n}?")
        assert other.messages[0] == first.messages[0]
        assert other.stable_prefix_tokens == first.stable_prefix_tokens > 0


def test_the_newest_are_shown_and_no_more_than_so_many(shard: OneShard) -> None:
    for n in range(STANDING_MAX + 5):
        said(shard, f"s{n}", "t", f"no {n}")
    shown = [line.partition("] ")[2] for line in zone(context(shard, budget=20_000))]
    assert shown == [f"no {n}" for n in range(STANDING_MAX + 4, 4, -1)]


def test_what_is_kept_for_it_does_not_pile_up(shard: OneShard) -> None:
    for n in range(SUMMARY_VERSIONS_MAX + 4):
        said(shard, "old", f"t{n}", f"no {n}")
    shard.fold()
    shard.housekeeper().perform("expire", 0)
    assert len(shard.table.versions_of_summaries()[ANN, "old"]) == SUMMARY_VERSIONS_MAX
    before = zone(context(shard))
    shard.restart()
    assert zone(context(shard)) == before
