"""The leases as the store keeps them: changed by compare-and-set, so that two Controls never undo each other's work."""

from __future__ import annotations

from serve_app.cluster.messages import Leases
from serve_app.stores.documents import Documents
from serve_app.stores.private_file import PrivateFile

__all__ = ["LEASES_FILE", "LeaseFile"]

LEASES_FILE = "leases.json"


class LeaseFile:
    """Safe for threads and processes. Both calls wait for the store: not for an event loop."""

    def __init__(self, files: Documents) -> None:
        self._file = PrivateFile(files, LEASES_FILE, Leases, Leases, watched=False)

    def read(self) -> Leases:
        """None given yet: no leases at all, of revision 0. Raises StoreUnavailable."""
        return self._file.read()

    def replace(self, known: Leases, wanted: Leases) -> Leases:
        """Those that hold then: the wanted ones only where the known ones held. Raises StorageTrouble."""
        return self._file.change(lambda found: wanted if found == known else found)
