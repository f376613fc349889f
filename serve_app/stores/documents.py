"""Small files of a store, by name: the seam between those who keep something in one and the place where it lies.

A name is that of a file (`keys.json`), or of one in a folder (`golden/….json`). Promises of a place, whichever it is:
a document is replaced as a whole, durably; a change is made to what the one before left, whoever made that and
wherever; what a process has changed it sees from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol


class Document(NamedTuple):
    stamp: Hashable
    """Other bytes, another stamp."""
    data: bytes | None
    """None where the asker knows the bytes by this stamp."""


Made = Callable[[bytes | None], bytes | None]
"""What a document is to hold, made of what it holds (None: it is not there). None leaves it as it is. It is called
again where another process was faster, and may raise."""


class Watched(Protocol):
    """One name that is asked for again and again, also by an event loop: at the cost of a look at a disk at most."""

    @property
    def trouble(self) -> str | None:
        """Why what is shown may not be the newest."""
        ...

    def newest(self, known: Hashable = None) -> Document | None:
        """As of `Documents.settles_s` ago, or later. `known` is the stamp of what the asker has.

        Raises StoreUnavailable where it never could be read.
        """
        ...


class Documents(Protocol):
    """Safe for many threads, and for writers in many processes. Each call raises StoreUnavailable."""

    @property
    def address(self) -> str:
        """A folder, or `s3://bucket/prefix`."""
        ...

    @property
    def settles_s(self) -> float:
        """So long after a change every process that watches the document shows it."""
        ...

    def watch(self, name: str) -> Watched: ...

    def read(self, name: str, known: Hashable = None) -> Document | None:
        """What it holds now; None where it is not there."""
        ...

    def change(self, name: str, made: Made) -> Document | None:
        """What it holds then. Raises StorageFull, too."""
        ...

    def names(self, folder: str) -> Sequence[str]:
        """Of the documents in a folder, with it before them, sorted."""
        ...

    def delete(self, name: str) -> None:
        """One that is not there is no error."""
        ...

    def clear_leftovers(self, folder: str) -> None:
        """Remove what a writer that was killed had half written there: it may hold what is erased since."""
        ...
