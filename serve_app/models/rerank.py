"""The cross-encoder as searches use it: computed in a thread of its own, within a deadline (`model_thread.py`)."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Annotated, Protocol

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from serve_app.errors import InvalidRequest, RerankerUnavailable
from serve_app.models.hub import model_folder
from serve_app.models.model_thread import ModelThread
from serve_app.models.placed import Placed, Placement
from serve_app.ports import Reranker, Shortlist

__all__ = ["CrossEncoding", "ModelOptions", "OpenReranker", "PairModel", "PairReranker", "Scores", "open_reranker"]

Scores = NDArray[np.float64]


class ModelOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cross-encoder: a folder or a hub id, "" for none, on `device` ("auto", "cpu", "cuda", "cuda:1").

    `placement` says where it runs: inside the service's process, or in a deployment of its own, which only the Ray
    engine has.
    """

    model: str = ""
    revision: str | None = None
    device: str = "auto"
    max_tokens: Annotated[int, Meta(ge=16, le=8192)] = 512
    placement: Placement = "inside"
    deployment: Placed = Placed()


class PairModel(Protocol):
    """What the thread runs."""

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> Scores: ...


class PairReranker(Reranker, Protocol):
    """A cross-encoder as a service has it. Safe for threads."""

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Scores]:
        """Returns at once. Raises Overloaded, RerankerUnavailable."""
        ...

    def close(self) -> None:
        """What still waits fails."""
        ...


OpenReranker = Callable[[ModelOptions], PairReranker | None]


class CrossEncoding:
    """`ports.Reranker` by a model that `load` opens."""

    def __init__(self, name: str, load: Callable[[], PairModel], clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._thread = ModelThread("reranker", load, RerankerUnavailable, clock)

    @property
    def name(self) -> str:
        return self._name

    def scores(self, shortlist: Shortlist, deadline: float) -> Scores:
        """See the port. Waits on the calling thread."""
        return self.ask(shortlist.query, shortlist.texts(), deadline).result(max(0.0, deadline - self._clock()))

    def contributions(self, shortlist: Shortlist) -> dict[str, Scores]:
        return {}

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Scores]:
        """Returns at once. Raises Overloaded, RerankerUnavailable."""
        return self._thread.ask(lambda model: model.scores(query, texts, deadline), deadline)

    def close(self) -> None:
        """What still waits fails with Overloaded."""
        self._thread.close()


def open_reranker(options: ModelOptions) -> CrossEncoding | None:
    """The configured cross-encoder, loading; None where none is. Raises RerankerUnavailable where a package lacks, and
    InvalidRequest for one that is to run elsewhere.
    """
    if not options.model:
        return None
    if options.placement != "inside":
        raise InvalidRequest('rerank: placement = "deployment" needs the Ray engine; the local one has none')
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise RerankerUnavailable(f"a reranker needs {' and '.join(missing)}: pip install torch transformers")
    return CrossEncoding(options.model, lambda: _opened(options))


def _opened(options: ModelOptions) -> PairModel:
    from serve_app.models.cross_encoder import CrossEncoder

    folder = model_folder("reranker", options.model, options.revision, RerankerUnavailable)
    model = CrossEncoder(folder, max_tokens=options.max_tokens, device=options.device)
    model.scores("warm up", ["warm up"], float("inf"))
    return model
