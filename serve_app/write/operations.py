"""What can be asked of a writer: append, edit, delete, erase, facts, summaries, vectors.

Each operation reads its owner's block, refuses what cannot be done, and drafts records. Retries
are safe: a turn with an id that is there already is a duplicate, or refused if it says something else.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from serve_app.core import Fact, Summary, ToolCall, Turn
from serve_app.errors import InvalidRequest, NotFound
from serve_app.records import (
    Erasure,
    ErasureDone,
    FactGone,
    FactPut,
    SessionGone,
    SummaryPut,
    TurnGone,
    TurnPut,
    TurnVectors,
    UserGone,
    VectorsPut,
)
from serve_app.stores.block import Block
from serve_app.write.commit import Draft, Operation

MICROSECONDS = 1_000_000

WEIGHT_BYTES = 16_384
"""A turn weighs one more for each so many bytes, so that the queue is bounded in memory, too."""

_ids = random.Random()
"""Seeded by the system once: asking it for each turn costs a call that lets go of the interpreter's lock."""


class NewTurn(msgspec.Struct, frozen=True):
    """A turn as it is asked for: checked, but without its place in the log."""

    role: Literal["user", "assistant", "system", "tool"]
    content: str = ""
    id: str | None = None
    created_at: int | None = None
    offset_minutes: int = 0
    speaker: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    data: bytes | None = None
    metadata: dict[str, Any] | None = None
    ttl_seconds: int | None = None


class ItemResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one turn of an append."""

    id: str
    seq: int | None
    status: Literal["stored", "duplicate", "rejected"]
    error: str | None = None


class AppendTurns(Operation):
    exclusive = False

    def __init__(
        self,
        owner: str,
        session: str,
        turns: Sequence[NewTurn],
        repeats: Callable[[Turn, NewTurn], bool] | None = None,
    ) -> None:
        """`repeats` tells whether a turn that comes again is the stored one; by default both must say the same."""
        self.owner, self.session, self.turns = owner, session, turns
        self._repeats = repeats or says_the_same
        self.weight = sum(1 + (len(turn.content) + len(turn.data or b"")) // WEIGHT_BYTES for turn in turns)

    def prepare(self, draft: Draft) -> list[ItemResult]:
        stored = self._stored(draft)
        return [self._append(draft, stored, turn) for turn in self.turns]

    def _stored(self, draft: Draft) -> dict[str, Turn]:
        """The stored turns that these would repeat, by id; read at once, since they may lie in the table."""
        block = draft.shard.block(self.owner)
        found = {block.find(self.session, turn.id) for turn in self.turns if turn.id is not None}
        seqs = [seq for seq in found if seq is not None]
        return {turn.id: turn for turn in draft.shard.turns(self.owner, seqs)} if seqs else {}

    def _append(self, draft: Draft, stored: Mapping[str, Turn], new: NewTurn) -> ItemResult:
        existing = self._existing(draft, stored, new.id)
        if new.id is not None and existing is not None:
            if self._repeats(existing, new):
                return ItemResult(new.id, existing.seq, "duplicate")
            return ItemResult(new.id, existing.seq, "rejected", "id_conflict: this id is stored with other content")
        turn = self._turn(draft, new)
        draft.add(TurnPut(self.owner, turn))
        return ItemResult(turn.id, turn.seq, "stored")

    def _existing(self, draft: Draft, stored: Mapping[str, Turn], turn_id: str | None) -> Turn | None:
        """The turn that has this id. One that has expired is there for nobody: it goes, and leaves its id."""
        if turn_id is None:
            return None
        turn = draft.new_turns.get((self.owner, self.session, turn_id)) or stored.get(turn_id)
        if turn is None or turn.seq in draft.gone_turns:
            return None
        if not turn.expired(draft.now):
            return turn
        draft.add(TurnGone(draft.seq(), self.owner, self.session, turn_id, turn.seq))
        return None

    def _turn(self, draft: Draft, new: NewTurn) -> Turn:
        seq = draft.seq()
        created_at = draft.now if new.created_at is None else new.created_at
        return Turn(
            id=new.id or f"t-{_ids.getrandbits(128):032x}",
            session=self.session,
            role=new.role,
            content=new.content,
            seq=seq,
            rev=seq,
            arrived_at=draft.now,
            created_at=created_at,
            offset_minutes=new.offset_minutes,
            speaker=new.speaker,
            tool_calls=new.tool_calls,
            tool_call_id=new.tool_call_id,
            tool_name=new.tool_name,
            data=new.data,
            metadata=new.metadata,
            expires_at=None if new.ttl_seconds is None else created_at + new.ttl_seconds * MICROSECONDS,
        )


def says_the_same(stored: Turn, new: NewTurn) -> bool:
    """Whether a turn sent again is the stored one. Times and metadata may differ: retries fill them in anew."""
    return (stored.role, stored.content, stored.data, stored.tool_calls) == (
        new.role,
        new.content,
        new.data,
        new.tool_calls,
    )


def stored_turn(draft: Draft, block: Block, session: str, turn_id: str) -> Turn | None:
    """The turn as it stands, whether its content is resident or in the table."""
    seq = block.find(session, turn_id)
    return None if seq is None else next(iter(draft.shard.turns(block.key, [seq])), None)


class EditTurn(Operation):
    """Replace the content, the metadata, or both; the turn keeps its place."""

    def __init__(
        self, owner: str, session: str, turn_id: str, content: str | None, metadata: dict[str, Any] | None
    ) -> None:
        self.owner, self.session, self.turn_id = owner, session, turn_id
        self.content, self.metadata = content, metadata

    def prepare(self, draft: Draft) -> Turn:
        turn = stored_turn(draft, draft.shard.block(self.owner), self.session, self.turn_id)
        if turn is None or turn.expired(draft.now):
            raise NotFound("no such turn")
        changes: dict[str, Any] = {"rev": draft.seq()}
        if self.content is not None:
            changes["content"] = self.content
        if self.metadata is not None:
            changes["metadata"] = self.metadata
        edited = msgspec.structs.replace(turn, **changes)
        draft.add(TurnPut(self.owner, edited))
        return edited


class DeleteTurn(Operation):
    def __init__(self, owner: str, session: str, turn_id: str) -> None:
        self.owner, self.session, self.turn_id = owner, session, turn_id

    def prepare(self, draft: Draft) -> int:
        seq = draft.shard.block(self.owner).find(self.session, self.turn_id)
        if seq is None:
            raise NotFound("no such turn")
        draft.add(TurnGone(draft.seq(), self.owner, self.session, self.turn_id, seq))
        return 1


class DeleteSession(Operation):
    def __init__(self, owner: str, session: str) -> None:
        self.owner, self.session = owner, session

    def prepare(self, draft: Draft) -> int:
        session = draft.shard.block(self.owner).sessions.get(self.session)
        if session is None:
            return 0
        draft.add(SessionGone(draft.seq(), self.owner, self.session))
        return len(session.seqs)


class EraseUser(Operation):
    def __init__(self, owner: str, tenant: str) -> None:
        self.owner, self.tenant = owner, tenant

    def prepare(self, draft: Draft) -> Erasure:
        block = draft.shard.block(self.owner)
        counts = {
            "turns": block.total_turns,
            "vectors": sum(parts for _, parts in block.vectors.values()),
            "facts": len(block.facts),
            "summaries": sum(map(len, block.summaries.values())),
            "cold": 0,
            "log_records": draft.shard.tail_of(self.owner),
        }
        identifier = f"er-{draft.shard.number}-{uuid.uuid4().hex}"
        erasure = Erasure(id=identifier, tenant=self.tenant, requested_at=draft.now, state="running", counts=counts)
        draft.add(UserGone(draft.seq(), self.owner, erasure))
        return erasure


class CloseErasure(Operation):
    """Say that nothing of the erased user is left in any file of the store."""

    def __init__(self, erasure: Erasure) -> None:
        self.owner, self.erasure = "", erasure

    def prepare(self, draft: Draft) -> Erasure:
        done = msgspec.structs.replace(self.erasure, state="done", completed_at=draft.now)
        draft.add(ErasureDone(draft.seq(), self.owner, done))
        return done


class PutFact(Operation):
    def __init__(self, owner: str, key: str, value: str, entity_class: str | None, life_s: int | None) -> None:
        self.owner, self.key, self.value = owner, key, value
        self.entity_class, self.life_s = entity_class, life_s

    def prepare(self, draft: Draft) -> Fact:
        expires_at = None if self.life_s is None else draft.now + self.life_s * MICROSECONDS
        fact = Fact(self.key, self.value, draft.seq(), draft.now, self.entity_class, expires_at)
        draft.add(FactPut(self.owner, fact))
        return fact


class DeleteFact(Operation):
    def __init__(self, owner: str, key: str) -> None:
        self.owner, self.key = owner, key

    def prepare(self, draft: Draft) -> int:
        if self.key not in draft.shard.block(self.owner).facts:
            raise NotFound("no such fact")
        draft.add(FactGone(draft.seq(), self.owner, self.key))
        return 1


class PutSummary(Operation):
    """Store a summary, unless what it was made from has been edited or erased meanwhile."""

    def __init__(self, owner: str, summary: Summary, read_at: int) -> None:
        self.owner, self.summary, self.read_at = owner, summary, read_at

    def prepare(self, draft: Draft) -> Summary:
        block = draft.shard.block(self.owner)
        if block.changed_seq > self.read_at or self.summary.session not in block.sessions:
            raise InvalidRequest("the session has changed since this summary was made")
        summary = msgspec.structs.replace(self.summary, seq=draft.seq())
        draft.add(SummaryPut(self.owner, summary))
        return summary


class PutVectors(Operation):
    """Record vectors; those of turns that were edited or erased meanwhile are left out."""

    exclusive = False

    def __init__(self, owner: str, version: str, items: Sequence[TurnVectors]) -> None:
        self.owner, self.version, self.items = owner, version, items

    def prepare(self, draft: Draft) -> int:
        wanted = [item for item in self.items if draft.shard.awaits(item.turn_seq, self.owner, item.rev)]
        live = tuple(item for item in wanted if item.turn_seq not in draft.gone_turns)
        if live:
            draft.add(VectorsPut(draft.seq(), self.owner, self.version, live))
        return len(live)
