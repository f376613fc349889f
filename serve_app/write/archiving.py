"""Keeping the archives of large users: made from the table, in bounded parts, by the housekeeper.

A user is large where the block does not hold all turns. The archive follows the folds, so that what the block lets go
is in it already. A volume in which turns have gone or changed is made anew, so that their words and vectors leave
memory, too. Volumes grow by powers of two up to a bound: a turn is read again a few times, however many there are.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import numpy as np

from serve_app.records import TurnPut, VectorsPut
from serve_app.stores.archive import REVISED_MAX, Archive, living_seqs
from serve_app.stores.block import Block
from serve_app.stores.rough import QUANTISED_FROM
from serve_app.stores.volume import Volume, ready_before, volume_of
from serve_app.write.commit import ShardWriter
from serve_app.write.shard import Shard

VOLUME_TURNS_MAX: Final = 65_536
"""Turns of one volume: it is made in about two seconds, for which folds wait, from some 100 MB that are read."""

LARGER: Final = 2
"""A volume is merged into the one before it unless that is larger by more than this."""

EXTENDED_AT: Final = 4
"""The archive is extended when the part of one in so many of the block's bound is not in it."""

RENEWED_EVERY_S: Final = 30.0
"""Between two looks at volumes in which turns have gone or changed: as long as between two purges of the table."""


class Round(NamedTuple):
    """When an owner's volumes were looked at last, and the state that those of a round under way are brought to.

    `late`: the newest record whose vectors the volumes lacked when the last round began.
    """

    at: float
    target: int | None
    late: int = 0
    refill: bool = False
    """What came apart has come to rest: volumes that lack it are made anew."""


