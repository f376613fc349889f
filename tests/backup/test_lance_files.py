"""The files that a version names are all that it needs, and no version needs any other."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from serve_app.errors import StoreUnavailable
from serve_app.stores import where
from serve_app.stores.lance import RecordTable
from serve_app.stores.lance_files import manifest_version, names
from serve_app.stores.wanted import ANY
from tests.write.shards import ANN, VERSION, OneShard

TABLE = "shard-0000"


def grown(folder: Path) -> OneShard:
    """A table with several fragments, deletion files, indexes and old versions."""
    one = OneShard(folder)
    for group in range(4):
        one.say(ANN, "s", *[f"hello {group} {n}" for n in range(6)])
        one.embed(ANN, *list(one.block(ANN).turns.values())[-6:])
        one.fold()
    for seq in (2, 9, 17):
        one.table.delete(where.every(where.owned(ANN), where.of_seq(seq)))
    return one


def test_a_table_of_the_named_files_alone_reads_as_the_whole_one(tmp_path: Path) -> None:
    one = grown(tmp_path)
    folder = tmp_path / "tables" / f"{TABLE}.lance"
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    own = next(path for path in paths if manifest_version(path) == one.table.version())
    named = [path for path in paths if names((folder / own).read_bytes(), path)]
    assert {path.partition("/")[0] for path in named} == {"data", "_deletions", "_indices", "_transactions"}
    assert len(named) < len(paths)
    for path in [*named, own]:
        target = tmp_path / "copy" / f"{TABLE}.lance" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / path, target)
    copy = RecordTable(str(tmp_path / "copy"), TABLE, (VERSION,), {})
    assert (copy.version(), copy.folded_seq()) == (one.table.version(), one.table.folded_seq())
    mine, theirs = one.table.load(ANN, 1_000), copy.load(ANN, 1_000)
    assert (theirs.index, theirs.turns) == (mine.index, mine.turns)
    query = np.ones(VERSION.dimension, np.float32)
    assert copy.nearest(ANN, query, 100, ANY, VERSION.name) == one.table.nearest(ANN, query, 100, ANY, VERSION.name)
    assert copy.matching(ANN, ["hello"], 100) == one.table.matching(ANN, ["hello"], 100)
    copy.purge(copy.folded_seq())
    assert copy.load(ANN, 1_000).turns == mine.turns
    one.close()


def test_manifests_are_told_apart_by_version() -> None:
    assert manifest_version("_versions/18446744073709551573.manifest") == 42
    assert manifest_version("_versions/7.manifest") == 7
    assert manifest_version("_versions/latest_version_hint.json") is None
    assert manifest_version("data/7.lance") is None


def test_while_files_are_held_a_purge_is_refused_and_old_versions_stay(tmp_path: Path) -> None:
    one = grown(tmp_path)
    folder = tmp_path / "tables" / f"{TABLE}.lance"
    keeper = one.housekeeper()
    with one.table.hold.holding(), one.shard.log.hold.holding():
        before = {path for path in folder.rglob("*") if path.is_file()}
        segments = set(one.segments.names())
        one.say(ANN, "s", "goes on")
        keeper.fold_now(0)
        assert one.table.folded_seq() == one.shard.applied_seq
        assert set(one.segments.names()) > segments
        with pytest.raises(StoreUnavailable, match="a backup copies this table"):
            keeper.purge_now(0)
        assert {path for path in folder.rglob("*") if path.is_file()} >= before
    keeper.purge_now(0)
    assert not before & set(folder.rglob("*.manifest"))
    assert len(one.segments.names()) == 2
    one.close()
