"""One contract for every hot index, with the NumPy one as oracle.

Vectors have small whole components, so that inner products are exact in float32 and ties are real
ties on every backend.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.ports import HotIndex, Rows, Vectors
from serve_app.stores.device import HostDevice, PatientDevice, gpu_count
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.hot_device import DeviceHotIndex
from serve_app.stores.hot_faiss import FaissHotIndex
from serve_app.stores.slots import DEAD_MIN
from serve_app.stores.spilling import SpillingHotIndex
from tests.stores.devices import StockDevice

DIMENSION = 4
OWNERS = ("acme\x1fann", "acme\x1fbob", "zeta\x1fann")

Open = Callable[[int], HotIndex]


SLOTS, FEW_SLOTS = 2048, 64


def open_on_host(dimension: int) -> HotIndex:
    return DeviceHotIndex(dimension, HostDevice, SLOTS)


def open_on_stock(dimension: int) -> HotIndex:
    """A device that looks at all slots whatever it is told, as FAISS's own flat index on a GPU does."""
    return DeviceHotIndex(dimension, lambda _: PatientDevice(lambda: StockDevice(dimension)), SLOTS)


def open_spilling(dimension: int) -> HotIndex:
    return SpillingHotIndex(DeviceHotIndex(dimension, HostDevice, FEW_SLOTS), dimension)


def open_on_gpu(dimension: int) -> HotIndex:
    return DeviceHotIndex.on_gpu(dimension, SLOTS)


BACKENDS: dict[str, Open] = {
    "exact": ExactHotIndex,
    "faiss": FaissHotIndex,
    "device_on_host": open_on_host,
    "device_that_ignores_extents": open_on_stock,
    "spilling": open_spilling,
    "gpu": open_on_gpu,
}


@pytest.fixture(params=BACKENDS, scope="module")
def open_index(request: pytest.FixtureRequest) -> Open:
    if request.param == "gpu" and gpu_count() == 0:
        pytest.skip("no GPU that this build of FAISS can use")
    return BACKENDS[request.param]


def rows_of(*ids: int) -> Rows:
    return np.array(ids, np.int64)


def vectors_of(*vectors: tuple[int, ...]) -> Vectors:
    return np.array(vectors, np.float32).reshape(len(vectors), -1)


def found(index: HotIndex, owner: str, query: tuple[int, ...], k: int) -> list[tuple[int, float]]:
    rows, scores = index.search(owner, np.array(query, np.float32), k)
    assert rows.dtype == np.int64
    assert scores.dtype == np.float32
    return list(zip(rows.tolist(), scores.tolist(), strict=True))


def products(index: HotIndex, owner: str, query: tuple[int, ...]) -> dict[int, float]:
    rows, scores = index.products(owner, np.array(query, np.float32))
    assert (rows.dtype, scores.dtype, len(set(rows.tolist()))) == (np.int64, np.float32, len(rows))
    return dict(zip(rows.tolist(), scores.tolist(), strict=True))


vector = st.tuples(*[st.integers(-2, 2)] * DIMENSION)
owner = st.sampled_from(OWNERS)
row = st.integers(0, 12)
operation = st.one_of(
    st.tuples(st.just("add"), owner, st.lists(st.tuples(row, vector), max_size=6)),
    st.tuples(st.just("remove"), owner, st.lists(row, max_size=6)),
    st.tuples(st.just("search"), owner, st.tuples(vector, st.integers(0, 20))),
    st.tuples(st.just("drop"), owner, st.none()),
)


def apply(index: HotIndex, name: str, owner: str, argument: Any) -> Any:
    if name == "add":
        rows = rows_of(*[row for row, _ in argument])
        vectors = np.array([vector for _, vector in argument], np.float32).reshape(len(argument), DIMENSION)
        index.add(owner, rows, vectors)
    elif name == "remove":
        return index.remove(owner, rows_of(*argument))
    elif name == "search":
        return found(index, owner, *argument)
    else:
        index.drop(owner)
    return index.count(owner)


@settings(max_examples=150, deadline=None)
@given(operations=st.lists(operation, max_size=25))
def test_any_run_of_operations_equals_the_oracle(open_index: Open, operations: list[tuple[str, str, Any]]) -> None:
    index, oracle = open_index(DIMENSION), ExactHotIndex(DIMENSION)
    for step in operations:
        assert apply(index, *step) == apply(oracle, *step)
    for name in OWNERS:
        assert found(index, name, (1, 2, -1, 0), 50) == found(oracle, name, (1, 2, -1, 0), 50)
        assert products(index, name, (1, 2, -1, 0)) == products(oracle, name, (1, 2, -1, 0))
    if isinstance(index, DeviceHotIndex | SpillingHotIndex):
        index.close()  # there are many


