"""Vectors come late when they must, but they come, and nothing else waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from serve_app.errors import EncoderUnavailable, Overloaded
from serve_app.models.encoders import Encoders
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Encodings, Spans, Vectors
from serve_app.records import Record, VectorsPut
from serve_app.stores.log import ShardLog
from serve_app.stores.packing import TURN_TOKENS_MAX, turn_text
from serve_app.stores.wanted import ANY
from serve_app.write.erasing import EraseUser
from serve_app.write.indexer import OWNER_PENDING_MAX, Indexer
from serve_app.write.operations import AppendTurns, DeleteSession, EditTurn, NewTurn
from serve_app.write.shard import Shard
from serve_app.write.turn_queue import BATCH_TURNS_MAX, SHORT_TEXT_MAX
from tests.write.shards import ANN, BOB, EMBEDDER, VERSION, Noting, OneShard, wait_until
from tests.write.test_commit import Gate


class Moody:
    """The hash embedder, which raises `failures` times and for every batch with `refused` in it; notes what it read."""

    def __init__(self, failures: int = 0, refused: str | None = None, embedder: HashEmbedder = EMBEDDER) -> None:
        self.failures, self.refused = failures, refused
        self.read: list[str] = []
        self.embedder, self.version = embedder, embedder.version
        self.chunks, self.count = embedder.chunks, embedder.count
        self.healthy = threading.Event()
        self.healthy.set()

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.read += texts
        if self.failures > 0:
            self.failures -= 1
            raise EncoderUnavailable("not now")
        if not self.healthy.is_set() or any(self.refused and self.refused in text for text in texts):
            raise RuntimeError("this text breaks the encoder")
        return self.embedder.embed(texts)

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        return self.embedder.encode(texts, tokens=tokens)._replace(vectors=self.embed(texts))

    def spans(self, text: str) -> Spans | None:
        return self.embedder.spans(text)


class Asked(Encoders):
    """Notes how many texts of turns come in each call."""

    def __init__(self, embedders: Sequence[Moody]) -> None:
        super().__init__(embedders)
        self.sizes: list[int] = []

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        self.sizes.append(len(texts))
        return super().passages(version, texts)


class Indexing:
    """Shards with one indexer between them, put together as the service does it."""

    def __init__(
        self,
        embedders: Sequence[Moody],
        opened: Callable[..., OneShard],
        names: Sequence[str] = ("store",),
        retry_after_s: float = 0.01,
        **options: Any,
    ) -> None:
        self.encoders = Asked(embedders)
        self.meter = Noting()
        self.indexer = Indexer(self.encoders, retry_after_s=retry_after_s, meter=self.meter)
        options["embedders"] = tuple(one.embedder for one in embedders)
        self.started = False
        self.shards = [opened(name, number=n, committed=self.committed, **options) for n, name in enumerate(names)]

    def committed(self, shard: Shard, records: list[Record]) -> None:
        if self.started:
            self.indexer.committed(shard, records)

    def start(self) -> OneShard:
        self.started = True
        self.indexer.start([shard.writer for shard in self.shards])
        return self.shards[0]

    def close(self) -> None:
        if self.started:
            self.indexer.close()
        self.encoders.close()


@pytest.fixture
def indexing(opened: Callable[..., OneShard]) -> Iterator[Callable[..., Indexing]]:
    made: list[Indexing] = []

    def make(embedder: Moody, *names: str, beside: Sequence[Moody] = (), **options: Any) -> Indexing:
        made.append(Indexing((embedder, *beside), opened, names or ("store",), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_failing_embedder_delays_vectors_and_nothing_else(indexing: Callable[..., Indexing]) -> None:
    embedder = Moody()
    embedder.healthy.clear()
    one = indexing(embedder)
    shard = one.start()
    shard.say(ANN, "a", "amber", "birch", "cedar")
    wait_until(lambda: one.indexer.failures >= 3)
    assert len(shard.shard.pending) == 3
    assert one.indexer.alive
    assert shard.block(ANN).vectors.came == {}
    assert (shard.block(ANN).columns.lexical.scores(["birch"])[0] > 0).tolist() == [False, True, False]
    embedder.healthy.set()
    wait_until(lambda: not shard.shard.pending)
    assert shard.block(ANN).vectors.came.keys() == {1, 2, 3}


def test_it_tries_again_as_often_as_it_takes(indexing: Callable[..., Indexing]) -> None:
    one = indexing(Moody(failures=4))
    shard = one.start()
    shard.say(ANN, "a", "amber")
    wait_until(lambda: not shard.shard.pending)
    assert one.indexer.failures == 4


def test_what_was_left_without_vectors_gets_them_after_a_restart(
    indexing: Callable[..., Indexing], opened: Callable[..., OneShard]
) -> None:
    before = opened()
    before.say_as(ANN, "a", "1", "folded")
    before.say_as(ANN, "a", "2", "folded, then edited")
    before.say(ANN, "gone", "folded, then deleted")
    before.say(BOB, "a", "folded, then erased")
    before.fold()
    before.do(EditTurn(ANN, "a", "2", "the new text", None))
    before.do(DeleteSession(ANN, "gone"))
    before.do(EraseUser(BOB, "acme"))
    before.say(ANN, "a", "not folded")
    before.close()
    embedder = Moody()
    one = indexing(embedder)
    assert len(one.shards[0].shard.pending) == 3
    shard = one.start()
    wait_until(lambda: not shard.shard.pending)
    assert {text.partition(": ")[2] for text in embedder.read} == {"folded", "the new text", "not folded"}
    block = shard.block(ANN)
    assert block.vectors.came.keys() == block.turns.keys()


def test_what_is_forgotten_before_it_is_embedded_never_is(indexing: Callable[..., Indexing]) -> None:
    embedder = Moody()
    one = indexing(embedder)
    shard = one.shards[0]
    shard.say(ANN, "gone", "word " * 400, "more")
    shard.say(ANN, "a", "stays")
    shard.do(DeleteSession(ANN, "gone"))
    one.start()
    wait_until(lambda: not shard.shard.pending)
    assert [text.partition(": ")[2] for text in embedder.read] == ["stays"]
    shard.fold()
    found = shard.table.nearest(ANN, EMBEDDER.embed(["word"])[0], 99, ANY, VERSION.name)
    assert [turn.content for turn, _ in found] == ["stays"]


def test_a_long_turn_has_a_vector_for_each_piece(indexing: Callable[..., Indexing]) -> None:
    shard = indexing(Moody()).start()
    shard.say(ANN, "a", "apple " * 300 + "the zebra crossed the road " * 20)
    shard.say(ANN, "a", "apple pie")
    wait_until(lambda: not shard.shard.pending)
    block = shard.block(ANN)
    assert block.vectors.count([1]) == len(EMBEDDER.chunks("apple " * 300 + "the zebra crossed the road " * 20)) > 2
    scores = block.dense(VERSION.name, EMBEDDER.embed(["the zebra crossed the road"])[0], 2, None)
    assert scores[0] > 0.8 > scores[1]
    shard.fold()
    shard.block(BOB)
    (nearest, _), *_ = shard.table.nearest(ANN, EMBEDDER.embed(["the zebra crossed the road"])[0], 1, ANY, VERSION.name)
    assert nearest.seq == 1


def test_a_text_that_breaks_the_encoder_holds_up_no_other(indexing: Callable[..., Indexing]) -> None:
    one = indexing(Moody(refused="poison"))
    shard = one.shards[0]
    shard.say(ANN, "a", *(f"fine {n}" for n in range(20)), "poison", *(f"good {n}" for n in range(20)))
    one.start()
    wait_until(lambda: shard.shard.pending.keys() == {21})
    shard.say(ANN, "a", "later")
    wait_until(lambda: shard.shard.pending.keys() == {21})
    assert one.indexer.waiting <= 1


def test_a_shard_that_takes_no_vectors_holds_up_no_other(indexing: Callable[..., Indexing]) -> None:
    one = indexing(Moody(), "stopped", "sound")
    stopped, sound = one.shards
    stopped.say(ANN, "a", *(f"turn {n}" for n in range(BATCH_TURNS_MAX + 10)))
    stopped.writer.close()
    one.start()
    wait_until(lambda: one.indexer.failures > 0)
    sound.say(BOB, "a", "amber")
    wait_until(lambda: not sound.shard.pending)
    assert len(stopped.shard.pending) == BATCH_TURNS_MAX + 10


def test_an_edit_while_its_turn_is_embedded_wins(
    indexing: Callable[..., Indexing], opened: Callable[..., OneShard]
) -> None:
    edits: list[Any] = []

    class EditedMeanwhile(Moody):
        def embed(self, texts: Sequence[str]) -> Vectors:
            if edits:
                shard.do(edits.pop())
            return super().embed(texts)

    embedder = EditedMeanwhile()
    one = indexing(embedder)
    shard = one.shards[0]
    shard.say_as(ANN, "a", "1", "old words")
    edits.append(EditTurn(ANN, "a", "1", "new words", None))
    one.start()
    wait_until(lambda: not shard.shard.pending)
    assert embedder.read[-1].endswith("new words")
    found = shard.block(ANN).dense(VERSION.name, EMBEDDER.embed([embedder.read[-1]])[0], 1, None)
    assert found[0] == pytest.approx(1, abs=1e-3)


LONG = "all the long words " * (SHORT_TEXT_MAX // 18)
PIECES = len(EMBEDDER.chunks(LONG))


class Counting(Moody):
    """Holds each call back until it is let go; notes how many texts came in each, and which."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        assert self.gate.acquire(timeout=20)
        return super().embed(texts)


