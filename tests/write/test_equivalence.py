"""Memory, the replayed log and the tables say the same, whatever was written, folded, forgotten and restarted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import lancedb
import numpy as np
import pytest

from serve_app.core import ROWS_PER_TURN_MAX, Summary, Turn
from serve_app.entities.recognise import in_turn, key_named
from serve_app.entities.values import CLASSES
from serve_app.errors import InvalidRequest, NotFound
from serve_app.memory import entities
from serve_app.models.stub import HashEmbedder
from serve_app.ports import TOKEN_DIMENSION, HotIndex
from serve_app.records import Record, SessionGone, TurnGone, TurnPut, UserGone
from serve_app.stores.block import Block
from serve_app.stores.terms import index_terms
from serve_app.stores.wanted import ANY
from serve_app.write.derived import PutSummary, PutVectors
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import DeleteFact, PutFact
from serve_app.write.lifecycle import MoveTurns
from serve_app.write.operations import AppendTurns, DeleteSession, DeleteTurn, EditTurn, FieldLife, ItemResult, NewTurn
from serve_app.write.shard import Shard
from tests.write.remembered import Made, Remembered
from tests.write.shards import ANN, BOB, CAT, EMBEDDER, WAIT_S, OneShard, made_of

OWNERS = (ANN, BOB, CAT)
SESSIONS = ("a", "b", "日记")
IDS = ("1", "2", "3", "'; DROP", None, None)
WORDS = (
    "apple",
    "running",
    "ZX-81Q",
    "in Paris",
    "order 88231",
    "王老师",
    "API配置",
    "上海",
    "price",
    "42.50",
    "Übung",
    "tea",
    "the",
    "不要",
)
CHECKED_EVERY = 7
EMBEDDERS = (EMBEDDER, HashEmbedder(32))
VERSIONS = [embedder.version.name for embedder in EMBEDDERS]
NOW = 1_700_000_000_000_000
"""The clock goes on from here by seconds; what has a short life has expired long before, or only after years."""


def _changes(record: Record, owner: str, session: str) -> bool:
    """Whether it edits or erases something of a session."""
    if isinstance(record, TurnPut):
        return (record.owner, record.turn.session) == (owner, session) and record.turn.rev != record.turn.seq
    if isinstance(record, UserGone):
        return record.owner == owner
    return isinstance(record, TurnGone | SessionGone) and (record.owner, record.session) == (owner, session)


class Life:
    """Random writes to one shard, and what they should have led to."""

    def __init__(self, seed: int, open_shard: Callable[..., OneShard], **bounds: int) -> None:
        self.chance = random.Random(seed)
        self.written: list[Record] = []
        self.shard = open_shard(committed=self.note, embedders=EMBEDDERS, **bounds)
        self.owners = {owner: Remembered() for owner in OWNERS}
        self.states: list[tuple[str, Turn]] = []
        self.keeper = self.shard.housekeeper()
        self.history: list[str] = []

    def note(self, shard: Shard, records: list[Record]) -> None:
        self.written += records

    def live(self, steps: int) -> None:
        acts = {
            self.append: 10,
            self.append_at_once: 3,
            self.edit: 4,
            self.delete_turn: 3,
            self.delete_session: 1,
            self.erase: 1,
            self.put_fact: 3,
            self.delete_fact: 1,
            self.put_summary: 4,
            self.put_vectors: 9,
            self.move: 6,
            self.fold: 3,
            self.fold_and_drop: 1,
            self.purge: 0.5,
            self.expire: 1,
            self.evict: 2,
            self.restart: 1.5,
        }
        for step in range(steps):
            act = self.chance.choices(list(acts), list(acts.values()))[0]
            self.history.append(act.__name__)
            act()
            if step % CHECKED_EVERY == 0:
                self.check()
        self.check()
        self.shard.fold()
        self.check()
        self.check_tables()
        self.shard.restart()
        self.check()

    # ---- what is done

    def owner(self) -> str:
        return self.chance.choice(OWNERS)

    def text(self) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randint(1, 6)))

    def new_append(self) -> AppendTurns:
        turns = [
            NewTurn(
                "user",
                self.text(),
                id=self.chance.choice(IDS),
                created_at=self.chance.choice([None, 1_600_000_000_000_000 + self.chance.randrange(10**15)]),
                speaker=self.chance.choice([None, "Ann", "李雷"]),
                ttl_seconds=self.chance.choice([None, None, 10**9]),
            )
            for _ in range(self.chance.randint(1, 3))
        ]
        return AppendTurns(self.owner(), self.chance.choice(SESSIONS), [*turns, self.new_passing()])

    def new_passing(self) -> NewTurn:
        """One of which something, or all, has expired already, or will do so in many years."""
        price = {"price": self.text(), "note": self.text(), "list": [1, 2]}
        lives = [FieldLife("price", self.chance.choice([10, 10**9])), FieldLife("$.list[*]", 10)]
        return NewTurn(
            "tool",
            id=self.chance.choice(IDS),
            created_at=1_600_000_000_000_000 + self.chance.randrange(10**13),
            data=json.dumps(price, ensure_ascii=False, separators=(",", ":")).encode(),
            ttl_seconds=self.chance.choice([None, None, 10, 10**9]),
            field_lives=tuple(self.chance.sample(lives, self.chance.randint(0, 2))),
        )

    def append(self) -> None:
        operation = self.new_append()
        self.appended(operation, self.shard.writer.submit(operation))

    def append_at_once(self) -> None:
        operations = [self.new_append() for _ in range(5)]
        submitted = [self.shard.writer.submit(operation) for operation in operations]
        for operation, future in zip(operations, submitted, strict=True):
            self.appended(operation, future)

    def appended(self, operation: AppendTurns, future: Future[Any]) -> None:
        memory = self.owners[operation.owner]
        results: list[ItemResult] = future.result(WAIT_S)[0]
        for new, result in zip(operation.turns, results, strict=True):
            held = memory.find(operation.session, new.id) if new.id else None
            if held is not None and held.expired(NOW):
                gone = [one for one in self.written if isinstance(one, TurnGone) and one.turn_seq == held.seq]
                memory.delete_turn(held, gone[0].seq)
                held = None
            if held is None:
                assert result.status == "stored"
                put = next(one.turn for one in self.written if isinstance(one, TurnPut) and one.seq == result.seq)
                assert (put.content, put.session, put.id) == (new.content, operation.session, result.id)
                assert put.seq > max(memory.turns, default=0)
                memory.turns[put.seq] = put
                self.states.append((operation.owner, put))
            else:
                assert result.seq == held.seq
                same = held.content == new.content and left_of(held, held.data) == left_of(held, new.data)
                assert result.status == ("duplicate" if same else "rejected")

    def some_turn(self, memory: Remembered) -> Turn | None:
        return self.chance.choice(list(memory.turns.values())) if memory.turns else None

    def edit(self) -> None:
        owner = self.owner()
        turn = self.some_turn(self.owners[owner])
        content = self.chance.choice([None, self.text()])
        if turn is None or turn.expired(NOW):
            with pytest.raises(NotFound):
                self.shard.do(EditTurn(owner, turn.session if turn else "a", turn.id if turn else "none", "x", None))
            return
        edited = self.shard.do(EditTurn(owner, turn.session, turn.id, content, {"n": 1}))
        assert (edited.content, edited.seq) == (content or turn.content, turn.seq)
        assert_without_expired(edited, turn)
        self.owners[owner].edit(edited)
        self.states.append((owner, edited))

    def delete_turn(self) -> None:
        owner = self.owner()
        turn = self.some_turn(self.owners[owner])
        if turn is not None:
            seq = self.shard.receipt(DeleteTurn(owner, turn.session, turn.id)).seq
            self.owners[owner].delete_turn(turn, seq)

    def delete_session(self) -> None:
        owner, session = self.owner(), self.chance.choice(SESSIONS)
        memory = self.owners[owner]
        count, receipt = self.shard.writer.submit(DeleteSession(owner, session)).result(WAIT_S)
        assert count == len(memory.of_session(session))
        memory.delete_session(session, receipt.seq)

    def erase(self) -> None:
        owner = self.owner()
        memory = self.owners[owner]
        erasure, receipt = self.shard.writer.submit(EraseUser(owner, "acme")).result(WAIT_S)
        counted = [erasure.counts[name] for name in ("turns", "facts", "cold")]
        assert counted == [len(memory.turns), len(memory.facts), len(memory.cold())]
        self.owners[owner] = Remembered(changed_seq=receipt.seq)

    def put_fact(self) -> None:
        owner = self.owner()
        life_s = self.chance.choice([None, None, 1, 10**9])  # 1: expired at the clock's next tick
        fact = self.shard.do(PutFact(owner, self.chance.choice(("diet", "城市")), self.text(), None, life_s))
        self.owners[owner].put_fact(fact)

    def delete_fact(self) -> None:
        owner = self.owner()
        memory = self.owners[owner]
        key = self.chance.choice(("diet", "城市"))
        if key in memory.facts:
            memory.delete_fact(key, self.shard.receipt(DeleteFact(owner, key)).seq)
        else:
            with pytest.raises(NotFound):
                self.shard.do(DeleteFact(owner, key))

    def put_summary(self) -> None:
        owner, session = self.owner(), self.chance.choice(SESSIONS)
        memory = self.owners[owner]
        seqs = [turn.seq for turn in memory.of_session(session)] or [1]
        made = Summary(session, self.text(), seqs[0], seqs[-1], 9, "v", "h", 0, 1, self.chance.choice([2, 10**18]))
        read_at = max(0, max(memory.changed_seq, seqs[-1]) - self.chance.choice([0, 0, 0, 1]))
        operation = PutSummary(owner, made, read_at)
        try:
            memory.put_summary(self.shard.do(operation))
        except InvalidRequest:
            assert not memory.of_session(session) or read_at < max(memory.changed_seq, seqs[0])
        else:
            assert memory.of_session(session)
            assert not any(_changes(one, owner, session) for one in self.written if one.seq > read_at)

    def put_vectors(self) -> None:
        """Of states old and new, of turns that are there and gone; by one version, the other, or both."""
        if not self.states:
            return
        owner, turn = self.chance.choice(self.states[-30:])
        memory, parts = self.owners[owner], self.chance.randint(1, 3)
        made = made_of([turn], self.chance.sample(EMBEDDERS, self.chance.randint(1, 2)), parts)
        stored, receipt = self.shard.writer.submit(PutVectors(owner, made)).result(WAIT_S)
        assert stored == int(memory.wants_vectors(turn))
        if stored:
            sizes = {embedder.version.name: 2 * embedder.version.dimension for embedder in EMBEDDERS}
            items = {one.version: one.items[0] for one in made}
            shape = {
                name: (len(item.vectors) // sizes[name], len(item.tokens) // TOKEN_DIMENSION)
                for name, item in items.items()
            }
            memory.vectors[turn.seq] = Made(receipt.seq, shape, {name: item.tokens for name, item in items.items()})

    def move(self) -> None:
        """Some turns of a session, folded or not, into a colder tier or one that they are in already."""
        owner, session, tier = self.owner(), self.chance.choice(SESSIONS), self.chance.choice([1, 2])
        memory = self.owners[owner]
        seqs = [turn.seq for turn in memory.of_session(session)]
        if not seqs:
            return
        chosen = self.chance.sample(seqs, self.chance.randint(1, len(seqs)))
        stale = self.chance.random() < 0.1
        moved = self.shard.do(MoveTurns(owner, session, tier, chosen, seqs[-1] - stale))
        folded = self.shard.shard.folded_seq
        going = [seq for seq in chosen if memory.turns[seq].rev <= folded and memory.tiers.get(seq, 0) < tier]
        assert moved == (0 if stale else len(going))
        if moved:
            memory.move(going, tier)

    def fold(self) -> None:
        folded = self.shard.fold(self.chance.choice([5, 4_000, 4_000]))
        assert folded <= self.shard.shard.applied_seq
        assert self.shard.shard.tail_length() == 0

    def fold_and_drop(self) -> None:
        self.keeper.fold_now(0)

    def purge(self) -> None:
        self.keeper.purge_now(0)

    def expire(self) -> None:
        before = len(self.written)
        self.shard.housekeeper(due_a_part=self.chance.choice([3, 1_000])).perform("expire", 0)
        for owner, memory in self.owners.items():
            records = [one for one in self.written[before:] if one.owner == owner]
            changed = memory.changed_seq
            cut = {one.turn.seq: one.turn for one in records if isinstance(one, TurnPut)}
            for turn in list(memory.turns.values()):
                if turn.expired(NOW):
                    memory.delete_turn(turn, 0)
                elif any(field.at <= NOW for field in turn.fields_expire):
                    assert_without_expired(cut[turn.seq], turn)
                    memory.edit(cut[turn.seq])
                    self.states.append((owner, cut[turn.seq]))
            memory.expire_statements(self.shard.clock.now)
            memory.changed_seq = max([changed, *(one.seq for one in records)])

    def evict(self) -> None:
        self.shard.shard.evict()

    def restart(self) -> None:
        self.shard.restart()
        self.keeper = self.shard.housekeeper()

    # ---- what must hold

    def check(self) -> None:
        try:
            pending = {}
            for owner, memory in self.owners.items():
                self.check_owner(owner, memory)
                wanting = [turn for turn in memory.turns.values() if memory.wants_vectors(turn)]
                pending |= {turn.seq: (owner, turn.session, turn.rev) for turn in wanting}
            assert self.shard.shard.pending == pending
        except AssertionError as error:
            error.add_note(f"after {self.history}")
            raise

    def check_owner(self, owner: str, memory: Remembered) -> None:
        block = self.shard.block(owner)
        rebuilt, rebuilt_hot = self.shard.rebuilt(owner)
        for one, hot in ((block, self.shard.hot), (rebuilt, rebuilt_hot)):
            assert_remembers(one, memory)
            assert_finds(one, hot, memory)
            assert_names(one, memory)
        assert listed(self.shard.shard, owner) == named_by(memory)
        if block.turns.keys() == rebuilt.turns.keys():
            assert_scores_alike(block, rebuilt)
        assert self.shard.shard.turns(owner, list(memory.turns)) == list(memory.turns.values())

    def check_tables(self) -> None:
        """All is folded: what the files hold is what is remembered, and nothing else."""
        table = lancedb.connect(str(self.shard.folder / "tables")).open_table("shard-0000")
        rows = table.to_arrow().select(["owner", "kind", "seq", "row", "tier"]).to_pylist()
        for owner, memory in self.owners.items():
            kinds = {
                kind: {row["seq"] for row in rows if (row["owner"], row["kind"]) == (owner, kind)} for kind in KINDS
            }
            assert kinds["turn"] == set(memory.turns)
            assert kinds["fact"] == {fact.seq for facts in memory.facts.values() for fact in facts}
            assert kinds["summary"] == {one.seq for summaries in memory.summaries.values() for one in summaries}
            stubs = {row["seq"] for row in rows if (row["owner"], row["tier"]) == (owner, 2)}
            assert stubs == memory.cold()
            chunks = [row["row"] for row in rows if (row["owner"], row["kind"]) == (owner, "chunk")]
            of_turns = memory.vectors.items()
            further = [seq * ROWS_PER_TURN_MAX + part for seq, made in of_turns for part in range(1, made.parts)]
            assert sorted(chunks) == sorted(further)
            self.check_warm(owner, memory)

    def check_warm(self, owner: str, memory: Remembered) -> None:
        table = self.shard.table
        assert table.vector_rows(owner) == memory.vector_rows()
        for embedder in EMBEDDERS:
            version, query = embedder.version.name, embedder.embed(["apple"])[0]
            near = table.nearest(owner, query, 1_000, ANY, version)
            assert {turn.seq for turn, _ in near} == memory.made_by(version).keys()
            assert table.tokens(owner, version, list(memory.turns)) == memory.made_by(version)
        for word in WORDS:
            for term in index_terms(word):
                found = {turn.seq for turn, _ in self.shard.table.matching(owner, [term], 1_000)}
                assert found == memory.holding(term) - memory.cold(), term
                found = {turn.seq for turn in self.shard.cold.find(owner, [term], 1_000)}
                assert found == memory.holding(term) & memory.cold(), term
        assert self.shard.cold.read(owner, list(memory.turns)) == [memory.turns[seq] for seq in sorted(memory.cold())]


def left_of(held: Turn, data: bytes | None) -> Any:
    """The values of the data but for those that are gone from the turn that is held."""
    value = None if data is None else json.loads(data)
    if value and "price" in held.fields_gone:
        value.pop("price", None)
    if value and "$.list[*]" in held.fields_gone:
        value["list"] = []
    return value


def assert_without_expired(turn: Turn, before: Turn) -> None:
    expected = json.loads(before.data) if before.data else None
    for field in before.fields_expire:
        if field.at <= NOW and field.path == "price":
            expected.pop("price", None)
        elif field.at <= NOW:
            expected["list"] = []
    assert (json.loads(turn.data) if turn.data else None) == expected
    assert turn.fields_expire == tuple(field for field in before.fields_expire if field.at > NOW)


KINDS = ("turn", "fact", "summary")


def assert_names(block: Block, memory: Remembered) -> None:
    """What the resident turns name, as it stands: fields that have expired are indexed until they are removed."""
    resident = [memory.turns[seq] for seq in block.turns]
    expected: dict[str, list[tuple[int, str]]] = {}
    for turn in resident:
        for one in sorted(in_turn(turn), key=lambda one: CLASSES.index(one.kind)):
            expected.setdefault(one.key, []).append((turn.seq, one.kind))
    seqs = block.columns.seqs
    held = {key: [(seqs[at], kind) for at, kind in mentions] for key, mentions in block.columns.entities.mentions()}
    assert held == expected


def named_by(memory: Remembered) -> dict[str, tuple[int, str]]:
    """By key: how many living turns name it that are not cold, and the last of them."""
    found: dict[str, tuple[int, str]] = {}
    for seq, turn in memory.turns.items():
        if not turn.expired(NOW) and seq not in memory.cold():
            for key in {one.key for one in in_turn(turn.at(NOW))}:
                found[key] = (found.get(key, (0, ""))[0] + 1, turn.id)
    return found


def listed(shard: Shard, owner: str) -> dict[str, tuple[int, str]]:
    """The same by way of the listing, in pages."""
    found: dict[str, tuple[int, str]] = {}
    after = None
    while True:
        page = entities.page(shard, owner, None, "", after, 7, NOW)
        found |= {key_named(one.name): (one.count, one.turn_id) for one in page.lines}
        if page.next is None:
            return found
        after = entities.place_of(page.next)


def assert_remembers(block: Block, memory: Remembered) -> None:
    sessions = {turn.session for turn in memory.turns.values()}
    assert block.sessions.keys() == sessions
    assert block.total_turns == len(memory.turns)
    assert {seq: block.moved.tier(seq) for seq in memory.turns if block.moved.tier(seq)} == memory.tiers
    assert (block.moved.cold, len(block.moved)) == (len(memory.cold()), len(memory.tiers))
    for session in sessions:
        index, turns = block.sessions[session], memory.of_session(session)
        assert list(index.ids.items()) == [(turn.id, turn.seq) for turn in turns]
        assert index.seqs == [turn.seq for turn in turns]
        assert index.last_at == turns[-1].created_at
        summaries = memory.summaries.get(session, [])
        assert index.summarised_seq == (summaries[-1].last_seq if summaries else 0)
    assert block.summaries == memory.summaries
    assert block.facts == memory.facts
    assert block.changed_seq == memory.changed_seq
    for key, versions in memory.facts.items():
        assert block.fact_at(key, None) == versions[-1]
        assert [block.fact_at(key, fact.seq) for fact in versions] == versions
        assert block.fact_at(key, versions[0].seq - 1) is None


def assert_finds(block: Block, hot: Mapping[str, HotIndex], memory: Remembered) -> None:
    """Resident turns are the newest of the hot ones, and are found by their words and vectors; nothing else is."""
    resident, hot_seqs = list(block.turns), memory.hot()
    assert resident == hot_seqs[len(hot_seqs) - len(resident) :]
    assert list(block.turns.values()) == [memory.turns[seq] for seq in resident]
    assert block.expiring == {seq: turn.expires_at for seq, turn in block.turns.items() if turn.expires_at}
    newest_facts = [versions[-1].value for versions in block.facts.values()]
    assert block.characters == sum(turn.characters for turn in block.turns.values()) + sum(map(len, newest_facts))
    made = {seq: memory.vectors[seq] for seq in resident if seq in memory.vectors}
    assert block.vectors.came == {seq: one.came for seq, one in made.items()}
    assert {seq: block.vectors.shape(seq) for seq in made} == {seq: one.shape for seq, one in made.items()}
    for embedder in EMBEDDERS:
        version = embedder.version.name
        rows, _ = hot[version].search(block.key, embedder.embed(["apple"])[0], 10_000)
        expected = {row for name, row in memory.vector_rows() if name == version and row // ROWS_PER_TURN_MAX in made}
        assert sorted(rows.tolist()) == sorted(expected)
        assert_tokens(block, version, resident, memory)
    alive = block.columns.alive(len(block.columns.seqs))
    assert [seq for seq, one in zip(block.columns.seqs, alive, strict=True) if one] == resident
    for word in WORDS:
        for term in index_terms(word):
            scores = by_seq(block, block.columns.lexical.scores([term])[0])
            assert {seq for seq, score in scores.items() if score > 0} == memory.holding(term) & set(resident)


def assert_tokens(block: Block, version: str, seqs: list[int], memory: Remembered) -> None:
    held = memory.made_by(version)
    tokens, offsets = block.tokens(version, seqs, None)
    of_each = [tokens[start:end].tobytes() for start, end in pairwise(offsets.tolist())]
    assert of_each == [held.get(seq, b"") for seq in seqs]


def assert_scores_alike(block: Block, rebuilt: Block) -> None:
    terms = [term for word in WORDS[:4] for term in index_terms(word)]
    for one, other in zip(block.columns.lexical.scores(terms), rebuilt.columns.lexical.scores(terms), strict=True):
        assert by_seq(block, one) == pytest.approx(by_seq(rebuilt, other), abs=1e-5)
    for as_of in (None, max(block.columns.seqs, default=0) // 2):
        for embedder in EMBEDDERS:
            version, query = embedder.version.name, embedder.embed(["tea in 上海"])[0]
            dense = [one.dense(version, query, one.columns.until(as_of), as_of) for one in (block, rebuilt)]
            assert by_seq(block, dense[0]) == pytest.approx(by_seq(rebuilt, dense[1]), abs=1e-5, nan_ok=True)
            tokens = [one.tokens(version, list(block.turns), as_of) for one in (block, rebuilt)]
            assert [one.tolist() for one in tokens[0]] == [one.tolist() for one in tokens[1]]


def by_seq(block: Block, scores: np.ndarray[Any, Any]) -> dict[int, float]:
    alive = block.columns.alive(len(scores))
    return {block.columns.seqs[n]: float(score) for n, score in enumerate(scores) if alive[n]}


@pytest.mark.parametrize("seed", range(4))
def test_memory_log_and_tables_say_the_same(opened: Callable[..., OneShard], seed: int) -> None:
    Life(seed, opened, turns_resident=20).live(60)


@pytest.mark.parametrize("seed", range(100, 102))
def test_so_they_do_for_owners_beyond_memory(opened: Callable[..., OneShard], seed: int) -> None:
    Life(seed, opened, turns_resident=20, owner_turns_resident=8).live(60)
