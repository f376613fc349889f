"""Summaries in the background: once for each state, after a restart too, in turn between owners, under a policy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from serve_app.compress.compressor import Compressed, Compressor
from serve_app.context.tokens import open_tokenizer
from serve_app.core import SECOND_US, Summary, Turn
from serve_app.memory.compressors import Alone
from serve_app.memory.due import SummaryOptions
from serve_app.memory.refresher import CLOSE_S, Refresher
from serve_app.memory.sweep import SummarySweep
from serve_app.policies import Policy, SummaryPolicy
from serve_app.ports import Summariser, Tokenizer
from serve_app.write.commit import microseconds
from serve_app.write.operations import AppendTurns, DeleteTurn, EditTurn, NewTurn
from tests.compress.saying import Scripted, heads
from tests.write.shards import ANN, BOB, WAIT_S, OneShard

P = TypeVar("P", bound=Policy)
SOON = SummaryOptions(settle_s=0.01, max_age_s=3_600)


class Counting(Compressor):
    """The real one; it counts, and where there is a gate it waits for it."""

    def __init__(self, model: Summariser | None = None) -> None:
        super().__init__(model)
        self.gate: threading.Event | None = None
        self.begun = threading.Event()
        self.asked: list[list[int]] = []
        self.reasons: tuple[str, ...] = ()

    def compress(
        self, turns: Sequence[Turn], target_tokens: int, tokenizer: Tokenizer, deadline_s: float | None = None
    ) -> Compressed:
        self.asked.append([turn.rev for turn in turns])
        self.begun.set()
        if self.gate is not None:
            self.gate.wait(WAIT_S)
        made = super().compress(turns, target_tokens, tokenizer, deadline_s)
        return made._replace(reasons=self.reasons)


class Place:
    """A shard, its refresher, and what they share; opened again it is as after a kill."""

    def __init__(self, folder: Path) -> None:
        self.compressor = Counting()
        self.options = SOON
        self.policy = SummaryPolicy()
        self.refresher: Refresher | None = None
        self.shard = OneShard(folder, committed=lambda shard, records: self._tell(shard, records))
        self.now = 0

    def clock(self) -> int:
        return microseconds() + self.now

    def _tell(self, *batch: object) -> None:
        if self.refresher is not None:
            self.refresher.committed(*batch)  # type: ignore[arg-type]

    def of(self, tenant: str, kind: type[P]) -> P:
        assert kind is SummaryPolicy
        return self.policy  # type: ignore[return-value]

    def of_service(self, kind: type[P]) -> P:
        raise AssertionError("no policy of the service decides here")

    def start(self) -> Refresher:
        self.refresher = Refresher(Alone(self.compressor), open_tokenizer(), self.options, self.clock, self)
        self.refresher.start([self.shard.writer])
        return self.refresher

    def restart(self) -> None:
        self.close()
        self.shard.open()

    def close(self) -> None:
        if self.refresher is not None:
            self.refresher.close()
            self.refresher = None
        self.shard.close()

    def say(self, session: str, *texts: str, owner: str = ANN) -> int:
        """Gives the seq of the last. They come now, not by the shard's clock."""
        self.shard.clock.now = self.clock()
        return self.shard.say(owner, session, *texts)[-1].seq or 0

    def summary(self, session: str, owner: str = ANN) -> Summary | None:
        return self.shard.block(owner).summary_at(session, None)

    def wait(self, session: str, until: Callable[[Summary], bool] = bool, owner: str = ANN) -> Summary:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            found = self.summary(session, owner)
            if found is not None and until(found):
                return found
            time.sleep(0.005)
        raise AssertionError("no such summary came")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "store")
    yield made
    if made.compressor.gate is not None:
        made.compressor.gate.set()
    made.close()


def words(count: int, start: int = 0) -> list[str]:
    return [f"Turn {n} says that the order is number 88{n}." for n in range(start, start + count)]


def test_every_five_turns(place: Place) -> None:
    place.start()
    last = place.say("a", *words(5))
    assert place.wait("a").last_seq == last
    last = place.say("a", *words(4, 5))
    time.sleep(0.2)
    assert place.summary("a").last_seq < last  # type: ignore[union-attr]
    last = place.say("a", *words(1, 9))
    assert place.wait("a", lambda one: one.last_seq == last).first_seq == 1
    assert len(place.compressor.asked) == 2


