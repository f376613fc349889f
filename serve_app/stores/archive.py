"""What is known of all turns of one large user in this process, and the archives of all of them within a bound.

A block holds the newest turns whole. The archive holds volumes of all turns up to a seq (`through`), resident or not,
without their content; with the block's turns after it they are all there are. It is made from the table in the
background (`write/archiving.py`) and derives from it alone: where it is not there, or not complete, the tables are
searched instead. Nothing of it is in any file.

Whoever uses an archive holds the lock of the owner's block.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.records import VectorsPut
from serve_app.stores.block import Block
from serve_app.stores.field import Base, Field, base_of, field_of
from serve_app.stores.volume import Volume

ARCHIVE_BYTES_MAX: Final = 512 << 20
"""Of all archives of a process: some 480,000 turns with vectors of 384 components. Over it the one that was used
longest ago goes, and one that alone is larger is not made."""

BYTES_A_TURN: Final = 1_100
"""About what a turn takes in an archive, at 384 components and 25 words."""

REVISED_MAX: Final = 1_024
"""Edited turns that are held whole until their volumes are made anew; with more the archive begins again."""


class Archive:
    def __init__(self, volumes: Sequence[Volume] = ()) -> None:
        self.volumes = tuple(volumes)
        self.revised: dict[int, Turn] = {}
        """Turns of the volumes in a later state than theirs, by seq."""
        self._late: dict[tuple[str, int], int] = {}
        """By version and the last seq of a volume, the last record that brought vectors of its turns apart from the
        rest, and that it was made without."""
        self.cleared = 0
        """Changes when the archive begins again: a volume that was read before has missed edits then."""
        self._base: tuple[tuple[Volume, ...], tuple[int, int, int], Base] | None = None
        self._field: tuple[Base, tuple[int, int], Field] | None = None

    @property
    def through(self) -> int:
        """The seq of the last turn of the volumes."""
        return int(self.volumes[-1].seqs[-1]) if self.volumes else 0

    @property
    def turns(self) -> int:
        return sum(len(volume.seqs) for volume in self.volumes)

    @property
    def bytes(self) -> int:
        return sum(volume.bytes for volume in self.volumes)

    def revise(self, turn: Turn) -> None:
        """A turn was edited. Whether it is one of the volumes shows when it is looked for."""
        self.revised[turn.seq] = turn
        if len(self.revised) > REVISED_MAX:
            self.volumes, self.revised, self._late = (), {}, {}
            self.cleared += 1
            self._base = self._field = None

    def came(self, record: VectorsPut) -> None:
        """Vectors came. Volumes lack them whose turns they are of, if they came apart: a turn is in no volume before
        the others. An edited turn counts by its words until its volume is made anew.
        """
        if not record.beside:
            return
        for made in record.versions:
            for item in made.items:
                volume = self._holding(item.turn_seq)
                if volume is not None and item.turn_seq not in self.revised:
                    self.late(made.version, volume, record.seq)

    def late(self, version: str, volume: Volume, seq: int) -> None:
        """The volume may lack vectors of this version that this record brought."""
        key = version, int(volume.seqs[-1])
        self._late[key] = max(seq, self._late.get(key, 0))

    @property
    def last_late(self) -> int:
        """The newest record whose vectors some volume may lack; 0 for none."""
        return max(self._late.values(), default=0)

    def whole(self, version: str) -> bool:
        """Whether the volumes have the vectors of this version that there are."""
        return not any(self._behind(volume, version) for volume in self.volumes)

    def behind(self, versions: Collection[str]) -> list[Volume]:
        """Volumes that may lack vectors of these versions."""
        return [volume for volume in self.volumes if any(self._behind(volume, version) for version in versions)]

    def _behind(self, volume: Volume, version: str) -> bool:
        return version not in volume.vectors or (version, int(volume.seqs[-1])) in self._late

    def _holding(self, seq: int) -> Volume | None:
        """The volume whose range a turn falls into; None after the last."""
        return next((volume for volume in self.volumes if seq <= volume.seqs[-1]), None)

    def replace(self, old: Sequence[Volume], new: Sequence[Volume]) -> None:
        """Other volumes in the place of neighbouring ones; of none, at the end."""
        at = next((at for at, volume in enumerate(self.volumes) if old and volume is old[0]), len(self.volumes))
        self.volumes = (*self.volumes[:at], *new, *self.volumes[at + len(old) :])
        for volume in new:
            of_it = [seq for seq in self.revised if len(volume.seqs) and volume.seqs[0] <= seq <= volume.seqs[-1]]
            for seq in of_it:
                if self.revised[seq].rev <= volume.state_seq:
                    del self.revised[seq]
        known, self._late = self._late, {}
        for (version, last), seq in known.items():
            holding = self._holding(last)
            if holding is not None and (seq > holding.state_seq or not any(holding is one for one in new)):
                self.late(version, holding, seq)
        self._base = self._field = None

    def field(self, block: Block) -> Field | None:
        """All of the owner's turns that are not cold; None where volumes and block together are not all of them."""
        if not self.volumes:
            return None
        base = self._living(block)
        newest = len(block.columns.seqs), block.applied_seq
        if self._field is None or self._field[0] is not base or self._field[1] != newest:
            self._field = base, newest, field_of(base, block.columns)
        found = self._field[2]
        return found if found.alive_count == block.total_turns - block.moved.cold else None

    def _living(self, block: Block) -> Base:
        """Made again where volumes, or turns of them, have come or gone."""
        state = block.changed_seq, block.moved.cold, len(self.revised)
        if self._base is None or self._base[0] is not self.volumes or self._base[1] != state:
            living = living_seqs(block)
            for seq in self.revised.keys() - set(living.tolist()):
                del self.revised[seq]
            state = block.changed_seq, block.moved.cold, len(self.revised)
            self._base = self.volumes, state, base_of(self.volumes, living, self.revised)
        return self._base[2]

    def outdated(self, block: Block) -> list[Volume]:
        """Volumes that hold what has gone or changed since, or that lack vectors."""
        living = living_seqs(block)
        return [one for one in self.volumes if one.lacking or self._differs(one, living)]

    def _differs(self, volume: Volume, living: NDArray[np.int64]) -> bool:
        first, last = int(volume.seqs[0]), int(volume.seqs[-1])
        here = living[np.searchsorted(living, first) : np.searchsorted(living, last, "right")]
        return len(here) != len(volume.seqs) or any(first <= seq <= last for seq in self.revised)


