"""Asked of a writer: the erasure of a user, and its end."""

from __future__ import annotations

import uuid

import msgspec

from serve_app.core import ROWS_PER_TURN_MAX
from serve_app.records import Erasure, ErasureDone, UserGone
from serve_app.stores.block import Block
from serve_app.stores.rows import pseudonym
from serve_app.write.commit import Draft, Operation
from serve_app.write.shard import Shard


class EraseUser(Operation):
    def __init__(self, owner: str, tenant: str) -> None:
        self.owner, self.tenant = owner, tenant

    def prepare(self, draft: Draft) -> Erasure:
        block = draft.shard.block(self.owner)
        counts = {
            "turns": block.total_turns,
            "vectors": _vectors_of(draft.shard, block),
            "facts": len(block.facts),
            "summaries": sum(map(len, block.summaries.values())),
            "cold": block.moved.cold,
            "log_records": draft.shard.tail_of(self.owner),
        }
        identifier = f"er-{draft.shard.number}-{uuid.uuid4().hex}"
        erasure = Erasure(
            id=identifier,
            tenant=self.tenant,
            requested_at=draft.now,
            state="running",
            counts=counts,
            subject=pseudonym(self.owner),
        )
        draft.add(UserGone(draft.seq(), self.owner, erasure))
        return erasure


def _vectors_of(shard: Shard, block: Block) -> int:
    """Of all turns of an owner, resident or not: those of the others lie in the table or come with the tail."""
    resident = block.vectors.count()
    if len(block.turns) == block.total_turns:
        return resident
    stored = shard.vector_rows(block.key)
    return resident + sum(row // ROWS_PER_TURN_MAX not in block.turns for _, row in stored)


class RenewErasure(Operation):
    """Say again that it is running, by its pseudonym: the segment that names the user is no longer the newest."""

    def __init__(self, erasure: Erasure) -> None:
        self.owner, self.erasure = "", erasure

    def prepare(self, draft: Draft) -> None:
        draft.add(ErasureDone(draft.seq(), self.owner, self.erasure))


class CloseErasure(Operation):
    """Say that nothing of the erased user is left in any file of the store."""

    def __init__(self, erasure: Erasure) -> None:
        self.owner, self.erasure = "", erasure

    def prepare(self, draft: Draft) -> Erasure:
        done = msgspec.structs.replace(self.erasure, state="done", completed_at=draft.now)
        draft.add(ErasureDone(draft.seq(), self.owner, done))
        return done
