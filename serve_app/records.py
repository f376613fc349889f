"""What a shard's log holds: one frozen record for each change of an owner's memory, and their codec.

A record carries its own `seq`; replaying the records of an owner in order of `seq` gives the
owner's memory, wherever that is done (start-up, first touch, fold).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from serve_app.core import Fact, Summary, Turn


class TurnPut(msgspec.Struct, frozen=True, tag="turn"):
    """A new turn, or the new state of an edited one (then `turn.rev` is the seq of this record)."""

    owner: str
    turn: Turn

    @property
    def seq(self) -> int:
        return self.turn.rev


class TurnGone(msgspec.Struct, frozen=True, tag="turn_gone"):
    seq: int
    owner: str
    session: str
    turn_id: str
    turn_seq: int


class SessionGone(msgspec.Struct, frozen=True, tag="session_gone"):
    """Everything of one session that was written before `seq` is erased."""

    seq: int
    owner: str
    session: str


class UserGone(msgspec.Struct, frozen=True, tag="user_gone"):
    """Everything of one owner that was written before `seq` is erased."""

    seq: int
    owner: str
    erasure: Erasure


class Erasure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of one user's erasure. It outlives the user's data and names no content."""

    id: str
    tenant: str
    requested_at: int
    state: str = "pending"
    counts: dict[str, int] = {}
    completed_at: int | None = None
    subject: str = ""
    """Stands for the erased owner, see `stores.rows.pseudonym`: a key that is bound to a user sees its own alone."""


class ErasureDone(msgspec.Struct, frozen=True, tag="erasure_done"):
    seq: int
    owner: str
    erasure: Erasure


class FactPut(msgspec.Struct, frozen=True, tag="fact"):
    owner: str
    fact: Fact

    @property
    def seq(self) -> int:
        return self.fact.seq


class FactGone(msgspec.Struct, frozen=True, tag="fact_gone", omit_defaults=True):
    """The values of a fact up to that of seq `through` are gone; all of them where that is 0."""

    seq: int
    owner: str
    key: str
    through: int = 0


class SummaryPut(msgspec.Struct, frozen=True, tag="summary"):
    owner: str
    summary: Summary

    @property
    def seq(self) -> int:
        return self.summary.seq


class SummaryGone(msgspec.Struct, frozen=True, tag="summary_gone"):
    """The summaries of a session up to that of seq `through` are gone."""

    seq: int
    owner: str
    session: str
    through: int


class TurnVectors(msgspec.Struct, frozen=True, array_like=True):
    """The vectors of one turn: `vectors` is float16, little endian, shape (parts, dimension).

    `rev` is the state of the turn that was embedded: vectors of an older state are ignored.
    """

    turn_seq: int
    rev: int
    session: str
    turn_id: str
    vectors: bytes
    tokens: bytes = b""
    """The vectors of the tokens of all parts, int8, shape (tokens, TOKEN_DIMENSION); empty where there are none."""
    digest: bytes = b""
    """Of the text that was embedded, see `stores.packing.text_digest`; empty where nobody has said it."""


class VersionVectors(msgspec.Struct, frozen=True, array_like=True):
    """The vectors that one version made of some turns."""

    version: str
    items: tuple[TurnVectors, ...]


class VectorsPut(msgspec.Struct, frozen=True, tag="vectors", omit_defaults=True):
    """The vectors of some turns: of each turn all that the versions in force made, or with `beside` what those that a
    migration brings made apart, at a time of their own.

    A record of one version alone is what earlier logs hold; `others` are the further versions. What came `beside`
    lies in tables of its own, and settles nothing that waits for the vectors of a turn.
    """

    seq: int
    owner: str
    version: str
    items: tuple[TurnVectors, ...]
    others: tuple[VersionVectors, ...] = ()
    beside: bool = False

    @classmethod
    def of(cls, seq: int, owner: str, versions: Iterable[VersionVectors], *, beside: bool = False) -> VectorsPut | None:
        """None where there are no vectors at all."""
        made = [one for one in versions if one.items]
        return cls(seq, owner, made[0].version, made[0].items, tuple(made[1:]), beside) if made else None

    @property
    def versions(self) -> tuple[VersionVectors, ...]:
        return (VersionVectors(self.version, self.items), *self.others)

    def only(self, wanted: Callable[[TurnVectors], bool]) -> VectorsPut | None:
        """Without the turns that are not wanted; None where nothing is left."""
        kept = (VersionVectors(one.version, tuple(filter(wanted, one.items))) for one in self.versions)
        return VectorsPut.of(self.seq, self.owner, kept, beside=self.beside)

    @property
    def bytes(self) -> int:
        """Of the vectors, and of those of the tokens."""
        return sum(len(item.vectors) + len(item.tokens) for one in self.versions for item in one.items)

    def of_turns(self) -> dict[int, dict[str, TurnVectors]]:
        """By the seq of the turn, and then by version."""
        found: dict[int, dict[str, TurnVectors]] = {}
        for version, items in ((one.version, one.items) for one in self.versions):
            for item in items:
                found.setdefault(item.turn_seq, {})[version] = item
        return found


class TurnsMoved(msgspec.Struct, frozen=True, tag="moved"):
    """Turns of one session left a tier: `tier` 1, they leave memory; 2, their content goes to the cold table."""

    seq: int
    owner: str
    session: str
    tier: int
    turn_seqs: tuple[int, ...]


class Hits(msgspec.Struct, frozen=True, tag="hits"):
    """When turns of an owner were found last: microseconds by the seq of the turn."""

    seq: int
    owner: str
    found_at: dict[int, int]


Record = (
    TurnPut
    | TurnGone
    | SessionGone
    | UserGone
    | ErasureDone
    | FactPut
    | FactGone
    | SummaryPut
    | SummaryGone
    | VectorsPut
    | TurnsMoved
    | Hits
)


def ends_a_text(record: Record) -> bool:
    """Whether somebody's words are to be nowhere any more: whoever holds copies lets go of them."""
    edited = isinstance(record, TurnPut) and record.turn.rev != record.turn.seq
    return edited or isinstance(record, TurnGone | SessionGone | UserGone)


DERIVED = (VectorsPut, SummaryPut, Hits)
"""Records that can be made again from the turns, or that can be done without."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    return _encoder.encode(record)


def decode_record(payload: bytes) -> Record:
    """Raises msgspec.DecodeError if the payload is no record of this release."""
    return _decoder.decode(payload)