def living_seqs(block: Block) -> NDArray[np.int64]:
    """Of the owner's turns that are not cold, ascending."""
    seqs = itertools.chain.from_iterable(block.moved.without_cold(session.seqs) for session in block.sessions.values())
    return np.sort(np.fromiter(seqs, np.int64))


class Archives:
    """Those of all owners in this process."""

    def __init__(self, bytes_max: int = ARCHIVE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._of_owners: OrderedDict[str, Archive] = OrderedDict()

    def of(self, owner: str) -> Archive | None:
        if owner not in self._of_owners:
            return None
        with self._lock:
            if owner in self._of_owners:
                self._of_owners.move_to_end(owner)
            return self._of_owners.get(owner)

    def open(self, owner: str, turns: int) -> Archive | None:
        """The owner's archive, if only an empty one; None where so many turns would not fit."""
        if turns * BYTES_A_TURN > self._bytes_max:
            self.drop(owner)
            return None
        with self._lock:
            return self._of_owners.setdefault(owner, Archive())

    def trim(self, kept: str) -> None:
        """Let those that were used longest ago go, but for one, until the others are within the bound."""
        with self._lock:
            held = sum(archive.bytes for archive in self._of_owners.values())
            for owner in list(self._of_owners):
                if held <= self._bytes_max:
                    break
                if owner != kept:
                    held -= self._of_owners.pop(owner).bytes

    def drop(self, owner: str) -> None:
        with self._lock:
            self._of_owners.pop(owner, None)

    def held(self) -> Mapping[str, Archive]:
        with self._lock:
            return dict(self._of_owners)
