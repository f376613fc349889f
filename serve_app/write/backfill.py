"""Vectors of what was written before a migration began, made by a job from what it read some time ago.

Promises that only turns that are there now, in the very state that was embedded, get them: a turn that was edited,
erased or went cold since the job read it is left out, and counted. Nobody's block is loaded for it: what the tables
know of the turns is read before, what came since is in the tail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import numpy as np

from serve_app.core import OWNER_SEPARATOR, ROWS_PER_TURN_MAX, EmbeddingVersion
from serve_app.errors import InvalidRequest, Overloaded, StoreUnavailable
from serve_app.ports import TOKEN_DIMENSION
from serve_app.records import (
    Record,
    SessionGone,
    TurnGone,
    TurnPut,
    TurnsMoved,
    TurnVectors,
    UserGone,
    VectorsPut,
    VersionVectors,
)
from serve_app.stores.packing import DIGEST_BYTES, PACKED_BYTES
from serve_app.stores.rows import COLD, HOT, TurnState
from serve_app.write.commit import Draft, Operation, ShardWriter

ITEMS_MAX: Final = 4_096
"""Turns of one unit."""

UNIT_BYTES_MAX: Final = 64 << 20
"""Of vectors and tokens in one unit."""

TOKENS_MAX: Final = 1 << 20
"""Bytes of the tokens of one turn."""

LENGTH_OFF: Final = 0.01
"""By how much the length of a vector may be off 1: float16 rounds. A text without words has a vector of length 0."""

TAIL_BYTES_MAX: Final = 256 << 20
"""Vectors in the tail of a shard beyond which a job has to wait for the fold."""

READ_ATTEMPTS: Final = 5
"""A unit whose look at the tables is overtaken by a fold is looked at again so often, then between two folds."""

NOBODY: Final = f"{OWNER_SEPARATOR}backfill"
"""In the place of an owner: a unit has many, and waits for none. No tenant has an empty name."""


class BackfillItem(msgspec.Struct, frozen=True, array_like=True):
    """The vectors of one turn, and the state of it that they were made of."""

    owner: str
    made: TurnVectors


class Written(NamedTuple):
    """What became of the turns of a unit."""

    written: int = 0
    stale: int = 0
    gone: int = 0
    cold: int = 0


class Overtaken(Exception):
    """A fold has gone past what was read of the tables."""


def checked(version: EmbeddingVersion, items: Sequence[BackfillItem]) -> None:
    """Raises InvalidRequest where these are no vectors of this version."""
    if len(items) > ITEMS_MAX:
        raise InvalidRequest(f"items: {len(items)} turns; a unit has at most {ITEMS_MAX}")
    if sum(len(one.made.vectors) + len(one.made.tokens) for one in items) > UNIT_BYTES_MAX:
        raise InvalidRequest(f"items: a unit has at most {UNIT_BYTES_MAX} bytes")
    if len({one.made.turn_seq for one in items}) < len(items):
        raise InvalidRequest("items: a turn stands in it twice")
    for place, item in enumerate(items):
        if (fault := _fault(version, item.made)) is not None:
            raise InvalidRequest(f"items[{place}]: {fault}")


def _fault(version: EmbeddingVersion, made: TurnVectors) -> str | None:
    size = version.dimension * PACKED_BYTES
    parts, odd = divmod(len(made.vectors), size)
    if odd or not parts:
        return f"{len(made.vectors)} bytes are no vectors of {version.dimension} float16 each"
    if parts > ROWS_PER_TURN_MAX:
        return f"{parts} vectors; a turn has at most {ROWS_PER_TURN_MAX}"
    vectors = np.frombuffer(made.vectors, "<f2").reshape(parts, version.dimension).astype(np.float32)
    if not np.isfinite(vectors).all():
        return "a vector has a component that is not finite"
    lengths = np.linalg.norm(vectors, axis=1)
    if version.normalised and not ((lengths == 0) | (np.abs(lengths - 1) < LENGTH_OFF)).all():
        return "a vector has another length than 1"
    if len(made.digest) not in (0, DIGEST_BYTES):
        return f"{len(made.digest)} bytes are no digest of a text"
    if len(made.tokens) % TOKEN_DIMENSION or len(made.tokens) > TOKENS_MAX:
        return f"{len(made.tokens)} bytes are no vectors of tokens"
    return None


class PutBackfill(Operation):
    """Record those of a unit's vectors whose turns are as they were embedded; gives what became of all of them.

    `folded_seq` and `standing`: what the tables said of the turns, and up to which record they had it from.
    Raises Overtaken where they say more by now: see `put_backfill`.
    """

    owner = NOBODY
    exclusive = False

    def __init__(
        self, version: str, items: Sequence[BackfillItem], folded_seq: int, standing: Mapping[int, TurnState]
    ) -> None:
        self.version, self.items = version, items
        self._folded_seq, self._standing = folded_seq, standing
        self.weight = max(1, len(items))

    def prepare(self, draft: Draft) -> Written:
        shard = draft.shard
        if not shard.holds_version(self.version):
            raise InvalidRequest(f"version: the store holds no vectors of {self.version!r}")
        if shard.tail_bytes > TAIL_BYTES_MAX:
            raise Overloaded("the tables do not take vectors as fast as they come")
        tail = shard.tail_since(self._folded_seq)
        if tail is None:
            raise Overtaken
        standing = _brought_up(self._standing, {one.made.turn_seq for one in self.items}, (*tail, *draft.records))
        live: dict[str, list[TurnVectors]] = {}
        stale = gone = cold = 0
        for owner, made in ((one.owner, one.made) for one in self.items):
            now = standing.get(made.turn_seq)
            if now is None or (now.owner, now.session) != (owner, made.session):
                gone += 1
            elif now.tier == COLD:
                cold += 1
            elif now.rev != made.rev:
                stale += 1
            else:
                live.setdefault(owner, []).append(made)
        for owner, theirs in live.items():
            versions = [VersionVectors(self.version, tuple(theirs))]
            record = VectorsPut.of(draft.seq(), owner, versions, beside=True)
            assert record is not None
            draft.add(record)
        return Written(sum(map(len, live.values())), stale, gone, cold)


def put_backfill(writer: ShardWriter, version: str, items: Sequence[BackfillItem], wait_s: float = 30.0) -> Written:
    """Have a unit recorded: durable when this returns. For a thread that may block.

    Raises InvalidRequest for what is no unit of a version that is held, Overloaded, StorageTrouble.
    """
    shard = writer.shard
    held = next((one for one in shard.versions if one.name == version), None)
    if held is None:
        raise InvalidRequest(f"version: the store holds no vectors of {version!r}")
    checked(held, items)
    for _ in range(READ_ATTEMPTS):
        with suppress(Overtaken):
            return _put_once(writer, version, items, wait_s)
    try:
        with shard.merging:
            return _put_once(writer, version, items, wait_s)
    except Overtaken:
        raise StoreUnavailable("the tables change while nobody but this writer should change them") from None


def _put_once(writer: ShardWriter, version: str, items: Sequence[BackfillItem], wait_s: float) -> Written:
    """Raises Overtaken, and StoreUnavailable where the writer does not come to it: it may do it all the same later."""
    shard = writer.shard
    folded_seq = shard.folded_seq
    standing = shard.reads.states(sorted(one.made.turn_seq for one in items))
    try:
        written, _ = writer.submit(PutBackfill(version, items, folded_seq, standing)).result(wait_s)
    except TimeoutError:
        raise StoreUnavailable(f"the writer did not come to it within {wait_s:g} s") from None
    assert isinstance(written, Written)
    return written


def _brought_up(
    standing: Mapping[int, TurnState], seqs: Collection[int], records: Iterable[Record]
) -> dict[int, TurnState]:
    """How these turns stand after the records, too."""
    found = dict(standing)
    for record in records:
        match record:
            case TurnPut(owner=owner, turn=turn) if turn.seq in seqs:
                found[turn.seq] = TurnState(owner, turn.session, turn.rev, HOT)
            case TurnGone(turn_seq=seq):
                found.pop(seq, None)
            case TurnsMoved(tier=tier, turn_seqs=moved):
                for seq in moved:
                    if seq in found:
                        found[seq] = found[seq]._replace(tier=tier)
            case SessionGone(owner=owner, session=session):
                for seq in [seq for seq, one in found.items() if one.owner == owner and one.session == session]:
                    del found[seq]
            case UserGone(owner=owner):
                for seq in [seq for seq, one in found.items() if one.owner == owner]:
                    del found[seq]
            case _:
                pass
    return found
