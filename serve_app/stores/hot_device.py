"""Hot index on a device: an extent of slots for each owner, a worker that owns the layout, a thread for the device.

Promises what `ports.HotIndex` does, with exact scores. What is asked at once is coalesced: while the device answers
one batch, searches gather for the next, without any timer; changes go in between two batches. Every slot that a device
gives is checked here for owner and life, and where too few of the best are the owner's own, more are fetched until
there are enough or there is nothing more. A device in trouble is not asked again: from then on the host's copies
answer, `trouble` says why, and nobody who waits gets an error.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import MemstrataError, Overloaded
from serve_app.ports import Rows, Vectors
from serve_app.stores.device import Device, GpuDevice, Halves, Hits, HostDevice, Look, PatientDevice
from serve_app.stores.hot_faiss import TIES_FETCHED, TIES_GROWTH, newest_of_each
from serve_app.stores.slots import Extent, Slots, Span

__all__ = ["DeviceFigures", "DeviceHotIndex", "slots_within"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
Found = tuple[Rows, NDArray[np.float32]]

WAITING_MAX = 4096
"""Calls that wait for the worker; above it the answer is Overloaded."""

BATCH_MAX = 256
"""Searches that are answered together."""

WRITE_ROWS = 65_536
"""Slots that one call writes to the device: 48 MiB at 384 components."""

WORKER_S = 60.0
"""A worker that does not come to a call in so long is wedged, which its device cannot bring about."""

HOST_BYTES_A_SLOT = 12
"""Beside the host's copy of the vector: the row id, and whose it is."""

_NOTHING: Found = np.empty(0, np.int64), np.empty(0, np.float32)

_NOWHERE = HostDevice(np.empty((0, 1), np.float16))


def slots_within(memory_bytes: int, dimension: int) -> int:
    """How many slots so much memory of a device has."""
    return memory_bytes // (2 * dimension)


class DeviceFigures(NamedTuple):
    """For metrics and benchmarks."""

    device: str
    trouble: str | None
    owners: int
    rows: int
    slots: int
    slots_max: int
    packings: int
    searches: int
    batches: int
    device_bytes: int
    host_bytes: int


class _Search(NamedTuple):
    owner: str
    query: Vectors
    k: int | None
    """None: every row, in any order."""
    found: Future[Found]


class _Change(NamedTuple):
    change: Callable[[], tuple[Any, Sequence[Span]]]
    done: Future[Any]


