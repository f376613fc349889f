"""Where the parts of a store lie, seen from outside: what a backup copies, a restore makes, a check reads."""

from __future__ import annotations

from pathlib import Path

import msgspec

from serve_app.core import EmbeddingVersion
from serve_app.errors import InvalidRequest
from serve_app.stores.documents import Documents
from serve_app.stores.documents_object import open_documents
from serve_app.stores.durable import local_folder
from serve_app.stores.golden_file import GOLDEN_FOLDER
from serve_app.stores.places import Place, open_place
from serve_app.stores.table_reader import TableReader
from serve_app.stores.vector_table import beside_name

STORE_FILE = "store.json"
MIGRATIONS_FILE = "migrations.json"
SMALL_FILES = (STORE_FILE, "keys.json", "policies.json", "layouts.json", MIGRATIONS_FILE)
"""What a backup takes of the small files: identity, hashes of keys (no key itself), policies, layouts, and how
far migrations are."""

SMALL_FOLDERS = (GOLDEN_FOLDER,)
"""Folders of small files (`*.json`) that it takes, too: golden queries."""

RESTORE_FILE = "restore.json"
"""Stands among the small files while a restore is not finished; a service does not start on such a store."""

LOG, TABLES, COLD = "log", "tables", "cold"


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a store's identity has to be known to read it: `version` is the primary one, `others` are active with it,
    and the vectors of those named in `beside` lie in tables of their own.
    """

    shards: int
    version: EmbeddingVersion
    others: tuple[EmbeddingVersion, ...] = ()
    beside: tuple[EmbeddingVersion, ...] = ()

    @property
    def versions(self) -> tuple[EmbeddingVersion, ...]:
        return (self.version, *self.others)

    @property
    def held(self) -> tuple[EmbeddingVersion, ...]:
        """Each once, in their order."""
        return tuple(dict.fromkeys([*self.versions, *self.beside]))

    @property
    def inline(self) -> tuple[EmbeddingVersion, ...]:
        return tuple(version for version in self.versions if version not in self.beside)


class Layout(msgspec.Struct, frozen=True):
    """The addresses of a store: of its small files, of its log and of each root of tables."""

    files_uri: str
    log_uri: str
    tables: dict[str, str]
    options: dict[str, str]
    cold_options: dict[str, str] = {}
    """How the cold tables are reached, where not as the rest."""

    @classmethod
    def of(
        cls,
        files: str | Path,
        log_uri: str,
        tables_uri: str,
        options: dict[str, str],
        cold_uri: str = "",
        cold_options: dict[str, str] | None = None,
    ) -> Layout:
        """Addresses that are empty lie below that of the small files, as in a service."""
        uris = {TABLES: tables_uri, COLD: cold_uri}
        roots = {name: uri or below(files, name) for name, uri in uris.items()}
        return cls(str(files), log_uri or below(files, LOG), roots, options, cold_options or {})

    def shape(self) -> Shape:
        """Raises InvalidRequest where no store is there, StoreUnavailable."""
        found = self.documents.read(STORE_FILE)
        if found is None:
            raise InvalidRequest(f"{self.files_uri} holds no store: there is no {STORE_FILE}")
        try:
            return msgspec.json.decode(found.data or b"", type=Shape)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"{below(self.files_uri, STORE_FILE)} does not describe a store: {error}") from error

    def reader(self, shape: Shape, shard: int) -> TableReader:
        """A shard's table as it is now, with what lies beside it. Raises NotFound, StorageTrouble."""
        found = TableReader(self.tables[TABLES], table_name(shard), shape.inline, self.options)
        for version in shape.beside:
            found.hold_beside(version)
        return found

    def place(self, root: str) -> Place:
        """Of the log or of a root of tables."""
        return open_place(self.log_uri if root == LOG else self.tables[root], self.options_of(root))

    def options_of(self, root: str) -> dict[str, str]:
        """How the log or a root of tables is reached."""
        return self.cold_options if root == COLD and self.cold_options else self.options

    @property
    def home(self) -> Place:
        """Of the small files, as files."""
        return open_place(self.files_uri, self.options)

    @property
    def documents(self) -> Documents:
        """The small files themselves."""
        return open_documents(self.files_uri, self.options)

    @property
    def folder(self) -> Path | None:
        """That of the small files; None where they are in a bucket."""
        return local_folder(self.files_uri)


def below(uri: str | Path, name: str) -> str:
    """The address of what lies in a folder or a bucket."""
    return f"{uri.rstrip('/')}/{name}" if isinstance(uri, str) and "://" in uri else str(Path(uri) / name)


def log_folder(shard: int) -> str:
    return f"{shard:04d}"


def table_name(shard: int) -> str:
    return f"shard-{shard:04d}"


def table_folder(shard: int, version: str | None = None) -> str:
    """Of the shard's own table, or of that of the vectors of a version that lies beside."""
    name = table_name(shard)
    return f"{name if version is None else beside_name(name, version)}.lance"
