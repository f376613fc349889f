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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from serve_app.asgi import AsgiService
from serve_app.deployments.calls import VersionCalls
from serve_app.deployments.console import write_to_console
from serve_app.deployments.lifeline import die_with_parent
from serve_app.errors import EncoderUnavailable
from serve_app.models.batching import EmbedService
from serve_app.models.embed import EncoderOptions, open_embedder
from serve_app.ports import Embedder, EncodedQuery, Encodings

__all__ = ["Deployments", "EmbedderCalls", "EmbedderReplica", "OpenedEncoders", "compose_beside"]

_log = logging.getLogger(__name__)

SETTLED_S = 120.0
"""After so long a gateway has every version that it is to have, and ends the deployments of others."""


class EmbedderReplica:
    """`EmbedService` of one version as other processes call it; vectors are computed in its thread, never on the
    replica's loop.
    """

    def __init__(self, version: str, options: EncoderOptions, console: Path) -> None:
        """Raises EncoderUnavailable where the options open another version by now."""
        die_with_parent()
        write_to_console(console)
        embedder = open_embedder(options)
        if embedder.version.name != version:
            raise EncoderUnavailable(f"the encoder of {version} has become {embedder.version.name}")
        self._service = EmbedService(embedder)

    async def query(self, text: str, solo: bool, within_s: float | None) -> EncodedQuery:
        deadline = None if within_s is None else time.monotonic() + within_s
        return await asyncio.wrap_future(self._service.query(text, solo=solo, deadline=deadline))

    async def passages(self, texts: list[str]) -> Encodings:
        return await asyncio.wrap_future(self._service.passages(texts))

    async def passages_counted(self, texts: list[str]) -> Encodings:
        return await asyncio.wrap_future(self._service.passages_counted(texts))

    async def alive(self) -> bool:
        return True


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

    def calls(self, version: str, loop: asyncio.AbstractEventLoop) -> VersionCalls: ...


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
            self._deployments.run(version, self._opened.options(version))
            self._calls = {**self._calls, version: self._deployments.calls(version, self._loop)}

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


def compose_beside(compose: Callable[..., AsgiService], deployments: Deployments) -> AsgiService:
    """The service, its encoders in deployments beside it. To be called on the loop that the service will run on."""
    loop, opened = asyncio.get_running_loop(), OpenedEncoders()
    return compose(encoder=opened.open, queues=lambda embedders: EmbedderCalls(deployments, opened, loop, embedders))