class Archiver:
    """A `Duty` of the housekeeper."""

    name = "archive"

    def __init__(
        self,
        every_s: float = 1.0,
        volume_turns_max: int = VOLUME_TURNS_MAX,
        renewed_every_s: float = RENEWED_EVERY_S,
        quantised_from: int = QUANTISED_FROM,
    ) -> None:
        self.every_s = every_s
        self._volume_turns_max = volume_turns_max
        self._quantised_from = quantised_from
        self._renewed_every_s = renewed_every_s
        self._rounds: dict[int, dict[str, Round]] = {}  # by shard, and owner

    def tend(self, number: int, writer: ShardWriter) -> bool:
        """Make one volume, if one is due; gives whether another may be."""
        return self.tend_shard(writer.shard)

    def tend_shard(self, shard: Shard) -> bool:
        blocks = shard.blocks()
        for owner in shard.archives.held():
            if owner in blocks and blocks[owner].complete:
                shard.archives.drop(owner)
        rounds = self._rounds.setdefault(shard.number, {})
        for owner in rounds.keys() - blocks.keys():
            del rounds[owner]
        return any(self._tend_owner(shard, owner, block) for owner, block in blocks.items() if not block.complete)

    def _tend_owner(self, shard: Shard, owner: str, block: Block) -> bool:
        archive = shard.archives.open(owner, block.total_turns)
        if archive is None:
            return False
        done = self._extended(shard, owner, block, archive) or self._renewed(shard, owner, block, archive)
        if done:
            shard.archives.trim(owner)
        return done

    # ---- parts

    def _extended(self, shard: Shard, owner: str, block: Block, archive: Archive) -> bool:
        """A volume of what the table holds after the archive, or the last two merged."""
        with block.lock:
            living, volumes = living_seqs(block), archive.volumes
            if not volumes and not _edits_noted(shard, owner, archive):
                return False
            cleared = archive.cleared
        later = living[np.searchsorted(living, archive.through, "right") :]
        stored = later[: np.searchsorted(later, shard.folded_seq, "right")]
        if len(stored) < max(1, shard.owner_turns_resident // EXTENDED_AT):
            return False
        old = _joined(volumes, len(stored), self._volume_turns_max)
        first = int(old[0].seqs[0] if old else stored[0])
        kept = sum(len(volume.seqs) for volume in old)
        last = int(stored[: self._volume_turns_max - kept][-1])
        made = self._read(shard, owner, first, last, archive.through, whole=False)
        if made is None:
            return False
        with block.lock:
            if archive.cleared == cleared:
                archive.replace(old, [made])
                _note_late(shard, owner, archive, made)
        return True

    def _renewed(self, shard: Shard, owner: str, block: Block, archive: Archive) -> bool:
        """One volume anew that holds what has gone or changed. A round takes each that is outdated when it begins."""
        now, rounds = time.monotonic(), self._rounds.setdefault(shard.number, {})
        since = rounds.get(owner, Round(0.0, None))
        if since.target is None:
            if now - since.at < self._renewed_every_s:
                return False
            since = _begun(shard, block, archive, since)
        with block.lock:
            _let_go(archive, {version.name for version in shard.versions})
            outdated, cleared = archive.outdated(block), archive.cleared
            if since.refill:
                outdated += archive.behind([version.name for version in shard.versions])
        old = next((one for one in outdated if one.state_seq < (since.target or 0)), None)
        rounds[owner] = since._replace(at=now, target=None if old is None else since.target)
        if old is None:
            return False
        made = self._read(shard, owner, int(old.seqs[0]), int(old.seqs[-1]), int(old.seqs[0]) - 1, whole=True)
        with block.lock:
            if archive.cleared == cleared:
                archive.replace([old], [] if made is None else [made])
        return True

    def _read(self, shard: Shard, owner: str, first: int, last: int, through: int, *, whole: bool) -> Volume | None:
        """The turns between two seqs as the table has them; None where none are left.

        Unless `whole`, those after `through` only up to the first that waits for its vectors: that one comes later.
        """
        state_seq = shard.table.folded_seq()
        span = shard.table.span(owner, first, last)
        waiting = None if whole else ready_before(span.rows)
        if waiting is not None and waiting > through:
            span = span.until(waiting)
        if not span.rows.num_rows:
            return None
        made = volume_of(span, state_seq, self._quantised_from)
        return made if len(made.seqs) and (whole or made.seqs[-1] > through) else None


def _let_go(archive: Archive, held: set[str]) -> None:
    """Vectors of versions that the shard does not hold any more."""
    for one in archive.volumes:
        if one.vectors.keys() - held:
            kept = {name: vectors for name, vectors in one.vectors.items() if name in held}
            archive.replace([one], [one._replace(vectors=kept)])


def _begun(shard: Shard, block: Block, archive: Archive, last: Round) -> Round:
    """A new round. While vectors keep coming apart, as in a backfill, the volumes wait: each would be made again and
    again.
    """
    with block.lock:
        late = archive.last_late
    return Round(last.at, shard.folded_seq, late, refill=late == last.late)


def _note_late(shard: Shard, owner: str, archive: Archive, made: Volume) -> None:
    """Tell the archive what came apart for the turns of a volume while it was made: before, they were not of it."""
    if shard.tail_since(made.state_seq) is None:  # a fold has taken some of it: it may be anything
        for version in shard.table.beside:
            archive.late(version, made, shard.applied_seq)
    for record in shard.tail_records_of(owner):
        if isinstance(record, VectorsPut):
            archive.came(record)


def _edits_noted(shard: Shard, owner: str, archive: Archive) -> bool:
    """Tell an empty archive of edits that came before it was there. False where a fold has to take them first."""
    turns = [one.turn for one in shard.tail_records_of(owner) if isinstance(one, TurnPut)]
    edits = {turn.seq: turn for turn in turns if turn.rev != turn.seq}
    if len(edits) > REVISED_MAX:
        return False
    for turn in edits.values():
        archive.revise(turn)
    return True


def _joined(volumes: tuple[Volume, ...], size: int, size_max: int) -> tuple[Volume, ...]:
    """The last volumes that so many more turns are merged with: each that is not much larger than what is behind it."""
    at = len(volumes)
    while at and len(volumes[at - 1].seqs) <= min(LARGER * size, size_max - size):
        at -= 1
        size += len(volumes[at].seqs)
    return volumes[at:]
