"""What the rows of one owner say: columns of the table made a `StoredOwner`, with as few Python objects as it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from serve_app.core import Fact, Summary, Turn
from serve_app.stores.rows import StoredOwner, StoredTurn, StoredVectors, token_column, vector_column
from serve_app.stores.vector_parts import Parts, States, inline_parts, parts_beside, united

LIGHT = ("row", "kind", "seq", "session", "id", "created_at", "tier")
"""Columns that tell what an owner has; those of every row of the owner are read."""

HEAVY = ("row", "kind", "seq", "tier", "rev", "vector_rev", "vector_seq", "terms", "body")
"""Columns that hold content, beside the vectors; those of the newest turns, of facts and of summaries are read."""

_turns = msgspec.msgpack.Decoder(Turn)
_facts = msgspec.msgpack.Decoder(Fact)
_summaries = msgspec.msgpack.Decoder(Summary)


def seqs_within(light: pa.Table, coldest: int) -> NDArray[np.int64]:
    """Of the turns among the rows that are in this tier or a hotter one, in order."""
    rows = np.asarray(light["seq"])[_of_kind(light, "turn") & _within(light, coldest)]
    return np.sort(rows)


def stored_owner(
    light: pa.Table,
    heavy: pa.Table,
    beside: Mapping[str, pa.Table],
    first: int,
    versions: Sequence[str],
    coldest: int,
) -> StoredOwner:
    """`light` holds every row of the owner and the watermark, `heavy` those with content, in all columns of `versions`
    that the table has, `beside` what lies in tables of the versions' own.

    Turns from seq `first` on, in the tier `coldest` or a hotter one, become resident.
    """
    light, heavy = light.sort_by("row"), heavy.sort_by("row")
    seqs, sessions, ids, times = (light[name].to_pylist() for name in ("seq", "session", "id", "created_at"))
    tiers = light["tier"].to_pylist()
    turns = np.flatnonzero(_of_kind(light, "turn")).tolist()
    resident = heavy.filter(pa.array((np.asarray(heavy["seq"]) >= first) & _within(heavy, coldest)))
    folded_seq = _last_seq(light, "watermark")
    states = states_of(resident)
    parts = {name: _united(resident, beside.get(name), name, states, folded_seq) for name in versions}
    return StoredOwner(
        index=tuple(StoredTurn(seqs[at], sessions[at], ids[at], times[at], tiers[at]) for at in turns),
        turns=tuple(map(_turns.decode, _bodies(resident, "turn"))),
        entities=_entities(resident.filter(pa.array(_of_kind(resident, "turn")))),
        terms=tuple(resident.filter(pa.array(_of_kind(resident, "turn")))["terms"].to_pylist()),
        vectors={name: found for name in versions if (found := tuple(_vectors(parts[name])))},
        facts=tuple(map(_facts.decode, _bodies(heavy, "fact"))),
        summaries=tuple(map(_summaries.decode, _bodies(heavy, "summary"))),
        changed_seq=_last_seq(light, "mark"),
        folded_seq=folded_seq,
    )


def states_of(rows: pa.Table) -> States:
    """Of the turns among the rows."""
    turns = _of_kind(rows, "turn")
    return States.of(np.asarray(rows["seq"])[turns], np.asarray(rows["rev"])[turns])


def _entities(turns: pa.Table) -> tuple[str | None, ...]:
    """None of any turn where the table has no such column yet."""
    return tuple(turns["entities"].to_pylist()) if "entities" in turns.column_names else ()


def _last_seq(light: pa.Table, kind: str) -> int:
    return int(np.asarray(light["seq"])[_of_kind(light, kind)].max(initial=0))


def _of_kind(rows: pa.Table, kind: str) -> NDArray[np.bool_]:
    return np.fromiter((one == kind for one in rows["kind"].to_pylist()), np.bool_, rows.num_rows)


def _within(rows: pa.Table, coldest: int) -> NDArray[np.bool_]:
    return np.asarray(np.asarray(rows["tier"]) <= coldest)


def _bodies(rows: pa.Table, kind: str) -> list[bytes]:
    bodies: list[bytes] = rows.filter(pa.array(_of_kind(rows, kind)))["body"].to_pylist()
    return bodies


def packed_vectors(column: pa.ChunkedArray) -> list[bytes | None]:
    """Each vector of a column as it is packed."""
    held = column.drop_null().combine_chunks()
    flat = np.asarray(held.flatten()).reshape(-1, column.type.list_size)
    packed = (vector.astype("<f2").tobytes() for vector in flat)
    return [next(packed) if valid else None for valid in column.is_valid().to_pylist()]


def _united(resident: pa.Table, beside: pa.Table | None, version: str, states: States, through: int) -> Parts | None:
    """What the resident turns have of a version, in their own rows and beside them."""
    columns, tokens = resident.column_names, token_column(version)
    name = vector_column(version)
    inline = inline_parts(resident, name, tokens if tokens in columns else None) if name in columns else None
    return united(inline, None if beside is None else parts_beside(beside, states, through))


def _vectors(parts: Parts | None) -> Iterator[StoredVectors]:
    """Those of each turn. The vectors of the tokens lie in the row of the first part."""
    if parts is None or not len(parts.rows):
        return
    seqs, vectors = parts.seqs, parts.vectors.astype(np.float32)
    starts = np.flatnonzero(np.diff(seqs, prepend=seqs[0] - 1))
    tokens = parts.tokens.take(pa.array(starts)).to_pylist()
    for (start, end), packed in zip(_pairwise(starts.tolist(), len(seqs)), tokens, strict=True):
        yield StoredVectors(int(seqs[start]), int(parts.came[start]), vectors[start:end], packed or b"")


def _pairwise(starts: list[int], end: int) -> Iterable[tuple[int, int]]:
    return zip(starts, [*starts[1:], end], strict=True)
