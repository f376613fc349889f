"""The configurations of the compressor that can be asked: the one in force, and while one is tried that one, too.

Owns their models and processes, and which owner is served by which. Promises that each owner's summaries are made by
one of them at a time, and that all of them forget what is erased.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from serve_app.breaker import Breaker
from serve_app.compress.compressor import Compressor
from serve_app.core import Owner
from serve_app.errors import InvalidRequest
from serve_app.memory.apart import CompressorApart, Worker
from serve_app.memory.compressing import Makes
from serve_app.memory.configurations import name_of
from serve_app.memory.making import Compresses
from serve_app.models.summarise import CompressOptions, OpenSummarisers, open_summarisers
from serve_app.ports import Summariser
from serve_app.routing import Choice

OPENED_MAX = 4
"""Configurations at a time; a migration needs two."""


class Opened(NamedTuple):
    """One configuration. `making` makes what is stored, `compressor` sums up what a caller sends, `of_callers` does
    that where it takes long: of their turns nothing is remembered.
    """

    options: CompressOptions
    compressor: Compressor
    making: Compressor | CompressorApart
    of_callers: CompressorApart | None = None
    models: tuple[Summariser, ...] = ()

    def close(self) -> None:
        """Whoever waits hears that there is no answer."""
        for one in (*self.models, self.making, self.of_callers):
            if one is not None and not isinstance(one, Compressor):
                one.close()


class Opens(Protocol):
    def __call__(self, options: CompressOptions) -> Opened:
        """Raises InvalidRequest."""
        ...


def opening(tokenizers: Mapping[str, str], apart: bool, open_models: OpenSummarisers = open_summarisers) -> Opens:
    """`apart`: whether what needs no model is computed in a process of its own. `open_models` opens those there are."""

    def opened(options: CompressOptions) -> Opened:
        summarisers = open_models(options)
        compressor = Compressor(*summarisers)
        models = tuple(dict.fromkeys(one for one in summarisers if one is not None))
        if not apart or models:
            return Opened(options, compressor, compressor, None, models)
        making = CompressorApart(compressor, Worker(tokenizers=tokenizers))
        of_callers = CompressorApart(compressor, Worker(tokenizers=tokenizers), fresh=True)
        return Opened(options, compressor, making, of_callers)

    return opened


class Compressors:
    """Safe for threads."""

    def __init__(self, options: CompressOptions, open_one: Opens) -> None:
        """`options`: in force. Raises InvalidRequest."""
        self._open = open_one
        self._lock = threading.Lock()
        self._opened: dict[str, Opened] = {}
        self._versions: dict[str, str] = {}
        self._choice = Choice()
        self.base = self.add(options)
        """The name of the one in force, whom no share of a trial takes an owner away from."""

    def add(self, options: CompressOptions) -> str:
        """Its name; nothing is opened twice. Raises InvalidRequest, also for one too many."""
        name = name_of(options)
        with self._lock:
            if name not in self._opened:
                if len(self._opened) >= OPENED_MAX:
                    raise InvalidRequest(f"more than {OPENED_MAX} configurations of the compressor")
                self._opened[name] = self._open(options)
                self._versions[name] = self._opened[name].compressor.version
        return name

    def holds(self, name: str) -> bool:
        return name in self._opened

    def settle(self, name: str) -> None:
        """It is the one in force from now on."""
        self.base = name

    def remove(self, name: str) -> None:
        """What is being made by it is thrown away, and made by another. The one in force stays."""
        with self._lock:
            if name == self.base or (opened := self._opened.pop(name, None)) is None:
                return
        opened.close()

    def learn(self, name: str, version: str) -> None:
        """What summaries were marked with by one that is not open any more."""
        self._versions.setdefault(name, version)

    def follow(self, choice: Choice) -> None:
        self._choice = choice

    def named(self, name: str) -> Opened:
        """The one in force where that one is not open."""
        return self._opened.get(name) or self._opened[self.base]

    def options_of(self, name: str) -> CompressOptions:
        return self._opened[name].options

    def opened_for(self, owner: str) -> Opened:
        return self.named(self._choice.of_owner(owner))

    def of(self, owner: str) -> Compresses:
        """What makes the owner's summaries now."""
        return self.opened_for(owner).making

    def makes(self, tenant: str) -> Makes:
        """Who sums up what a tenant sends along; it is drawn for the share of a trial as a user of no name."""
        opened = self.opened_for(Owner(tenant, "").key)
        return Makes(opened.compressor, opened.of_callers or opened.compressor)

    def version_of(self, name: str) -> str:
        return self._versions.get(name) or self._versions[self.base]

    @property
    def version(self) -> str:
        return self._versions[self.base]

    def afresh(self) -> Compresses:
        """The one in force, with nothing remembered."""
        return self.named(self.base).making.afresh()

    def forget(self) -> None:
        for one in self._all():
            one.making.forget()

    def computed_s(self) -> float:
        """What the calling thread has computed, and a share of what processes computed for it."""
        own = time.thread_time()
        apart = (one.making for one in self._all() if isinstance(one.making, CompressorApart))
        return own + sum(one.burden_s() - own for one in apart)

    def models(self) -> tuple[Summariser, ...]:
        return tuple(dict.fromkeys(model for one in self._all() for model in one.models))

    def breakers(self) -> list[Breaker]:
        return [model.breaker for model in self.models()]

    def close(self) -> None:
        for one in self._all():
            one.close()

    def _all(self) -> tuple[Opened, ...]:
        with self._lock:
            return tuple(self._opened.values())


class Alone:
    """One compressor for everybody."""

    def __init__(self, compressor: Compresses) -> None:
        self._compressor = compressor

    def of(self, owner: str) -> Compresses:
        return self._compressor

    def forget(self) -> None:
        self._compressor.forget()
