"""Folds of vectors that lie beside: what a life by chance leaves, what an erasure leaves, and what bounds a fold."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from serve_app.core import ROWS_PER_TURN_MAX, Turn
from serve_app.models.stub import HashEmbedder
from serve_app.records import TurnVectors, VectorsPut, VersionVectors
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import COLD, WARM
from serve_app.stores.wanted import ANY
from serve_app.write.backfill import BackfillItem, put_backfill
from serve_app.write.derived import PutVectors
from serve_app.write.erasing import EraseUser
from serve_app.write.fold import pieces
from serve_app.write.housekeeping import FoldOptions
from serve_app.write.lifecycle import MoveTurns
from serve_app.write.operations import AppendTurns, DeleteSession, DeleteTurn, EditTurn, NewTurn
from tests.write.shards import ANN, BOB, EMBEDDER, VERSION, WAIT_S, OneShard, vectors_of

NEW = HashEmbedder(32)
EMBEDDERS = {VERSION.name: EMBEDDER, NEW.version.name: NEW}
OWNERS, SESSIONS = (ANN, BOB), ("a", "b")


class Life:
    """Random writes to one shard that holds a version beside, and which vectors they should have left."""

    def __init__(self, shard: OneShard, seed: int) -> None:
        self.shard, self.chance = shard, random.Random(seed)
        self.turns: dict[int, tuple[str, Turn]] = {}
        self.vectors: dict[int, dict[str, int]] = {}  # of each turn, by version, how many
        self.cold: set[int] = set()
        self.hold()

    def hold(self) -> None:
        self.shard.shard.hold(NEW.version)

    def step(self) -> None:
        acts = {self.say: 4, self.embed: 4, self.backfill: 5, self.edit: 2, self.forget: 1, self.move: 1, self.fold: 3}
        rare = {self.forget_session: 1, self.erase: 1, self.restart: 2}
        act = self.chance.choices(list(acts), list(acts.values()))[0]
        (self.chance.choices(list(rare), list(rare.values()))[0] if self.chance.random() < 0.06 else act)()

    def _chosen(self, most: int) -> list[int]:
        return sorted(self.chance.sample(sorted(self.turns), min(most, len(self.turns))))

    def say(self) -> None:
        owner, session = self.chance.choice(OWNERS), self.chance.choice(SESSIONS)
        texts = [NewTurn("user", f"words {self.chance.random()}") for _ in range(self.chance.randint(1, 4))]
        found = self.shard.do(AppendTurns(owner, session, texts))
        self.turns |= {turn.seq: (owner, turn) for turn in self.shard.shard.turns(owner, [one.seq for one in found])}

    def embed(self) -> None:
        """The base's, of turns that wait for them."""
        for seq in self._chosen(3):
            owner, turn = self.turns[seq]
            if seq in self.shard.shard.pending:
                parts = self.chance.choice((1, 1, 3))
                made = VersionVectors(VERSION.name, (vectors_of(turn, parts),))
                self.shard.do(PutVectors(owner, [made]))
                self.vectors.setdefault(seq, {})[VERSION.name] = parts

    def backfill(self) -> None:
        """Under the new version: of turns as they are, as they were, and of those that are gone; some of them again."""
        items = []
        for seq in self._chosen(4):
            owner, turn = self.turns[seq]
            if self.chance.random() < 0.2:
                items.append(BackfillItem(owner, stale(vectors_of(turn, 1, NEW))))
                continue
            parts = self.chance.choice((1, 2))
            items.append(BackfillItem(owner, vectors_of(turn, parts, NEW)))
            if seq not in self.cold:
                self.vectors.setdefault(seq, {})[NEW.version.name] = parts
        if items:
            put_backfill(self.shard.writer, NEW.version.name, items)

    def edit(self) -> None:
        for seq in self._chosen(1):
            owner, turn = self.turns[seq]
            self.shard.do(EditTurn(owner, turn.session, turn.id, f"other words {self.chance.random()}", None))
            self.turns[seq] = owner, self.shard.shard.turns(owner, [seq])[0]
            self.cold.discard(seq)
            self.vectors.pop(seq, None)

    def forget(self) -> None:
        for seq in self._chosen(1):
            owner, turn = self.turns[seq]
            self.shard.do(DeleteTurn(owner, turn.session, turn.id))
            self._gone({seq})

    def forget_session(self) -> None:
        owner, session = self.chance.choice(OWNERS), self.chance.choice(SESSIONS)
        theirs = {seq for seq, (whose, turn) in self.turns.items() if (whose, turn.session) == (owner, session)}
        if theirs:
            self.shard.do(DeleteSession(owner, session))
            self._gone(theirs)

    def erase(self) -> None:
        owner = self.chance.choice(OWNERS)
        self.shard.do(EraseUser(owner, "acme"))
        self._gone({seq for seq, (whose, _) in self.turns.items() if whose == owner})

    def _gone(self, seqs: set[int]) -> None:
        for seq in seqs:
            del self.turns[seq]
            self.vectors.pop(seq, None)
        self.cold -= seqs

    def move(self) -> None:
        """Some turns of a session, folded, to a colder tier."""
        self.shard.fold()
        for seq in self._chosen(1):
            owner, turn = self.turns[seq]
            last = self.shard.block(owner).sessions[turn.session].seqs[-1]
            tier = self.chance.choice((WARM, COLD))
            if self.shard.do(MoveTurns(owner, turn.session, tier, [seq], last)) and tier == COLD:
                self.cold.add(seq)
                self.vectors.pop(seq, None)

    def fold(self) -> None:
        self.shard.fold(self.chance.choice((2, 7, 1_000)))

    def restart(self) -> None:
        self.shard.restart()
        self.hold()

    # ---- what should be

    def check(self) -> None:
        self.shard.fold(self.chance.choice((3, 1_000)))
        table = self.shard.table
        for owner in OWNERS:
            theirs = {seq: made for seq, made in self.vectors.items() if self.turns[seq][0] == owner}
            expected = {
                (name, seq * ROWS_PER_TURN_MAX + part)
                for seq, made in theirs.items()
                for name, count in made.items()
                for part in range(count)
            }
            assert table.vector_rows(owner) == expected
            stored = table.load(owner, 1_000).vectors
            for name in EMBEDDERS:
                held = {seq for seq, made in theirs.items() if name in made}
                parts = {seq: made[name] for seq, made in theirs.items() if name in made}
                span = table.span(owner, 0, 1 << 40).vectors[name]
                assert sorted(span.seqs.tolist()) == sorted(seq for seq, count in parts.items() for _ in range(count))
                assert _found(table, owner, name) == held
                assert table.tokens(owner, name, sorted(self.turns)).keys() == held
                resident = {one.turn_seq: len(one.parts) for one in stored.get(name, ())}
                assert resident.items() <= parts.items()
        lacking = [
            seq for seq in self.turns if seq not in self.cold and NEW.version.name not in self.vectors.get(seq, {})
        ]
        found = [one.seq for one in table.lacking(NEW.version.name)]
        assert sorted(found) == sorted(lacking)
        assert [self.turns[seq][1].rev for seq in found] == sorted(self.turns[seq][1].rev for seq in found)