def test_few_turns_that_fill_the_zone(place: Place) -> None:
    place.options = SummaryOptions(settle_s=0.01, max_age_s=3_600, zone_tokens=50)
    place.start()
    last = place.say("a", "The order is number 8812. " * 10)
    assert place.wait("a").last_seq == last


def test_few_turns_that_have_waited_for_long(place: Place) -> None:
    place.options = SummaryOptions(settle_s=0.01, max_age_s=1)
    place.start()
    last = place.say("a", *words(2))
    time.sleep(0.3)
    assert place.summary("a") is None
    assert place.wait("a").last_seq == last


def test_a_policy_of_the_tenant(place: Place) -> None:
    place.policy = SummaryPolicy(every_turns=2, target_tokens=9, ttl_s=3_600)
    place.start()
    place.say("a", *words(2))
    made = place.wait("a")
    assert made.tokens <= made.target_tokens == 9
    assert made.expires_at - made.created_at == 3_600 * SECOND_US


def test_two_who_ask_for_one_state_get_one_summary(place: Place) -> None:
    refresher = place.start()
    place.compressor.gate = threading.Event()
    place.say("a", *words(7))
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(refresher.refresh, place.shard.shard, ANN, "a") for _ in range(4)]
        place.compressor.begun.wait(WAIT_S)
        time.sleep(0.05)
        place.compressor.gate.set()
        made = [one.result(WAIT_S) for one in asked]
    assert made == [place.summary("a")] * 4
    assert len(place.compressor.asked) == 1
    assert refresher.refresh(place.shard.shard, ANN, "a") == made[0]
    assert (len(place.compressor.asked), refresher.made) == (1, 1)


def test_turns_that_come_meanwhile_lie_after_it(place: Place) -> None:
    place.start()
    place.compressor.gate = threading.Event()
    last = place.say("a", *words(5))
    place.compressor.begun.wait(WAIT_S)
    newest = place.say("a", *words(3, 5))
    place.compressor.gate.set()
    assert place.wait("a").last_seq == last < newest
    assert [turn.seq for turn in place.shard.shard.turns(ANN, range(last + 1, newest + 1))] == [6, 7, 8]


@pytest.mark.parametrize(
    "change", [EditTurn(ANN, "a", "1", "The order is number 7777.", None), DeleteTurn(ANN, "a", "1")]
)
def test_what_changes_while_it_is_made_makes_it_anew(place: Place, change: EditTurn | DeleteTurn) -> None:
    refresher = place.start()
    place.compressor.gate = threading.Event()
    place.shard.say_as(ANN, "a", "1", "The order is number 6666.")
    place.say("a", *words(5))
    place.compressor.begun.wait(WAIT_S)
    place.shard.do(change)
    place.compressor.gate.set()
    made = place.wait("a")
    assert "6666" not in made.text
    assert refresher.discarded == 1
    assert len(place.compressor.asked) == 2


def test_what_is_erased_between_reading_and_asking_is_not_remembered(place: Place) -> None:
    """The erasure lets go of what is remembered, and only then comes who has read the turn before."""
    model = Scripted(heads)
    place.compressor = Counting(model)
    place.start()
    place.compressor.gate = threading.Event()
    place.shard.say_as(ANN, "a", "1", "The order is number 6666.")
    place.say("a", *words(5))
    place.compressor.begun.wait(WAIT_S)
    read = list(place.shard.block(ANN).turns.values())
    place.shard.do(DeleteTurn(ANN, "a", "1"))
    place.compressor.gate.set()
    place.wait("a")
    before = len(model.tasks)
    place.compressor.compress(read, place.options.target_tokens, open_tokenizer())
    assert len(model.tasks) > before


def test_a_change_in_another_session_does_not(place: Place) -> None:
    place.shard.clock.now = place.clock()
    refresher = place.start()
    place.shard.say_as(ANN, "b", "1", "old")
    place.compressor.gate = threading.Event()
    place.say("a", *words(5))
    place.compressor.begun.wait(WAIT_S)
    place.shard.do(EditTurn(ANN, "b", "1", "new", None))
    place.compressor.gate.set()
    assert place.wait("a")
    assert refresher.discarded == 0


