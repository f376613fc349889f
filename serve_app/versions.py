"""Which encoders a service opens: of each version that its store holds one, by whatever brought that version.

The store's description says which versions there are. Their encoders' options are those of the settings, or, of a
version that came by a migration, those of its record: the file of settings may still say what was before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from serve_app.config import Settings
from serve_app.core import EmbeddingVersion
from serve_app.errors import EncoderUnavailable, InvalidRequest
from serve_app.models.embed import EncoderOptions
from serve_app.ports import Embedder
from serve_app.shards import StoreIdentity, change_identity, read_identity
from serve_app.stores.documents import Documents

_log = logging.getLogger(__name__)

OpenEncoder = Callable[[EncoderOptions], Embedder]
Brought = Mapping[str, Mapping[str, Any]]
"""By name of a version that a migration brought, the options of its encoder."""

HINT = "a migration changes the encoder of a store that holds turns: memstrata migrations start"


class Opened(NamedTuple):
    base: list[Embedder]
    """Of the versions that every turn is embedded under, the primary one first."""
    beside: list[Embedder]
    """Of those that a migration has brought or is bringing."""


class StoredVersions:
    """What a store says of its versions. See `migrate.switch.Identity`."""

    def __init__(self, files: Documents) -> None:
        self._files = files

    @property
    def base(self) -> tuple[EmbeddingVersion, ...]:
        return self._identity.versions

    @property
    def beside(self) -> tuple[EmbeddingVersion, ...]:
        return self._identity.beside

    def change(self, base: Sequence[EmbeddingVersion], beside: Sequence[EmbeddingVersion]) -> None:
        change_identity(self._files, base=base, beside=beside)

    @property
    def _identity(self) -> StoreIdentity:
        found = read_identity(self._files)
        if found is None:
            raise InvalidRequest(f"{self._files.address} holds no store any more")
        return found


def open_versions(settings: Settings, brought: Brought, open_one: OpenEncoder) -> Opened:
    """None is loaded yet. A store that is not there yet gets the versions of the settings.

    Raises EncoderUnavailable, InvalidRequest where a version of the base cannot be opened. One beside it that cannot
    is left out: what serves must not depend on it, and Control tries it again.
    """
    identity = read_identity(settings.files)
    if identity is None:
        return Opened(settings.open_embedders(open_one), [])
    try:
        configured, failure = settings.open_embedders(open_one), None
    except EncoderUnavailable as error:
        configured, failure = [], error
    known = {one.version.name: one for one in configured}
    base = [_of_base(version, known, brought, open_one, failure) for version in identity.versions]
    _warn(settings, [one.version.name for one in base], list(known))
    beside = [_beside(version, brought, open_one) for version in identity.held if version not in identity.versions]
    return Opened(base, [one for one in beside if one is not None])


def reopened(version: EmbeddingVersion, options: Mapping[str, Any], open_one: OpenEncoder) -> Embedder:
    """The encoder of a version that a migration brought. Raises EncoderUnavailable, InvalidRequest."""
    try:
        embedder = open_one(msgspec.convert(dict(options), EncoderOptions))
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidRequest(f"the encoder of {version.name!r}: {error}") from error
    if embedder.version != version:
        raise InvalidRequest(f"the options of {version.name!r} stand for {embedder.version.name!r} now")
    return embedder


def _of_base(
    version: EmbeddingVersion,
    configured: Mapping[str, Embedder],
    brought: Brought,
    open_one: OpenEncoder,
    failure: EncoderUnavailable | None,
) -> Embedder:
    found = configured.get(version.name)
    if found is not None and found.version == version:
        return found
    if version.name in brought:
        return reopened(version, brought[version.name], open_one)
    if failure is not None:
        raise failure
    asked = ", ".join(map(repr, configured))
    raise InvalidRequest(f"the store holds vectors of {version.name!r}; the settings ask for {asked}; {HINT}")


def _beside(version: EmbeddingVersion, brought: Brought, open_one: OpenEncoder) -> Embedder | None:
    try:
        return reopened(version, brought[version.name], open_one) if version.name in brought else None
    except (EncoderUnavailable, InvalidRequest) as error:
        _log.warning("the encoder of %s does not open, what is served by it is served by the base: %s", version, error)
        return None


def _warn(settings: Settings, base: Sequence[str], configured: Sequence[str]) -> None:
    missing = [name for name in base if name not in configured]
    if missing or base[0] != configured[0]:
        _log.warning(
            "%s: the encoder is that of %s, which a migration has brought; the settings name %s: bring them up to date",
            settings.files_uri,
            ", ".join(missing or base),
            ", ".join(configured) or "one that cannot be opened",
        )