def _found(table: RecordTable, owner: str, name: str) -> set[int]:
    """By the table's own search."""
    query = EMBEDDERS[name].embed(["words"])[0]
    return {turn.seq for turn, _ in table.nearest(owner, query, 1_000, ANY, name)}


def stale(made: TurnVectors) -> TurnVectors:
    return TurnVectors(made.turn_seq, made.rev - 1, made.session, made.turn_id, made.vectors, made.tokens)


@pytest.mark.parametrize("seed", range(4))
def test_the_union_of_what_lies_inline_and_beside_is_what_was_put(opened: Callable[..., OneShard], seed: int) -> None:
    life = Life(opened(), seed)
    for turn in range(60):
        life.step()
        if turn % 15 == 14:
            life.check()


# ---- one record and another


def test_vectors_of_one_version_keep_those_of_the_others_that_came_before(opened: Callable[..., OneShard]) -> None:
    """As after a change of the versions in force: what comes later brings what those make, and no more."""
    shard = opened(embedders=(EMBEDDER, NEW))
    shard.say_as(ANN, "s", "one", "amber")
    shard.say_as(ANN, "s", "two", "birch")
    one, two = shard.shard.turns(ANN, [1, 2])
    for turn in (one, two):
        shard.do(PutVectors(ANN, [VersionVectors(VERSION.name, (vectors_of(turn, 3),))]))
    shard.fold()
    late = [VersionVectors(NEW.version.name, tuple(vectors_of(turn, 2, NEW) for turn in (one, two)))]
    record = VectorsPut.of(shard.shard.applied_seq + 1, ANN, late)
    assert record is not None
    shard.shard.take([record])
    shard.fold()
    parts = {VERSION.name: 3, NEW.version.name: 2}
    keys = {
        (name, seq * ROWS_PER_TURN_MAX + part)
        for seq in (1, 2)
        for name, count in parts.items()
        for part in range(count)
    }
    assert shard.table.vector_rows(ANN) == keys


