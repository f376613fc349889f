"""Segments as objects of a bucket (S3, GCS, Azure), and the one place that turns a store's address into a store.

A name is claimed by a conditional PUT (`If-None-Match: *`): the service itself refuses the second writer.
A PUT whose answer was lost may have been stored, so StoreUnavailable means "perhaps"; the log above copes.
Retries are obstore's own, bounded below; a retried PUT that meets its own first try reports NameTaken.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from serve_app.errors import NameTaken, NotFound, StoreUnavailable
from serve_app.ports import SegmentStore, WatchedSegments
from serve_app.stores.durable import local_folder
from serve_app.stores.segments_disk import DiskReader, DiskSegments

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RETRIES_MAX = 3
RETRY_TIMEOUT_S = 10
REQUEST_TIMEOUT_S = 10
CONNECT_TIMEOUT_S = 3

CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "proxy_url", "timeout", "connect_timeout"})
"""Storage options that speak of the connection; obstore takes them apart from those of the service."""


class ObjectSegments:
    """A `SegmentStore` under a prefix of an object store."""

    def __init__(self, store: ObjectStore, prefix: str = "") -> None:
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, name: str, data: bytes) -> None:
        try:
            # In one request: a multipart upload has no condition.
            obstore.put(self._store, self._prefix + name, data, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            raise NameTaken(f"{name} exists") from error
        except (BaseError, OSError) as error:
            raise _unavailable(name, error) from error

    def read(self, name: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, self._prefix + name).bytes())
        except FileNotFoundError as error:
            raise NotFound(f"no segment {name}") from error
        except (BaseError, OSError) as error:
            raise _unavailable(name, error) from error

    def names(self) -> list[str]:
        try:
            pages = obstore.list(self._store, prefix=self._prefix or None)
            paths = [item["path"].removeprefix(self._prefix) for page in pages for item in page]
        except (BaseError, OSError) as error:
            raise _unavailable("list", error) from error
        return sorted(path for path in paths if "/" not in path)

    def stamp(self, name: str) -> Hashable:
        """Always the same: here a name is given once, but for a repair, and that a new owner's fence follows."""
        return name

    def delete(self, names: Sequence[str]) -> None:
        for name in names:  # one by one: a bulk delete keeps no order
            try:
                obstore.delete(self._store, self._prefix + name)
            except FileNotFoundError:
                continue
            except (BaseError, OSError) as error:
                raise _unavailable(name, error) from error

    def replace(self, name: str, data: bytes, keep_as: str) -> None:
        old = self.read(name)
        try:
            obstore.put(self._store, self._prefix + keep_as, old, use_multipart=False)
            obstore.put(self._store, self._prefix + name, data, use_multipart=False)
        except (BaseError, OSError) as error:
            raise _unavailable(name, error) from error


def open_segments(uri: str, storage_options: Mapping[str, str]) -> SegmentStore:
    """The store at a plain path, `file:///path`, or a bucket such as `s3://bucket/prefix`.

    `storage_options` are the service's (`endpoint`, `region`, `access_key_id`, ...) and `CLIENT_OPTIONS`.
    Raises StoreUnavailable for an option or an address that obstore does not know.
    """
    folder = local_folder(uri)
    return DiskSegments(folder) if folder is not None else ObjectSegments(open_object_store(uri, storage_options))


def open_reader(uri: str, storage_options: Mapping[str, str]) -> WatchedSegments:
    """The same store for one who only reads."""
    folder = local_folder(uri)
    return DiskReader(folder) if folder is not None else ObjectSegments(open_object_store(uri, storage_options))


def open_object_store(uri: str, storage_options: Mapping[str, str]) -> ObjectStore:
    """The bucket, or the prefix of one; see `open_segments`."""
    service: Any = {key: value for key, value in storage_options.items() if key not in CLIENT_OPTIONS}
    try:
        return from_url(
            uri,
            config=service,
            client_options=_client_options(storage_options),
            retry_config={"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)},
        )
    except (BaseError, ValueError) as error:
        raise _unavailable(uri, error) from error


def _client_options(storage_options: Mapping[str, str]) -> Any:
    flags = {"true": True, "false": False}
    chosen = {key: flags.get(value, value) for key, value in storage_options.items() if key in CLIENT_OPTIONS}
    return {"timeout": f"{REQUEST_TIMEOUT_S}s", "connect_timeout": f"{CONNECT_TIMEOUT_S}s"} | chosen


def _unavailable(what: str, error: Exception) -> StoreUnavailable:
    """The first line says what happened; what follows it is obstore's own internals."""
    return StoreUnavailable(f"{what}: {str(error).partition(chr(10))[0]}")
