"""The encoders of a service, one for each active embedding version, and which of them reads what.

Owns the choice by script: a query is read by one encoder, a turn by as many as its owner's queries may ask. Promises
that one pass runs at a time in this process, whoever asks, and that an encoder nobody needs is never loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable
from serve_app.models.batching import EmbedService
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.fair_lock import FairLock
from serve_app.ports import Embedder, EncodedQuery, Encodings
from serve_app.scripts import has_latin, has_other

__all__ = ["EmbedServices", "Encoders", "Queues", "open_embedders"]

_log = logging.getLogger(__name__)


Spent = Callable[[float, int], None]
"""Told of each pass: seconds and tokens."""


def _nothing(seconds: float, tokens: int) -> None:
    """Nobody counts."""


class Queues(Protocol):
    """The ways to the encoders of some versions, each by its name. `EmbedService` says what they promise."""

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]: ...

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]: ...

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]: ...

    def close(self) -> None: ...


class EmbedServices:
    """`Queues` in this process."""

    def __init__(self, embedders: Sequence[Embedder], spent: Spent = _nothing) -> None:
        passes = FairLock()
        self._services = {
            embedder.version.name: EmbedService(embedder, passes=passes, spent=spent) for embedder in embedders
        }

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        return self._services[version].query(text, solo=solo, deadline=deadline)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._services[version].passages(texts)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._services[version].passages_counted(texts)

    def close(self) -> None:
        for service in self._services.values():
            service.close()


class Encoders:
    """The active versions, the primary one first, then the one for other scripts than Latin, if there is one."""

    def __init__(self, embedders: Sequence[Embedder], queues: Queues | None = None, spent: Spent = _nothing) -> None:
        """Without `queues` the encoders run in this process, and `spent` is told what each pass takes."""
        if not 1 <= len(embedders) <= 2:
            raise ValueError(f"{len(embedders)} encoders; one, or two")
        self._embedders = {embedder.version.name: embedder for embedder in embedders}
        if len(self._embedders) < len(embedders):
            raise ValueError(f"two encoders of one version {embedders[0].version.name!r}")
        self._primary, self._multilingual = embedders[0].version.name, embedders[-1].version.name
        self._queues = queues or EmbedServices(embedders, spent)

    @property
    def versions(self) -> tuple[EmbeddingVersion, ...]:
        return tuple(embedder.version for embedder in self._embedders.values())

    def of_query(self, text: str) -> str:
        """The name of the version that is searched for this query."""
        return self._multilingual if has_other(text) else self._primary

    def of_turn(self, text: str, mixed: bool) -> tuple[str, ...]:
        """The names of the versions that a turn gets vectors of, in the order of `versions`.

        `mixed`: the owner's memory holds other scripts than Latin already, so that any of its turns may be asked for
        in one of them.
        """
        if self._multilingual == self._primary:
            return (self._primary,)
        other = has_other(text)
        primary = has_latin(text) or not other
        wanted = ((self._primary, primary), (self._multilingual, other or mixed))
        return tuple(name for name, needed in wanted if needed)

    def chunks(self, version: str, text: str) -> list[str]:
        """The text as pieces that this version's encoder reads whole."""
        return self._embedders[version].chunks(text)

    def count(self, version: str, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, as this version's encoder reads it."""
        return self._embedders[version].count(texts)

    def query(self, text: str, *, solo: bool = False, deadline: float | None = None) -> Future[EncodedQuery]:
        """The query as the encoder for its script sees it. Raises Overloaded."""
        return self._queues.query(self.of_query(text), text, solo=solo, deadline=deadline)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        """Texts to be stored, with the vectors of their tokens where the version has them. Raises Overloaded."""
        return self._queues.passages(version, texts)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        """Vectors that a caller waits for, without those of the tokens. Raises Overloaded."""
        return self._queues.passages_counted(version, texts)

    def close(self) -> None:
        self._queues.close()


def open_embedders(
    primary: EncoderOptions,
    multilingual: EncoderOptions | None,
    *,
    optional: bool,
    open_one: Callable[[EncoderOptions], Embedder] = open_embedder,
) -> list[Embedder]:
    """The primary encoder and, if there is to be one, the multilingual one; none of them is loaded yet.

    With `optional` the second is left out where it is not installed. Raises EncoderUnavailable.
    """
    embedders = [open_one(primary)]
    if multilingual is not None:
        try:
            embedders.append(open_one(multilingual))
        except EncoderUnavailable as error:
            if not optional:
                raise
            _log.warning("texts in other scripts than Latin are read by the primary encoder: %s", error)
    return embedders