def test_owners_never_see_each_others_rows(open_index: Open) -> None:
    index = open_index(2)
    index.add("a", rows_of(1, 2), vectors_of((1, 0), (0, 1)))
    index.add("b", rows_of(3), vectors_of((9, 9)))
    assert [row for row, _ in found(index, "a", (1, 1), 10)] == [2, 1]
    assert index.remove("a", rows_of(3)) == 0
    index.drop("a")
    assert (index.count("a"), index.count("b")) == (0, 1)
    assert found(index, "b", (1, 1), 10) == [(3, 18.0)]


def test_unknown_owner_is_an_empty_block(open_index: Open) -> None:
    index = open_index(2)
    assert found(index, "nobody", (1, 0), 5) == []
    assert (index.count("nobody"), index.remove("nobody", rows_of(1))) == (0, 0)
    index.drop("nobody")


def test_a_known_row_is_replaced(open_index: Open) -> None:
    index = open_index(2)
    index.add("a", rows_of(1, 2), vectors_of((5, 0), (1, 0)))
    index.add("a", rows_of(1, 3, 3), vectors_of((-5, 0), (7, 0), (2, 0)))
    assert found(index, "a", (1, 0), 10) == [(3, 2.0), (2, 1.0), (1, -5.0)]


def test_ties_go_to_the_newer_row_also_at_the_cut(open_index: Open) -> None:
    index = open_index(2)
    shuffled = np.random.default_rng(7).permutation(200).astype(np.int64)
    index.add("a", shuffled, np.tile(vectors_of((1, 0)), (200, 1)))
    index.remove("a", rows_of(*range(0, 200, 3)))
    expected = [row for row in range(199, -1, -1) if row % 3][:7]
    assert [row for row, _ in found(index, "a", (1, 0), 7)] == expected


def test_removed_rows_that_would_score_best_take_nobodys_place(open_index: Open) -> None:
    index = open_index(2)
    index.add("a", np.arange(300, dtype=np.int64), np.column_stack([np.arange(300), np.zeros(300)]).astype(np.float32))
    index.remove("a", np.arange(150, 300, dtype=np.int64))
    assert found(index, "a", (1, 0), 5) == [(149, 149.0), (148, 148.0), (147, 147.0), (146, 146.0), (145, 145.0)]
    assert len(found(index, "a", (1, 0), 300)) == 150


def test_a_large_block_shrinks_and_stays_exact(open_index: Open) -> None:
    rng = np.random.default_rng(11)
    vectors = rng.integers(-3, 4, (3 * DEAD_MIN, 8)).astype(np.float32)
    index, oracle = open_index(8), ExactHotIndex(8)
    for one in (index, oracle):
        one.add("a", np.arange(len(vectors), dtype=np.int64), vectors)
        assert one.remove("a", np.arange(0, 2 * DEAD_MIN, dtype=np.int64)) == 2 * DEAD_MIN
        one.add("a", rows_of(0, 5000), vectors[:2])
        assert one.count("a") == DEAD_MIN + 2
    query = tuple(int(part) for part in rng.integers(-3, 4, 8))
    assert found(index, "a", query, 40) == found(oracle, "a", query, 40)


def test_the_block_keeps_its_own_copy(open_index: Open) -> None:
    index = open_index(2)
    vectors = vectors_of((1, 0))
    index.add("a", rows_of(1), vectors)
    vectors[:] = 9
    assert found(index, "a", (1, 0), 1) == [(1, 1.0)]


def test_searching_while_another_thread_changes_the_block(open_index: Open) -> None:
    """Rows below 1,000 are never touched; the others come and go, and no search may miss or invent one."""
    index = open_index(8)
    rng = np.random.default_rng(3)
    steady = rng.integers(-2, 3, (300, 8)).astype(np.float32)
    index.add("a", np.arange(300, dtype=np.int64), steady)
    index.add("b", np.arange(5000, 5300, dtype=np.int64), steady)
    stop, looks, wrong = threading.Event(), [0, 0, 0], []

    def look(at: int) -> None:
        while not stop.is_set():
            looks[at] += 1
            rows, scores = index.search("a", steady[0], 2000)
            kept = {row for row in rows.tolist() if row < 1000}
            if kept != set(range(300)) or rows.max() >= 2000 or (np.diff(scores) > 0).any():
                wrong.append(rows)

    threads = [threading.Thread(target=look, args=(at,)) for at in range(len(looks))]
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 10
        while min(looks) < 50 and time.monotonic() < deadline:
            coming = np.arange(1000, 1000 + rng.integers(1, 90), dtype=np.int64)
            index.add("a", coming, rng.integers(-2, 3, (len(coming), 8)).astype(np.float32))
            index.remove("a", coming)
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    assert wrong == []
    assert min(looks) >= 50
    assert index.count("a") == 300
