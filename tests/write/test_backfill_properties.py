"""Whatever happens between the reading of a unit and its writing, no vector comes back or comes of an older state.

A life of one shard by chance: appends, edits, erasures of turns, sessions and users, moves to the cold tier, folds,
restarts, vectors of the base, and units of a backfill read at one moment and written at a later one, some of them
twice. After each step memory is compared with what was said; now and then with what the files alone give.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest

from serve_app.core import ROWS_PER_TURN_MAX, Turn
from serve_app.models.stub import HashEmbedder
from serve_app.stores.rows import COLD, TurnState
from serve_app.write.backfill import BackfillItem, Overtaken, PutBackfill, Written, put_backfill
from serve_app.write.derived import PutVectors
from serve_app.write.erasing import EraseUser
from serve_app.write.lifecycle import MoveTurns
from serve_app.write.operations import DeleteSession, DeleteTurn, EditTurn
from tests.write.shards import ANN, BOB, CAT, VERSION, WAIT_S, OneShard, made_of, vectors_of

TARGET = HashEmbedder(32)
BASE, NAME = VERSION.name, TARGET.version.name
OWNERS, SESSIONS = (ANN, BOB, CAT), ("a", "b")


class Unit(NamedTuple):
    """What a job read, and what the tables said when it asked them."""

    items: list[BackfillItem]
    folded_seq: int
    standing: dict[int, TurnState]


class Life:
    def __init__(self, seed: int, opened: Callable[..., OneShard]) -> None:
        self.random = random.Random(seed)
        self.store = opened(f"life-{seed}")
        self.store.shard.hold(TARGET.version)
        self.turns: dict[int, tuple[str, Turn]] = {}
        self.cold: set[int] = set()
        self.returned: set[int] = set()
        """Turns that were cold and came back by an edit: their content may lie in the tables alone."""
        self.base: dict[int, tuple[int, bytes]] = {}
        """Of each turn that has vectors of the base: by which record they came, and those of its tokens."""
        self.written: dict[int, int] = {}
        """Of each turn with vectors of the target, how many."""
        self.units: list[Unit] = []
        self.words = 0
        self.history: list[str] = []

    def live(self, steps: int) -> None:
        acts = [self.say] * 6 + [self.edit] * 3 + [self.embed] * 3 + [self.read] * 5 + [self.write] * 5
        acts += [self.erase_turn, self.erase_session, self.erase_user, self.cool, self.fold, self.fold, self.restart]
        for _ in range(steps):
            act = self.random.choice(acts)
            self.history.append(act.__name__)
            act()
            self.check()
        self.fold()
        self.restart()
        self.check()
        self.check_files()
        self.finish()

    # ---- what happens

    def say(self) -> None:
        owner, session = self.random.choice(OWNERS), self.random.choice(SESSIONS)
        results = self.store.say(owner, session, *(self.text() for _ in range(self.random.randint(1, 3))))
        for result in results:
            turn = self.store.turn(owner, session, result.id)
            assert turn is not None
            self.turns[turn.seq] = owner, turn

    def edit(self) -> None:
        if (chosen := self.any_turn()) is not None:
            owner, turn = chosen
            edited = self.store.do(EditTurn(owner, turn.session, turn.id, self.text(), None))
            self.returned |= self.cold & {turn.seq}
            self.forget([turn.seq])
            self.turns[turn.seq] = owner, edited

    def embed(self) -> None:
        """Of what the base awaits, some, as its indexer does."""
        awaited = [seq for seq in self.store.shard.pending if self.random.random() < 0.5]
        for owner in OWNERS:
            turns = [self.turns[seq][1] for seq in awaited if self.turns[seq][0] == owner]
            if turns:
                receipt = self.store.receipt(PutVectors(owner, made_of(turns, self.store.embedders)))
                self.base |= {turn.seq: (receipt.seq, vectors_of(turn).tokens) for turn in turns}

    def erase_turn(self) -> None:
        if (chosen := self.any_turn()) is not None:
            owner, turn = chosen
            self.store.do(DeleteTurn(owner, turn.session, turn.id))
            self.lose([turn.seq])

    def erase_session(self) -> None:
        owner, session = self.random.choice(OWNERS), self.random.choice(SESSIONS)
        self.store.do(DeleteSession(owner, session))
        self.lose([seq for seq, (whose, turn) in self.turns.items() if (whose, turn.session) == (owner, session)])

    def erase_user(self) -> None:
        owner = self.random.choice(OWNERS)
        self.store.do(EraseUser(owner, owner.split("\x1f")[0]))
        self.lose([seq for seq, (whose, _) in self.turns.items() if whose == owner])

    def cool(self) -> None:
        owner, session = self.random.choice(OWNERS), self.random.choice(SESSIONS)
        seqs = sorted(seq for seq, (whose, one) in self.turns.items() if (whose, one.session) == (owner, session))
        going = [seq for seq in seqs if seq not in self.cold | self.store.shard.unfolded_of(owner)][:2]
        if going:
            assert self.store.do(MoveTurns(owner, session, COLD, going, seqs[-1])) == len(going)
            self.forget(going)
            self.cold |= set(going)

    def fold(self) -> None:
        self.store.fold(self.random.choice([3, 1_000]))

    def restart(self) -> None:
        self.store.restart()
        self.store.shard.hold(TARGET.version)

    def read(self) -> None:
        """A unit, as a job and its service read it: of all that is there at this moment, about a half."""
        chosen = [one for seq, one in self.turns.items() if seq not in self.cold and self.random.random() < 0.5]
        items = [BackfillItem(owner, vectors_of(turn, self.random.randint(1, 3), TARGET)) for owner, turn in chosen]
        seqs = [one.made.turn_seq for one in items]
        self.units.append(Unit(items, self.store.shard.folded_seq, self.store.shard.reads.states(seqs)))

    def write(self) -> None:
        """Some unit, by what the tables said then, or, where a fold has gone past that, by what they say now."""
        if not self.units:
            return
        unit = self.random.choice(self.units[-6:])
        try:
            written = self.store.do(PutBackfill(NAME, unit.items, unit.folded_seq, unit.standing))
        except Overtaken:
            assert self.store.shard.folded_seq != unit.folded_seq
            written = put_backfill(self.store.writer, NAME, unit.items, WAIT_S)
        became = [self.becomes(item) for item in unit.items]
        assert written == Written(*(became.count(name) for name in Written._fields))
        live = [item.made for item, what in zip(unit.items, became, strict=True) if what == "written"]
        self.written |= {made.turn_seq: len(made.vectors) // (2 * 32) for made in live}

    def becomes(self, item: BackfillItem) -> str:
        owner, turn = self.turns.get(item.made.turn_seq, ("", None))
        if turn is None or owner != item.owner:
            return "gone"
        if turn.seq in self.cold:
            return "cold"
        return "written" if turn.rev == item.made.rev else "stale"

    # ---- what is remembered of it

    def text(self) -> str:
        self.words += 1
        return f"word{self.words} other{self.words}"

    def any_turn(self) -> tuple[str, Turn] | None:
        return self.turns[self.random.choice(sorted(self.turns))] if self.turns else None

    def forget(self, seqs: list[int]) -> None:
        """The vectors of these are of no use any more."""
        for seq in seqs:
            self.cold.discard(seq)
            self.base.pop(seq, None)
            self.written.pop(seq, None)

    def lose(self, seqs: list[int]) -> None:
        self.forget(seqs)
        for seq in seqs:
            del self.turns[seq]

    # ---- what must hold

    def check(self) -> None:
        try:
            for owner in OWNERS:
                self.check_owner(owner)
        except AssertionError as error:
            error.add_note(f"after {self.history}")
            raise

    def check_owner(self, owner: str) -> None:
        block = self.store.block(owner)
        of_owner = {seq for seq, (whose, _) in self.turns.items() if whose == owner}
        seqs = of_owner & block.turns.keys()
        assert seqs == block.turns.keys()
        assert of_owner - seqs <= self.cold | self.returned
        vectors, written = block.vectors, {seq: n for seq, n in self.written.items() if seq in seqs}
        assert {seq: vectors.shape(seq)[NAME][0] for seq in vectors.came_by(NAME)} == written
        assert sum(written.values()) == self.store.hot[NAME].count(owner)
        assert vectors.came_by(BASE) == {seq: came for seq, (came, _) in self.base.items() if seq in seqs}
        ordinals = {seq: at for at, seq in enumerate(block.columns.seqs)}
        for seq in written:
            query = TARGET.embed([self.turns[seq][1].content])[0]
            score = block.dense(NAME, query, len(ordinals), None)[ordinals[seq]]
            assert score == pytest.approx(1.0, abs=2e-3)
        held = sorted(seq for seq in self.base if seq in seqs)
        tokens, offsets = block.tokens(BASE, held, None)
        packed = [tokens[start:end].tobytes() for start, end in pairwise(offsets.tolist())]
        assert packed == [self.base[seq][1] for seq in held]
        assert self.store.shard.pending.keys() == self.turns.keys() - self.base.keys() - self.cold

    def check_files(self) -> None:
        """No row in the tables is of what is not there."""
        for owner in OWNERS:
            rows = self.store.shard.vector_rows(owner)
            seqs = {seq for seq, (whose, _) in self.turns.items() if whose == owner}
            of = {name: {row // ROWS_PER_TURN_MAX for key, row in rows if key == name} for name in (BASE, NAME)}
            assert of == {BASE: seqs & self.base.keys(), NAME: seqs & self.written.keys()}
            parts = sum(1 for name, _ in rows if name == NAME)
            assert parts == sum(n for seq, n in self.written.items() if seq in seqs)
            if seqs:
                loaded = self.store.table.load(owner, 10_000)
                resident = {turn.seq for turn in loaded.turns}
                assert {one.turn_seq for one in loaded.vectors.get(NAME, ())} == resident & self.written.keys()

    def finish(self) -> None:
        """A last unit of all that lacks vectors leaves nothing that does, but what is cold."""
        lacking = [one.seq for one in self.store.table.lacking(NAME)]
        assert set(lacking) == self.turns.keys() - self.written.keys() - self.cold
        items = [BackfillItem(self.turns[seq][0], vectors_of(self.turns[seq][1], 1, TARGET)) for seq in lacking]
        assert put_backfill(self.store.writer, NAME, items) == Written(written=len(items))
        self.written |= dict.fromkeys(lacking, 1)
        self.fold()
        assert self.store.table.lacking(NAME) == []
        self.check()
        self.check_files()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_comes_back_by_a_backfill(opened: Callable[..., OneShard], seed: int) -> None:
    Life(seed, opened).live(60)
