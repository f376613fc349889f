"""The cross-encoder as searches use it: one thread computes, and nobody waits for it beyond a deadline.

Owns the thread and its queue. Promises that a model that hangs, is slow or cannot be loaded costs its callers
no more than their own deadline, and those who come while it hangs nothing at all: they are refused at once.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from serve_app.errors import MemstrataError, Overloaded, RerankerUnavailable
from serve_app.ports import Shortlist

__all__ = ["CrossEncoding", "ModelOptions", "open_reranker"]

WAITING_MAX: Final = 32
"""Shortlists that wait for the model; above it the answer is Overloaded."""

OVERTIME_S: Final = 0.05
"""A model that is still at work so long after its caller's deadline takes nothing more until it is done."""

CLOSE_WAIT_S: Final = 5.0
"""How long `close` waits for what is being computed; a thread that hangs ends with the process."""

HUB_FILES: Final = ["*.json", "*.safetensors", "*.txt", "*.model"]
"""What is fetched of a hub repository: no pickled weights, since reading one can run code."""

_log = logging.getLogger(__name__)

Scores = NDArray[np.float64]


class ModelOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cross-encoder: a folder or a hub id, "" for none, on `device` ("auto", "cpu", "cuda", "cuda:1")."""

    model: str = ""
    revision: str | None = None
    device: str = "auto"
    max_tokens: Annotated[int, Meta(ge=16, le=8192)] = 512


class PairModel(Protocol):
    """What the thread runs."""

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> Scores: ...


class _Job(NamedTuple):
    query: str
    texts: Sequence[str]
    deadline: float
    future: Future[Scores]


class CrossEncoding:
    """`ports.Reranker` by a model that `load` opens, in the thread that then runs it."""

    def __init__(self, name: str, load: Callable[[], PairModel], clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._load, self._clock = name, load, clock
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._busy_until: float | None = clock()  # loading
        self._failed: MemstrataError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="reranker", daemon=True)
        self._thread.start()

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
        job = _Job(query, texts, deadline, Future())
        with self._changed:
            if self._failed is not None:
                raise self._failed
            if self._closed or len(self._waiting) >= WAITING_MAX or self._late():
                raise Overloaded("the reranker is busy")
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def close(self) -> None:
        """What still waits fails with Overloaded."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(CLOSE_WAIT_S)

    def _late(self) -> bool:
        return self._busy_until is not None and self._clock() > self._busy_until + OVERTIME_S

    def _work(self) -> None:
        try:
            model = self._load()
        except MemstrataError as error:
            self._give_up(error)
            return
        except Exception as error:  # noqa: BLE001 - told to whoever asks; a search goes on without
            self._give_up(RerankerUnavailable(f"the reranker cannot be loaded: {type(error).__name__}"))
            return
        while (job := self._next()) is not None:
            _settle(job, self._outcome(model, job))
        self._end(Overloaded("the reranker is closed"))

    def _give_up(self, error: MemstrataError) -> None:
        _log.warning("%s", error)
        with self._changed:
            self._failed = error
        self._end(error)

    def _next(self) -> _Job | None:
        with self._changed:
            self._busy_until = None
            self._changed.wait_for(lambda: self._closed or self._waiting)
            if self._closed:
                return None
            job = self._waiting.popleft()
            self._busy_until = max(job.deadline, self._clock())
            return job

    def _outcome(self, model: PairModel, job: _Job) -> Scores | Exception:
        if self._clock() >= job.deadline:
            return TimeoutError("the deadline passed before the texts were read")
        try:
            return model.scores(job.query, job.texts, job.deadline)
        except Exception as error:  # noqa: BLE001 - handed on whole; the thread must live to serve the next
            return error

    def _end(self, error: MemstrataError) -> None:
        with self._changed:
            left = list(self._waiting)
            self._waiting.clear()
        for job in left:
            _settle(job, error)


def _settle(job: _Job, outcome: Scores | Exception) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)


def open_reranker(options: ModelOptions) -> CrossEncoding | None:
    """The configured cross-encoder, loading; None where none is. Raises RerankerUnavailable where a package lacks."""
    if not options.model:
        return None
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise RerankerUnavailable(f"a reranker needs {' and '.join(missing)}: pip install torch transformers")
    return CrossEncoding(options.model, lambda: _opened(options))


def _opened(options: ModelOptions) -> PairModel:
    from serve_app.models.cross_encoder import CrossEncoder

    model = CrossEncoder(_folder(options), max_tokens=options.max_tokens, device=options.device)
    model.scores("warm up", ["warm up"], float("inf"))
    return model


def _folder(options: ModelOptions) -> Path:
    folder = Path(options.model).expanduser()
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(options.model, revision=options.revision, allow_patterns=HUB_FILES))
    except (ImportError, OSError, ValueError) as error:
        raise RerankerUnavailable(f"no reranker {options.model!r}: no such folder, and not on the hub") from error
