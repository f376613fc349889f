"""The values that every room speaks about. Owns no state, does no I/O, imports nothing of the project but `paths`.

Times are integers: microseconds since the Unix epoch, UTC. A turn keeps the offset that its sender
used, so that "Tuesday evening" stays Tuesday when its date is written out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from serve_app import paths

Role = Literal["user", "assistant", "system", "tool"]
Mode = Literal["hybrid", "dense", "lexical"]
Tier = Literal["hot", "warm", "cold"]
Level = Literal["full", "summary_only", "recent_only", "system_only"]
Kind = Literal["turn", "fact", "summary"]

SECOND_US = 1_000_000
NEVER = 2**63 - 1
"""Later than any time there is."""

OWNER_SEPARATOR = "\x1f"
"""Joins tenant and user. Control characters are refused in ids, so no pair of ids can be read two ways."""

ROWS_PER_TURN_MAX = 4096
"""Vectors that one turn may have (one per chunk); a vector's row id is `seq * ROWS_PER_TURN_MAX + part`."""


class Owner(msgspec.Struct, frozen=True, order=True):
    """Whose memory: a tenant (from the API key, never from a body) and one of its users."""

    tenant: str
    user: str

    @property
    def key(self) -> str:
        return f"{self.tenant}{OWNER_SEPARATOR}{self.user}"

    @classmethod
    def from_key(cls, key: str) -> Owner:
        tenant, _, user = key.partition(OWNER_SEPARATOR)
        return cls(tenant, user)


class Receipt(msgspec.Struct, frozen=True):
    """Position of a write in its shard's log; clients hand back its text to read their own writes."""

    shard: int
    seq: int

    def __str__(self) -> str:
        return f"{self.shard}:{self.seq}"


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call that an assistant turn announces."""

    id: str
    name: str
    arguments: Any = None


class FieldExpiry(msgspec.Struct, frozen=True, array_like=True, order=True):
    """When what a path names in a turn's `data` expires."""

    at: int
    path: str


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, weakref=True):
    """One message as it is stored. `data` is compact JSON, so that numbers keep their exact digits."""

    id: str
    session: str
    role: Role
    content: str
    seq: int
    arrived_at: int
    created_at: int
    offset_minutes: int = 0
    speaker: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    data: bytes | None = None
    metadata: dict[str, Any] | None = None
    expires_at: int | None = None
    rev: int = 0
    """Seq of the record that last wrote this turn: its own, or that of its latest edit."""
    fields_expire: tuple[FieldExpiry, ...] = ()
    """Earliest first."""
    fields_gone: tuple[str, ...] = ()
    """Paths of what has expired and is no longer in `data`."""

    @property
    def text(self) -> str:
        """What the turn says: its content, or its data as JSON where there is no content."""
        return self.content if self.content or self.data is None else self.data.decode()

    @property
    def characters(self) -> int:
        """How much text it holds, its calls, data and metadata included."""
        beside = [value for value in (self.tool_calls, self.metadata) if value]
        return len(self.content) + len(self.data or b"") + sum(len(msgspec.json.encode(value)) for value in beside)

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    @property
    def lasting(self) -> bool:
        """Whether nothing of it will ever expire: then others may quote it."""
        return self.expires_at is None and not self.fields_expire

    @property
    def first_expiry(self) -> int | None:
        """When the first of it expires, a field or the whole."""
        first = self.fields_expire[0].at if self.fields_expire else None
        return first if self.expires_at is None else min(self.expires_at, first or self.expires_at)

    def at(self, now: int) -> Turn:
        """The turn without the fields that have expired. Whoever hands turns out, hands out this."""
        if not self.fields_expire or self.fields_expire[0].at > now:
            return self
        gone = tuple(field.path for field in self.fields_expire if field.at <= now)
        return msgspec.structs.replace(
            self,
            data=None if self.data is None else paths.without(self.data, gone),
            fields_expire=self.fields_expire[len(gone) :],
            fields_gone=(*self.fields_gone, *gone),
        )


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, weakref=True):
    """A short static statement about a user, by key. `seq` is the write that set this value."""

    key: str
    value: str
    seq: int
    written_at: int
    entity_class: str | None = None
    expires_at: int | None = None

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


