"""What can be asked of a writer about turns: append, edit, delete; facts, erasures and what is derived lie beside.

Each operation reads its owner's block, refuses what cannot be done, and drafts records. Retries
are safe: a turn with an id that is there already is a duplicate, or refused if it says something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from serve_app import paths
from serve_app.core import SECOND_US, FieldExpiry, ToolCall, Turn
from serve_app.errors import InvalidRequest, NotFound, QuotaExceeded, StorageTrouble
from serve_app.records import (
    SessionGone,
    TurnGone,
    TurnPut,
)
from serve_app.stores.block import Block
from serve_app.stores.rows import Stub, said
from serve_app.write.commit import Draft, Operation

WEIGHT_BYTES = 16_384
"""A turn weighs one more for each so many bytes, so that the queue is bounded in memory, too."""

CONFLICT = "id_conflict: this id is stored with other content"
UNREAD = "store_unavailable: this id is that of a cold turn, which cannot be read now to compare them: send it again"

Stored = Mapping[str, tuple[int, Turn | Stub]]
"""Turns by id, with their seqs."""

_ids = random.Random()
"""Seeded by the system once: asking it for each turn costs a call that lets go of the interpreter's lock."""


class FieldLife(msgspec.Struct, frozen=True):
    """How long what a path names in `data` holds: in seconds, or as its entity class says."""

    path: str
    life: int | str


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
    field_lives: tuple[FieldLife, ...] = ()

    @property
    def classed(self) -> bool:
        """Whether an entity class is yet to be looked up."""
        return any(isinstance(field.life, str) for field in self.field_lives)

    def with_lives(self, life_of: Callable[[str], int | None]) -> NewTurn:
        """The turn with the seconds of its entity classes. Raises InvalidRequest for one that there is not."""
        named = [field.life for field in self.field_lives if isinstance(field.life, str)]
        classes = {name: life for name in named if (life := life_of(name)) is not None}
        if unknown := [name for name in named if name not in classes]:
            raise InvalidRequest(f"field_ttl: the policy `ttl` has no entity class {unknown[0]!r}")
        lives = [FieldLife(one.path, _seconds(one.life, classes)) for one in self.field_lives]
        return msgspec.structs.replace(self, field_lives=tuple(lives))

    def expires_at(self, created_at: int) -> int | None:
        return None if self.ttl_seconds is None else created_at + self.ttl_seconds * SECOND_US

    def fields_expire(self, created_at: int) -> tuple[FieldExpiry, ...]:
        """When each of its fields expires, once all entity classes have been looked up."""
        if not self.field_lives:
            return ()
        ends = [FieldExpiry(created_at + _seconds(one.life) * SECOND_US, one.path) for one in self.field_lives]
        return tuple(sorted(ends))

    def passing(self, turn_id: str, seq: int, now: int) -> Turn:
        """The turn as if it were stored, for a request that is answered from it alone. Without a time of its own it has
        just begun to live, at `now`.
        """
        created_at = now if self.created_at is None else self.created_at
        dated = self.created_at is not None
        return Turn(
            id=turn_id,
            session="",
            role=self.role,
            content=self.content,
            seq=seq,
            rev=seq,
            arrived_at=created_at,
            created_at=created_at,
            offset_minutes=self.offset_minutes,
            speaker=self.speaker,
            tool_calls=self.tool_calls,
            tool_call_id=self.tool_call_id,
            tool_name=self.tool_name,
            data=self.data,
            metadata=self.metadata,
            expires_at=self.expires_at(created_at) if dated else None,
            fields_expire=self.fields_expire(created_at) if dated else (),
        )


