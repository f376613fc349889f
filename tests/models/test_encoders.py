"""Which encoder reads what, and that each of two keeps to its own vectors."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.errors import EncoderUnavailable
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.encoders import EmbedServices, Encoders, open_embedders
from serve_app.models.fair_lock import FairLock
from serve_app.models.query_cache import QueryCache, query_key
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Embedder, EncodedQuery, Encodings

WAIT_S = 10.0
LATIN, OTHER = "hash_64", "hash_32"
BOTH = (LATIN, OTHER)


class Routed(Encoders):
    """Two encoders that nobody asks for vectors."""

    def __init__(self, *embedders: Embedder) -> None:
        super().__init__(embedders or (HashEmbedder(), HashEmbedder(32)), EmbedServices([]))


@pytest.mark.parametrize(
    ("text", "query", "turn", "turn_of_mixed"),
    [
        ("where is my order?", LATIN, (LATIN,), BOTH),
        ("Où est le café d'Žižkov?", LATIN, (LATIN,), BOTH),
        ("12:30, 4500!", LATIN, (LATIN,), BOTH),
        ("🙂🙂", LATIN, (LATIN,), BOTH),
        ("", LATIN, (LATIN,), BOTH),
        ("我的预算", OTHER, (OTHER,), (OTHER,)),
        ("ひらがなとカタカナ", OTHER, (OTHER,), (OTHER,)),
        ("한국어 문장", OTHER, (OTHER,), (OTHER,)),
        ("где мой заказ?", OTHER, (OTHER,), (OTHER,)),
        ("أين طلبي؟", OTHER, (OTHER,), (OTHER,)),
        ("สวัสดีครับ", OTHER, (OTHER,), (OTHER,)),
        ("API配置在哪里", OTHER, BOTH, BOTH),
        ("Tell 小明 about it", OTHER, BOTH, BOTH),
    ],
)
def test_the_script_says_who_reads(
    text: str, query: str, turn: tuple[str, ...], turn_of_mixed: tuple[str, ...]
) -> None:
    encoders = Routed()
    assert encoders.of_query(text) == query
    assert encoders.of_turn(text, False) == turn
    assert encoders.of_turn(text, True) == turn_of_mixed


@given(st.text(), st.text(), st.booleans())
def test_a_query_finds_vectors_of_every_turn_of_its_owner_that_it_shares_a_script_with(
    text: str, query: str, mixed: bool
) -> None:
    encoders = Routed()
    turn = encoders.of_turn(text, mixed)
    assert turn, "each turn has vectors"
    assert encoders.of_turn(text, True) in (turn, BOTH)
    assert encoders.of_query(text) in encoders.of_turn(text, mixed), "a text finds itself"
    one = Routed(HashEmbedder())
    assert (one.of_query(query), one.of_turn(text, mixed)) == (LATIN, (LATIN,))


def test_each_version_has_its_own_encoder() -> None:
    encoders = Encoders([HashEmbedder(), HashEmbedder(32)])
    try:
        assert [version.name for version in encoders.versions] == list(BOTH)
        for text, name, dimension in (("one two", LATIN, 64), ("一二", OTHER, 32)):
            asked = encoders.query(encoders.of_query(text), text).result(WAIT_S)
            assert (asked.version, asked.vector.shape) == (name, (dimension,))
            assert asked.tokens is not None
            assert len(asked.tokens) == 2
            assert np.array_equal(asked.vector, HashEmbedder(dimension).embed([text])[0])
            for put in (encoders.passages, encoders.passages_counted):
                assert put(name, [text]).result(WAIT_S).vectors.shape == (1, dimension)
        assert encoders.chunks(OTHER, "a b") == ["a b"]
        assert encoders.count(OTHER, ["a b"]) == [2]
    finally:
        encoders.close()


def test_an_encoder_that_gives_no_tokens_is_none_the_worse() -> None:
    class Plain(HashEmbedder):
        def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
            return super().encode(texts)

        def spans(self, text: str) -> None:
            return None

    encoders = Encoders([Plain()])
    try:
        asked = encoders.query(encoders.base.primary, "one two").result(WAIT_S)
        assert (asked.tokens, asked.spans) == (None, None)
        stored = encoders.passages(LATIN, ["one two", "three"]).result(WAIT_S)
        assert stored.tokens is None
        assert stored.vectors.shape == (2, 64)
    finally:
        encoders.close()


def test_one_encoder_or_two_of_different_versions() -> None:
    for wrong in ([], [HashEmbedder()] * 3, [HashEmbedder(), HashEmbedder()]):
        with pytest.raises(ValueError, match="encoders"):
            Encoders(wrong, EmbedServices([]))


def test_a_second_encoder_that_is_missing_is_told_or_left_out() -> None:
    def open_one(options: EncoderOptions) -> Embedder:
        if options.model == "missing":
            raise EncoderUnavailable("it is not installed: pip install it")
        return open_embedder(options)

    first, second = EncoderOptions(model="hash"), EncoderOptions(model="missing")
    [left] = open_embedders(first, second, optional=True, open_one=open_one)
    assert left.version.name == LATIN
    with pytest.raises(EncoderUnavailable, match="pip install it"):
        open_embedders(first, second, optional=False, open_one=open_one)
    assert len(open_embedders(first, None, optional=False)) == 1


def test_a_fair_lock_is_given_in_the_order_of_asking() -> None:
    lock, order = FairLock(), []
    asking = threading.Semaphore(0)

    def take(number: int) -> None:
        asking.release()
        with lock.turn():
            order.append(number)

    with lock.turn():
        threads = []
        for number in range(8):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            assert asking.acquire(timeout=WAIT_S)
            while lock.waiting <= number:
                pass
        assert order == []
    for thread in threads:
        thread.join(WAIT_S)
    assert order == list(range(8))
    with pytest.raises(ZeroDivisionError), lock.turn():
        raise ZeroDivisionError
    with lock.turn():
        assert lock.waiting == 0


def test_nobody_waits_for_an_encoder_that_hangs() -> None:
    lock = FairLock(patience_s=0.02)
    with lock.turn():
        with lock.turn():
            assert lock.waiting == 0
        with lock.turn():
            pass
    with lock.turn():
        pass


def test_for_one_that_hangs_only_the_first_waits() -> None:
    lock = FairLock(patience_s=0.2)
    with lock.turn():
        with lock.turn():
            pass
        began = time.monotonic()
        for _ in range(20):
            with lock.turn():
                assert lock.waiting == 0
        assert time.monotonic() - began < 0.2
    with lock.turn():
        assert lock.waiting == 0


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 40)), max_size=30))
def test_a_cache_of_queries_knows_its_bytes(puts: list[tuple[int, int]]) -> None:
    cache = QueryCache(4, 400)
    for name, length in puts:
        cache.put(query_key("v", str(name), False), EncodedQuery("v", np.zeros(length, np.float32)))
        assert len(cache) <= 4
        assert cache.bytes <= 400
    held = [cache.get(query_key("v", str(name), False)) for name in range(7)]
    assert cache.bytes == sum(one.vector.nbytes for one in held if one is not None)