def test_a_read_renews_what_nears_its_end_without_making_it_again(place: Place) -> None:
    refresher = place.start()
    place.say("a", *words(5))
    first = place.wait("a")
    place.now = 4 * 3_600 * SECOND_US
    refresher.ask(place.shard.shard, ANN, "a")
    time.sleep(0.1)
    assert place.summary("a") == first
    refresher.read(place.shard.shard, ANN, "a")
    second = place.wait("a", lambda one: one.created_at > first.created_at)
    assert (second.text, second.input_hash) == (first.text, first.input_hash)
    assert second.expires_at > place.clock() > first.expires_at
    assert len(place.compressor.asked) == 1


@pytest.mark.parametrize("folded", [False, True], ids=["in the tail", "in the tables"])
def test_after_a_restart_what_is_due_is_found_again(place: Place, folded: bool) -> None:
    last = place.say("a", *words(6))
    place.say("b", *words(2))
    place.say("c", *words(6), owner=BOB)
    Refresher(Alone(place.compressor), open_tokenizer(), SOON, place.clock)  # killed before it did anything
    if folded:
        place.shard.fold()
    place.restart()
    refresher = place.start()
    sweep = SummarySweep(refresher, place.clock, reach_s=3_600, page=4)
    if folded:
        assert refresher.waiting == 0
        while sweep.tend(0, place.shard.writer):
            continue
    assert place.wait("a").last_seq == last
    assert place.wait("c", owner=BOB)
    time.sleep(0.1)
    assert place.summary("b") is None
    assert len(place.compressor.asked) == 2


def test_after_a_restart_what_is_summed_up_is_not_made_again(place: Place) -> None:
    place.start()
    place.say("a", *words(6))
    place.wait("a")
    for folded in (False, True):
        if folded:
            place.shard.fold()
        place.restart()
        refresher = place.start()
        sweep = SummarySweep(refresher, place.clock, reach_s=3_600)
        assert not sweep.tend(0, place.shard.writer)
        assert refresher.refresh(place.shard.shard, ANN, "a") == place.summary("a")
    assert len(place.compressor.asked) == 1


def test_the_sweep_leaves_alone_what_is_older_than_a_summary_holds(place: Place) -> None:
    place.say("a", *words(6))
    place.shard.fold()
    place.now = 3_601 * SECOND_US
    refresher = place.start()
    refresher.close()
    sweep = SummarySweep(refresher, place.clock, reach_s=3_600, page=2)
    assert not sweep.tend(0, place.shard.writer)  # the newest page tells it


def test_one_slow_model_does_not_hold_the_others_up(place: Place) -> None:
    place.start()
    place.compressor.gate = gate = threading.Event()
    place.say("slow", *words(5))
    place.compressor.begun.wait(WAIT_S)
    place.compressor.gate = None
    place.say("quick", *words(5), owner=BOB)
    assert place.wait("quick", owner=BOB)
    assert place.summary("slow") is None
    gate.set()
    assert place.wait("slow")


def test_closing_does_not_wait_for_a_model(place: Place) -> None:
    refresher = place.start()
    place.compressor.gate = threading.Event()
    place.say("a", *words(5))
    place.compressor.begun.wait(WAIT_S)
    started = time.monotonic()
    refresher.close()
    assert time.monotonic() - started < CLOSE_S + 1


def test_nothing_that_may_be_quoted_is_not_looked_at_again(place: Place) -> None:
    refresher = place.start()
    place.shard.do(AppendTurns(ANN, "a", [NewTurn("user", f"code {n}", ttl_seconds=10**8) for n in range(5)]))
    place.compressor.begun.wait(WAIT_S)
    time.sleep(0.1)
    refresher.ask(place.shard.shard, ANN, "a")
    time.sleep(0.1)
    assert len(place.compressor.asked) == 1
    assert place.summary("a") is None


def test_why_it_is_less_than_it_could_be_is_kept_and_it_is_made_again_when_asked(place: Place) -> None:
    place.compressor.reasons = ("coarse: deadline",)
    refresher = place.start()
    place.say("a", *words(5))
    assert place.wait("a").reasons == ("coarse: deadline",)
    place.compressor.reasons = ()
    again = refresher.refresh(place.shard.shard, ANN, "a")
    assert again is not None
    assert again.reasons == ()
    assert len(place.compressor.asked) == 2
