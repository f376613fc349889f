"""Which turns an alignment test looks at, and what it says of each.

The sample is that of a seed: of each shard, version, place (inline or beside) and quarter of the shard's life the turns
whose hashes are smallest. The same seed on the same store is the same sample, however the reading is split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.stored_rows import Source, StoredTable, Stretch
from serve_app.core import EmbeddingVersion, Turn
from serve_app.ports import Embedder
from serve_app.stores.packing import text_digest, turn_text
from serve_app.stores.rows import COLD, vector_column

QUARTERS: Final = 4

Place = Literal["inline", "beside"]

NORM_OFF_MAX: Final = 2e-3
"""How far from 1 the length of a normalised vector may be: float16 keeps eleven bits of each component."""

Draw = tuple[int, int]
"""A turn's hash and its seq: those with the smallest hashes are taken."""


class Group(NamedTuple):
    """What is sampled by itself."""

    shard: int
    version: str
    place: Place
    quarter: int
    """0: the oldest turns of the shard."""


class Stored(NamedTuple):
    """A turn as it is, and the vectors that are stored of it, shape (parts, dimension)."""

    turn: Turn
    vectors: NDArray[np.float32]
    digest: bytes | None
    """Of the text that was embedded, where that was kept."""


class Compared(msgspec.Struct, frozen=True, array_like=True):
    """One turn's stored vectors beside those that its text has now; the cosine is the smallest of its parts."""

    cosine: float
    norm: float
    """That of the stored part that is farthest from 1."""
    fault: str = ""
    """What is wrong whatever the angle."""
    digest: bool = False
    """Whether it was known which text was embedded, so that it could be compared, too."""


# ---- which


def drawn(source: Source, piece: Stretch, ends: Sequence[int], sample: int, seed: int) -> dict[Group, list[Draw]]:
    """Of one stretch of the shard's table, and of what lies beside it, the first of each group."""
    found: dict[Group, list[Draw]] = {}
    for version in source.versions:
        for place, seqs in (
            ("inline", _inline_seqs(source, piece, version)),
            ("beside", _beside_seqs(source, piece, version)),
        ):
            for seq in seqs:
                group = Group(piece.shard, version.name, place, seq * QUARTERS // (ends[piece.shard] + 1))
                found.setdefault(group, []).append((draw(seed, group, seq), seq))
    return {group: smallest(draws, sample) for group, draws in found.items()}


def draw(seed: int, group: Group, seq: int) -> int:
    said = f"{seed}/{group.shard}/{group.version}/{group.place}/{seq}".encode()
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "little") >> 1


def smallest(draws: Iterable[Draw], sample: int) -> list[Draw]:
    return sorted(draws)[:sample]


def merged(one: Mapping[Group, list[Draw]], other: Mapping[Group, list[Draw]], sample: int) -> dict[Group, list[Draw]]:
    """Of two samples the one that the whole would have given."""
    groups = one.keys() | other.keys()
    return {group: smallest([*one.get(group, ()), *other.get(group, ())], sample) for group in groups}


def _inline_seqs(source: Source, piece: Stretch, version: EmbeddingVersion) -> Iterator[int]:
    """Reads no vectors."""
    table = StoredTable(source, piece.shard)
    if not _has_inline(table, version):
        return
    held = f"`{vector_column(version.name)}` is not null and vector_rev = rev and tier < {COLD}"
    for part in table.ranges(piece.first, piece.last, {"seq": "seq", "held": held}, ["turn"]):
        yield from part.filter(part["held"])["seq"].to_pylist()


def _beside_seqs(source: Source, piece: Stretch, version: EmbeddingVersion) -> Iterator[int]:
    for part in StoredTable(source, piece.shard, version=version).ranges(piece.first, piece.last, ["seq"]):
        yield from pc.unique(part["seq"]).to_pylist()


def _has_inline(table: StoredTable, version: EmbeddingVersion) -> bool:
    return table.read(lambda one: one.has_column(vector_column(version.name)))


# ---- what of them


def stored(source: Source, group: Group, seqs: Sequence[int]) -> Iterator[Stored]:
    """Those of these turns that are still there in the state that was embedded; others are no concern of a version."""
    version = next(one for one in source.versions if one.name == group.version)
    table = StoredTable(source, group.shard)
    beside = StoredTable(source, group.shard, version=version) if group.place == "beside" else None
    columns = ["kind", "rev", "vector_rev", "tier", "body"]
    if beside is None:
        columns.append(vector_column(version.name))
    for seq in seqs:
        rows = pa.concat_tables(table.ranges(seq, seq, columns, ["turn", "chunk"]))
        own = rows.slice(0, 1).to_pylist()
        if not own or own[0]["kind"] != "turn" or own[0]["tier"] >= COLD:
            continue
        turn = msgspec.msgpack.decode(own[0]["body"], type=Turn)
        if beside is None:
            if own[0]["vector_rev"] == own[0]["rev"]:
                yield Stored(turn, _vectors(rows[vector_column(version.name)], version), None)
            continue
        parts = pa.concat_tables(beside.ranges(seq, seq, ["rev", "digest", "vector"]))
        parts = parts.filter(pc.equal(parts["rev"], turn.rev))
        if parts.num_rows:
            yield Stored(turn, _vectors(parts["vector"], version), parts["digest"][0].as_py())


def _vectors(column: pa.ChunkedArray, version: EmbeddingVersion) -> NDArray[np.float32]:
    """Without the parts that have none: rows of a longer state that are left."""
    held = pc.drop_null(column.combine_chunks())
    width = held.type.list_size
    return np.asarray(held.flatten(), np.float32).reshape(-1, width)


def compared(those: Sequence[Stored], embedder: Embedder) -> list[Compared]:
    """Each embedded again, as the indexer does it, in one batch."""
    texts = [turn_text(one.turn, embedder.version.turns) for one in those]
    pieces = [embedder.chunks(text) for text in texts]
    made = embedder.embed([piece for own in pieces for piece in own]) if pieces else np.empty((0, 0), np.float32)
    found, at = [], 0
    for one, text, own in zip(those, texts, pieces, strict=True):
        found.append(_compared(one, text, made[at : at + len(own)], embedder.version))
        at += len(own)
    return found


def _compared(one: Stored, text: str, made: NDArray[np.float32], version: EmbeddingVersion) -> Compared:
    digest = one.digest is not None
    if one.vectors.shape != made.shape:
        return Compared(0.0, 0.0, "parts" if one.vectors.shape[-1:] == made.shape[-1:] else "dimension", digest)
    if not np.isfinite(one.vectors).all():
        return Compared(0.0, 0.0, "not finite", digest)
    lengths = np.linalg.norm(one.vectors, axis=1)
    scale = np.maximum(lengths * np.linalg.norm(made, axis=1), np.finfo(np.float32).tiny)
    cosine = float((np.einsum("pd,pd->p", one.vectors, made) / scale).min())
    norm = float(lengths[np.abs(lengths - 1).argmax()])
    if one.digest is not None and one.digest != text_digest(text):
        return Compared(cosine, norm, "text", digest)
    if version.normalised and abs(norm - 1) > NORM_OFF_MAX:
        return Compared(cosine, norm, "norm", digest)
    return Compared(cosine, norm, "", digest)
