"""Asked of a writer: what was made from turns, unless they have changed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from serve_app.core import Summary
from serve_app.errors import InvalidRequest
from serve_app.records import SummaryPut, TurnVectors, VectorsPut, VersionVectors
from serve_app.write.commit import Draft, Operation


class PutSummary(Operation):
    """Store a summary, unless something of its session has been edited or erased since `read_at`."""

    def __init__(self, owner: str, summary: Summary, read_at: int) -> None:
        self.owner, self.summary, self.read_at = owner, summary, read_at

    def prepare(self, draft: Draft) -> Summary:
        block = draft.shard.block(self.owner)
        index = block.sessions.get(self.summary.session)
        if index is None or index.changed_seq > self.read_at or index.seqs[0] > self.read_at:
            raise InvalidRequest("the session has changed since this summary was made")
        summary = msgspec.structs.replace(self.summary, seq=draft.seq())
        draft.add(SummaryPut(self.owner, summary))
        return summary


class PutVectors(Operation):
    """Record the vectors of some turns, of each turn those of all its versions: of the base's, or, `beside`, of those
    that are made apart.

    Turns that were edited or erased meanwhile are left out, and so are versions that are not held.
    """

    exclusive = False

    def __init__(self, owner: str, versions: Sequence[VersionVectors], beside: bool = False) -> None:
        self.owner, self.versions, self.beside = owner, versions, beside

    def prepare(self, draft: Draft) -> int:
        """Gives the number of turns."""
        awaited = draft.shard.apart if self.beside else draft.shard.pending
        if awaited is None:
            return 0

        def wanted(item: TurnVectors) -> bool:
            return item.turn_seq not in draft.gone_turns and awaited.awaits(item.turn_seq, self.owner, item.rev)

        held = [one for one in self.versions if draft.shard.holds_version(one.version)]
        live = [VersionVectors(one.version, tuple(filter(wanted, one.items))) for one in held]
        if not any(one.items for one in live):
            return 0
        record = VectorsPut.of(draft.seq(), self.owner, live, beside=self.beside)
        assert record is not None
        draft.add(record)
        return len(record.of_turns())
