"""A store's beginning, where many processes serve it: Control makes it, all others wait until it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from serve_app.api.auth import FIRST_KEY_FILE, KeyFile
from serve_app.backup.layout import below
from serve_app.config import Settings
from serve_app.errors import StoreUnavailable
from serve_app.shards import StoreIdentity, identity_of, read_identity

__all__ = ["founded", "store_there"]

WAIT_S = 60.0
"""For Control to make the store."""

PAUSE_S = 0.1


def founded(settings: Settings, tell: Callable[[str], None]) -> StoreIdentity:
    """What the store is, made here and now if there is none, and its first key, shown once.

    Raises InvalidRequest where the settings do not fit the store, StorageTrouble, EncoderUnavailable.
    """
    versions = [embedder.version for embedder in settings.open_embedders()]
    identity = identity_of(msgspec.structs.replace(settings, role="writer"), versions)
    key = KeyFile(settings.files).ensure_first()
    if key is not None:
        tell(f"first start: operator key of tenant default: {key}")
        tell(f"it is kept in {below(settings.files_uri, FIRST_KEY_FILE)}")
    return identity


async def store_there(settings: Settings, within_s: float = WAIT_S) -> StoreIdentity:
    """What the store is, as soon as it has been made. Raises StoreUnavailable if it is not in time, InvalidRequest."""
    files, trouble = settings.files, "Control has not made the store yet"
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    found = await asyncio.to_thread(read_identity, files)
                    if found is not None:
                        return found
                except StoreUnavailable as error:
                    trouble = str(error)
                await asyncio.sleep(PAUSE_S)
    except TimeoutError as error:
        raise StoreUnavailable(f"{settings.files_uri}: {trouble}") from error