def texts_before(embedder: Counting, shard: OneShard, seq: int) -> int:
    """How many texts the encoder takes until this turn has its vector."""

    def taken() -> bool:
        return len(embedder.read) > seen or seq not in shard.shard.pending

    while seq in shard.shard.pending:
        seen = len(embedder.read)
        embedder.gate.release()
        wait_until(taken)
    return len(embedder.read)


@pytest.mark.parametrize("recovered", [False, True], ids=["live", "recovered"])
def test_a_short_turn_waits_for_few_texts_however_much_another_owner_wrote(
    indexing: Callable[..., Indexing], recovered: bool
) -> None:
    embedder = Counting()
    one = indexing(embedder)
    shard = one.shards[0] if recovered else one.start()
    shard.say(ANN, "a", *[LONG] * 40)
    shard.say(ANN, "a", *(f"turn {n}" for n in range(3 * BATCH_TURNS_MAX)))
    seq = shard.say(BOB, "a", "amber")[0].seq
    assert seq is not None
    if recovered:
        one.start()
    try:
        assert texts_before(embedder, shard, seq) <= 2 * (BATCH_TURNS_MAX + PIECES)
    finally:
        embedder.gate.release(1_000)
    wait_until(lambda: not shard.shard.pending)
    assert all(len(call) <= BATCH_TURNS_MAX for call in embedder.calls)


