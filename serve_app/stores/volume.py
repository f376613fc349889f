"""A part of one owner's turns as a large user's search needs it: places, words, names, vectors, without their content.

A volume is made from the rows of the table, once, and never changed. It holds turns of one range of seqs, but for
cold ones, in the state of `state_seq` or a later one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.entities.recognise import in_turn
from serve_app.stores.columns import NO_SPEAKER
from serve_app.stores.entity_rows import unpacked
from serve_app.stores.postings import Postings, postings_of
from serve_app.stores.rough import QUANTISED_FROM, RoughVectors
from serve_app.stores.vector_parts import Parts
from serve_app.stores.views import day_number

PLACED: Final = ("row", "kind", "seq", "session", "created_at", "rev", "vector_rev", "vector_seq", "terms", "body")
"""Columns of the table that a volume is made from, beside the vectors, and `NAMED` where the table has it."""

NAMED: Final = "entities"


class _Said(msgspec.Struct):
    """What of a turn's body the table has no column for."""

    speaker: str | None = None
    offset_minutes: int = 0


_bodies = msgspec.msgpack.Decoder(_Said)
_turns = msgspec.msgpack.Decoder(Turn)


class VersionRows(NamedTuple):
    """The vectors of one version, in order of the turns that they are of."""

    rough: RoughVectors
    turns: NDArray[np.intp]
    """Of each vector the place of its turn; a long turn has several."""


class Volume(NamedTuple):
    """Shape (n,) each, in order of seq."""

    seqs: NDArray[np.int64]
    sessions: NDArray[np.int64]
    """By a hash of their names."""
    times: NDArray[np.int64]
    days: NDArray[np.int32]
    speakers: NDArray[np.int32]
    """Index into `names`, or NO_SPEAKER."""
    names: tuple[str, ...]
    postings: Postings
    named: Postings
    """Which turns name which entity: of each turn the keys of those that it names."""
    vectors: Mapping[str, VersionRows]
    state_seq: int
    lacking: int
    """Turns whose vectors were still to come."""

    @property
    def bytes(self) -> int:
        columns = sum(one.nbytes for one in (self.seqs, self.sessions, self.times, self.days, self.speakers))
        held = sum(one.rough.bytes + one.turns.nbytes for one in self.vectors.values())
        return columns + self.postings.bytes + self.named.bytes + held


def session_code(session: str) -> int:
    return int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), "little", signed=True)


def ready_before(rows: pa.Table) -> int | None:
    """The seq of the first turn among the rows whose vectors are still to come, None where there is none."""
    kinds, late = _turns_among(rows), np.asarray(rows["vector_rev"]) < np.asarray(rows["rev"])
    waiting = np.asarray(rows["seq"])[kinds & late]
    return int(waiting.min()) if len(waiting) else None


class Span(NamedTuple):
    """What a volume is made from: rows of turns, and of each version the vectors of their present states."""

    rows: pa.Table
    vectors: Mapping[str, Parts]

    def until(self, seq: int) -> Span:
        """Without the turns from `seq` on: their vectors find no turn."""
        return self._replace(rows=self.rows.filter(pa.array(np.asarray(self.rows["seq"]) < seq)))


def volume_of(span: Span, state_seq: int, quantised_from: int = QUANTISED_FROM) -> Volume:
    rows = span.rows.sort_by("row")
    own = _turns_among(rows)
    turns = rows.filter(pa.array(own))
    said = [_bodies.decode(body) for body in turns["body"].to_pylist()]
    seqs = np.asarray(turns["seq"]).astype(np.int64)
    names = tuple(dict.fromkeys(one.speaker for one in said if one.speaker is not None))
    place = {name: at for at, name in enumerate(names)}
    return Volume(
        seqs=seqs,
        sessions=_codes(turns["session"].to_pylist()),
        times=np.asarray(turns["created_at"]).astype(np.int64),
        days=_days(np.asarray(turns["created_at"]).tolist(), said),
        speakers=np.array([NO_SPEAKER if one.speaker is None else place[one.speaker] for one in said], np.int32),
        names=names,
        postings=postings_of(turns["terms"].to_pylist()),
        named=postings_of(_names(turns), "\n"),
        vectors={version: _version_rows(parts, seqs, quantised_from) for version, parts in span.vectors.items()},
        state_seq=state_seq,
        lacking=int((np.asarray(turns["vector_rev"]) < np.asarray(turns["rev"])).sum()),
    )


def _turns_among(rows: pa.Table) -> NDArray[np.bool_]:
    return np.fromiter((kind == "turn" for kind in rows["kind"].to_pylist()), np.bool_, rows.num_rows)


def _codes(sessions: Sequence[str]) -> NDArray[np.int64]:
    known = {session: session_code(session) for session in set(sessions)}
    return np.fromiter((known[session] for session in sessions), np.int64, len(sessions))


def _days(times: Sequence[int], said: Sequence[_Said]) -> NDArray[np.int32]:
    return np.fromiter(
        (day_number(at, one.offset_minutes) for at, one in zip(times, said, strict=True)), np.int32, len(times)
    )


def _names(turns: pa.Table) -> list[str]:
    """The keys of what each turn names, a line each. A turn that the table does not tell of is looked into."""
    told: list[str | None] = turns[NAMED].to_pylist() if NAMED in turns.column_names else [None] * turns.num_rows
    return ["\n".join(_keys(text, turns, place)) for place, text in enumerate(told)]


def _keys(text: str | None, turns: pa.Table, place: int) -> list[str]:
    known = unpacked(text)
    if known is None:
        known = list(in_turn(_turns.decode(turns["body"][place].as_py())))
    return [one.key for one in known]


def _version_rows(parts: Parts, seqs: NDArray[np.int64], quantised_from: int) -> VersionRows:
    places = np.searchsorted(seqs, parts.seqs)
    there = seqs[np.minimum(places, len(seqs) - 1)] == parts.seqs if len(seqs) else np.zeros(len(places), np.bool_)
    return VersionRows(RoughVectors(parts.vectors[there].astype(np.float32), quantised_from), places[there])
