"""The encoders in deployments of their own, one for each version: what serves there, and what the gateway has instead.

The gateway keeps the tokenizers, for cutting long texts, and the vectors of known queries, and never imports torch.
It starts a version's deployment when the version comes and ends it when the version goes; one that it finds after a
restart of its own goes on. A deployment that is gone costs its version's vectors and nothing else: its calls fail with
EncoderUnavailable until Serve has started it anew.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from serve_app.deployments.calls import VersionCalls
from serve_app.deployments.place import Place
from serve_app.deployments.scaling import Reports
from serve_app.errors import EncoderUnavailable
from serve_app.models.batching import EmbedLimits, EmbedService
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.ports import Embedder, EncodedQuery, Encodings

__all__ = ["Deployments", "EmbedderCalls", "EmbedderReplica", "OpenedEncoders", "encoders_beside"]

_log = logging.getLogger(__name__)

GPU_BATCH_TOKENS = 32768
"""Of a batch there, by estimate, where nothing else is said."""

SETTLED_S = 120.0
"""After so long a gateway has every version that it is to have, and ends the deployments of others."""


class EmbedderReplica:
    """`EmbedService` of one version as other processes call it; vectors are computed in its thread, never on the
    replica's loop.
    """

    def __init__(self, version: str, options: EncoderOptions, place: Place) -> None:
        """Raises EncoderUnavailable where the options open another version by now."""
        place.enter()
        embedder = open_embedder(options)
        if embedder.version.name != version:
            raise EncoderUnavailable(f"the encoder of {version} has become {embedder.version.name}")
        self._service = EmbedService(embedder, limits_of(options))
        self._reports = Reports(lambda: self._service.load)

    async def query(self, text: str, solo: bool, within_s: float | None) -> EncodedQuery:
        deadline = None if within_s is None else time.monotonic() + within_s
        return await asyncio.wrap_future(self._service.query(text, solo=solo, deadline=deadline))

    async def passages(self, texts: list[str]) -> Encodings:
        return await asyncio.wrap_future(self._service.passages(texts))

    async def passages_counted(self, texts: list[str]) -> Encodings:
        return await asyncio.wrap_future(self._service.passages_counted(texts))

    async def alive(self) -> bool:
        return True

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Serve asks for it where the deployment's replicas come and go by load."""
        return self._reports.next()


def limits_of(options: EncoderOptions) -> EmbedLimits:
    """A replica with a share of a GPU takes larger batches: on a CPU a batch ends by its time long before."""
    tokens = options.deployment.batch_tokens or (GPU_BATCH_TOKENS if options.deployment.gpus else 0)
    return EmbedLimits(batch_tokens_max=tokens) if tokens else EmbedLimits()


class Deployments(Protocol):
    """Of embedders, by the names of their versions. `deployments/applications.py` has those of Ray Serve."""

    def run(self, version: str, options: EncoderOptions) -> None:
        """See to it that there is one; it may still be starting. Raises EncoderUnavailable."""
        ...

    def end(self, version: str) -> None:
        """See to it that there is none, without waiting. Raises EncoderUnavailable."""
        ...

    def versions(self) -> list[str]:
        """Of which there are deployments. Raises EncoderUnavailable."""
        ...

    def calls(self, version: str, loop: asyncio.AbstractEventLoop, *, several: bool = False) -> VersionCalls:
        """`several`: there may be more than one replica."""
        ...


class OpenedEncoders:
    """Opens encoders for a gateway, and keeps in mind by which options: a deployment opens its own by the same."""

    def __init__(self) -> None:
        self._options: dict[str, EncoderOptions] = {}

    def open(self, options: EncoderOptions) -> Embedder:
        embedder = open_embedder(options)
        self._options[embedder.version.name] = options
        return embedder

    def options(self, version: str) -> EncoderOptions:
        return self._options[version]


class EmbedderCalls:
    """`models.encoders.Queues` of deployments."""

    def __init__(
        self,
        deployments: Deployments,
        opened: OpenedEncoders,
        loop: asyncio.AbstractEventLoop,
        embedders: Sequence[Embedder],
        settled_s: float = SETTLED_S,
    ) -> None:
        self._deployments, self._opened, self._loop = deployments, opened, loop
        self._calls: dict[str, VersionCalls] = {}
        for embedder in embedders:
            self.add(embedder)
        self._sweep = threading.Timer(settled_s, self._end_strays)
        self._sweep.daemon = True
        self._sweep.start()

    def add(self, embedder: Embedder) -> None:
        """Have a deployment for this version; one that is there goes on. Not to be called on the loop."""
        version = embedder.version.name
        if version not in self._calls:
            options = self._opened.options(version)
            self._deployments.run(version, options)
            calls = self._deployments.calls(version, self._loop, several=options.deployment.several)
            self._calls = {**self._calls, version: calls}

    def remove(self, version: str) -> None:
        """Have none for it; what waits for it fails. Not to be called on the loop."""
        gone, self._calls = self._calls.get(version), {k: v for k, v in self._calls.items() if k != version}
        if gone is not None:
            gone.close()
        self._deployments.end(version)

    def query(
        self, version: str, text: str, *, solo: bool = False, deadline: float | None = None
    ) -> Future[EncodedQuery]:
        return self._of(version).query(text, solo=solo, deadline=deadline)

    def passages(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._of(version).passages(texts)

    def passages_counted(self, version: str, texts: Sequence[str]) -> Future[Encodings]:
        return self._of(version).passages_counted(texts)

    def close(self) -> None:
        """The deployments go on: they end with the session, or serve the gateway that comes next."""
        self._sweep.cancel()
        for calls in self._calls.values():
            calls.close()

    def _end_strays(self) -> None:
        """A gateway that was killed while a version went may have left its deployment to this one."""
        try:
            for version in self._deployments.versions():
                if version not in self._calls:
                    self._deployments.end(version)
        except EncoderUnavailable as error:
            _log.warning("encoders that nobody needs may go on: %s", error)

    def _of(self, version: str) -> VersionCalls:
        found = self._calls.get(version)
        if found is None:
            raise EncoderUnavailable(f"the version {version} is not served here")
        return found


def encoders_beside(deployments: Deployments, settled_s: float = SETTLED_S) -> dict[str, Any]:
    """The parts of a service whose encoders are in deployments beside it. To be called on the loop that it will run
    on.
    """
    loop, opened = asyncio.get_running_loop(), OpenedEncoders()
    return {
        "encoder": opened.open,
        "queues": lambda embedders: EmbedderCalls(deployments, opened, loop, embedders, settled_s),
    }