def test_a_long_turn_that_breaks_the_encoder_holds_up_no_other(indexing: Callable[..., Indexing]) -> None:
    one = indexing(Moody(refused="poison"))
    shard = one.start()
    shard.say(ANN, "a", "poison " + LONG, LONG, "short")
    wait_until(lambda: shard.shard.pending.keys() == {1})
    wait_until(lambda: one.indexer.failures >= 3)
    shard.say(ANN, "a", "later", LONG)
    wait_until(lambda: shard.shard.pending.keys() == {1})


def test_an_owner_who_wrote_too_much_is_full_and_the_others_are_not(indexing: Callable[..., Indexing]) -> None:
    embedder = Counting()
    one = indexing(embedder)
    shard = one.start()
    most = [NewTurn("user", "amber")] * (OWNER_PENDING_MAX // 4)
    assert not one.indexer.full_for(ANN)
    for _ in range(5):
        shard.do(AppendTurns(ANN, "a", most))
    assert one.indexer.full_for(ANN) == "owner_pending"
    with pytest.raises(Overloaded):
        one.indexer.admit(ANN)
    assert one.meter.bounds == ["owner_pending"]
    one.indexer.admit(BOB)
    shard.do(EraseUser(ANN, "acme"))
    embedder.gate.release(BATCH_TURNS_MAX)
    wait_until(lambda: not one.indexer.full_for(ANN))


def test_a_round_is_embedded_while_the_one_before_it_is_committed_and_no_further(
    indexing: Callable[..., Indexing],
) -> None:
    embedder = Moody()
    one = indexing(embedder, segments=Gate)
    shard = one.shards[0]
    shard.say(ANN, "a", *(f"turn {n}" for n in range(3 * BATCH_TURNS_MAX)))
    shard.segments.shut()
    one.start()
    wait_until(lambda: len(embedder.read) == 2 * BATCH_TURNS_MAX)
    assert len(shard.shard.pending) == 3 * BATCH_TURNS_MAX
    assert one.indexer.oldest_age_s > 0
    time.sleep(0.05)
    assert len(embedder.read) == 2 * BATCH_TURNS_MAX
    shard.segments.open()
    wait_until(lambda: not shard.shard.pending)
    wait_until(lambda: len(one.meter.lags) == 3 * BATCH_TURNS_MAX)
    assert sorted(one.meter.lags)[0] > 0
    assert one.indexer.oldest_age_s == 0


def test_a_turn_that_is_edited_while_it_waits_is_embedded_once(indexing: Callable[..., Indexing]) -> None:
    embedder = Counting()
    one = indexing(embedder)
    shard = one.start()
    shard.say(BOB, "a", "in the encoder's hands")
    wait_until(lambda: len(embedder.calls) == 1)
    shard.say_as(ANN, "a", "1", "old words")
    shard.do(EditTurn(ANN, "a", "1", "new words", None))
    assert one.indexer.waiting == 2
    embedder.gate.release(10)
    wait_until(lambda: not shard.shard.pending)
    wait_until(lambda: not one.indexer.waiting)
    assert [text.partition(": ")[2] for text in embedder.read] == ["in the encoder's hands", "new words"]
    assert shard.block(ANN).vectors.came.keys() == {2}


def test_what_another_writer_owns_by_now_is_not_embedded_again_and_again(indexing: Callable[..., Indexing]) -> None:
    embedder = Moody()
    one = indexing(embedder)
    shard = one.shards[0]
    shard.say(ANN, "a", "amber", "birch")
    ShardLog.open(shard.segments, folded_seq=0, writer_id="the new owner")
    one.start()
    wait_until(lambda: one.indexer.failures == 1)
    wait_until(lambda: not one.indexer.waiting)
    assert len(embedder.read) == 2
    assert shard.shard.pending.keys() == {1, 2}
    assert one.indexer.alive


BESIDE = HashEmbedder(32)
PRIMARY, SECOND = EMBEDDER.version.name, BESIDE.version.name


def versions_of(shard: OneShard, owner: str = ANN) -> dict[int, list[str]]:
    """Under which versions each turn has its vectors, with tokens."""
    vectors = shard.block(owner).vectors
    assert all(tokens for seq in vectors.came for _, tokens in vectors.shape(seq).values())
    return {seq: list(vectors.shape(seq)) for seq in sorted(vectors.came)}


def test_each_turn_is_embedded_under_the_versions_that_its_script_and_its_memory_call_for(
    indexing: Callable[..., Indexing],
) -> None:
    one = indexing(Moody(), beside=[Moody(embedder=BESIDE)])
    shard = one.start()
    shard.say(ANN, "a", "amber", "12:30")
    shard.say(BOB, "a", "cedar")
    wait_until(lambda: not shard.shard.pending)
    shard.say(ANN, "a", "琥珀")
    wait_until(lambda: not shard.shard.pending)
    shard.say(ANN, "a", "birch")
    wait_until(lambda: not shard.shard.pending)
    last = max(shard.block(ANN).turns)
    chinese = last - 2
    assert versions_of(shard) == {1: [PRIMARY], 2: [PRIMARY], chinese: [SECOND], last: [PRIMARY, SECOND]}
    assert list(versions_of(shard, BOB).values()) == [[PRIMARY]]
    records = [record for record in shard.shard.tail() if isinstance(record, VectorsPut)]
    assert [len(record.versions) for record in records if last in record.of_turns()] == [2]


def test_a_failing_version_delays_the_turns_that_want_it_and_no_others(indexing: Callable[..., Indexing]) -> None:
    broken = Moody(embedder=BESIDE)
    broken.healthy.clear()
    primary = Moody()
    one = indexing(primary, beside=[broken])
    shard = one.start()
    shard.say(ANN, "a", "琥珀", "amber beside it")
    shard.say(BOB, "a", *(f"fine {n}" for n in range(BATCH_TURNS_MAX + 10)))
    wait_until(lambda: len(shard.block(BOB).vectors.came) == BATCH_TURNS_MAX + 10)
    assert shard.shard.pending.keys() == {1, 2}
    wait_until(lambda: one.indexer.failures > 3)
    assert shard.block(ANN).vectors.came == {}
    shard.say(BOB, "a", "later")
    wait_until(lambda: shard.shard.pending.keys() == {1, 2})
    broken.healthy.set()
    wait_until(lambda: not shard.shard.pending)
    assert versions_of(shard) == {1: [SECOND], 2: [PRIMARY, SECOND]}


def test_long_turns_that_failed_are_tried_one_at_a_time(indexing: Callable[..., Indexing]) -> None:
    """So many at once would keep the encoder from the short ones."""
    one = indexing(Moody(failures=3))
    shard = one.shards[0]
    shard.say(ANN, "a", *[LONG] * 8, *(f"short {n}" for n in range(20)))
    one.start()
    wait_until(lambda: not shard.shard.pending)
    assert one.indexer.failures == 3
    assert max(one.encoders.sizes) == max(PIECES, 20)


def test_a_version_that_has_just_failed_is_not_asked_again_for_each_new_turn(
    indexing: Callable[..., Indexing],
) -> None:
    broken = Moody(embedder=BESIDE)
    broken.healthy.clear()
    one = indexing(Moody(), beside=[broken], retry_after_s=30.0)
    shard = one.start()
    shard.say(ANN, "a", "琥珀")
    wait_until(lambda: one.indexer.failures == 1)
    for n in range(20):
        shard.say(ANN, "a", f"琥珀 {n}")
        shard.say(BOB, "a", f"amber {n}")
    wait_until(lambda: len(shard.block(BOB).vectors.came) == 20)
    assert one.indexer.failures == 1
    assert len(shard.shard.pending) == one.indexer.waiting == 21


def test_a_long_turn_keeps_the_tokens_of_its_beginning(indexing: Callable[..., Indexing]) -> None:
    shard = indexing(Moody()).start()
    shard.say(ANN, "a", LONG)
    wait_until(lambda: not shard.shard.pending)
    assert shard.block(ANN).vectors.shape(1) == {PRIMARY: (PIECES, TURN_TOKENS_MAX)}
    tokens, _ = shard.block(ANN).tokens(PRIMARY, [1], None)
    first = EMBEDDER.encode(EMBEDDER.chunks(turn_text(shard.block(ANN).turns[1]))[:1], tokens=True).tokens
    assert first is not None
    assert (tokens[: len(first[0])] == first[0]).all()
