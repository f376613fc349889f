"""The embedding service over a real embedder whose pace the test holds in its hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from serve_app.core import EmbeddingVersion
from serve_app.errors import Overloaded
from serve_app.models.batching import EmbedLimits, EmbedService
from serve_app.models.fair_lock import FairLock
from serve_app.models.stub import HashEmbedder
from serve_app.models.waiting import BYTES_PER_TOKEN
from serve_app.ports import Encodings, Spans, Vectors

WAIT_S = 10.0


class PacedEmbedder:
    """`HashEmbedder` that records its batches, stops at a gate, and fails on request."""

    def __init__(self) -> None:
        self._inner = HashEmbedder()
        self.batches: list[list[str]] = []
        self.with_tokens: list[bool] = []
        self.gate = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.fail_on: str | None = None

    @property
    def version(self) -> EmbeddingVersion:
        return self._inner.version

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.arrived.release()
        assert self.gate.wait(WAIT_S)
        if self.fail_on in texts:
            raise MemoryError("the device is full")
        return self._inner.embed(texts)

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        self.with_tokens.append(tokens)
        return self._inner.encode(texts, tokens=tokens)._replace(vectors=self.embed(texts))

    def spans(self, text: str) -> Spans | None:
        return self._inner.spans(text)

    def chunks(self, text: str) -> list[str]:
        return self._inner.chunks(text)

    def count(self, texts: Sequence[str]) -> list[int]:
        return self._inner.count(texts)


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until
        time.sleep(0.002)


Start = Callable[..., EmbedService]


@pytest.fixture
def embedder() -> PacedEmbedder:
    return PacedEmbedder()


@pytest.fixture
def start(embedder: PacedEmbedder) -> Iterator[Start]:
    """Opens services; `busy=True` returns when the worker stands at the gate with a batch named "first"."""
    services: list[EmbedService] = []

    def open_service(*, busy: bool = False, clock: Callable[[], float] = time.monotonic, **limits: int) -> EmbedService:
        service = EmbedService(embedder, EmbedLimits(**limits), clock=clock)
        services.append(service)
        if busy:
            service.query("first")
            assert embedder.arrived.acquire(timeout=WAIT_S)
        else:
            embedder.gate.set()
        return service

    yield open_service
    embedder.gate.set()
    for service in services:
        service.close()


def expected(*texts: str) -> Vectors:
    return HashEmbedder().embed(texts)


def test_a_query_gives_the_embedders_vector_and_is_cached(start: Start, embedder: PacedEmbedder) -> None:
    service = start()
    encoded = service.query("where is my order?").result(WAIT_S)
    vector = encoded.vector
    assert np.array_equal(vector, expected("where is my order?")[0])
    assert not vector.flags.writeable
    assert vector.base is None, "a cached view would keep its whole batch in memory"
    assert service.query("where is my order?").result(WAIT_S) is encoded
    assert len(embedder.batches) == 1
    assert service.counters.cache_hits == 1


def test_a_query_brings_the_vectors_of_its_tokens_and_their_places(start: Start) -> None:
    version, _, tokens, spans, _ = start().query("where is my order?").result(WAIT_S)
    assert version == HashEmbedder().version.name
    assert spans is not None
    assert tokens is not None
    assert spans.tolist() == [[0, 5], [6, 8], [9, 11], [12, 17], [17, 18]]
    whole = HashEmbedder().encode(["where is my order?"], tokens=True)
    assert whole.tokens is not None
    assert np.array_equal(tokens, whole.tokens[0])
    assert tokens.base is spans.base is None


def test_what_is_stored_has_vectors_of_tokens_and_what_a_caller_waits_for_has_none(
    start: Start, embedder: PacedEmbedder
) -> None:
    service = start()
    texts = ["a longer text of words", "", "b"]
    stored, awaited = service.passages(texts).result(WAIT_S), service.passages_counted(texts).result(WAIT_S)
    assert stored.tokens is not None
    assert [len(own) for own in stored.tokens] == stored.counts == awaited.counts == [5, 0, 1]
    assert awaited.tokens is None
    assert embedder.with_tokens == [True, False], "nobody computes what nobody asked for"


def test_the_cache_is_bounded_in_bytes(start: Start, embedder: PacedEmbedder) -> None:
    service = start(query_bytes_max=2100)
    for text in ("a", "b", "word " * 20, "b", "a"):
        service.query(text).result(WAIT_S)
    assert [text[:4] for [text] in embedder.batches] == ["a", "b", "word", "a"]


def test_services_that_share_their_passes_have_one_pass_at_a_time(embedder: PacedEmbedder) -> None:
    """Beside a backlog of the one, the other's query waits for one pass, not for all of them."""
    passes, other = FairLock(), PacedEmbedder()
    other.batches = embedder.batches
    services = [EmbedService(one, EmbedLimits(batch_tokens_max=8), passes=passes) for one in (embedder, other)]
    embedder.gate.set()
    other.gate.set()
    for service in services:
        service.query("loads").result(WAIT_S)
    embedder.gate.clear()
    backlog = services[0].passages([f"backlog number {number}" for number in range(30)])
    wait_until(lambda: len(embedder.batches) == 3)
    asked = services[1].query("quick")
    time.sleep(0.05)
    assert len(embedder.batches) == 3, "the other's pass is under way"
    embedder.gate.set()
    asked.result(WAIT_S)
    backlog.result(WAIT_S)
    assert embedder.batches.index(["quick"]) == 3
    assert len(embedder.batches) > 30
    for service in services:
        service.close()


