"""The configurations of the reranker that can be asked: the one in force, and while one is tried that one, too.

Owns their cross-encoders. Promises that one that cannot be opened is refused before anybody is served by it, and that
one that is let go leaves no model behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest
from serve_app.memory.configurations import name_of
from serve_app.memory.reranking import RerankOptions, second_stage
from serve_app.models.rerank import OpenReranker, PairReranker, open_reranker
from serve_app.retrieve.second import RerankMeter, SecondStage

OPENED_MAX = 4
"""Configurations at a time; a migration needs two."""

Key = tuple[str, tuple[str, ...]]


class Opened(NamedTuple):
    options: RerankOptions
    model: PairReranker | None


class Rerankers:
    """Safe for threads."""

    def __init__(
        self,
        options: RerankOptions,
        version: Callable[[str], EmbeddingVersion],
        meter: RerankMeter | None = None,
        rest_s: float = 2.0,
        open_model: OpenReranker = open_reranker,
    ) -> None:
        """`options`: in force. `version` gives an embedding version by its name."""
        self._version = version
        self._meter = meter
        self._rest_s = rest_s
        self._open_model = open_model
        self._lock = threading.Lock()
        self._opened: dict[str, Opened] = {}
        self._stages: dict[Key, SecondStage] = {}
        self.base = self.add(options)
        """The name of the one in force, whom no share of a trial takes an owner away from."""

    def add(self, options: RerankOptions) -> str:
        """Its name; nothing is opened twice. Raises RankerUnusable, RerankerUnavailable.

        Also InvalidRequest, for one too many.
        """
        name = name_of(options)
        with self._lock:
            if name not in self._opened:
                if len(self._opened) >= OPENED_MAX:
                    raise InvalidRequest(f"more than {OPENED_MAX} configurations of the reranker")
                second_stage(options, (), None, self._meter, self._rest_s)  # reads the ranker's file
                self._opened[name] = Opened(options, self._open_model(options))
        return name

    def holds(self, name: str) -> bool:
        return name in self._opened

    def settle(self, name: str) -> None:
        """It is the one in force from now on."""
        self.base = name

    def remove(self, name: str) -> None:
        """What still runs by it fails as late searches do. The one in force stays."""
        with self._lock:
            if name == self.base or (opened := self._opened.pop(name, None)) is None:
                return
            for key in [one for one in self._stages if one[0] == name]:
                del self._stages[key]
        if opened.model is not None:
            opened.model.close()

    def stage(self, name: str, versions: Sequence[str]) -> SecondStage:
        """Over vectors of these versions; of one that has been let go, the one in force."""
        with self._lock:
            known = name if name in self._opened else self.base
            key = known, tuple(versions)
            if key not in self._stages:
                options, model = self._opened[known]
                read = [self._version(one) for one in versions]
                self._stages[key] = second_stage(options, read, model, self._meter, self._rest_s)
            return self._stages[key]

    def options_of(self, name: str) -> RerankOptions:
        return self._opened[name].options

    def model_of(self, name: str) -> PairReranker | None:
        return self._opened[name].model

    def names_of(self, name: str) -> tuple[str, ...]:
        """What its answers are named by; a ranker that is not for all encoders is among them."""
        options, model = self._opened[name]
        return second_stage(options, (), model, None, self._rest_s).names

    def model(self) -> PairReranker | None:
        """The cross-encoder in force."""
        return self._opened[self.base].model

    def stages(self) -> tuple[SecondStage, ...]:
        """Those that have been asked for."""
        with self._lock:
            return tuple(self._stages.values())

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, {}
        for one in opened.values():
            if one.model is not None:
                one.model.close()
