"""One owner's block: what each record does to it, as of which moment, and within which bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from serve_app.core import Fact, Owner, Summary, Turn
from serve_app.models.stub import HashEmbedder
from serve_app.records import (
    Erasure,
    FactGone,
    FactPut,
    Record,
    SessionGone,
    SummaryPut,
    TurnGone,
    TurnPut,
    TurnsMoved,
    TurnVectors,
    UserGone,
    VectorsPut,
    VersionVectors,
)
from serve_app.stores.block import (
    FACT_VERSIONS_MAX,
    RESIDENT_SLACK,
    SUMMARY_VERSIONS_MAX,
    Block,
    resident_turns,
)
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.packing import pack_vectors

OWNER = Owner("acme", "ann").key
EMBEDDER = HashEmbedder(64)
VERSION = EMBEDDER.version.name
BESIDE = HashEmbedder(32)
EMBEDDERS = (EMBEDDER, BESIDE)


class Remembering:
    """A block that takes records with the next seq each."""

    def __init__(self, resident_max: int = 100) -> None:
        self.hot = ExactHotIndex(64)
        self.beside = ExactHotIndex(32)
        versions = (EMBEDDER.version, BESIDE.version)
        self.block = Block(OWNER, versions, {VERSION: self.hot, BESIDE.version.name: self.beside}, resident_max)
        self.seq = 0

    def take(self, record: Record) -> int:
        self.block.apply(record)
        self.seq = record.seq
        return record.seq

    def say(self, content: str, session: str = "a", turn_id: str | None = None, expires_at: int | None = None) -> Turn:
        seq = self.seq + 1
        turn = Turn(turn_id or f"t{seq}", session, "user", content, seq, 1, seq * 10, rev=seq, expires_at=expires_at)
        self.take(TurnPut(OWNER, turn))
        return turn

    def edit(self, turn: Turn, content: str) -> Turn:
        edited = Turn(turn.id, turn.session, "user", content, turn.seq, 1, turn.created_at, rev=self.seq + 1)
        self.take(TurnPut(OWNER, edited))
        return edited

    def delete(self, turn: Turn) -> int:
        return self.take(TurnGone(self.seq + 1, OWNER, turn.session, turn.id, turn.seq))

    def embed(self, turn: Turn, *texts: str, version: str = VERSION) -> int:
        packed = pack_vectors(EMBEDDER.embed(texts or [turn.content]))
        item = TurnVectors(turn.seq, turn.rev, turn.session, turn.id, packed)
        return self.take(VectorsPut(self.seq + 1, OWNER, version, (item,)))

    def embed_all(self, turn: Turn, *texts: str, embedders: Sequence[HashEmbedder] = EMBEDDERS) -> int:
        """With the vectors of the tokens, under several versions in one record."""
        parts = []
        for one in embedders:
            made = one.encode(texts or [turn.content], tokens=True)
            assert made.tokens is not None
            packed, tokens = pack_vectors(made.vectors), np.concatenate(made.tokens).tobytes()
            item = TurnVectors(turn.seq, turn.rev, turn.session, turn.id, packed, tokens)
            parts.append(VersionVectors(one.version.name, (item,)))
        record = VectorsPut.of(self.seq + 1, OWNER, parts)
        assert record is not None
        return self.take(record)

    def tokens(self, *turns: Turn, version: str = VERSION, as_of: int | None = None) -> list[int]:
        """How many each turn has."""
        _, offsets = self.block.tokens(version, [turn.seq for turn in turns], as_of)
        return np.diff(offsets).tolist()

    def fact(self, value: str) -> int:
        return self.take(FactPut(OWNER, Fact("diet", value, self.seq + 1, 0)))

    def summary(self, last_seq: int, session: str = "a") -> int:
        one = Summary(session, f"to {last_seq}", 1, last_seq, 1, "v", "h", self.seq + 1, 0, 9)
        return self.take(SummaryPut(OWNER, one))

    def dense(self, text: str, as_of: int | None = None) -> list[float]:
        block = self.block
        return block.dense(VERSION, EMBEDDER.embed([text])[0], block.columns.until(as_of), as_of).tolist()

    def hits(self, term: str) -> list[int]:
        own, _ = self.block.columns.lexical.scores([term])
        return [self.block.columns.seqs[n] for n in np.flatnonzero(own)]


@pytest.fixture
def remembering() -> Remembering:
    return Remembering()


def test_a_record_that_was_taken_before_changes_nothing(remembering: Remembering) -> None:
    turn = remembering.say("amber")
    gone = TurnGone(2, OWNER, "a", turn.id, turn.seq)
    remembering.take(gone)
    again = remembering.say("birch", turn_id=turn.id)
    for record in (TurnPut(OWNER, turn), gone):
        remembering.block.apply(record)
    assert list(remembering.block.turns) == [again.seq]
    assert remembering.block.total_turns == 1


def test_the_best_part_of_a_turn_is_its_score(remembering: Remembering) -> None:
    remembering.say("no vector yet")
    long = remembering.say("amber zebra")
    remembering.embed(long, "amber", "zebra")
    scores = remembering.dense("zebra")
    assert np.isnan(scores[0])
    assert scores[1] == pytest.approx(1, abs=1e-3)


def test_as_of_a_seq_later_vectors_do_not_count(remembering: Remembering) -> None:
    turn = remembering.say("amber")
    came = remembering.embed(turn)
    assert np.isnan(remembering.dense("amber", as_of=came - 1)).all()
    assert remembering.dense("amber", as_of=came) == pytest.approx([1], abs=1e-3)


def test_vectors_of_an_older_state_or_another_version_are_ignored(remembering: Remembering) -> None:
    turn = remembering.say("amber")
    edited = remembering.edit(turn, "birch")
    remembering.embed(turn)
    remembering.embed(edited, version="another")
    assert remembering.block.vectors.came == {}
    assert remembering.hot.count(OWNER) == 0
    came = remembering.embed(edited)
    assert remembering.block.vectors.came == {turn.seq: came}


def test_an_edit_takes_words_and_vectors_of_the_old_text(remembering: Remembering) -> None:
    turn = remembering.say("amber")
    remembering.say("birch")
    remembering.embed(turn, "amber", "more")
    remembering.summary(2)
    edited = remembering.edit(turn, "cedar")
    assert (remembering.hits("amber"), remembering.hits("cedar")) == ([], [1])
    assert remembering.hot.count(OWNER) == 0
    assert remembering.block.summary_at("a", None) is None
    assert remembering.block.sessions["a"].summarised_seq == 0
    assert remembering.block.changed_seq == edited.rev
    assert list(remembering.block.turns) == [1, 2]


def seconds(act: Callable[[], object]) -> float:
    started = time.process_time()
    act()
    return time.process_time() - started


def test_an_edit_costs_its_turn_and_one_of_the_metadata_not_even_that(remembering: Remembering) -> None:
    turns = [remembering.say(" ".join(f"word{n * at % 977}" for at in range(4_000))) for n in range(1, 41)]
    one = seconds(lambda: remembering.say(turns[0].content))
    assert seconds(lambda: remembering.edit(turns[5], "amber")) < 10 * one
    assert remembering.hits("amber") == [6]
    assert seconds(lambda: [remembering.edit(turns[7], turns[7].content) for _ in range(10)]) < 5 * one
    assert 8 in remembering.hits("word0")


def test_an_edit_changes_the_speaker_and_the_day(remembering: Remembering) -> None:
    remembering.say("amber")
    edited = Turn("t1", "a", "user", "amber", 1, 1, 86_400_000_000, rev=2, speaker="Zoe")
    remembering.take(TurnPut(OWNER, edited))
    columns = remembering.block.columns
    assert columns.days(1).tolist() == [19700102]
    assert [columns.speaker_terms[n] for n in columns.speaker_of(1)] == [frozenset({"zoe"})]
    assert remembering.hits("zoe") == [1]


@pytest.mark.parametrize("maximum", [1, 7, 8, 16, 4096])
def test_resident_turns_grow_to_the_slack_and_fall_back(maximum: int) -> None:
    slack = maximum // RESIDENT_SLACK
    counts = [resident_turns(total, maximum) for total in range(3 * maximum)]
    assert counts[: maximum + slack + 1] == list(range(min(maximum + slack + 1, len(counts))))
    assert all(after in (before + 1, maximum) for before, after in pairwise(counts))
    assert max(counts) <= maximum + slack


def test_what_is_left_of_the_newest_turns_is_found_as_if_there_had_been_no_others() -> None:
    long, fresh = Remembering(resident_max=16), Remembering(resident_max=16)
    for n in range(60):
        turn = long.say(f"number{n} amber {'birch ' * (n % 3)}", session="ab"[n % 2])
        if n % 7 == 3:
            long.delete(turn)
    fresh.seq = next(iter(long.block.turns)) - 1
    for turn in long.block.turns.values():
        fresh.take(TurnPut(OWNER, turn))
    for term in ("amber", "birch", "number55"):
        alive = long.block.columns.alive(long.block.columns.until(None))
        for got, expected in zip(
            long.block.columns.lexical.scores([term]), fresh.block.columns.lexical.scores([term]), strict=True
        ):
            np.testing.assert_array_equal(got[alive], expected)


def test_the_last_time_of_a_session_is_that_of_its_last_turn(remembering: Remembering) -> None:
    remembering.say("amber")
    last = remembering.say("birch")
    remembering.delete(last)
    assert remembering.block.sessions["a"].last_at == 10


def test_a_session_ends_with_its_last_turn(remembering: Remembering) -> None:
    turn = remembering.say("amber")
    remembering.summary(1)
    remembering.delete(turn)
    assert remembering.block.sessions == {}
    assert remembering.block.summaries == {}
    again = remembering.say("birch", turn_id=turn.id)
    assert remembering.block.find("a", turn.id) == again.seq


def test_a_deletion_that_the_table_knew_before_still_counts_as_a_change(remembering: Remembering) -> None:
    """A fold removes rows before it sets the watermark: a block loaded between the two meets such a record."""
    remembering.say("amber")
    seq = remembering.take(TurnGone(5, OWNER, "a", "gone already", 3))
    assert remembering.block.changed_seq == seq
    assert remembering.block.total_turns == 1


def test_neighbours_are_those_of_the_session(remembering: Remembering) -> None:
    remembering.say("amber", "a")
    remembering.say("birch", "b")
    middle = remembering.say("cedar", "a")
    remembering.say("dahlia", "a")
    remembering.delete(middle)
    links = remembering.block.columns.lexical.links()
    assert links.following.tolist() == [3, -1, -1, -1]
    assert links.previous.tolist() == [-1, -1, -1, 0]


def test_values_of_a_fact_as_of_each_moment(remembering: Remembering) -> None:
    seqs = [remembering.fact(str(n)) for n in range(FACT_VERSIONS_MAX + 3)]
    kept = remembering.block.facts["diet"]
    assert [fact.seq for fact in kept] == seqs[3:]
    assert [fact.value for seq in seqs[3:] if (fact := remembering.block.fact_at("diet", seq))] == [
        str(n) for n in range(3, FACT_VERSIONS_MAX + 3)
    ]
    assert remembering.block.fact_at("diet", seqs[2]) is None
    assert remembering.block.fact_at("no such", None) is None
    gone = remembering.take(FactGone(remembering.seq + 1, OWNER, "diet"))
    assert remembering.block.fact_at("diet", None) is None
    assert remembering.block.changed_seq == gone


def test_summaries_of_a_session_as_of_each_moment(remembering: Remembering) -> None:
    remembering.say("amber")
    seqs = [remembering.summary(1) for _ in range(SUMMARY_VERSIONS_MAX + 2)]
    remembering.summary(1, session="unknown")
    assert [one.seq for one in remembering.block.summaries["a"]] == seqs[2:]
    found = remembering.block.summary_at("a", seqs[-2])
    assert found is not None
    assert found.seq == seqs[-2]
    assert remembering.block.summary_at("a", seqs[1]) is None
    assert remembering.block.summary_at("unknown", None) is None


def test_the_newest_turns_are_resident_within_the_bound() -> None:
    remembering = Remembering(resident_max=16)
    for n in range(60):
        turn = remembering.say(f"number{n} amber", session="ab"[n % 2], expires_at=10_000)
        remembering.embed(turn)
    block = remembering.block
    assert 16 <= len(block.turns) <= 16 + 16 // RESIDENT_SLACK
    newest = sorted(seq for index in block.sessions.values() for seq in index.seqs)[-len(block.turns) :]
    assert list(block.turns) == newest
    assert block.expiring.keys() == block.vectors.came.keys() == block.turns.keys()
    assert remembering.hot.count(OWNER) == len(newest)
    assert remembering.hits("amber") == newest
    assert block.total_turns == 60


def test_a_deleted_session_takes_turns_that_are_not_resident_too() -> None:
    remembering = Remembering(resident_max=8)
    for n in range(30):
        remembering.say(f"number{n}", session="a" if n < 20 else "b")
    remembering.take(SessionGone(remembering.seq + 1, OWNER, "a"))
    assert remembering.block.total_turns == 10
    assert remembering.block.find("a", "t1") is None
    assert remembering.block.sessions.keys() == {"b"}


def test_an_edit_of_a_turn_that_is_not_resident_is_noted() -> None:
    remembering = Remembering(resident_max=8)
    first = remembering.say("amber")
    for n in range(20):
        remembering.say(f"number{n}")
    edited = remembering.edit(first, "birch")
    assert first.seq not in remembering.block.turns
    assert remembering.hits("birch") == []
    assert remembering.block.changed_seq == edited.rev


def test_nothing_is_left_of_an_erased_user(remembering: Remembering) -> None:
    turn = remembering.say("amber", expires_at=10_000)
    remembering.embed(turn)
    remembering.fact("vegan")
    remembering.summary(1)
    seq = remembering.take(UserGone(remembering.seq + 1, OWNER, Erasure("er", "acme", 0)))
    block = remembering.block
    assert [block.sessions, block.turns, block.facts, block.summaries, block.vectors.came, block.expiring] == 6 * [{}]
    assert (block.total_turns, remembering.hot.count(OWNER), remembering.hits("amber")) == (0, 0, [])
    assert block.changed_seq == seq
    assert remembering.say("birch").seq in block.turns


def test_a_block_that_has_left_takes_nothing_more(remembering: Remembering) -> None:
    turn = remembering.say("amber")
    remembering.embed(turn)
    remembering.block.leave()
    remembering.embed(turn)
    assert remembering.hot.count(OWNER) == 0
    assert np.isnan(remembering.dense("amber")).all()
    assert remembering.hits("amber") == [turn.seq]


def test_blocks_of_two_owners_do_not_meet() -> None:
    hot = ExactHotIndex(64)
    ann, bob = (Block(key, (EMBEDDER.version,), {VERSION: hot}) for key in (OWNER, Owner("acme", "bob").key))
    turn = Turn("1", "a", "user", "amber", 1, 1, 1, rev=1)
    item = TurnVectors(1, 1, "a", "1", pack_vectors(EMBEDDER.embed(["amber"])))
    for block in (ann, bob):
        block.apply(TurnPut(block.key, turn))
        block.apply(VectorsPut(2, block.key, VERSION, (item,)))
    ann.apply(UserGone(3, OWNER, Erasure("er", "acme", 0)))
    assert bob.dense(VERSION, EMBEDDER.embed(["amber"])[0], 1, None)[0] == pytest.approx(1, abs=1e-3)


def test_two_versions_never_meet_in_one_score(remembering: Remembering) -> None:
    first, second, both = (remembering.say(content) for content in ("amber", "birch", "cedar"))
    remembering.embed_all(first, embedders=[EMBEDDER])
    remembering.embed_all(second, embedders=[BESIDE])
    remembering.embed_all(both)
    scores = {
        one.version.name: remembering.block.dense(one.version.name, one.embed(["cedar"])[0], 3, None)
        for one in EMBEDDERS
    }
    assert np.isnan(scores[VERSION]).tolist() == [False, True, False]
    assert np.isnan(scores[BESIDE.version.name]).tolist() == [True, False, False]
    assert scores[VERSION][2] == pytest.approx(1, abs=1e-3) == scores[BESIDE.version.name][2]
    assert np.isnan(remembering.block.dense("another", EMBEDDER.embed(["cedar"])[0], 3, None)).all()


def test_the_tokens_of_turns_lie_one_after_another(remembering: Remembering) -> None:
    turns = [remembering.say(content) for content in ("amber birch", "no vectors yet", "cedar")]
    for turn in (turns[0], turns[2]):
        remembering.embed_all(turn)
    found, offsets = remembering.block.tokens(VERSION, [turn.seq for turn in reversed(turns)], None)
    expected = EMBEDDER.encode(["cedar", "amber birch"], tokens=True).tokens
    assert expected is not None
    assert offsets.tolist() == [0, 1, 1, 3]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    assert found.dtype == np.int8
    assert remembering.block.tokens(VERSION, [], None)[0].shape == (0, 64)
    assert remembering.tokens(*turns, version="another") == [0, 0, 0]


def test_tokens_as_of_an_earlier_moment_are_those_that_had_come(remembering: Remembering) -> None:
    early, late = remembering.say("amber birch"), remembering.say("cedar")
    came = remembering.embed_all(early)
    remembering.embed_all(late)
    assert remembering.tokens(early, late, as_of=came) == [2, 0]
    assert remembering.tokens(early, late, as_of=came - 1) == [0, 0]
    assert remembering.tokens(early, late) == [2, 1]


@pytest.mark.parametrize("how", ["edit", "delete", "erase session", "erase user", "move", "leave"])
def test_vectors_and_tokens_of_all_versions_go_with_their_turn(remembering: Remembering, how: str) -> None:
    turn = remembering.say("amber birch")
    remembering.embed_all(turn, "amber", "birch")
    assert (remembering.hot.count(OWNER), remembering.beside.count(OWNER)) == (2, 2)
    seq = remembering.seq + 1
    match how:
        case "edit":
            remembering.edit(turn, "cedar")
        case "delete":
            remembering.delete(turn)
        case "erase session":
            remembering.take(SessionGone(seq, OWNER, "a"))
        case "erase user":
            remembering.take(UserGone(seq, OWNER, Erasure("er", "acme", 0)))
        case "move":
            remembering.take(TurnsMoved(seq, OWNER, "a", 1, (turn.seq,)))
        case "leave":
            remembering.block.leave()
    assert (remembering.hot.count(OWNER), remembering.beside.count(OWNER)) == (0, 0)
    assert [remembering.tokens(turn, version=one.version.name) for one in EMBEDDERS] == [[0], [0]]
    assert (remembering.block.vectors.came, remembering.block.vectors.count()) == ({}, 0)


def test_a_turn_beyond_memory_takes_its_tokens_along() -> None:
    remembering = Remembering(resident_max=8)
    turns = [remembering.say(f"number{n}") for n in range(9)]
    for turn in turns:
        remembering.embed_all(turn)
    remembering.say("one more")
    gone = [turn for turn in turns if turn.seq not in remembering.block.turns]
    assert gone
    assert remembering.tokens(*gone) == [0] * len(gone)
    assert remembering.beside.count(OWNER) == len(turns) - len(gone)


def test_a_memory_is_mixed_once_a_turn_has_letters_of_another_script(remembering: Remembering) -> None:
    turn = remembering.say("amber 😀 12")
    assert not remembering.block.mixed
    remembering.edit(turn, "琥珀")
    assert remembering.block.mixed
    remembering.take(UserGone(remembering.seq + 1, OWNER, Erasure("er", "acme", 0)))
    assert not remembering.block.mixed
    remembering.say("где она")
    assert remembering.block.mixed
