"""Restoring a backup into another place, up to its end or to a moment before it.

    1. mark      `restore.json` in the new data folder says what is being restored; no service starts beside it
    2. tables    the files of each table, checked by size and checksum
    3. log       the segments behind the watermark, up to the moment asked for
    4. folder    policies, key hashes, and last the store's identity
    5. unmark    the store is whole

Stopped anywhere, the same command goes on: what lies there and is whole is not copied again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from serve_app.backup.catalogue import Catalogue, Finished, look, read_manifest
from serve_app.backup.copying import Pace, checksum, copy_checked
from serve_app.backup.layout import LOG, RESTORE_FILE, SMALL_FOLDERS, STORE_FILE, Layout
from serve_app.backup.manifest import HeldFile, HeldSegment, HeldShard, Manifest
from serve_app.core import SECOND_US
from serve_app.errors import InvalidRequest, NotFound
from serve_app.stores.places import Place, read


class Marked(msgspec.Struct, frozen=True):
    """What is being restored."""

    backup: str
    at: int | None


class Restored(NamedTuple):
    """What stands there now: `seqs` by shard."""

    manifest: Manifest
    at: int | None
    seqs: list[int]
    files: int
    bytes: int


def choose(
    place: Place, backup: str | None, at: int | None, passed_over: Callable[[str], None] = lambda backup: None
) -> Manifest:
    """The backup of this id; else the newest from which the moment can be reached; else the newest.

    `passed_over` is told of newer ones that cannot be restored. Raises NotFound, StoreUnavailable for a damaged
    manifest, InvalidRequest with the moments that can be reached.
    """
    if backup is None:
        found = look(place, None, {})
        backup = _reaching(found, at).id
        for newer in _broken_after(found, backup):
            passed_over(newer)
    try:
        manifest = read_manifest(place, backup)
    except NotFound as error:
        raise NotFound(f"there is no finished backup {backup!r}") from error
    if at is not None and not _reaches(manifest.reachable, at):
        raise InvalidRequest(f"backup {backup} does not reach {_moment(at)}; it reaches {_span(manifest.reachable)}")
    return manifest


def _reaching(found: Catalogue, at: int | None) -> Finished:
    there = [one for one in found.finished if _there(found, one)]
    if not there:
        broken = ", ".join(sorted(one.id for one in (*found.damaged, *(one.begun for one in found.finished))))
        raise NotFound("there is no finished backup" + (f" that can be restored; damaged: {broken}" if broken else ""))
    reaching = [one for one in there if at is None or _reaches(one.reachable, at)]
    if not reaching:
        spans = "; ".join(_span(one.reachable) for one in there)
        raise InvalidRequest(f"no backup reaches {_moment(at or 0)}; there are {spans}")
    return reaching[-1]


def _there(found: Catalogue, one: Finished) -> bool:
    """A backup that it needs and whose manifest alone is damaged may still have the files."""
    return one.needs <= {other.id for other in (*(each.begun for each in found.finished), *found.damaged)}


def _broken_after(found: Catalogue, backup: str) -> list[str]:
    chosen_at = next(one.begun.begun_at for one in found.finished if one.id == backup)
    broken = [*found.damaged, *(one.begun for one in found.finished if not _there(found, one))]
    return sorted(one.id for one in broken if one.begun_at > chosen_at)


def _reaches(span: tuple[int, int] | None, at: int) -> bool:
    return span is not None and span[0] <= at <= span[1]


def _span(span: tuple[int, int] | None) -> str:
    return "its own end alone" if span is None else f"{_moment(span[0])} to {_moment(span[1])}"


def _moment(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND_US, UTC).isoformat()


class Restorer:
    """Restores one backup from `source` into `layout`. `done` is told of each file's bytes once it is there."""

    def __init__(
        self, source: Place, layout: Layout, pace: Pace, done: Callable[[int], None] = lambda count: None
    ) -> None:
        self._source = source
        self._layout = layout
        self._pace = pace
        self._done = done

    def restore(self, manifest: Manifest, at: int | None) -> Restored:
        """Raises InvalidRequest for a place that is not empty, StorageTrouble, Stopped."""
        self._mark(Marked(manifest.begun.id, at))
        segments = {shard.number: until(shard, at) for shard in manifest.shards}
        count = size = 0
        for file in self._wanted(manifest, segments):
            self._put(file)
            self._done(file.size)
            count, size = count + 1, size + file.size
        self._layout.home.delete([RESTORE_FILE])
        seqs = [_reached(one, segments[one.number]) for one in manifest.shards]
        return Restored(manifest, at, seqs, count, size)

    def _wanted(self, manifest: Manifest, segments: dict[int, tuple[HeldSegment, ...]]) -> list[HeldFile]:
        tables = [file for shard in manifest.shards for table in shard.tables for file in table.files]
        logs = [segment.file for shard in manifest.shards for segment in segments[shard.number]]
        return tables + logs + sorted(manifest.small, key=lambda file: file.path == STORE_FILE)

    def _mark(self, wanted: Marked) -> None:
        """Take the place, or go on with what the same command has begun."""
        home = self._layout.home
        try:
            found = msgspec.json.decode(read(home, RESTORE_FILE), type=Marked)
        except NotFound:
            self._refuse_unless_empty()
            home.put(RESTORE_FILE, [msgspec.json.encode(wanted)])
            return
        if found != wanted:
            raise InvalidRequest(
                f"{self._layout.files_uri} holds an unfinished restore of {found.backup}: finish it with the same "
                "--backup and --at, or delete the folder"
            )

    def _refuse_unless_empty(self) -> None:
        places = {self._layout.files_uri: self._layout.home, self._layout.log_uri: self._layout.place(LOG)}
        places |= {uri: self._layout.place(root) for root, uri in self._layout.tables.items()}
        for uri, place in places.items():
            if place.list():
                raise InvalidRequest(f"{uri} is not empty: a restore makes a store in a new place")

    def _put(self, file: HeldFile) -> None:
        root, _, below = file.path.partition("/")
        at_home = not below or root in SMALL_FOLDERS
        target, path = (self._layout.home, file.path) if at_home else (self._layout.place(root), below)
        expected = (file.size, file.sha256)
        try:
            if checksum(target, path, self._pace) == expected:
                return
        except NotFound:
            pass
        try:
            copy_checked(self._source, file.place, target, path, expected, self._pace)
        except NotFound as error:
            raise NotFound(f"{file.place} is missing: backup {file.held_by} was deleted or is damaged") from error


def until(shard: HeldShard, at: int | None) -> tuple[HeldSegment, ...]:
    """The segments committed up to this moment: one commit is restored as a whole, or not at all."""
    if at is None:
        return shard.segments
    kept = 0
    while kept < len(shard.segments) and shard.segments[kept].at <= at:
        kept += 1
    return shard.segments[:kept]


def _reached(shard: HeldShard, segments: tuple[HeldSegment, ...]) -> int:
    return max([shard.folded_seq, *(segment.last_seq for segment in segments)])