def test_what_arrives_while_a_batch_runs_goes_into_the_next(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    futures = {text: service.query(text) for text in ("a", "b", "c", "b")}
    assert service.counters.queries_waiting == 3
    embedder.gate.set()
    for text, future in futures.items():
        assert np.array_equal(future.result(WAIT_S).vector, expected(text)[0])
    assert embedder.batches == [["first"], ["a", "b", "c"]]


def test_a_second_caller_joins_a_text_that_is_being_computed(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    again = service.query("first")
    embedder.gate.set()
    assert np.array_equal(again.result(WAIT_S).vector, expected("first")[0])
    assert embedder.batches == [["first"]]


def test_one_callers_cancellation_does_not_reach_the_others(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    leaving, staying, alone = service.query("a"), service.query("a"), service.query("b")
    assert leaving.cancel()
    assert alone.cancel()
    embedder.gate.set()
    assert np.array_equal(staying.result(WAIT_S).vector, expected("a")[0])
    assert embedder.batches == [["first"], ["a"]]


def test_solo_is_a_batch_of_its_own_under_a_key_of_its_own(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    futures = [service.query("a"), service.query("b", solo=True), service.query("b"), service.query("c", solo=True)]
    embedder.gate.set()
    for future in futures:
        future.result(WAIT_S)
    assert embedder.batches == [["first"], ["a", "b"], ["b"], ["c"]]
    service.query("b", solo=True).result(WAIT_S)
    assert service.counters.cache_hits == 1


def test_queries_go_before_passages_that_came_first(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    passages = service.passages(["p", "q"])
    query = service.query("a")
    embedder.gate.set()
    query.result(WAIT_S)
    assert np.array_equal(passages.result(WAIT_S).vectors, expected("p", "q"))
    assert embedder.batches == [["first"], ["a"], ["p", "q"]]


def test_passages_get_a_turn_under_a_stream_of_queries(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batches_in_a_row_max=2)
    passages = service.passages(["p"])
    queries = [service.query(text, solo=True) for text in "abcd"]
    embedder.gate.set()
    for future in (*queries, passages):
        future.result(WAIT_S)
    assert embedder.batches == [["first"], ["a"], ["p"], ["b"], ["c"], ["d"]]


def test_what_a_caller_waits_for_overtakes_a_long_backlog(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batch_tokens_max=10)
    backlog = service.passages([f"backlog {number}" for number in range(40)])
    awaited = service.passages_counted(["c"])
    embedder.gate.set()
    vectors, tokens, _ = awaited.result(WAIT_S)
    assert np.array_equal(vectors, expected("c"))
    assert tokens == HashEmbedder().count(["c"])
    assert backlog.result(WAIT_S).vectors.shape == (40, 64)
    assert embedder.batches[:2] == [["first"], ["c"]]
    assert len(embedder.batches) > 10


def test_the_backlog_moves_under_a_stream_of_callers(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batches_in_a_row_max=2, batch_tokens_max=2)
    backlog = service.passages(["s", "t"])
    callers = [service.passages_counted([text]) for text in "abcdef"]
    embedder.gate.set()
    for future in (*callers, backlog):
        future.result(WAIT_S)
    assert embedder.batches == [["first"], *([text] for text in "asbctdef")]


def test_neither_callers_nor_the_backlog_starve_under_queries(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batches_in_a_row_max=3, batch_tokens_max=2)
    stored, awaited = service.passages(["s", "t"]), service.passages_counted(["x", "y"])
    queries = [service.query(text, solo=True) for text in "abcdefgh"]
    embedder.gate.set()
    for future in (*queries, stored, awaited):
        future.result(WAIT_S)
    assert "".join(batch[0] for batch in embedder.batches[1:]) == "abxscdeytfgh"


def test_a_callers_long_call_holds_no_other_up(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batch_tokens_max=40)
    long_call = service.passages_counted([f"text {number}" for number in range(100)])
    others = [service.passages_counted([f"other {number}"]) for number in range(5)]
    embedder.gate.set()
    assert np.array_equal(long_call.result(WAIT_S)[0], expected(*(f"text {number}" for number in range(100))))
    for number, other in enumerate(others):
        assert np.array_equal(other.result(WAIT_S)[0], expected(f"other {number}"))
    assert {f"other {number}" for number in range(5)} < set(embedder.batches[1])
    assert len(embedder.batches) > 5


def test_short_texts_pass_one_that_no_longer_fits_and_it_is_next(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batch_tokens_max=22)
    long_text, longer_text = "a much longer text " * 2, "a much longer text " * 2 + "."
    calls = [service.passages_counted([text]) for text in ("a", "b", long_text, longer_text, "c", "d", "e")]
    embedder.gate.set()
    for call in calls:
        call.result(WAIT_S)
    assert embedder.batches == [["first"], ["a", "b", long_text, "c", "d"], [longer_text, "e"]]


def test_passages_that_nobody_waits_for_any_more_are_not_computed(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, batch_tokens_max=4)
    long_text = "a text for a batch of its own"
    leaving = [service.passages_counted(["a"]), service.passages(["p"])]
    staying, passed = service.passages_counted(["b"]), service.passages_counted([long_text])
    assert all(future.cancel() for future in leaving)
    staying.add_done_callback(lambda _: passed.cancel())
    embedder.gate.set()
    staying.result(WAIT_S)
    assert service.passages(["q"]).result(WAIT_S).vectors.shape == (1, 64)
    assert passed.cancelled(), "who was only passed over may still leave"
    assert embedder.batches == [["first"], ["b"], ["q"]]
    assert service.counters.passages_waiting == 0


def test_a_full_backlog_refuses_no_caller(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, passages_waiting_max=3)
    backlog, awaited = service.passages(["p", "q", "r"]), service.passages_counted(["x", "y"])
    assert service.counters.passages_waiting == 5
    for put in (service.passages, service.passages_counted):
        with pytest.raises(Overloaded):
            put(["s", "t"])
    embedder.gate.set()
    assert backlog.result(WAIT_S).vectors.shape == (3, 64)
    assert awaited.result(WAIT_S)[0].shape == (2, 64)


def test_a_long_call_is_cut_by_tokens_and_keeps_its_order(start: Start, embedder: PacedEmbedder) -> None:
    service = start(batch_tokens_max=60)
    texts = [f"{'word ' * (number * 7 % 11)}{number}" for number in range(40)]
    short = service.passages(["x"])
    assert np.allclose(service.passages(texts).result(WAIT_S).vectors, expected(*texts), atol=1e-6)
    assert short.result(WAIT_S).vectors.shape == (1, 64)
    assert max(sum(len(text) for text in batch) for batch in embedder.batches) <= 60 * BYTES_PER_TOKEN
    assert len(embedder.batches) > 5
    assert service.counters.texts == 41
    assert service.counters.tokens == sum(HashEmbedder().count([*texts, "x"]))


def test_small_calls_share_a_batch(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    calls = [service.passages([f"turn {number}"]) for number in range(5)]
    embedder.gate.set()
    for number, call in enumerate(calls):
        assert np.array_equal(call.result(WAIT_S).vectors, expected(f"turn {number}"))
    assert len(embedder.batches) == 2


def test_no_passages_are_no_work(start: Start, embedder: PacedEmbedder) -> None:
    assert start().passages([]).result(WAIT_S).vectors.shape == (0, 64)
    assert embedder.batches == []


def test_expired_queries_are_dropped_before_they_are_computed(start: Start, embedder: PacedEmbedder) -> None:
    now = [100.0]
    service = start(busy=True, clock=lambda: now[0])
    late, patient = service.query("a", deadline=101.0), service.query("b", deadline=200.0)
    shared_late, shared_patient = service.query("c", deadline=101.0), service.query("c")
    now[0] = 101.0
    embedder.gate.set()
    for future in (late, shared_late):
        with pytest.raises(TimeoutError):
            future.result(WAIT_S)
    assert np.array_equal(patient.result(WAIT_S).vector, expected("b")[0])
    assert np.array_equal(shared_patient.result(WAIT_S).vector, expected("c")[0])
    assert embedder.batches == [["first"], ["b", "c"]]
    assert service.counters.expired == 2
    assert np.array_equal(service.query("a").result(WAIT_S).vector, expected("a")[0])


def test_full_queues_refuse_at_once_and_lose_nothing(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True, queries_waiting_max=2, passages_waiting_max=3)
    accepted = [service.query("a"), service.query("b"), service.query("a")]
    stored = service.passages(["p", "q"])
    with pytest.raises(Overloaded):
        service.query("c")
    with pytest.raises(Overloaded):
        service.passages(["r", "s"])
    with pytest.raises(ValueError, match="at most 3"):
        service.passages(["r"] * 4)
    embedder.gate.set()
    for future in accepted:
        future.result(WAIT_S)
    assert stored.result(WAIT_S).vectors.shape == (2, 64)
    assert service.query("c").result(WAIT_S).vector.shape == (64,)


def test_a_failed_batch_fails_its_callers_and_nobody_else(start: Start, embedder: PacedEmbedder) -> None:
    service = start()
    embedder.fail_on = "bad"
    with pytest.raises(MemoryError):
        service.query("bad").result(WAIT_S)
    for put in (service.passages, service.passages_counted):
        with pytest.raises(MemoryError):
            put(["good", "bad"]).result(WAIT_S)
    assert service.query("good").result(WAIT_S).vector.shape == (64,)
    embedder.fail_on = None
    assert service.query("bad").result(WAIT_S).vector.shape == (64,)
    assert service.counters.failed_batches == 3


def test_a_long_call_that_fails_leaves_nothing_behind(start: Start, embedder: PacedEmbedder) -> None:
    service = start(batch_tokens_max=10, passages_waiting_max=50)
    embedder.fail_on = "bad"
    with pytest.raises(MemoryError):
        service.passages(["bad", *["a longer text"] * 49]).result(WAIT_S)
    assert service.counters.passages_waiting == 0
    assert service.passages(["fine"] * 50).result(WAIT_S).vectors.shape == (50, 64)


def test_the_cache_forgets_the_least_recently_used(start: Start, embedder: PacedEmbedder) -> None:
    service = start(query_vectors_max=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        service.query(text).result(WAIT_S)
    assert embedder.batches == [["a"], ["b"], ["c"], ["b"]]


def test_close_ends_the_thread_and_fails_what_waits(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    query, passages, awaited = service.query("a"), service.passages(["p"]), service.passages_counted(["x"])
    threading.Timer(0.1, embedder.gate.set).start()
    service.close()
    for future in (query, passages, awaited):
        with pytest.raises(Overloaded):
            future.result(WAIT_S)
    with pytest.raises(Overloaded):
        service.query("b")
    with pytest.raises(Overloaded):
        service.passages(["b"])
    assert embedder.batches == [["first"]]


def test_many_threads_get_their_own_answers(start: Start, embedder: PacedEmbedder) -> None:
    service = start(query_vectors_max=8)
    wrong: list[str] = []

    def ask(seed: int) -> None:
        for number in range(40):
            text = f"question {(seed * 13 + number * 7) % 23}"
            vector = service.query(text, solo=number % 5 == 0).result(WAIT_S).vector
            if not np.allclose(vector, expected(text)[0], atol=1e-6):
                wrong.append(text)
            stored, awaited = service.passages([text, "x"]), service.passages_counted([text, "x"])
            vectors = np.concatenate([stored.result(WAIT_S)[0], awaited.result(WAIT_S)[0]])
            if not np.allclose(vectors, expected(text, "x", text, "x"), atol=1e-6):
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert wrong == []
    assert service.counters.queries_waiting == service.counters.passages_waiting == 0


def test_the_load_is_what_waits_what_came_and_how_fast_it_goes(start: Start, embedder: PacedEmbedder) -> None:
    service = start(busy=True)
    before = service.load
    text = "x" * (10 * BYTES_PER_TOKEN)
    first = service.query(text)
    service.query(text)
    passages = service.passages([text, text])
    given_up = service.passages_counted([text] * 5)
    tokens = service.load.waiting
    assert tokens == service.load.came - before.came == (1 + 2 + 5) * (10 + 2), "a text asked for twice is one"
    given_up.cancel()
    embedder.gate.set()
    first.result(WAIT_S)
    passages.result(WAIT_S)
    wait_until(lambda: service.load.waiting == 0)
    service.query(text).result(WAIT_S)
    assert service.load.came - before.came == tokens, "what is cached costs nothing"
    service.query("y" * 200 * BYTES_PER_TOKEN).result(WAIT_S)
    assert service.load.a_second > 0
