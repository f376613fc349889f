"""Stores of several embedding versions, with tokens, seen from outside: checked, compared, and with a loss."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lancedb
import msgspec
import pytest

from serve_app.backup.compare import compare
from serve_app.backup.findings import Finding, Report
from serve_app.backup.layout import STORE_FILE, Layout, Shape, log_folder
from serve_app.backup.verify import verify
from serve_app.models.stub import HashEmbedder
from serve_app.records import VersionVectors
from serve_app.stores.rows import token_column, vector_column
from serve_app.write.derived import PutVectors
from serve_app.write.operations import EditTurn
from tests.write.shards import EMBEDDER, VERSION, OneShard, vectors_of

OWNER = "acme\x1fann"
BESIDE = HashEmbedder(32)


BOTH = (EMBEDDER, BESIDE)


def made(folder: Path, *, fold: bool = True) -> Layout:
    """The store of one shard: turns under one version, the other and both, some in the table and some in the log."""
    shard = OneShard(folder, embedders=BOTH)
    shard.say(OWNER, "s", "amber", "琥珀", "both 琥珀")
    shard.say_as(OWNER, "s", "edited", "birch")
    one, two, three, four = shard.shard.turns(OWNER, [1, 2, 3, 4])
    first = [VersionVectors(VERSION.name, (vectors_of(one), vectors_of(four)))]
    shard.do(PutVectors(OWNER, first))
    shard.do(PutVectors(OWNER, [VersionVectors(BESIDE.version.name, (vectors_of(two, 2, BESIDE),))]))
    shard.embed(OWNER, three, parts=2)
    if fold:
        shard.fold()
    shard.do(EditTurn(OWNER, "s", "edited", "cedar", None))
    shard.embed(OWNER, *shard.shard.turns(OWNER, [4]))
    shard.say(OWNER, "s", "waits for vectors")
    shard.close()
    return laid_out(folder)


def copied(layout: Layout, folder: Path) -> Layout:
    shutil.copytree(Path(layout.files_uri), folder)
    return Layout.of(folder, "", "", {})


def folded(layout: Layout, folder: Path) -> Layout:
    """A copy, all of whose log is in its table."""
    copied(layout, folder)
    (folder / "log").rename(folder / "aside")
    (folder / "aside" / log_folder(0)).rename(folder / "log")
    (folder / "aside").rmdir()
    shard = OneShard(folder, embedders=BOTH)
    shard.fold()
    shard.close()
    return laid_out(folder)


def laid_out(folder: Path) -> Layout:
    """What a service would have called its folders."""
    aside = folder / "aside"
    (folder / "log").rename(aside)
    (folder / "log").mkdir()
    aside.rename(folder / "log" / log_folder(0))
    (folder / STORE_FILE).write_bytes(msgspec.json.encode(Shape(1, VERSION, (BESIDE.version,))))
    return Layout.of(folder, "", "", {})


def faults(layout: Layout) -> list[Finding]:
    report = Report()
    verify(layout, report)
    return [one for one in report.findings if one.severity == "fault"]


def compared(one: Layout, other: Layout) -> list[str]:
    report = Report()
    compare(one, other, report)
    return [finding.what for finding in report.findings]


def test_memory_replay_and_tables_agree_on_versions_and_tokens(tmp_path: Path) -> None:
    in_the_log = made(tmp_path / "log", fold=False)
    in_the_table = folded(in_the_log, tmp_path / "table")
    for layout in (in_the_log, in_the_table, made(tmp_path / "both")):
        assert faults(layout) == []
    assert compared(in_the_log, in_the_table) == []


def rewritten(layout: Layout, change: Callable[[dict[str, object]], object]) -> Layout:
    """The store with other rows in its table."""
    uri = str(Path(layout.files_uri) / "tables")
    table = lancedb.connect(uri).open_table("shard-0000")
    schema, rows = table.schema, table.to_arrow().to_pylist()
    for row in rows:
        change(row)
    shutil.rmtree(Path(layout.files_uri) / "tables")
    made = lancedb.connect(uri).create_table("shard-0000", schema=schema)
    made.add(rows, on_bad_vectors="null")
    return layout


def test_vectors_that_are_lost_are_a_fault(tmp_path: Path) -> None:
    def lose(row: dict[str, object]) -> None:
        if row["seq"] == 1:
            row[vector_column(VERSION.name)] = None

    found = faults(rewritten(made(tmp_path / "store"), lose))
    assert [(one.kind, "turn 1" in one.what) for one in found] == [("vectors", True)]


@pytest.mark.parametrize("column", [token_column(VERSION.name), vector_column(BESIDE.version.name)])
def test_tokens_or_a_version_that_another_store_lacks_are_a_difference(tmp_path: Path, column: str) -> None:
    whole = made(tmp_path / "whole")
    lacking = copied(whole, tmp_path / "lacking")

    def lose(row: dict[str, object]) -> None:
        if row["seq"] == 3:
            row[column] = None

    rewritten(lacking, lose)
    assert faults(lacking) == []
    assert compared(whole, lacking) == ["user 'ann' of tenant 'acme': vectors (4 here, 4 there)"]


def test_stores_of_other_versions_are_not_the_same(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole")
    fewer = copied(whole, tmp_path / "fewer")
    (Path(fewer.files_uri) / STORE_FILE).write_bytes(msgspec.json.encode(Shape(1, VERSION)))
    assert compared(whole, fewer) == ["the stores differ in shards or embedding versions"]
