"""A hot index on a device that fails, hangs or lies: nobody gets an error, and nobody another's rows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from serve_app.errors import DeviceLost, HotFull
from serve_app.ports import Vectors
from serve_app.stores.device import GpuDevice, HostDevice, PatientDevice, gpu_count
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.hot_device import DeviceHotIndex
from serve_app.stores.spilling import SpillingHotIndex
from tests.stores.devices import EmptyDevice, StockDevice, TroubledDevice

DIMENSION, SLOTS = 8, 4096
OWNERS = ("ann", "bob", "cleo")
PATIENCE_S = 0.2


def vectors_of(n: int, seed: int) -> Vectors:
    return np.random.default_rng(seed).integers(-3, 4, (n, DIMENSION)).astype(np.float32)


def index_on(device: TroubledDevice | StockDevice, patience_s: float = PATIENCE_S) -> DeviceHotIndex:
    return DeviceHotIndex(DIMENSION, lambda _: PatientDevice(lambda: device, patience_s), SLOTS)


def same(index: DeviceHotIndex, oracle: ExactHotIndex, seed: int = 1) -> None:
    for number, owner in enumerate(OWNERS):
        query = vectors_of(1, seed + number)[0]
        for ours, exact in zip(index.search(owner, query, 10), oracle.search(owner, query, 10), strict=True):
            np.testing.assert_array_equal(ours, exact)


def fill(*indexes: DeviceHotIndex | ExactHotIndex) -> None:
    for number, owner in enumerate(OWNERS):
        for index in indexes:
            index.add(owner, np.arange(200, dtype=np.int64), vectors_of(200, number))


@pytest.mark.parametrize("fails_after", range(8))
def test_a_device_that_is_lost_at_any_call_costs_no_answer(fails_after: int) -> None:
    index, oracle = index_on(TroubledDevice(DIMENSION, fails_after=fails_after)), ExactHotIndex(DIMENSION)
    fill(index, oracle)
    for turn in range(4):
        same(index, oracle, seed=turn)
        for one in (index, oracle):
            assert one.remove("ann", np.arange(30 * turn, 30 * turn + 20, dtype=np.int64)) == 20
            one.add("bob", np.arange(1000, 1020, dtype=np.int64), vectors_of(20, turn))
    same(index, oracle)
    assert index.trouble == "troubled: RuntimeError"
    assert index.figures().device == "cpu"
    index.close()


def test_a_device_that_does_not_answer_is_left_behind() -> None:
    index, oracle = index_on(TroubledDevice(DIMENSION, fails_after=4, slow_s=30.0)), ExactHotIndex(DIMENSION)
    fill(index, oracle)
    same(index, oracle)
    same(index, oracle)
    assert index.trouble == "troubled does not answer"
    index.close()


def test_a_device_that_lost_what_it_held_is_not_believed() -> None:
    index, oracle = index_on(EmptyDevice(DIMENSION, fails_after=1_000)), ExactHotIndex(DIMENSION)
    fill(index, oracle)
    same(index, oracle)
    assert index.trouble == "it does not give what was written"
    index.close()


def test_a_device_that_ignores_extents_is_asked_for_more_until_the_owners_rows_have_come() -> None:
    device = StockDevice(DIMENSION)
    index, oracle = index_on(device, 10.0), ExactHotIndex(DIMENSION)
    query = np.full(DIMENSION, 3.0, np.float32)
    best, worst = np.full((300, DIMENSION), 3.0, np.float32), vectors_of(20, 5)
    for one in (index, oracle):
        one.add("ann", np.arange(300, dtype=np.int64), best)
        one.add("bob", np.arange(20, dtype=np.int64), worst)
    rows, scores = index.search("bob", query, 5)
    exact, exact_scores = oracle.search("bob", query, 5)
    assert (rows.tolist(), scores.tolist()) == (exact.tolist(), exact_scores.tolist())
    assert [look.k for look in device.looks] == [21, 84, 336]
    assert index.trouble is None
    index.close()


def test_one_thread_alone_ever_touches_the_device() -> None:
    device = TroubledDevice(DIMENSION, fails_after=100_000)
    index = index_on(device, 10.0)
    fill(index)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: index.search(OWNERS[n % 3], vectors_of(1, n)[0], 5), range(100)))
        list(pool.map(lambda n: index.add(OWNERS[n % 3], np.array([n]), vectors_of(1, n)), range(30)))
    assert len(device.threads) == 1
    assert threading.get_ident() not in device.threads
    index.close()


class Gate(HostDevice):
    """Holds looks back until it is opened."""

    def __init__(self, halves: np.ndarray) -> None:
        super().__init__(halves)
        self.open, self.entered = threading.Event(), threading.Event()
        self.batches: list[int] = []

    def look(self, looks):  # type: ignore[no-untyped-def]
        self.batches.append(sum(len(one.queries) for one in looks))
        self.entered.set()
        self.open.wait(10)
        return super().look(looks)


def test_what_is_asked_while_the_device_works_is_one_batch() -> None:
    gates: list[Gate] = []

    def open_gate(halves: np.ndarray) -> Gate:
        gates.append(Gate(halves))
        return gates[0]

    index, oracle = DeviceHotIndex(DIMENSION, open_gate, SLOTS), ExactHotIndex(DIMENSION)
    fill(index, oracle)
    with ThreadPoolExecutor(25) as pool:
        first = pool.submit(index.search, "ann", vectors_of(1, 0)[0], 5)
        assert gates[0].entered.wait(10)
        rest = [pool.submit(index.search, OWNERS[n % 3], vectors_of(1, n)[0], 5) for n in range(24)]
        while len(index._asked) < 24:  # they have come as far as the queue
            pass
        gates[0].open.set()
        first.result()
        for n, one in enumerate(rest):
            exact = oracle.search(OWNERS[n % 3], vectors_of(1, n)[0], 5)
            assert [part.tolist() for part in one.result()] == [part.tolist() for part in exact]
    assert gates[0].batches == [1, 24]
    index.close()


def test_a_closed_index_is_an_empty_one() -> None:
    index = DeviceHotIndex(DIMENSION, HostDevice, SLOTS)
    fill(index)
    index.close()
    assert index.search("ann", vectors_of(1, 0)[0], 5)[0].tolist() == []
    index.add("ann", np.arange(2, dtype=np.int64), vectors_of(2, 0))
    assert (index.remove("ann", np.arange(2, dtype=np.int64)), index.count("ann"), index.owners()) == (0, 0, [])
    assert index.figures().rows == 0


def test_vectors_of_another_length_are_refused() -> None:
    index = DeviceHotIndex(DIMENSION, HostDevice, SLOTS)
    with pytest.raises(ValueError, match="dimension 8"):
        index.add("ann", np.arange(2, dtype=np.int64), np.zeros((2, 3), np.float32))
    index.close()


def test_a_device_that_cannot_be_opened_says_why() -> None:
    def broken() -> TroubledDevice:
        raise ImportError("no such GPU")

    with pytest.raises(ImportError, match="no such GPU"):
        DeviceHotIndex(DIMENSION, lambda _: PatientDevice(broken), SLOTS)


def test_a_device_that_never_opens_is_lost() -> None:
    answers = threading.Event()
    with pytest.raises(DeviceLost, match="cannot be opened"):
        PatientDevice(lambda: HostDevice(np.empty((0, answers.wait(30)), np.float16)), opens_s=PATIENCE_S)
    answers.set()


def test_a_lost_device_stays_lost() -> None:
    device = PatientDevice(lambda: TroubledDevice(DIMENSION, fails_after=0))
    with pytest.raises(DeviceLost):
        device.write(0, np.zeros((1, DIMENSION), np.float16))
    with pytest.raises(DeviceLost, match="before"):
        device.reset(1)


def test_users_beyond_the_bound_are_on_the_cpu_until_they_leave() -> None:
    bounded = DeviceHotIndex(DIMENSION, HostDevice, 256)
    index, oracle = SpillingHotIndex(bounded, DIMENSION), ExactHotIndex(DIMENSION)
    for one in (index, oracle):
        one.add("ann", np.arange(100, dtype=np.int64), vectors_of(100, 0))
        one.add("bob", np.arange(100, dtype=np.int64), vectors_of(100, 1))
        one.add("bob", np.arange(100, 300, dtype=np.int64), vectors_of(200, 2))
    assert (index.refused, bounded.count("bob"), bounded.count("ann")) == (1, 0, 100)
    for owner in ("ann", "bob"):
        query = vectors_of(1, 3)[0]
        assert index.search(owner, query, 20)[0].tolist() == oracle.search(owner, query, 20)[0].tolist()
    index.drop("bob")
    index.add("bob", np.arange(10, dtype=np.int64), vectors_of(10, 1))
    assert (index.refused, bounded.count("bob")) == (0, 10)
    with pytest.raises(HotFull):
        bounded.add("cleo", np.arange(300, dtype=np.int64), vectors_of(300, 1))
    index.close()


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_without_a_gpu_its_device_names_the_install_command() -> None:
    with pytest.raises(ImportError, match=r"memstrata\[gpu\]"):
        GpuDevice(DIMENSION)
