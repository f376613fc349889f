"""What the files of a stopped store must hold after a migration from `hash-64` to `hash-96`, or after its way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lancedb
from lancedb.expr import col, lit

from jobs.stored_rows import Source
from jobs.vector_sample import Group, compared, stored
from serve_app.backup.findings import Report
from serve_app.backup.layout import TABLES, Layout, table_name
from serve_app.backup.verify import nothing, verify
from serve_app.config import load_settings
from serve_app.core import EmbeddingVersion
from serve_app.models.stub import HashEmbedder
from serve_app.stores.rows import COLD, vector_column
from serve_app.stores.table_reader import TableReader
from serve_app.stores.vector_table import beside_name

BASE, TARGET = HashEmbedder(64), HashEmbedder(96)
COSINE_MIN = 0.999
SEQ_MAX = (1 << 31) - 1
SHOWN = 5


def faults_of_files(data: Path, *, done: bool) -> list[str]:
    """`done`: the target serves alone; else all is as if there had been no migration."""
    layout = load_settings(data, None).layout
    report = Report()
    verify(layout, report, nothing, nothing)
    faults = [f"verify: {one.kind}: {one.what}" for one in report.findings if one.severity == "fault"]
    embedder = TARGET if done else BASE
    shape = layout.shape()
    names = [version.name for version in shape.versions]
    if names != [embedder.version.name]:
        faults.append(f"the store says that it is of {names}")
    if not done and shape.beside:
        faults.append(f"the store says that beside it lies {[one.name for one in shape.beside]}")
    for shard in range(shape.shards):
        reader = layout.reader(shape, shard)
        faults += _of_tables(layout, shard, done=done)
        faults += _of_columns(reader, done=done)
        faults += _of_turns(layout, shape.held, shard, reader, embedder, done=done)
    return [*faults[:20], f"and {len(faults) - 20} more"] if len(faults) > 20 else faults


def _of_tables(layout: Layout, shard: int, *, done: bool) -> Iterator[str]:
    root = Path(layout.tables[TABLES])
    found = {path.name.removesuffix(".lance") for path in root.iterdir() if path.name.startswith(table_name(shard))}
    wanted = {table_name(shard)} | ({beside_name(table_name(shard), TARGET.version.name)} if done else set())
    if found != wanted:
        yield f"shard {shard} has the tables {sorted(found)}"


def _of_columns(reader: TableReader, *, done: bool) -> Iterator[str]:
    for embedder, wanted in ((BASE, not done), (TARGET, False)):
        if reader.has_column(vector_column(embedder.version.name)) != wanted:
            yield f"inline vectors of {embedder.version.name}: {not wanted}"


def _of_turns(
    layout: Layout,
    versions: tuple[EmbeddingVersion, ...],
    shard: int,
    reader: TableReader,
    embedder: HashEmbedder,
    *,
    done: bool,
) -> Iterator[str]:
    rows = reader.between(0, SEQ_MAX, ["seq", "rev", "tier"], ["turn"]).to_pylist()
    living = {row["seq"]: row["rev"] for row in rows if row["tier"] < COLD}
    if done:
        yield from _beside(layout, shard, embedder, living)
    group = Group(shard, embedder.version.name, "beside" if done else "inline", 0)
    held = list(stored(Source(layout, versions), group, sorted(living)))
    if missing := living.keys() - {one.turn.seq for one in held}:
        yield f"shard {shard}: {len(missing)} of {len(living)} turns have no vectors, {sorted(missing)[:SHOWN]}"
    for one, found in zip(held, compared(held, embedder), strict=True):
        if found.fault or found.cosine < COSINE_MIN:
            yield f"shard {shard}: turn {one.turn.seq} has other vectors: {found}"


def _beside(layout: Layout, shard: int, embedder: HashEmbedder, living: dict[int, int]) -> Iterator[str]:
    """Each row once, of a turn that is there, in the state in which it is there."""
    name = beside_name(table_name(shard), embedder.version.name)
    table = lancedb.connect(layout.tables[TABLES]).open_table(name)
    rows = (
        table.search().where(col("row") >= lit(0)).select(["row", "rev", "seq"]).limit(SEQ_MAX).to_arrow().to_pylist()
    )
    if doubled := [row for row, count in Counter(row["row"] for row in rows).items() if count > 1]:
        yield f"{name}: {len(doubled)} rows are doubled, {doubled[:SHOWN]}"
    if gone := {row["seq"] for row in rows} - living.keys():
        yield f"{name}: vectors of {len(gone)} turns that are gone, {sorted(gone)[:SHOWN]}"
    if old := [row["seq"] for row in rows if living.get(row["seq"], row["rev"]) != row["rev"]]:
        yield f"{name}: vectors of {len(old)} states that are past, {old[:SHOWN]}"