# ---- erasure


def test_nothing_of_an_erased_user_is_left_beside(opened: Callable[..., OneShard]) -> None:
    shard = opened()
    shard.shard.hold(NEW.version)
    secret = "acme\x1fsecret-user"
    for owner in (secret, ANN):
        shard.say(owner, f"session-of-{owner[5:]}", *(f"{owner[5:]}{number} says" for number in range(3)))
        turns = shard.shard.turns(owner, list(range(1, 20)))
        shard.embed(owner, *turns)
        made = [BackfillItem(owner, vectors_of(turn, 2, NEW)) for turn in turns]
        put_backfill(shard.writer, NEW.version.name, made)
    theirs = shard.shard.turns(secret, list(range(1, 20)))
    keeper = shard.housekeeper(FoldOptions(round_s=0.05, age_s=1e9, purge_every_s=0.05))
    keeper.fold_now(0)
    marks = [vectors_of(turn, 2, NEW).vectors[:64] for turn in theirs]
    marks += [vectors_of(turn, 2, NEW).tokens[:64] for turn in theirs]
    assert all(held_by_files(shard, mark) for mark in marks)
    erasure = shard.do(EraseUser(secret, "acme"))
    keeper.nudge()
    wait_for(lambda: shard.shard.erasures[erasure.id].completed_at is not None)
    assert not any(held_by_files(shard, mark) for mark in marks)
    assert shard.files_with("secret-user") == []
    assert {seq for (_, seq) in shard.table.vector_rows(ANN)}


def held_by_files(shard: OneShard, mark: bytes) -> bool:
    return any(mark in path.read_bytes() for path in shard.folder.rglob("*") if path.is_file())


# ---- bounds


def test_a_piece_of_a_fold_holds_so_many_bytes_of_vectors_at_most() -> None:
    def record(seq: int, size: int) -> VectorsPut:
        return VectorsPut(seq, ANN, VERSION.name, (TurnVectors(1, 1, "s", "t", bytes(size)),), beside=True)

    tail = [record(1, 4), record(2, 4), record(3, 9), record(4, 1), record(5, 1), record(6, 1)]
    assert [[one.seq for one in piece] for piece in pieces(tail, 10, 8)] == [[1, 2], [3], [4, 5, 6]]
    assert [[one.seq for one in piece] for piece in pieces(tail, 2, 100)] == [[1, 2], [3, 4], [5, 6]]
    assert list(pieces([], 2, 100)) == []


def test_a_tail_is_folded_once_its_vectors_take_so_many_bytes(opened: Callable[..., OneShard]) -> None:
    shard = opened()
    shard.shard.hold(NEW.version)
    often = {"records": 10**9, "segments": 10**9, "age_s": 1e9, "round_s": 0.02, "purge_every_s": 1e9}
    shard.housekeeper(FoldOptions(**often, bytes=3_000))
    shard.say(ANN, "s", *(f"amber {number}" for number in range(4)))
    first, *others = (BackfillItem(ANN, vectors_of(turn, 4, NEW)) for turn in shard.shard.turns(ANN, [1, 2, 3, 4]))
    put_backfill(shard.writer, NEW.version.name, [first])
    time.sleep(0.2)
    assert shard.shard.folded_seq == 0
    put_backfill(shard.writer, NEW.version.name, others)
    wait_for(lambda: shard.shard.folded_seq == shard.shard.applied_seq)
    assert len(shard.table.vector_rows(ANN)) == 16


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)
