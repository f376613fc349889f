"""Which store this is, and where it has been backed up: a small file of the data folder.

The id is drawn once, so that backups of two stores at one address are told apart. Addresses are remembered beyond
their setting: what was erased may lie in a backup at a former one, and that has to expire, too.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from serve_app.stores.private_file import PrivateFile

STORE_ID_FILE = "backup.json"

ADDRESSES_MAX = 16
"""Addresses that are remembered, those used last."""


class Known(msgspec.Struct, frozen=True):
    store_id: str = ""
    addresses: tuple[str, ...] = ()


class StoreRecord:
    """Raises StoreUnavailable where the file cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._file = PrivateFile(folder / STORE_ID_FILE, Known, Known)

    @property
    def store_id(self) -> str:
        """Made at the first call."""
        known = self._file.read()
        if known.store_id:
            return known.store_id
        with self._file.changing() as write:
            known = self._file.read()
            if not known.store_id:
                known = msgspec.structs.replace(known, store_id=secrets.token_hex(8))
                write(known)
        return known.store_id

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where backups of this store were begun, the latest first."""
        return self._file.read().addresses

    def note(self, address: str) -> None:
        """A backup goes there."""
        if self.addresses[:1] == (address,):
            return
        with self._file.changing() as write:
            known = self._file.read()
            others = [one for one in known.addresses if one != address]
            write(msgspec.structs.replace(known, addresses=(address, *others)[:ADDRESSES_MAX]))