class DeviceHotIndex:
    """`ports.HotIndex`; safe for threads. `on_gpu` is how it is opened on one."""

    def __init__(self, dimension: int, open_device: Callable[[Halves], Device], slots_max: int) -> None:
        """`open_device` is given the host's copies, which a device may search in place of its own.

        Raises what it raises, and DeviceLost where it has no room for so many slots.
        """
        self._dimension = dimension
        self._slots = Slots(dimension, slots_max)
        self._device = open_device(self._slots.halves)
        self._device.reset(slots_max)
        self.trouble: str | None = None
        """Why the device is not asked any more."""
        self._asked: deque[_Search | _Change] = deque()
        self._came = threading.Condition()
        self._closed = False
        self._searches = self._batches = 0
        self._worker = threading.Thread(target=self._run, name="hot-index", daemon=True)
        self._worker.start()

    @classmethod
    def on_gpu(cls, dimension: int, slots_max: int, device: int = 0) -> DeviceHotIndex:
        """Raises ImportError where FAISS has no such GPU, DeviceLost where it has too little memory."""
        return cls(dimension, lambda _: PatientDevice(lambda: GpuDevice(dimension, device)), slots_max)

    # ---- what others call

    def add(self, owner: str, rows: Rows, vectors: Vectors) -> None:
        """Raises HotFull where they do not fit, and then nothing has changed; ValueError for another shape."""
        if vectors.shape != (len(rows), self._dimension):
            raise ValueError(f"vectors of shape {vectors.shape} for {len(rows)} rows of dimension {self._dimension}")
        newest, kept = newest_of_each(rows, vectors)
        ids, halves = np.array(newest, np.int64), kept.astype(np.float16)
        self._change(lambda: (None, self._slots.add(owner, ids, halves)))

    def remove(self, owner: str, rows: Rows) -> int:
        gone: int = self._change(lambda: self._slots.remove(owner, rows), closed=0)
        return gone

    def drop(self, owner: str) -> None:
        self._change(lambda: self._slots.remove(owner, None))

    def count(self, owner: str) -> int:
        extent = self._slots.extents.get(owner)
        return 0 if extent is None else extent.live

    def search(self, owner: str, query: Vectors, k: int) -> Found:
        return self._search(owner, query, max(k, 0))

    def products(self, owner: str, query: Vectors) -> Found:
        return self._search(owner, query, None)

    def held(self, owner: str) -> tuple[Rows, Halves]:
        """The owner's rows and their vectors, as they are between two batches."""
        held: tuple[Rows, Halves] = self._change(lambda: (self._slots.held(owner), []), closed=self._slots.held(""))
        return held

    def owners(self) -> list[str]:
        owners: list[str] = self._change(lambda: (list(self._slots.extents), []), closed=[])
        return owners

    def figures(self) -> DeviceFigures:
        figures: DeviceFigures = self._change(lambda: (self._figures(), [])) or self._figures()
        return figures

    def close(self) -> None:
        """What waits is answered first. From then on the index is an empty one, and its device is free."""
        with self._came:
            self._closed = True
            self._came.notify()
        self._worker.join(WORKER_S)
        self._let_go()
        self._device, self._slots = _NOWHERE, Slots(self._dimension, 0)

    # ---- handing over

    def _search(self, owner: str, query: Vectors, k: int | None) -> Found:
        asked = _Search(owner, np.ascontiguousarray(query, dtype=np.float32), k, Future())
        return asked.found.result(WORKER_S) if self._hand(asked) else _NOTHING

    def _change(self, change: Callable[[], tuple[Any, Sequence[Span]]], closed: Any = None) -> Any:
        asked = _Change(change, Future())
        return asked.done.result(WORKER_S) if self._hand(asked) else closed

    def _hand(self, asked: _Search | _Change) -> bool:
        """Whether there is a worker to hand it to. Raises Overloaded."""
        with self._came:
            if len(self._asked) >= WAITING_MAX:
                raise Overloaded("too many calls wait for the hot index")
            if not self._closed:
                self._asked.append(asked)
                self._came.notify()
            return not self._closed

    # ---- the worker

    def _run(self) -> None:
        while (asked := self._next()) is not None:
            searches = [one for one in asked if isinstance(one, _Search)]
            for one in asked:
                if isinstance(one, _Change):
                    _settle(one.done, partial(self._changed, one))
            for start in range(0, len(searches), BATCH_MAX):
                self._answer(searches[start : start + BATCH_MAX])

    def _next(self) -> list[_Search | _Change] | None:
        """All that waits, as soon as anything does; None at the end."""
        with self._came:
            self._came.wait_for(lambda: self._asked or self._closed)
            asked = list(self._asked)
            self._asked.clear()
        return asked or None

    def _changed(self, one: _Change) -> Any:
        result, spans = one.change()
        self._on_device(lambda device: self._write(device, spans))
        return result

    def _write(self, device: Device, spans: Sequence[Span]) -> None:
        for span in spans:
            for start in range(span.start, span.end, WRITE_ROWS):
                device.write(start, self._slots.halves[start : min(start + WRITE_ROWS, span.end)])

    def _on_device(self, call: Callable[[Device], T]) -> T:
        """On the device; where that is lost, on the host's copies from now on."""
        try:
            return call(self._device)
        except Exception as error:  # noqa: BLE001 - whatever a device throws, it is in trouble
            self._lose(str(error) if isinstance(error, MemstrataError) else type(error).__name__)
            return call(self._device)

    def _lose(self, trouble: str) -> None:
        _log.error("the hot index goes on without %s: %s", self._device.name, trouble)
        self._let_go()
        self.trouble = trouble
        self._device = HostDevice(self._slots.halves)

    def _let_go(self) -> None:
        if isinstance(self._device, PatientDevice):
            self._device.close()

    def _answer(self, searches: Sequence[_Search]) -> None:
        """One call of the device for all, and one more for those to whom it gave too few."""
        self._searches += len(searches)
        open_ones = {at: _fetched(one) for at, one in enumerate(searches)}
        while open_ones:
            self._batches += 1
            try:
                again = self._round(searches, open_ones)
            except Exception as error:  # noqa: BLE001 - handed on to each who waits; the worker lives
                for at in open_ones:
                    searches[at].found.set_exception(error)
                return
            open_ones = again

    def _round(self, searches: Sequence[_Search], fetched: dict[int, int | None]) -> dict[int, int | None]:
        """Fetch so many for each; gives those that need more, with how many."""
        extents: dict[int, Extent] = {}
        for at in fetched:
            extent = self._slots.extents.get(searches[at].owner)
            if extent is None or searches[at].k == 0:
                searches[at].found.set_result(_NOTHING)
            else:
                extents[at] = extent
        groups = _grouped(searches, {at: fetched[at] for at in extents})
        looks = [_look(searches, members, extents[members[0]], k) for members, k in groups]
        again: dict[int, int | None] = {}
        for (members, _), look, hits in zip(groups, looks, self._on_device(lambda one: one.look(looks)), strict=True):
            for place, at in enumerate(members):
                found = self._own(searches[at], extents[at], hits, place, look)
                if found is None:
                    again[at] = self._more(look)
                else:
                    searches[at].found.set_result(found)
        return again

    def _more(self, look: Look) -> int:
        """How many to fetch next, when so many were not enough. Of a device that gave all that it has, another one is
        asked: it lost some."""
        if look.k < self._slots.slots_max:
            return TIES_GROWTH * look.k
        self._lose("it does not give what was written")
        return look.k

    def _own(self, search: _Search, extent: Extent, hits: Hits, place: int, look: Look) -> Found | None:
        """Of what the device gave the owner's own living rows; None where there may be better ones than these."""
        slots, scores = hits.slots[place], hits.scores[place]
        mine = self._slots.live_in(extent, slots)
        rows, own = self._slots.rows[slots[mine]], np.ascontiguousarray(scores[mine])
        if search.k is None:
            return (rows, own) if len(rows) == extent.live else None
        order = np.lexsort((-rows, -own))[: search.k]
        if len(order) < min(search.k, extent.live):
            return None
        if len(rows) < extent.live and scores[slots >= 0].min() >= own[order[-1]]:
            return None  # the tie at the cut may go on
        return rows[order], own[order]

    def _figures(self) -> DeviceFigures:
        slots = self._slots
        on_device = 0 if self.trouble else 2 * self._dimension * slots.slots_max
        return DeviceFigures(
            device=self._device.name,
            trouble=self.trouble,
            owners=len(slots.extents),
            rows=sum(one.live for one in slots.extents.values()),
            slots=slots.end,
            slots_max=slots.slots_max,
            packings=slots.packings,
            searches=self._searches,
            batches=self._batches,
            device_bytes=on_device,
            host_bytes=slots.end * (2 * self._dimension + HOST_BYTES_A_SLOT),
        )


def _fetched(search: _Search) -> int | None:
    """None: all that the extent has."""
    return None if search.k is None else search.k + TIES_FETCHED


def _grouped(searches: Sequence[_Search], fetched: dict[int, int | None]) -> list[tuple[list[int], int | None]]:
    """Searches of one owner that want as many, together: they are one product of two matrices."""
    groups: dict[tuple[str, int | None], list[int]] = {}
    for at, k in fetched.items():
        groups.setdefault((searches[at].owner, k), []).append(at)
    return [(members, k) for (_, k), members in groups.items()]


def _look(searches: Sequence[_Search], members: Sequence[int], extent: Extent, k: int | None) -> Look:
    """Dead slots may stand before living ones: so many more are fetched."""
    queries = np.stack([searches[at].query for at in members])
    return Look(extent.start, extent.end, queries, extent.used if k is None else k + extent.dead)


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - handed on whole to who waits; the worker lives
        future.set_exception(error)
