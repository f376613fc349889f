"""The backups of one store at one address: which there are, until when, and which may go.

A chain is a full backup and the incremental ones on top of it. It expires as a whole, so long after its full one, and
the newest chain stays whatever its age: there is always one to go back to. A backup whose manifest cannot be read is
damaged: others may need its files, so that it stays as long as its chain; nothing new is built on it.
"""

from __future__ import annotations

import re

import msgspec

from serve_app.backup.manifest import BEGUN, FILES, MANIFEST, SHARDS, Begun, Kind, Manifest, begun_by_id
from serve_app.core import SECOND_US
from serve_app.errors import NotFound, StoreUnavailable
from serve_app.stores.places import Blob, Place, read

_TOP = re.compile(r"([^/]+)/(begun|manifest)\.json")

Cached = dict[str, tuple[Blob, "Finished"]]
"""What was read of each manifest, as long as that stands as it stood."""


class Unreadable(StoreUnavailable):
    """A manifest that says nothing: it is damaged, or another release has written it."""


class Finished(msgspec.Struct, frozen=True):
    """A finished backup, without its files."""

    begun: Begun
    finished_at: int
    total_bytes: int
    own_bytes: int
    needs: frozenset[str]
    reachable: tuple[int, int] | None

    @classmethod
    def of(cls, manifest: Manifest) -> Finished:
        sizes = (manifest.total_bytes, manifest.own_bytes)
        return cls(manifest.begun, manifest.finished_at, *sizes, frozenset(manifest.needs), manifest.reachable)

    @property
    def id(self) -> str:
        return self.begun.id


class Catalogue(msgspec.Struct, frozen=True):
    """What was found at one look, oldest first."""

    finished: tuple[Finished, ...] = ()
    unfinished: tuple[Begun, ...] = ()
    damaged: tuple[Begun, ...] = ()

    def newest(self, kind: Kind | None = None) -> Finished | None:
        """Of those that can be restored."""
        whole = (one for one in reversed(self.finished) if self.whole(one))
        return next((one for one in whole if kind in (None, one.begun.kind)), None)

    def whole(self, one: Finished) -> bool:
        """Whether every backup that holds bytes of this one is there, and sound."""
        return one.needs <= {other.id for other in self.finished}

    def base(self) -> Finished | None:
        """What an incremental backup may stand on: the newest one, unless its chain is broken."""
        newest = self.newest()
        if newest is None or self.root(newest.begun).base is not None:
            return None
        later = [one.begun_at for one in (*(each.begun for each in self.finished), *self.damaged)]
        return newest if newest.begun.begun_at >= max(later) else None

    def root(self, one: Begun) -> Begun:
        """The full backup that its chain stands on; where one is missing, what stands on that."""
        by_id = {other.id: other for other in self._all}
        while one.base is not None and one.base in by_id:
            one = by_id[one.base]
        return one

    def needed(self) -> set[str]:
        """Backups that hold bytes of others."""
        return {name for one in self.finished for name in one.needs}

    def expires_at(self, one: Begun, keep_s: int) -> int:
        """Microseconds. At the earliest: the newest chain stays until there is a newer one."""
        root = self.root(one)
        finished_at = next((other.finished_at for other in self.finished if other.id == root.id), root.begun_at)
        return finished_at + keep_s * SECOND_US

    def expired(self, now: int, keep_s: int) -> list[str]:
        """Ids that may go, each before the ones it stands on."""
        newest = self.newest("full") or self.newest() or next(reversed(self.finished), None)
        stays = None if newest is None else self.root(newest.begun).id
        gone = [one for one in self._all if self.expires_at(one, keep_s) <= now and self.root(one).id != stays]
        going = {one.id for one in gone}
        needed = {name for one in self.finished if one.id not in going for name in one.needs}
        return [one.id for one in reversed(gone) if one.id not in needed]

    @property
    def _all(self) -> list[Begun]:
        """Finished and damaged ones, oldest first."""
        return sorted([*(one.begun for one in self.finished), *self.damaged], key=_order)


def look(place: Place, store_id: str | None, cached: Cached) -> Catalogue:
    """The backups of this store, or of every store for None. `cached` keeps what is read."""
    finished: Cached = {}
    begun: dict[str, Begun] = {}
    unreadable: set[str] = set()
    for blob, match in ((blob, _TOP.fullmatch(blob.path)) for blob in place.list()):
        if match is None:
            continue
        name = match[1]
        try:
            if match[2] == "manifest":
                known = cached.get(name)
                same = known is not None and known[0] == blob
                finished[name] = known if known and same else (blob, Finished.of(read_manifest(place, name)))
            else:
                begun[name] = msgspec.json.decode(read(place, f"{name}/{BEGUN}"), type=Begun)
        except NotFound:  # deleted since it was listed
            continue
        except Unreadable:
            unreadable.add(name)
        except msgspec.DecodeError:  # not a backup, or one of another release: not ours to touch
            continue
    cached.clear()
    cached.update(finished)
    done = [one for _, one in finished.values() if store_id in (None, one.begun.store_id)]
    rest = [one for name, one in begun.items() if name not in finished and name not in unreadable]
    damaged = [one for name in unreadable if (one := begun.get(name) or begun_by_id(name)) is not None]
    return Catalogue(
        tuple(sorted(done, key=lambda one: _order(one.begun))),
        tuple(sorted((one for one in rest if store_id in (None, one.store_id)), key=_order)),
        tuple(sorted((one for one in damaged if store_id in (None, one.store_id)), key=_order)),
    )


def _order(one: Begun) -> tuple[int, str]:
    return one.begun_at, one.id


def read_manifest(place: Place, backup: str) -> Manifest:
    """Raises NotFound for a backup that is not there or not finished, Unreadable."""
    try:
        manifest = msgspec.json.decode(read(place, f"{backup}/{MANIFEST}"), type=Manifest)
    except msgspec.DecodeError as error:
        raise Unreadable(f"the manifest of backup {backup} is damaged or of another release: {error}") from error
    if not manifest.shards or manifest.begun.id != backup:
        raise Unreadable(f"the manifest of backup {backup} is damaged: it is that of no backup, or of another one")
    return manifest


def delete(place: Place, backup: str) -> None:
    """The manifest goes first and what says that it was begun last: what a crash leaves is gone through next time."""
    place.delete([f"{backup}/{MANIFEST}"])
    for folder in (FILES, SHARDS):
        place.clear(f"{backup}/{folder}")
    place.delete([f"{backup}/{BEGUN}"])