ConstraintStatus = Literal["active", "superseded"]


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A literal span that binds, or that cannot be guessed again, with the turn that said it.

    `superseded`: a later turn replaced or withdrew it; `ended_by` is the seq of that turn.
    """

    text: str
    turn_id: str
    seq: int
    status: ConstraintStatus = "active"
    ended_by: int | None = None
    lasting: bool = False
    """It binds beyond its conversation (an allergy, a standing refusal): other sessions of the user may show it."""


class Topic(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of turns on one subject, both ends included, and what it was about in a few words of its own."""

    title: str
    first_seq: int
    last_seq: int
    turns: int


class Summary(msgspec.Struct, frozen=True, omit_defaults=True, weakref=True):
    """What a session said from `first_seq` to `last_seq`, in fewer tokens. Immutable; a newer one has a newer `seq`."""

    session: str
    text: str
    first_seq: int
    last_seq: int
    tokens: int
    version: str
    input_hash: str
    seq: int
    created_at: int
    expires_at: int
    ranks: tuple[int, ...] = ()
    """Of each line of the text, 0 the last to be cut where there is less room; empty: whole or not at all."""
    line_seqs: tuple[int, ...] = ()
    """Of each line the turn that it quotes: where that turn is shown, the line is not. Empty with `ranks`."""
    constraints: tuple[Constraint, ...] = ()
    """The ledger, in the order of its turns."""
    topics: tuple[Topic, ...] = ()
    target_tokens: int = 0
    """What it was to be no longer than; 0: not known, as of one that an earlier release made."""
    reasons: tuple[str, ...] = ()
    """Why it is less than the configured backends could give; one with reasons is made again."""
    line_dates: tuple[str, ...] = ()
    """Of each line the date that it leaves out, as the line before it says; empty where it says its own, or none."""

    def same_input(self, input_hash: str, version: str, target_tokens: int) -> bool:
        """Whether it was made of these turns in these states, by the same, to the same end, and whole."""
        made_of = (self.input_hash, self.version, self.target_tokens)
        return made_of == (input_hash, version, target_tokens) and not self.reasons

    @property
    def binding(self) -> bool:
        """Whether something in it binds beyond its session: that is kept when the text has expired."""
        return any(one.lasting and one.status == "active" for one in self.constraints)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeWindow(msgspec.Struct, frozen=True):
    """When something was: half-open, None for an open end. Each end has the offset that holds there and then.

    `certain`: words name it; else they only hint at it ("a few days ago").
    """

    start: datetime | None
    end: datetime | None
    certain: bool = True

    @property
    def bounds(self) -> tuple[int, int]:
        """From and to before, as instants."""
        start = -NEVER if self.start is None else (self.start - _EPOCH) // timedelta(microseconds=1)
        return start, NEVER if self.end is None else (self.end - _EPOCH) // timedelta(microseconds=1)


TurnForm = Literal["contextual", "plain"]
"""How a turn is written out for an encoder: `Caroline (8 May 2023): text`, or its text alone."""


class EmbeddingVersion(msgspec.Struct, frozen=True):
    """Immutable name of one vector space: model, revision, pooling, texts, dimension and the type of what is stored."""

    name: str
    model: str
    revision: str
    pooling: Literal["mean", "cls"]
    template: str
    dimension: int
    max_tokens: int
    normalised: bool = True
    turns: TurnForm = "contextual"
    dtype: Literal["float16"] = "float16"


class Degradation(msgspec.Struct, frozen=True):
    """How much of a full answer this one is, and why."""

    level: Level = "full"
    reasons: tuple[str, ...] = ()
