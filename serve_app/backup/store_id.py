"""Which store this is: drawn once for a data folder, so that backups of two stores at one address are told apart."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from serve_app.stores.private_file import PrivateFile

STORE_ID_FILE = "backup.json"


class Known(msgspec.Struct, frozen=True):
    store_id: str = ""


def store_id(folder: Path) -> str:
    """Made at the first call. Raises StoreUnavailable."""
    file = PrivateFile(folder / STORE_ID_FILE, Known, Known)
    with file.changing() as write:
        known = file.read()
        if not known.store_id:
            known = Known(secrets.token_hex(8))
            write(known)
    return known.store_id
