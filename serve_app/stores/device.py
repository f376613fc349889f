"""Where a hot index's vectors lie for searching, behind one small seam: slots of float16 vectors on a device.

A device knows slots and nothing else: no owners, no row ids, nothing of what is dead. It is told which slots to look
at (`Look`), and is not believed: whoever asks checks each slot that comes back. Each device is used by one thread.
Scores are inner products in float32 of float32 queries with the float16 vectors, so that a GPU and a CPU agree up to
the order of their sums, which is far less than what scores are rounded to.

The GPU's takes one allocation and lets FAISS search slices of it by brute force: FAISS's own flat index there ignores
selectors, takes nothing out and overwrites nothing, and its float16 kernels would round the query, too.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from serve_app.errors import DeviceLost
from serve_app.ports import Rows, Vectors

try:
    import faiss
except ImportError as error:
    raise ImportError("the hot index needs FAISS: pip install 'memstrata[cpu]' or 'memstrata[gpu]'") from error

__all__ = ["Device", "GpuDevice", "Halves", "Hits", "HostDevice", "Look", "PatientDevice", "gpu_count"]

T = TypeVar("T")
Halves = NDArray[np.float16]
"""Shape (n, dimension)."""

FETCHED_MAX = 2048
"""Neighbours that FAISS selects on a GPU; where more are wanted all products come back and the host selects."""

TEMP_MEMORY_BYTES = 256 * 2**20
"""Scratch memory of FAISS on one GPU. It would take 1.5 GiB of a device that models may share."""

TILE_BYTES = 256 * 2**20
"""Of slots that are widened to float32 at a time."""

PATIENCE_S = 10.0
"""A device that takes longer for one call than this is lost. A call is at most one batch, or one piece of a write."""

OPENS_S = 120.0
"""What a device has to be opened: CUDA and FAISS load their kernels."""


class Look(NamedTuple):
    """What is asked of the slots from `start` to before `end`."""

    start: int
    end: int
    queries: Vectors
    """Shape (q, dimension)."""
    k: int
    """The best k of each query; where it is no less than the slots, all of them in any order."""


class Hits(NamedTuple):
    """Shapes (q, m); a slot of -1 is none."""

    scores: NDArray[np.float32]
    slots: Rows


class Device(Protocol):
    """Calls may raise anything where the device is in trouble; it is not used again then."""

    @property
    def name(self) -> str: ...

    def reset(self, slots: int) -> None:
        """Make room for so many slots, in place of what was there. Raises MemoryError or RuntimeError."""
        ...

    def write(self, start: int, vectors: Halves) -> None:
        """Put these into the slots from `start` on."""
        ...

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        """One for each, in order."""
        ...


class HostDevice:
    """The host's own copies of the vectors, searched where they are: nothing has to be written."""

    name = "cpu"

    def __init__(self, halves: Halves) -> None:
        faiss.omp_set_num_threads(1)  # a search takes microseconds; waking a second thread takes longer
        self._halves = halves

    def reset(self, slots: int) -> None:
        pass

    def write(self, start: int, vectors: Halves) -> None:
        pass

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        return [self._look(one) for one in looks]

    def _look(self, look: Look) -> Hits:
        rows = max(1, TILE_BYTES // (4 * self._halves.shape[1]))
        return _over_tiles(look, rows, self._tile)

    def _tile(self, look: Look) -> Hits:
        wide = self._halves[look.start : look.end].astype(np.float32)
        if look.k >= len(wide):
            return _all_of(look, look.queries @ wide.T)
        scores, found = faiss.knn(look.queries, wide, look.k, metric=faiss.METRIC_INNER_PRODUCT)
        return Hits(scores, _moved(found, look.start))


def _over_tiles(look: Look, rows: int, tile: Callable[[Look], Hits]) -> Hits:
    """The best of so many slots at a time, side by side: at least the k best of all are among them."""
    starts = range(look.start, look.end, rows)
    parts = [tile(look._replace(start=start, end=min(start + rows, look.end))) for start in starts]
    if len(parts) == 1:
        return parts[0]
    scores = np.concatenate([part.scores for part in parts], axis=1)
    slots = np.concatenate([part.slots for part in parts], axis=1)
    if look.k >= scores.shape[1]:
        return Hits(scores, slots)
    best = np.argpartition(-scores, look.k - 1, axis=1)[:, : look.k]
    return Hits(np.take_along_axis(scores, best, 1), np.take_along_axis(slots, best, 1))


def _all_of(look: Look, scores: NDArray[np.float32]) -> Hits:
    slots = np.broadcast_to(np.arange(look.start, look.end, dtype=np.int64), scores.shape)
    return Hits(scores, slots)


def _moved(found: Rows, start: int) -> Rows:
    return np.where(found < 0, -1, found + start)


def gpu_count() -> int:
    """GPUs that this build of FAISS can use: 0 for the CPU build."""
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


class GpuDevice:
    """One allocation on one GPU, by torch; FAISS's brute force over slices of it, with one `StandardGpuResources`."""

    def __init__(self, dimension: int, device: int = 0, *, temp_memory_bytes: int = TEMP_MEMORY_BYTES) -> None:
        """Raises ImportError where FAISS is a CPU build, or FAISS or torch sees no such GPU."""
        if device >= gpu_count():
            raise ImportError(f"no GPU {device} for FAISS: pip install 'memstrata[gpu]' on a machine that has one")
        import faiss.contrib.torch_utils
        import torch

        if not torch.cuda.is_available():
            raise ImportError("torch sees no GPU: it has to be a build for CUDA")
        self.name = f"cuda:{device}"
        self._torch, self._at, self._dimension, self._number = torch, torch.device(self.name), dimension, device
        self._resources = faiss.StandardGpuResources()
        self._resources.setTempMemory(temp_memory_bytes)
        self._slots: Any = None

    def reset(self, slots: int) -> None:
        self._slots = None  # freed before the next is taken: two would not fit where one fills the share
        self._slots = self._torch.zeros((slots, self._dimension), dtype=self._torch.float16, device=self._at)
        self._torch.cuda.synchronize(self._at)

    def write(self, start: int, vectors: Halves) -> None:
        self._slots[start : start + len(vectors)].copy_(self._torch.from_numpy(np.ascontiguousarray(vectors)))
        self._torch.cuda.synchronize(self._at)

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        rows = max(1, TILE_BYTES // (4 * self._dimension))
        return [_over_tiles(one, rows, self._tile) for one in looks]

    def _tile(self, look: Look) -> Hits:
        wide = self._slots[look.start : look.end].float()
        queries = self._torch.from_numpy(np.ascontiguousarray(look.queries, np.float32)).to(self._at)
        where: dict[str, Any] = {"metric": faiss.METRIC_INNER_PRODUCT, "device": self._number}
        if look.k >= len(wide) or look.k > FETCHED_MAX:
            scores = faiss.pairwise_distance_gpu(self._resources, queries, wide, **where)
            return _all_of(look, scores.cpu().numpy())
        scores, found = faiss.knn_gpu(self._resources, queries, wide, look.k, **where)
        return Hits(scores.cpu().numpy(), _moved(found.cpu().numpy(), look.start))


class PatientDevice:
    """A device on a thread of its own, that is waited for so long and no longer. After that it raises DeviceLost.

    The thread of a device that never answers is left behind.
    """

    def __init__(
        self, open_device: Callable[[], Device], patience_s: float = PATIENCE_S, opens_s: float = OPENS_S
    ) -> None:
        """`open_device` is called on the thread; what it raises is raised here, and DeviceLost where it takes longer
        than `opens_s`.
        """
        self._patience_s = patience_s
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lost = False
        threading.Thread(target=self._run, name="hot-device", daemon=True).start()
        try:
            self._device: Device = self._asked(open_device, opens_s)
        except TimeoutError as error:
            raise DeviceLost("the device cannot be opened: it does not answer") from error
        self.name = self._device.name

    def reset(self, slots: int) -> None:
        self._call(lambda: self._device.reset(slots))

    def write(self, start: int, vectors: Halves) -> None:
        self._call(lambda: self._device.write(start, vectors))

    def look(self, looks: Sequence[Look]) -> list[Hits]:
        return self._call(lambda: self._device.look(looks))

    def close(self) -> None:
        self._lost = True
        self._calls.put(None)

    def _call(self, call: Callable[[], T]) -> T:
        if self._lost:
            raise DeviceLost(f"{self.name} was lost before")
        try:
            return self._asked(call, self._patience_s)
        except TimeoutError as error:
            raise DeviceLost(f"{self.name} does not answer") from error
        except Exception as error:
            raise DeviceLost(f"{self.name}: {type(error).__name__}") from error

    def _asked(self, call: Callable[[], T], within_s: float) -> T:
        future: Future[T] = Future()
        self._calls.put((future, call))
        try:
            return future.result(within_s)
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            future, call = asked
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - handed on whole to who asked
                future.set_exception(error)
            del asked, future, call
