"""Passes of a few shapes, each captured once as a CUDA graph and replayed: the launches of a small batch, kernel by
kernel, take longer than the kernels.

Owns the graphs, their inputs and their outputs. Promises a bounded number of them, least recently used out, and the
vectors that the pass itself gives, up to rounding. Only for one thread, and only on a GPU; `Captured` is given, so that
the shapes and the padding are tried without one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

__all__ = ["LENGTHS", "TEXTS", "Eager", "Graph", "Graphs", "Pass", "Shape", "shape_of"]

TEXTS = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (16, 32, 64, 128, 256, 512)
GRAPH_TOKENS_MAX = 4096
"""Padded tokens of a graph: above it the kernels take longer than their launch."""

GRAPHS_MAX = 32
"""Captured at a time. Each holds its kernels' memory, which all share, and inputs of its own."""

WARM = ((1, 16), (1, 32), (4, 16), (8, 32), (32, 16), (32, 64))
"""Shapes that are captured when the encoder is opened: of queries alone, of some at once, and of turns."""

WARM_PASSES = 2
"""Before a capture: libraries choose their kernels and take their memory in the first ones."""


class Shape(NamedTuple):
    texts: int
    length: int


Pass = Callable[[Tensor, Tensor, Shape], tuple[Tensor, Tensor | None]]
"""Ids and marks of real tokens, shape (texts * length,) each; gives a vector a text and one of each token, or None."""


def shape_of(lengths: Sequence[int], positions: int) -> Shape | None:
    """The smallest that holds such a batch; None where it is too large for one, or the model cannot read so far."""
    texts = next((one for one in TEXTS if one >= len(lengths)), None)
    length = next((one for one in LENGTHS if one >= max(lengths)), None)
    if texts is None or length is None or length > positions or texts * length > GRAPH_TOKENS_MAX:
        return None
    return Shape(texts, length)


class Captured(Protocol):
    """A pass of one shape over inputs of its own."""

    def run(self, ids: Tensor, real: Tensor) -> tuple[Tensor, Tensor | None]:
        """Of inputs on the host. What it gives holds until the next run of any graph."""
        ...


class Eager:
    """Without a graph: where there is no GPU."""

    def __init__(self, run: Pass, shape: Shape, device: torch.device) -> None:
        self._run, self._shape, self._device = run, shape, device

    def run(self, ids: Tensor, real: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._run(ids.to(self._device), real.to(self._device), self._shape)


class Graph:
    """On a GPU. All graphs of a process share one pool of memory, since they never run at the same time."""

    _pool: Any = None

    def __init__(self, run: Pass, shape: Shape, device: torch.device) -> None:
        size = shape.texts * shape.length
        self._ids = torch.zeros(size, dtype=torch.int64, device=device)
        self._real = torch.ones(size, dtype=torch.bool, device=device)
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_PASSES):
                run(self._ids, self._real, shape)
        torch.cuda.current_stream(device).wait_stream(aside)
        if Graph._pool is None:
            Graph._pool = torch.cuda.graph_pool_handle()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=Graph._pool):
            self._out = run(self._ids, self._real, shape)

    def run(self, ids: Tensor, real: Tensor) -> tuple[Tensor, Tensor | None]:
        self._ids.copy_(ids.pin_memory(), non_blocking=True)
        self._real.copy_(real.pin_memory(), non_blocking=True)
        self._graph.replay()
        return self._out


class Graphs:
    def __init__(
        self,
        run: Pass,
        device: torch.device,
        *,
        pad_id: int,
        positions: int,
        capture: Callable[[Pass, Shape, torch.device], Captured] = Graph,
    ) -> None:
        """`positions`: tokens that the model can read."""
        self._run, self._device, self._capture = run, device, capture
        self._pad_id, self._positions = pad_id, positions
        self._held: OrderedDict[Shape, Captured] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def warm(self) -> None:
        """Capture what will surely be asked for."""
        for texts, length in WARM:
            self._of(Shape(texts, length))

    def pooled(self, token_ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor | None] | None:
        """As `forward.Encoder` has it; None for a batch that is too large for a graph."""
        lengths = np.array([len(ids) for ids in token_ids])
        shape = shape_of(lengths.tolist(), self._positions)
        if shape is None:
            return None
        real = np.zeros(shape, bool)
        real[: len(lengths)] = np.arange(shape.length) < lengths[:, None]
        ids = np.full(shape, self._pad_id)
        ids[real] = np.fromiter(chain.from_iterable(token_ids), np.int64, lengths.sum())
        marks = real.copy()
        marks[len(lengths) :, 0] = True  # a text of nothing but padding would attend to nothing: not a number
        graph = self._of(shape)
        vectors, tokens = graph.run(torch.from_numpy(ids.reshape(-1)), torch.from_numpy(marks.reshape(-1)))
        if tokens is not None:
            tokens = tokens.index_select(0, torch.from_numpy(np.flatnonzero(real)).to(tokens.device))
        return vectors[: len(lengths)].clone(), tokens

    def _of(self, shape: Shape) -> Captured:
        found = self._held.pop(shape, None) or self._capture(self._run, shape, self._device)
        self._held[shape] = found
        if len(self._held) > GRAPHS_MAX:
            self._held.popitem(last=False)
        return found
