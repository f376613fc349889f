"""What a store keeps in one small file of one shape: read again whenever it changes, changed by one at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Generic, TypeVar

import msgspec

from serve_app.errors import StoreUnavailable
from serve_app.stores.documents import Document, Documents

V = TypeVar("V")


class PrivateFile(Generic[V]):
    """A JSON file of one shape. Safe for many threads, and for writers in several processes; see `Documents`.

    One that is `watched` is read at no cost, also by an event loop, and shows what was so `settles_s` ago at the
    latest; any other is read where it lies, as it is.
    """

    def __init__(
        self, files: Documents, name: str, shape: type[V], empty: Callable[[], V], *, watched: bool = True
    ) -> None:
        self._files = files
        self._name = name
        self._decoder = msgspec.json.Decoder(shape)
        self._empty = empty()
        self._seen: tuple[Hashable, V] = (None, self._empty)
        self._trouble: str | None = None
        self._watched = files.watch(name) if watched else None
        self._look: Callable[[Hashable], Document | None]
        self._look = partial(files.read, name) if self._watched is None else self._watched.newest

    @property
    def trouble(self) -> str | None:
        """Why the file cannot be read at the moment."""
        return self._trouble or (None if self._watched is None else self._watched.trouble)

    def read(self) -> V:
        """What the file holds.

        One that cannot be read any more holds what it held, and `trouble` says so. Raises StoreUnavailable for one
        that never could.
        """
        try:
            value = self._newest()
        except StoreUnavailable as error:
            self._trouble = str(error)
            if self._seen[0] is None:
                raise
            return self._seen[1]
        if self._trouble is not None:
            self._trouble = None
        return value

    def change(self, made: Callable[[V], V]) -> V:
        """What the file holds then: what `made` makes of what the change before left; the same value changes nothing.

        `made` may be called again, and may raise. Raises StorageFull; StoreUnavailable, also for a file that cannot be
        read: a change would replace it.
        """

        def encoded(data: bytes | None) -> bytes | None:
            held = self._empty if data is None else self._decoded(data)
            value = made(held)
            return None if value is held else msgspec.json.format(msgspec.json.encode(value))

        document = self._files.change(self._name, encoded)
        if document is None or document.data is None:
            return self._empty
        seen = self._seen = (document.stamp, self._decoded(document.data))
        return seen[1]

    def _newest(self) -> V:
        """Raises StoreUnavailable."""
        seen = self._seen
        found = self._look(seen[0])
        if found is None:
            return self._empty
        if found.data is not None:
            self._seen = seen = (found.stamp, self._decoded(found.data))
        return seen[1]

    def _decoded(self, data: bytes) -> V:
        try:
            return self._decoder.decode(data)
        except msgspec.DecodeError as error:
            raise StoreUnavailable(f"{self._name} cannot be read: {error}") from error
