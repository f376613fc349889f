"""What a backup says of itself: frozen values, written as JSON.

    <uri>/<backup id>/begun.json        kind, base, when; written first
    <uri>/<backup id>/files/...         what this backup has copied itself
    <uri>/<backup id>/shards/first.json what the store was, and how far its migrations, before a shard was copied
    <uri>/<backup id>/shards/0003.json  a shard that is copied whole; a backup that is taken up again keeps it
    <uri>/<backup id>/manifest.json     everything, written last: without it the backup is not finished

A manifest names every file of the store's state, with its size, its checksum and the backup that holds its bytes:
this one, or an earlier one of its chain. So a restore reads one manifest, and a backup may be deleted once no other
names it.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from typing import Literal

import msgspec

from serve_app.backup.layout import Shape
from serve_app.core import SECOND_US

FORMAT = 1
MANIFEST, BEGUN, FILES, SHARDS = "manifest.json", "begun.json", "files", "shards"

Kind = Literal["full", "incremental"]

_MOMENT = "%Y%m%dT%H%M%SZ"
_ID = re.compile(r"(?P<moment>\d{8}T\d{6}Z)-(?P<kind>full|incremental)-[0-9a-f]{6}")


class HeldFile(msgspec.Struct, frozen=True):
    """One file: its path in the store (`tables/shard-0000.lance/data/x.lance`), and the backup that has its bytes."""

    path: str
    size: int
    sha256: str
    held_by: str

    @property
    def place(self) -> str:
        """Where its bytes lie below the backups' address."""
        return f"{self.held_by}/{FILES}/{self.path}"


class HeldSegment(msgspec.Struct, frozen=True):
    """A segment of the log, with the seqs it uses up and when it was committed (microseconds, the log's own clock)."""

    file: HeldFile
    prev_last_seq: int
    last_seq: int
    at: int


class HeldTable(msgspec.Struct, frozen=True):
    """One version of a table. A root has several of a shard where vectors lie beside."""

    root: str
    version: int
    files: tuple[HeldFile, ...]


class HeldShard(msgspec.Struct, frozen=True):
    """A shard at one seq: the tables hold everything up to `folded_seq`, the segments the rest up to `seq`.

    `folded_at` is the first moment whose state can be had, `listed_at` the last one.
    """

    number: int
    folded_seq: int
    seq: int
    folded_at: int
    listed_at: int
    tables: tuple[HeldTable, ...]
    segments: tuple[HeldSegment, ...]

    @property
    def files(self) -> list[HeldFile]:
        return [file for table in self.tables for file in table.files] + [one.file for one in self.segments]


class First(msgspec.Struct, frozen=True):
    """What stood in the store before its first shard was copied: what it is, and how far its migrations were."""

    shape: Shape
    migrations: HeldFile | None = None


class Begun(msgspec.Struct, frozen=True):
    """What is fixed when a backup begins. `begun_at` in microseconds."""

    id: str
    kind: Kind
    base: str | None
    store_id: str
    begun_at: int


class Manifest(msgspec.Struct, frozen=True):
    """A finished backup."""

    format: int
    begun: Begun
    finished_at: int
    shape: Shape
    small: tuple[HeldFile, ...]
    shards: tuple[HeldShard, ...]

    @property
    def files(self) -> list[HeldFile]:
        return [*self.small, *(file for shard in self.shards for file in shard.files)]

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def own_bytes(self) -> int:
        """What this backup takes by itself."""
        return sum(file.size for file in self.files if file.held_by == self.begun.id)

    @property
    def needs(self) -> set[str]:
        """Other backups that hold bytes of this one."""
        return {file.held_by for file in self.files} - {self.begun.id}

    @property
    def reachable(self) -> tuple[int, int] | None:
        """The first and the last moment, in microseconds, that a restore of this backup can go to.

        None where there is no moment that every shard can give: one was folded after another had been copied.
        """
        first, last = max(one.folded_at for one in self.shards), min(one.listed_at for one in self.shards)
        return (first, last) if first <= last else None


def new_id(kind: Kind, now: int) -> str:
    """Sorts by time; never given twice."""
    moment = datetime.fromtimestamp(now / SECOND_US, UTC)
    return f"{moment.strftime(_MOMENT)}-{kind}-{secrets.token_hex(3)}"


def begun_by_id(backup: str) -> Begun | None:
    """What an id tells by itself, of which store it does not; None for what is no id."""
    match = _ID.fullmatch(backup)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match["moment"], _MOMENT).replace(tzinfo=UTC)
    except ValueError:
        return None
    kind: Kind = "full" if match["kind"] == "full" else "incremental"
    return Begun(backup, kind, None, "", int(moment.timestamp() * SECOND_US))


def first_file(backup: str) -> str:
    return f"{backup}/{SHARDS}/first.json"


def shard_file(backup: str, number: int) -> str:
    return f"{backup}/{SHARDS}/{number:04d}.json"
