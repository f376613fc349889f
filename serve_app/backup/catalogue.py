"""The backups of one store at one address: which there are, until when, and which may go.

A chain is a full backup and the incremental ones on top of it. It expires as a whole, so long after its full one, and
the newest chain stays whatever its age: there is always one to go back to.
"""

from __future__ import annotations

import re

import msgspec

from serve_app.backup.manifest import BEGUN, FILES, MANIFEST, SHARDS, Begun, Kind, Manifest
from serve_app.core import SECOND_US
from serve_app.errors import NotFound
from serve_app.stores.places import Place, read

_TOP = re.compile(r"([^/]+)/(begun|manifest)\.json")

Cached = dict[str, "Finished"]


class Finished(msgspec.Struct, frozen=True):
    """A finished backup, without its files."""

    begun: Begun
    finished_at: int
    total_bytes: int
    own_bytes: int
    needs: frozenset[str]
    reachable: tuple[int, int]

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

    def newest(self, kind: Kind | None = None) -> Finished | None:
        return next((one for one in reversed(self.finished) if kind in (None, one.begun.kind)), None)

    def root(self, one: Finished) -> Finished:
        """The full backup that its chain stands on."""
        by_id = {other.id: other for other in self.finished}
        while one.begun.base is not None and one.begun.base in by_id:
            one = by_id[one.begun.base]
        return one

    def expires_at(self, one: Finished, keep_s: int) -> int:
        """Microseconds. At the earliest: the newest chain stays until there is a newer one."""
        return self.root(one).finished_at + keep_s * SECOND_US

    def expired(self, now: int, keep_s: int) -> list[str]:
        """Ids that may go, each before the ones it stands on."""
        newest = self.newest("full")
        needed = {name for one in self.finished for name in one.needs if self.expires_at(one, keep_s) > now}
        return [
            one.id
            for one in reversed(self.finished)
            if self.expires_at(one, keep_s) <= now
            and one.id not in needed
            and (newest is None or self.root(one).id != newest.id)
        ]


def look(place: Place, store_id: str | None, cached: Cached) -> Catalogue:
    """The backups of this store, or of every store for None. `cached` keeps what is read: it does not change."""
    finished: dict[str, Finished] = {}
    begun: dict[str, Begun] = {}
    for match in filter(None, (_TOP.fullmatch(blob.path) for blob in place.list())):
        try:
            if match[2] == "manifest":
                finished[match[1]] = cached.get(match[1]) or Finished.of(read_manifest(place, match[1]))
            else:
                begun[match[1]] = msgspec.json.decode(read(place, f"{match[1]}/{BEGUN}"), type=Begun)
        except NotFound:  # deleted since it was listed
            continue
        except msgspec.DecodeError:  # not a backup, or one of another release: not ours to touch
            continue
    cached.clear()
    cached.update(finished)
    ours = sorted((one for one in finished.values() if store_id in (None, one.begun.store_id)), key=_order)
    rest = [one for name, one in begun.items() if name not in finished and store_id in (None, one.store_id)]
    return Catalogue(tuple(ours), tuple(sorted(rest, key=lambda one: one.begun_at)))


def _order(one: Finished) -> tuple[int, str]:
    return one.begun.begun_at, one.id


def read_manifest(place: Place, backup: str) -> Manifest:
    """Raises NotFound for a backup that is not there or not finished, DecodeError."""
    return msgspec.json.decode(read(place, f"{backup}/{MANIFEST}"), type=Manifest)


def delete(place: Place, backup: str) -> None:
    """The manifest goes first and what says that it was begun last: what a crash leaves is gone through next time."""
    place.delete([f"{backup}/{MANIFEST}"])
    for folder in (FILES, SHARDS):
        place.clear(f"{backup}/{folder}")
    place.delete([f"{backup}/{BEGUN}"])
