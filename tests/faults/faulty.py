"""Parts of a service that do their work as long as nothing is wrong, then fail or hang: real ones, with a switch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import lancedb
import numpy as np
from numpy.typing import NDArray

from serve_app.errors import StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.ports import Encodings
from serve_app.stores.cold import ColdTable
from serve_app.stores.lance import RecordTable

Raise = Callable[[], Exception]


class Switch:
    """What a part does before each of its calls: nothing; raise; or wait until it is over."""

    def __init__(self, error: Raise = lambda: RuntimeError("it is dead")) -> None:
        self._error = error
        self._killed = False
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.inside = 0
        """Calls that hang at this moment."""

    def __call__(self) -> None:
        if not self._goes_on.is_set():
            self.inside += 1
            self._goes_on.wait()
            self.inside -= 1
        if self._killed:
            raise self._error()

    def put(self, how: str) -> None:
        self._killed = how == "killed"
        if how == "hung":
            self._goes_on.clear()

    def mend(self) -> None:
        self._killed = False
        self._goes_on.set()


def no_store() -> StoreUnavailable:
    return StoreUnavailable("the store is dead")


class FaultyEmbedder(HashEmbedder):
    def __init__(self, fault: Switch) -> None:
        super().__init__()
        self._fault = fault

    def encode(self, texts: Sequence[str], *, tokens: bool = False) -> Encodings:
        self._fault()
        return super().encode(texts, tokens=tokens)


class FaultyPairs:
    """A cross-encoder's model: prefers texts that end late in the alphabet."""

    def __init__(self, fault: Switch) -> None:
        self._fault = fault

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> NDArray[np.float64]:
        self._fault()
        return np.array([ord(text[-1]) / 1_000 if text else 0.0 for text in texts])


class FaultyTable(RecordTable):
    """A warm table; whatever looks at it or changes it meets the fault."""

    def __init__(self, fault: Switch, *opened_as: Any) -> None:
        self._fault = fault
        super().__init__(*opened_as)

    @property
    def _table(self) -> lancedb.table.Table:
        self._fault()
        return super()._table


class FaultyColdTable(ColdTable):
    def __init__(self, fault: Switch, *opened_as: Any) -> None:
        self._fault = fault
        super().__init__(*opened_as)

    def _found(self, *, create: bool) -> lancedb.table.Table | None:
        self._fault()
        return super()._found(create=create)