def _seconds(life: int | str, classes: Mapping[str, int] = MappingProxyType({})) -> int:
    return life if isinstance(life, int) else classes[life]


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
        repeats: Callable[[Turn | Stub, NewTurn], bool] | None = None,
        turns_max: int | None = None,
    ) -> None:
        """`repeats` tells whether a turn that comes again is the stored one; by default both must say the same.

        `turns_max`: how many the owner may hold.
        """
        self.owner, self.session, self.turns, self.turns_max = owner, session, turns, turns_max
        self._repeats = repeats or says_the_same
        self.weight = sum(1 + (len(turn.content) + len(turn.data or b"")) // WEIGHT_BYTES for turn in turns)

    def prepare(self, draft: Draft) -> list[ItemResult]:
        stored = self._with_cold_contents(draft, self._stored(draft))
        results = [self._append(draft, stored, turn) for turn in self.turns]
        if self.turns_max is not None and any(result.status == "stored" for result in results):
            self._require_room(draft, self.turns_max)
        return results

    def _require_room(self, draft: Draft, turns_max: int) -> None:
        """Raises QuotaExceeded where the owner would hold more. What is a duplicate takes no room."""
        new = sum(owner == self.owner for owner, _, _ in draft.new_turns)
        if draft.shard.block(self.owner).total_turns + new > turns_max:
            raise QuotaExceeded(f"this user may hold {turns_max} turns")

    def _stored(self, draft: Draft) -> Stored:
        """The stored turns that these would repeat, by id, with their seqs; read at once: they may lie in the table."""
        block = draft.shard.block(self.owner)
        ids = {turn.id: block.find(self.session, turn.id) for turn in self.turns if turn.id is not None}
        seqs = {seq: turn_id for turn_id, seq in ids.items() if seq is not None}
        held = draft.shard.held(self.owner, list(seqs)) if seqs else {}
        return {seqs[seq]: (seq, turn) for seq, turn in held.items()}

    def _with_cold_contents(self, draft: Draft, stored: Stored) -> Stored:
        """Contents in place of the stubs that do not tell: fields may have gone since, or the policy was another.

        The cold store is asked once, for no more than this append repeats. A stub stays where it does not answer.
        """
        pairs = [(stored[turn.id], turn) for turn in self.turns if turn.id is not None and turn.id in stored]
        doubtful = {
            seq
            for (seq, one), turn in pairs
            if isinstance(one, Stub) and not one.expired(draft.now) and not self._repeats(one, turn)
        }
        if not doubtful:
            return stored
        with suppress(StorageTrouble):
            return {**stored, **{turn.id: (turn.seq, turn) for turn in draft.shard.turns(self.owner, sorted(doubtful))}}
        return stored

    def _append(self, draft: Draft, stored: Stored, new: NewTurn) -> ItemResult:
        existing = self._existing(draft, stored, new.id)
        if new.id is not None and existing is not None:
            seq, turn_or_stub = existing
            if self._repeats(turn_or_stub, new):
                return ItemResult(new.id, seq, "duplicate")
            return ItemResult(new.id, seq, "rejected", UNREAD if isinstance(turn_or_stub, Stub) else CONFLICT)
        turn = self._turn(draft, new)
        draft.add(TurnPut(self.owner, turn))
        return ItemResult(turn.id, turn.seq, "stored")

    def _existing(self, draft: Draft, stored: Stored, turn_id: str | None) -> tuple[int, Turn | Stub] | None:
        """The turn that has this id. One that has expired is there for nobody: it goes, and leaves its id."""
        if turn_id is None:
            return None
        new = draft.new_turns.get((self.owner, self.session, turn_id))
        found = stored.get(turn_id) if new is None else (new.seq, new)
        if found is None or found[0] in draft.gone_turns:
            return None
        if not found[1].expired(draft.now):
            return found
        draft.add(TurnGone(draft.seq(), self.owner, self.session, turn_id, found[0]))
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
            expires_at=new.expires_at(created_at),
            fields_expire=new.fields_expire(created_at),
        )


def says_the_same(stored: Turn | Stub, new: NewTurn) -> bool:
    """Whether a turn sent again is the stored one. Times and metadata may differ: retries fill them in anew.

    What has expired of the stored one does not count.
    """
    if isinstance(stored, Stub):
        return stored.said == said(new.role, new.content, new.data, new.tool_calls)
    data = new.data
    if stored.fields_gone and data is not None and stored.data != data:
        data = paths.without(data, stored.fields_gone)
    return (stored.role, stored.content, stored.data, stored.tool_calls) == (
        new.role,
        new.content,
        data,
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
        turn = turn.at(draft.now)
        changes: dict[str, Any] = {"rev": draft.seq()}
        if self.content is not None:
            changes["content"] = "" if _is_written_out(turn, self.content) else self.content
        if self.metadata is not None:
            changes["metadata"] = self.metadata
        edited = msgspec.structs.replace(turn, **changes)
        draft.add(TurnPut(self.owner, edited))
        return edited


def _is_written_out(turn: Turn, content: str) -> bool:
    """Whether this is the turn's data as JSON: then it is rendered from them, and what expires there leaves it, too."""
    if turn.data is None:
        return False
    try:
        return paths.same(paths.parsed(content), paths.parsed(turn.data))
    except (msgspec.DecodeError, RecursionError):
        return False


class DeleteTurn(Operation):
    def __init__(self, owner: str, session: str, turn_id: str) -> None:
        self.owner, self.session, self.turn_id = owner, session, turn_id

    def prepare(self, draft: Draft) -> int:
        """How many were there to be deleted: one that has expired goes, too, and does not count."""
        block = draft.shard.block(self.owner)
        seq = block.find(self.session, self.turn_id)
        if seq is None:
            raise NotFound("no such turn")
        draft.add(TurnGone(draft.seq(), self.owner, self.session, self.turn_id, seq))
        return int(block.expiring.get(seq, draft.now + 1) > draft.now)


class DeleteSession(Operation):
    def __init__(self, owner: str, session: str) -> None:
        self.owner, self.session = owner, session

    def prepare(self, draft: Draft) -> int:
        session = draft.shard.block(self.owner).sessions.get(self.session)
        if session is None:
            return 0
        draft.add(SessionGone(draft.seq(), self.owner, self.session))
        return len(session.seqs)
