"""What a context takes its query for: resolved by rules from the state that it is of, with the time that it names."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.memory.assembly import Moment, Retrieval, assemble
from serve_app.memory.due import SummaryOptions
from serve_app.memory.expansion import HISTORY_TURNS, Resolved, goes_on, resolved_as_of
from serve_app.memory.memory import MemoryOptions
from serve_app.memory.requests import AsOf, ContextRequest
from serve_app.write.operations import AppendTurns, DeleteTurn, EditTurn, NewTurn
from tests.api.running import Running, hash_settings, word
from tests.write.shards import ANN, OneShard

NOW = "2030-01-01T00:00:00Z"
SUMMARY = SummaryOptions(every_turns=1_000_000)
GOES_ON = "And how much was it?"
ANSWER = "The Leica that I took to Porto was 900 euros."
SAID = "I took the Leica to Porto."
LATER = 2 * 10**15
MOMENT = Moment(LATER, LATER, ("test",))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[list[Running]]:
    running = [Running(hash_settings(tmp_path, memory=MemoryOptions(summary=SUMMARY)))]
    yield running
    running[0].stop()


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[OneShard]:
    opened = OneShard(tmp_path / "store")
    yield opened
    opened.close()


def remember(running: Running, user: str) -> None:
    """An answer among much else, and a session that has just spoken of what it is about."""
    running.append(user, "old", ANSWER, *[f"the {word(n)} is number {n}" for n in range(40)], wait="indexed")
    running.append(user, "s", "Hello!", SAID, wait="indexed")


def pages(context: dict[str, Any]) -> dict[str, Any]:
    """All but how long it took and how its moment is named."""
    kept = {name: value for name, value in context.items() if name not in ("timings_ms", "as_of", "receipt")}
    kept["explain"] = kept["explain"] | {"rerankers": [{**one, "ms": 0} for one in kept["explain"]["rerankers"]]}
    return kept


def first(context: dict[str, Any]) -> str:
    """The best of what was retrieved from other sessions by its words; needs `explain`."""
    found = (one for one in context["retrieved"] if one["session_id"] == "old" and one["scores"]["bm25"] > 0)
    return next((one["content"] for one in found), "nothing")


def test_a_query_that_goes_on_finds_what_its_antecedent_finds(own: list[Running]) -> None:
    remember(own[0], "u")
    resolved = own[0].context("u", GOES_ON, session_id="s", budget=300, explain=True)
    assert first(resolved) == ANSWER
    assert resolved["messages"][-1]["content"] == GOES_ON
    assert first(own[0].context("u", GOES_ON, budget=300, explain=True)) == "nothing"
    history = [{"role": "user", "content": SAID}]
    assert first(own[0].context("u", GOES_ON, history=history, budget=300, explain=True)) == ANSWER


def test_it_is_the_same_after_a_fold_and_after_a_restart(own: list[Running]) -> None:
    remember(own[0], "u")
    asked = {"session_id": "s", "now": NOW, "budget": 300, "explain": True}
    before = own[0].context("u", GOES_ON, **asked)
    assert pages(own[0].context("u", GOES_ON, **asked)) == pages(before)
    own[0].fold()
    assert pages(own[0].context("u", GOES_ON, **asked)) == pages(before)
    own[0] = own[0].again()
    assert pages(own[0].context("u", GOES_ON, **asked)) == pages(before)


def test_as_of_an_earlier_state_it_is_resolved_from_what_was_said_by_then(own: list[Running]) -> None:
    remember(own[0], "u")
    asked = {"session_id": "s", "now": NOW, "budget": 300, "explain": True}
    before = own[0].context("u", GOES_ON, **asked)
    time.sleep(0.002)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 1_000_000_000:09d}Z"
    time.sleep(0.002)
    own[0].append("u", "s", f"What is the {word(7)}?", f"The {word(7)} is what I meant.", wait="indexed")
    after = own[0].context("u", GOES_ON, **asked)
    assert first(after) == f"the {word(7)} is number 7"
    for as_of in (before["as_of"], int(before["as_of"].partition(":")[2]), moment):
        assert pages(own[0].context("u", GOES_ON, **asked, as_of=as_of)) == pages(before), as_of


def test_turns_that_have_left_memory_are_resolved_from_all_the_same(tmp_path: Path) -> None:
    options = MemoryOptions(owner_turns_resident=20, summary=SUMMARY)
    running = Running(hash_settings(tmp_path, memory=options))
    try:
        remember(running, "u")
        running.append("u", "new", *[f"the {word(n)} is number {n}" for n in range(40, 70)], wait="indexed")
        for _ in range(2):
            running.fold()
            assert first(running.context("u", GOES_ON, session_id="s", budget=300, explain=True)) == ANSWER
            running = running.again()
    finally:
        running.stop()


def test_what_lies_in_the_window_has_a_boost(own: list[Running]) -> None:
    days = [f"2025-03-{day:02}T23:30:00Z" for day in range(1, 20)]
    turns = [{"role": "user", "content": "the lease costs much", "created_at": day} for day in days]
    own[0].append("u", "old", *turns, wait="indexed")
    for offset, day in (("+01:00", days[2]), ("-05:00", days[3])):  # whose 4 March it is
        now = f"2025-03-05T15:30:00{offset}"
        context = own[0].context("u", "the lease yesterday", now=now, explain=True)
        assert len(context["retrieved"]) == len(days)
        assert [one["created_at"] for one in context["retrieved"] if one["scores"]["window"] > 0] == [day]
        assert context["now"] == now
        assert context["explain"]["window"]["start"] == f"2025-03-04T00:00:00{offset}"


# ---- the rules over a real shard


def ask(query: str = GOES_ON, session: str = "s", as_of: int | None = None, **more: Any) -> ContextRequest:
    return ContextRequest(query=query, budget_tokens=800, session=session, as_of=AsOf(seq=as_of), **more)


def resolve(shard: OneShard, request: ContextRequest) -> Resolved:
    assert goes_on(request)
    return resolved_as_of(shard.shard, ANN, request, MOMENT.now, MOMENT.expiry)


def test_only_what_goes_on_looks_at_the_session() -> None:
    assert goes_on(ask("那价格呢？"))
    for query in (
        "What was it called again?",
        "And how much was the Leica in Porto?",
        "",
        "   ",
        GOES_ON + 1_100 * "!",
    ):
        assert not goes_on(ask(query)), query
    assert not goes_on(ContextRequest(query=GOES_ON, budget_tokens=800))
    assert not goes_on(ContextRequest(query=GOES_ON, budget_tokens=800, history=()))


def test_the_rest_of_the_context_is_of_the_state_that_the_query_was_resolved_in(shard: OneShard) -> None:
    """Also where turns arrive while it is embedded."""
    [said] = shard.say(ANN, "s", "I took the Leica along.")
    found = resolve(shard, ask())
    assert (found.seq, found.drawn_from) == (shard.block(ANN).applied_seq, {said.seq})
    assert "Leica" in found.query
    shard.say(ANN, "s", "The Nikon came later.")
    state = assemble(shard.shard, ANN, ask(), Retrieval(found, None), (), MOMENT)
    assert state.seq == found.seq
    assert [turn.text for turn in state.inputs.turns] == ["I took the Leica along."]
    assert state.inputs.degradation.reasons == ()
    assert "Nikon" in resolve(shard, ask()).query
    assert resolve(shard, ask(as_of=found.seq)) == found


def test_what_is_erased_expired_or_edited_away_lends_no_word(shard: OneShard) -> None:
    results = shard.say(ANN, "s", "I took the Leica along.", "The Nikon, too.", "Or the Pentax?")
    assert "Pentax" in resolve(shard, ask()).query
    assert results[1].id
    shard.do(DeleteTurn(ANN, "s", results[2].id))
    shard.do(EditTurn(ANN, "s", results[1].id, "The Olympus, too.", None))
    found = resolve(shard, ask()).query
    assert "Olympus" in found
    assert not {"Pentax", "Nikon"} & set(found.replace(",", " ").split())
    shard.do(AppendTurns(ANN, "s", [NewTurn("user", "The Minolta!", ttl_seconds=1)]))
    assert "Minolta" in resolved_as_of(shard.shard, ANN, ask(), MOMENT.now, 0).query
    assert "Minolta" not in resolve(shard, ask()).query
    assert resolve(shard, ask(session="another")).query == GOES_ON


def test_what_was_said_after_the_query_lends_no_word(shard: OneShard) -> None:
    turns = [("I took the Leica along.", 1), ("The Nikon came later.", LATER - 1), ("The Pentax!", LATER + 10**9)]
    shard.do(AppendTurns(ANN, "s", [NewTurn("user", text, created_at=at) for text, at in turns]))
    assert "Nikon" in resolve(shard, ask()).query
    assert "Pentax" not in resolve(shard, ask()).query
    early = resolved_as_of(shard.shard, ANN, ask(), 2, MOMENT.expiry)
    assert ("Leica" in early.query, "Nikon" in early.query) == (True, False)
    assert resolved_as_of(shard.shard, ANN, ask(), -(10**9), MOMENT.expiry).query == GOES_ON


def test_no_more_turns_are_looked_at_than_it_takes(shard: OneShard) -> None:
    shard.say(ANN, "s", *[f"the {word(n)}" for n in range(50)])
    found = resolve(shard, ask())
    assert len(found.drawn_from) == HISTORY_TURNS
    assert word(49) in found.query
