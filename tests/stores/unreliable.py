"""A segment store that loses requests and answers on order, over a real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from serve_app.errors import StorageFull, StoreUnavailable
from serve_app.ports import SegmentStore

Fault = Callable[[SegmentStore, str, bytes], None]


class Unreliable:
    """A segment store whose next `create` calls go by the plan; one entry of the plan a call, then all is well."""

    def __init__(self, inner: SegmentStore, plan: Sequence[Fault] = ()) -> None:
        self.inner = inner
        self.plan = list(plan)
        self.deleted: list[str] = []

    def create(self, name: str, data: bytes) -> None:
        if self.plan:
            self.plan.pop(0)(self.inner, name, data)
        else:
            self.inner.create(name, data)

    def read(self, name: str) -> bytes:
        return self.inner.read(name)

    def names(self) -> list[str]:
        return self.inner.names()

    def delete(self, names: Sequence[str]) -> None:
        self.deleted += names
        self.inner.delete(names)

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        self.inner.replace(name, data, keep_as)


def works(inner: SegmentStore, name: str, data: bytes) -> None:
    inner.create(name, data)


def stores_then_fails(inner: SegmentStore, name: str, data: bytes) -> None:
    inner.create(name, data)
    raise StoreUnavailable("the answer was lost")


def fails(inner: SegmentStore, name: str, data: bytes) -> None:
    raise StoreUnavailable("the request was lost")


def is_full(inner: SegmentStore, name: str, data: bytes) -> None:
    raise StorageFull("no room")


def retries_itself(inner: SegmentStore, name: str, data: bytes) -> None:
    """What a client does whose first try was stored and whose second meets it."""
    inner.create(name, data)
    inner.create(name, data)
