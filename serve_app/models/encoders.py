"""The encoders of a service, one for each embedding version that it holds.

Which of them reads what says `routing.Routing`. Promises that one pass runs at a time in this process, whoever asks,
and that an encoder nobody needs is never loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from serve_app.core import EmbeddingVersion, TurnForm
from serve_app.errors import EncoderUnavailable
from serve_app.models.batching import EmbedService
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.models.fair_lock import FairLock
from serve_app.ports import Embedder, EncodedQuery, Encodings
from serve_app.routing import Routing

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

    def add(self, embedder: Embedder) -> None: ...

    def remove(self, version: str) -> None: ...

    def close(self) -> None: ...


class EmbedServices:
    """`Queues` in this process."""

    def __init__(self, embedders: Sequence[Embedder], spent: Spent = _nothing) -> None:
        self._passes, self._spent = FairLock(), spent
        self._services: dict[str, EmbedService] = {}
        for embedder in embedders:
            self.add(embedder)

    def add(self, embedder: Embedder) -> None:
        """Serve this version, too; its weights are loaded by its first text."""
        if embedder.version.name not in self._services:
            service = EmbedService(embedder, passes=self._passes, spent=self._spent)
            self._services = {**self._services, embedder.version.name: service}

    def remove(self, version: str) -> None:
        """Serve it no more; what waits for it is cancelled."""
        gone, self._services = self._services.get(version), {k: v for k, v in self._services.items() if k != version}
        if gone is not None:
            gone.close()

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        return self._service(version).query(text, solo=solo, deadline=deadline)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._service(version).passages(texts)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._service(version).passages_counted(texts)

    def close(self) -> None:
        for service in self._services.values():
            service.close()

    def _service(self, version: str) -> EmbedService:
        found = self._services.get(version)
        if found is None:
            raise EncoderUnavailable(f"the version {version} is not served here")
        return found


class Encoders:
    """The versions that a service holds, each with its encoder. The first ones are those of its base routing.

    `add` and `remove` change which there are while others ask: each call sees the versions before or after.
    """

    def __init__(self, embedders: Sequence[Embedder], queues: Queues | None = None, spent: Spent = _nothing) -> None:
        """Without `queues` the encoders run in this process, and `spent` is told what each pass takes."""
        self.base = Routing.of([embedder.version.name for embedder in embedders])
        """What a turn is embedded under first of all: see `of_turn`."""
        self._embedders = {embedder.version.name: embedder for embedder in embedders}
        if len(self._embedders) < len(embedders):
            raise ValueError(f"two encoders of one version {embedders[0].version.name!r}")
        self._queues = queues or EmbedServices(embedders, spent)

    def add(self, embedder: Embedder) -> None:
        self._queues.add(embedder)
        self._embedders = {**self._embedders, embedder.version.name: embedder}

    def remove(self, version: str) -> None:
        self._embedders = {name: one for name, one in self._embedders.items() if name != version}
        self._queues.remove(version)

    @property
    def versions(self) -> tuple[EmbeddingVersion, ...]:
        return tuple(embedder.version for embedder in self._embedders.values())

    def version(self, name: str) -> EmbeddingVersion:
        return self._embedder(name).version

    def form(self, version: str) -> TurnForm:
        """How this version has turns written out."""
        return self._embedder(version).version.turns

    def of_query(self, text: str) -> str:
        """The version that the base routing searches for this query."""
        return self.base.of_query(text)

    def of_turn(self, text: str, mixed: bool) -> tuple[str, ...]:
        """The versions that a turn gets vectors of by the base routing."""
        return self.base.of_turn(text, mixed)

    def chunks(self, version: str, text: str) -> list[str]:
        """The text as pieces that this version's encoder reads whole."""
        return self._embedder(version).chunks(text)

    def count(self, version: str, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, as this version's encoder reads it."""
        return self._embedder(version).count(texts)

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        """The query as that version sees it. Raises Overloaded, EncoderUnavailable."""
        return self._queues.query(version, text, solo=solo, deadline=deadline)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        """Texts to be stored, with the vectors of their tokens where the version has them. Raises Overloaded."""
        return self._queues.passages(version, texts)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        """Vectors that a caller waits for, without those of the tokens. Raises Overloaded."""
        return self._queues.passages_counted(version, texts)

    def close(self) -> None:
        self._queues.close()

    def _embedder(self, version: str) -> Embedder:
        found = self._embedders.get(version)
        if found is None:
            raise EncoderUnavailable(f"the version {version} is not served here")
        return found


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
