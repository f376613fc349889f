"""What the services of one process share, because it is heavy: encoders and their queues,
cross-encoders, compressors and processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from serve_app.config import Settings
from serve_app.memory.compressors import Opened, Opens, opening
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.encoders import EmbedServices, Queues
from serve_app.models.rerank import ModelOptions, OpenReranker, PairReranker, Scores, open_reranker
from serve_app.models.summarise import CompressOptions, OpenSummarisers, open_summarisers
from serve_app.ports import Embedder, EncodedQuery, Encodings, Shortlist

__all__ = ["Shared"]


class Shared:
    """Opened by the first service that asks, ended by `close`. Safe for threads."""

    def __init__(
        self,
        settings: Settings,
        encoder: Callable[[EncoderOptions], Embedder] = open_embedder,
        queues: Callable[[Sequence[Embedder]], Queues] | None = None,
        reranker: OpenReranker = open_reranker,
        compressor: Opens | None = None,
        summarisers: OpenSummarisers = open_summarisers,
        **injected: Any,
    ) -> None:
        """As `Service` takes them."""
        self._open_encoder, self._open_queues, self._injected = encoder, queues or EmbedServices, injected
        self._open_reranker = reranker
        self._open_compressor = compressor or opening(settings.tokenizers, settings.memory.summary.apart, summarisers)
        self._lock = threading.Lock()
        self._embedders: list[tuple[EncoderOptions, Embedder]] = []
        self._queues: Queues | None = None
        self._rerankers: list[tuple[ModelOptions, PairReranker]] = []
        self._compressors: list[tuple[CompressOptions, Opened]] = []

    def injected(self) -> dict[str, Any]:
        """What goes into each service."""
        return {
            **self._injected,
            "encoder": self._encoder,
            "queues": self._queues_for,
            "reranker": self._reranker,
            "compressor": self._compressor,
        }

    def close(self) -> None:
        """After the services: whoever waits still hears that nobody encodes any more."""
        with self._lock:
            queues, self._queues = self._queues, None
            rerankers, self._rerankers = self._rerankers, []
            compressors, self._compressors = self._compressors, []
        for _, opened in compressors:
            opened.close()
        for _, model in rerankers:
            model.close()
        if queues is not None:
            queues.close()

    def _encoder(self, options: EncoderOptions) -> Embedder:
        with self._lock:
            for known, embedder in self._embedders:
                if known == options:
                    return embedder
            embedder = self._open_encoder(options)
            self._embedders.append((options, embedder))
            return embedder

    def _reranker(self, options: ModelOptions) -> PairReranker | None:
        with self._lock:
            for known, model in self._rerankers:
                if known == options:
                    return _LentReranker(model)
            opened = self._open_reranker(options)
            if opened is None:
                return None
            self._rerankers.append((options, opened))
            return _LentReranker(opened)

    def _compressor(self, options: CompressOptions) -> Opened:
        with self._lock:
            for known, opened in self._compressors:
                if known == options:
                    return _LentCompressor(*opened)
            opened = self._open_compressor(options)
            self._compressors.append((options, opened))
            return _LentCompressor(*opened)

    def _queues_for(self, embedders: Sequence[Embedder]) -> Queues:
        with self._lock:
            if self._queues is None:
                self._queues = self._open_queues(embedders)
            return _Lent(self._queues)


class _LentReranker:
    """One that others use, too: who closes it closes nothing."""

    def __init__(self, model: PairReranker) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    def scores(self, shortlist: Shortlist, deadline: float) -> Scores:
        return self._model.scores(shortlist, deadline)

    def contributions(self, shortlist: Shortlist) -> dict[str, Scores]:
        return self._model.contributions(shortlist)

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Scores]:
        return self._model.ask(query, texts, deadline)

    def close(self) -> None:
        """Its owner does."""


class _LentCompressor(Opened):
    """One that others use, too: who closes it closes nothing."""

    __slots__ = ()

    def close(self) -> None:
        """Its owner does."""


class _Lent:
    """`Queues` that others use, too: who closes it closes nothing, and versions stay."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        return self._queues.query(version, text, solo=solo, deadline=deadline)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._queues.passages(version, texts)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._queues.passages_counted(version, texts)

    def add(self, embedder: Embedder) -> None:
        self._queues.add(embedder)

    def remove(self, version: str) -> None:
        """Others may ask for it yet."""

    def close(self) -> None:
        """Its owner does."""
