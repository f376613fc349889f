"""Which addresses of places can work at all: an absolute path, a file URI, or a bucket of a kind that is known."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from serve_app.errors import InvalidRequest
from serve_app.stores.durable import local_folder

ADDRESS_CHARACTERS_MAX = 2_048

BUCKETS = ("s3", "s3a", "gs", "az", "abfs", "abfss")

_FORMS = "a place is an absolute path, file:///path, or a bucket such as s3://bucket/prefix"


def checked_address(uri: str, store: Path | None = None) -> str:
    """The address itself. Raises InvalidRequest for one that cannot work, or that lies within the folder `store`.

    Whether anybody answers there is not asked.
    """
    if len(uri) > ADDRESS_CHARACTERS_MAX:
        raise InvalidRequest(f"uri: an address has at most {ADDRESS_CHARACTERS_MAX:,} characters")
    if not all(character.isprintable() for character in unquote(uri)):
        raise InvalidRequest(f"uri: {uri!r} holds characters that no address has; {_FORMS}")
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InvalidRequest(f"uri: {uri!r}: {error}; {_FORMS}") from error
    if "://" not in uri or parts.scheme == "file":
        _check_folder(uri, parts.netloc, store)
    elif parts.scheme not in BUCKETS or not parts.netloc:
        raise InvalidRequest(f"uri: {uri!r} is no place for files; {_FORMS}")
    return uri


def given_address(text: str, store: Path | None = None) -> str:
    """As it was typed: a relative path is one from here. Raises InvalidRequest."""
    path = text if "://" in text or not text.strip() or "\0" in text else str(Path(text).absolute())
    return checked_address(path, store)


def _check_folder(uri: str, host: str, store: Path | None) -> None:
    folder = None if "://" in uri and host not in ("", "localhost") else local_folder(uri)
    if folder is None or not folder.is_absolute():
        raise InvalidRequest(f"uri: {uri!r} is no place for files; {_FORMS}")
    try:
        inside = store is not None and folder.resolve().is_relative_to(store.resolve())
    except (OSError, RuntimeError) as error:  # too long a name, links in a circle
        raise InvalidRequest(f"uri: {uri!r}: {error}") from error
    if inside:
        raise InvalidRequest(f"uri: {uri!r} lies within the store's own folder {store}")
