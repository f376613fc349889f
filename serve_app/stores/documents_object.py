"""Small files as objects of a bucket (S3, GCS, Azure), and the one place that turns their address into a place.

A change is compare-and-set: a PUT on condition that the object is still the one that was read (`If-Match`), or that
there is none (`If-None-Match: *`). A PUT whose answer was lost may have been stored; it is not repeated blindly.

What is watched is kept in memory and looked at by one thread a process and address, each name by a conditional GET
every `look_s`: so a request costs no call to the bucket, and sees what was so `settles_s` ago at the latest. While the
bucket does not answer, what was read last counts, and `trouble` says why.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotModifiedError, PreconditionError

from serve_app.errors import StoreUnavailable
from serve_app.stores.documents import Document, Documents, Made
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.durable import local_folder
from serve_app.stores.segments_object import open_object_store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_log = logging.getLogger(__name__)

LOOK_S = 1.0
LOOK_TAKES_S = 0.5
"""What a look at all watched names may take, while the bucket answers as it should."""

CHANGES_MAX = 32
"""Times that a change is tried while others are faster."""

PAUSE_S, PAUSE_S_MAX = 0.02, 0.5
"""Before it is tried again, at most; doubled each time."""


class ObjectDocuments:
    """See `Documents`. Its thread ends when nobody holds it any more."""

    def __init__(self, store: ObjectStore, address: str = "", look_s: float = LOOK_S) -> None:
        self._store = store
        self._address = address
        self._look_s = look_s
        self._opening, self._changing = threading.Lock(), threading.Lock()
        self._watched: weakref.WeakValueDictionary[str, WatchedObject] = weakref.WeakValueDictionary()
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        return self._address

    @property
    def settles_s(self) -> float:
        return self._look_s + LOOK_TAKES_S

    def watch(self, name: str) -> WatchedObject:
        with self._opening:
            found = self._watched.get(name)
            if found is None:
                found = self._watched[name] = WatchedObject(self, name)
            if self._thread is None:
                asked = (weakref.ref(self), self._look_s)
                self._thread = threading.Thread(target=_look_again, args=asked, name="documents", daemon=True)
                self._thread.start()
        return found

    def read(self, name: str, known: Hashable = None) -> Document | None:
        try:
            found = obstore.get(self._store, name, options=_unless(known))
            return Document(_stamp(found.meta), bytes(found.bytes()))
        except NotModifiedError:
            return Document(known, None)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise _unavailable(f"{name} cannot be read", error) from error

    def change(self, name: str, made: Made) -> Document | None:
        """Threads of this process wait for each other; other processes collide, and the slower one tries again."""
        with self._changing:  # until it is learned: else an earlier change could be learned after this one
            found = self._changed(name, made)
            with self._opening:
                watched = self._watched.get(name)
            if watched is not None:
                watched.learn(found)
        return found

    def names(self, folder: str) -> Sequence[str]:
        try:
            pages = obstore.list(self._store, prefix=f"{folder}/")
            return sorted(str(item["path"]) for page in pages for item in page)
        except (BaseError, OSError) as error:
            raise _unavailable(f"{folder} cannot be listed", error) from error

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise _unavailable(f"{name} cannot be removed", error) from error

    def clear_leftovers(self, folder: str) -> None:
        """An object is there as a whole, or not at all."""

    def look(self) -> None:
        """At every name that is watched."""
        with self._opening:
            watched = list(self._watched.values())
        for one in watched:
            one.look()

    def _changed(self, name: str, made: Made) -> Document | None:
        tried: bytes | None = None
        for attempt in range(CHANGES_MAX):
            if attempt:
                time.sleep(random.uniform(0, min(PAUSE_S * 2**attempt, PAUSE_S_MAX)))
            found = self.read(name)
            held = None if found is None else found.data
            if tried is not None and held == tried:
                return found  # an own try whose answer was lost: its repetition met it
            data = made(held)
            if data is None:
                return found
            stamp = self._put(name, data, found)
            if stamp is not None:
                return Document(stamp, data)
            tried = data
        raise StoreUnavailable(f"{name} cannot be written: others were faster {CHANGES_MAX} times")

    def _put(self, name: str, data: bytes, found: Document | None) -> Hashable:
        """The new stamp; None where the document is no longer the one that was found."""
        try:
            mode: Any = "create" if found is None else _only(found.stamp)
            # In one request: a multipart upload has no condition.
            return _stamp(obstore.put(self._store, name, data, mode=mode, use_multipart=False))
        except (AlreadyExistsError, PreconditionError):
            return None
        except FileNotFoundError as error:
            if found is not None:
                return None  # Azure and GCS say so of one that has gone meanwhile
            raise _unavailable(f"{name} cannot be written", error) from error
        except (BaseError, OSError) as error:
            raise _unavailable(f"{name} cannot be written", error) from error


class WatchedObject:
    """See `Watched`. Looked at by the thread of its place; the very first look is that of who asks first."""

    def __init__(self, files: ObjectDocuments, name: str) -> None:
        self.trouble: str | None = None
        self._files, self._name = files, name
        self._learning = threading.Lock()
        self._looked = False
        self._learned = 0
        self._seen: Document | None = None

    def newest(self, known: Hashable = None) -> Document | None:
        if not self._looked:
            if self.trouble is None:
                self.look()
            if not self._looked:
                raise StoreUnavailable(self.trouble or f"{self._name} was not read yet")
        seen = self._seen
        return Document(known, None) if seen is not None and seen.stamp == known else seen

    def look(self) -> None:
        learned, seen = self._learned, self._seen
        try:
            found = self._files.read(self._name, None if seen is None else seen.stamp)
        except StoreUnavailable as error:
            self.trouble = str(error)
            return
        except Exception as error:  # noqa: BLE001 - a defect must not end the looks: a revoked key would count for ever
            if self.trouble is None:
                _log.exception("%s cannot be looked at", self._name)
            self.trouble = f"{self._name} cannot be read: {type(error).__name__}"
            return
        with self._learning:
            if self._learned == learned:  # else it was changed meanwhile: what came in may be from before
                self._seen = seen if found is not None and found.data is None else found
                self._looked = True
            self.trouble = None

    def learn(self, found: Document | None) -> None:
        """What a change of this process has left."""
        with self._learning:
            self._seen, self._looked = found, True
            self._learned += 1


def _look_again(place: weakref.ref[ObjectDocuments], look_s: float) -> None:
    while True:
        began = time.monotonic()
        files = place()
        if files is None:
            return
        files.look()
        del files
        time.sleep(max(0.0, began + look_s - time.monotonic()))


def _stamp(meta: Mapping[str, Any]) -> Hashable:
    """Entity tag and version of an object, as far as the service gives them."""
    return meta["e_tag"], meta["version"]


def _unless(known: Hashable) -> Any:
    return {"if_none_match": known[0]} if isinstance(known, tuple) and known[0] else {}


def _only(stamp: Hashable) -> dict[str, str]:
    assert isinstance(stamp, tuple)
    return {key: value for key, value in zip(("e_tag", "version"), stamp, strict=True) if value is not None}


def _unavailable(what: str, error: Exception) -> StoreUnavailable:
    """The first line says what happened; what follows it is obstore's own internals."""
    return StoreUnavailable(f"{what}: {str(error).partition(chr(10))[0]}")


_OPENING = threading.Lock()
_OPEN: weakref.WeakValueDictionary[tuple[Hashable, ...], ObjectDocuments] = weakref.WeakValueDictionary()
"""Of this process, by what they were opened by: services of one store share what they have read, and the looks."""


def open_documents(uri: str, options: Mapping[str, str], look_s: float = LOOK_S) -> Documents:
    """The place at a plain path, `file:///path`, or a bucket such as `s3://bucket/prefix`.

    `options` as for `segments_object.open_segments`. Raises StoreUnavailable for what is no address.
    """
    folder = local_folder(uri)
    if folder is not None:
        return DiskDocuments(folder)
    opened_by = (uri, tuple(sorted(options.items())), look_s)
    with _OPENING:
        found = _OPEN.get(opened_by)
        if found is None:
            found = _OPEN[opened_by] = ObjectDocuments(open_object_store(uri, options), uri.rstrip("/"), look_s)
        return found
