"""Which store this is, and where it has been backed up: a small file of the store.

The id is drawn once, so that backups of two stores at one address are told apart. Addresses are remembered beyond
their setting: what was erased may lie in a backup at a former one, and that has to expire, too.
"""

from __future__ import annotations

import secrets

import msgspec

from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile

STORE_ID_FILE = "backup.json"

ADDRESSES_MAX = 16
"""Addresses that are remembered, those used last."""


class Known(msgspec.Struct, frozen=True):
    store_id: str = ""
    addresses: tuple[str, ...] = ()


class StoreRecord:
    """Raises StoreUnavailable where the file cannot be read or written."""

    def __init__(self, files: Documents) -> None:
        self._file = PrivateFile(files, STORE_ID_FILE, Known, Known, watched=False)

    @property
    def store_id(self) -> str:
        """Made at the first call."""

        def drawn(known: Known) -> Known:
            return known if known.store_id else msgspec.structs.replace(known, store_id=secrets.token_hex(8))

        return self._file.read().store_id or self._file.change(drawn).store_id

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where backups of this store were begun, the latest first."""
        return self._file.read().addresses

    def note(self, address: str) -> None:
        """A backup goes there."""
        if self.addresses[:1] == (address,):
            return

        def noted(known: Known) -> Known:
            others = [one for one in known.addresses if one != address]
            return msgspec.structs.replace(known, addresses=(address, *others)[:ADDRESSES_MAX])

        self._file.change(noted)
