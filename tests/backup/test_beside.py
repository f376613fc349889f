"""Stores with vectors that lie beside, in the middle of a migration: checked, compared, copied and restored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lancedb
import msgspec
import pytest

from serve_app.backup.copying import Pace
from serve_app.backup.layout import MIGRATIONS_FILE, STORE_FILE, Layout, Shape, log_folder
from serve_app.backup.manifest import Begun, Manifest, new_id
from serve_app.backup.restore import Restorer
from serve_app.backup.take import NobodyWrites, Taker
from serve_app.errors import StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.records import VersionVectors
from serve_app.stores.places import DiskPlace
from serve_app.stores.vector_table import beside_name
from serve_app.write.commit import microseconds
from serve_app.write.derived import PutVectors
from serve_app.write.operations import DeleteTurn, EditTurn
from tests.backup.test_versions import compared, faults
from tests.write.shards import VERSION, OneShard, vectors_of

OWNER = "acme\x1fann"
NEW = HashEmbedder(32)
TABLE = beside_name("shard-0000", NEW.version.name)
SHAPE = Shape(1, VERSION, (), (NEW.version,))


def home(layout: Layout) -> Path:
    return Path(layout.files_uri)


def made(folder: Path, *, folds: bool = True) -> Layout:
    """A store of one shard: turns with vectors inline, beside, in both and in the log alone; some edited, some gone."""
    shard = OneShard(folder)
    shard.shard.hold(NEW.version)
    shard.shard.begin_apart(NEW.version.name, 0)
    for name, text in (("one", "amber"), ("two", "birch"), ("three", "cedar"), ("four", "dahlia")):
        shard.say_as(OWNER, "s", name, text)
    turns = shard.shard.turns(OWNER, [1, 2, 3, 4])
    shard.embed(OWNER, *turns)
    shard.do(
        PutVectors(OWNER, [VersionVectors(NEW.version.name, tuple(vectors_of(one, 2, NEW) for one in turns))], True)
    )
    if folds:
        shard.fold()
    shard.do(EditTurn(OWNER, "s", "two", "beech", None))
    shard.do(DeleteTurn(OWNER, "s", "three"))
    edited = shard.shard.turns(OWNER, [2])
    shard.embed(OWNER, *edited)
    if folds:
        shard.fold()
    shard.do(PutVectors(OWNER, [VersionVectors(NEW.version.name, (vectors_of(edited[0], 1, NEW),))], True))
    shard.say_as(OWNER, "s", "five", "waits for vectors")
    shard.close()
    return laid_out(folder)


def laid_out(folder: Path) -> Layout:
    """What a service would have called its folders, and what a control would have written."""
    (folder / "log").rename(folder / "aside")
    (folder / "log").mkdir()
    (folder / "aside").rename(folder / "log" / log_folder(0))
    (folder / STORE_FILE).write_bytes(msgspec.json.encode(SHAPE))
    (folder / MIGRATIONS_FILE).write_bytes(b'{"state": "backfill"}')
    return Layout.of(folder, "", "", {})


def test_a_store_in_the_middle_of_a_migration_is_whole_folded_or_not(tmp_path: Path) -> None:
    in_the_log, in_the_tables = made(tmp_path / "log", folds=False), made(tmp_path / "tables")
    assert faults(in_the_log) == faults(in_the_tables) == []
    assert compared(in_the_log, in_the_tables) == []


def rewritten(layout: Layout, change: Callable[[list[dict[str, Any]]], None]) -> Layout:
    """The store with other rows beside."""
    uri = str(home(layout) / "tables")
    table = lancedb.connect(uri).open_table(TABLE)
    schema, rows = table.schema, table.to_arrow().to_pylist()
    change(rows)
    shutil.rmtree(home(layout) / "tables" / f"{TABLE}.lance")
    lancedb.connect(uri).create_table(TABLE, schema=schema).add(rows)
    return layout


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda rows: rows.append(dict(rows[0])), "doubled"),
        (lambda rows: rows.append({**rows[0], "row": 3 * 4096, "seq": 3, "rev": 3}), "orphan"),
        (lambda rows: rows.append({**rows[0], "row": 2 * 4096, "seq": 2, "rev": 2}), "orphan"),
        (lambda rows: rows.append({**rows[0], "row": 4 * 4096 + 3, "rev": 5}), "orphan"),
        (lambda rows: rows[0].update(seq=4), "key"),
    ],
)
def test_what_should_not_lie_beside_is_a_fault(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], None], kind: str
) -> None:
    assert kind in {one.kind for one in faults(rewritten(made(tmp_path / "store"), change))}


def test_what_the_next_fold_takes_up_again_is_none(tmp_path: Path) -> None:
    """A crash between the two commits of a fold: beside stands what came after the watermark."""
    late = {"row": 9 * 4096, "seq": 9, "rev": 9, "vector_seq": 99}
    assert faults(rewritten(made(tmp_path / "store"), lambda rows: rows.append({**rows[0], **late}))) == []


def test_vectors_that_another_store_lacks_are_a_difference(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole")
    shutil.copytree(whole.folder, tmp_path / "lacking")
    lacking = rewritten(Layout.of(tmp_path / "lacking", "", "", {}), lambda rows: rows.pop())
    assert compared(whole, lacking) == ["user 'ann' of tenant 'acme': vectors (3 here, 3 there)"]


# ---- backups


def taken(layout: Layout, target: Path, base: Manifest | None = None, done: Callable[[int], None] = lambda _: None):  # type: ignore[no-untyped-def]
    begun = Begun(new_id("full", microseconds()), "full", None, "store", microseconds())
    return Taker(layout, DiskPlace(target), NobodyWrites(), Pace(None), microseconds).take(begun, base, done)


def test_a_backup_in_the_middle_of_a_migration_restores_and_goes_on(tmp_path: Path) -> None:
    source = made(tmp_path / "store")
    manifest = taken(source, tmp_path / "backups")
    copy = Layout.of(tmp_path / "copy", "", "", {})
    Restorer(DiskPlace(tmp_path / "backups"), copy, Pace(None)).restore(manifest, None)
    assert compared(source, copy) == faults(copy) == []
    assert (home(copy) / MIGRATIONS_FILE).read_bytes() == (home(source) / MIGRATIONS_FILE).read_bytes()
    (tmp_path / "goes_on").mkdir()
    shutil.copytree(home(copy) / "tables", tmp_path / "goes_on" / "tables")
    shutil.copytree(home(copy) / "log" / log_folder(0), tmp_path / "goes_on" / "log")
    shard = OneShard(tmp_path / "goes_on")
    shard.shard.hold(NEW.version)
    shard.fold()
    assert [one.seq for one in shard.table.lacking(NEW.version.name)] == [max(shard.block(OWNER).turns)]
    shard.close()


def test_an_incremental_backup_copies_only_what_came_beside_since(tmp_path: Path) -> None:
    source = made(tmp_path / "store")
    first = taken(source, tmp_path / "backups")
    again = taken(source, tmp_path / "backups", first)
    held_by = {file.held_by for file in again.files if TABLE in file.path}
    assert held_by == {first.begun.id}


def test_a_change_of_versions_meanwhile_fails_the_backup_and_the_next_try_begins_anew(tmp_path: Path) -> None:
    source = made(tmp_path / "store")
    begun = Begun(new_id("full", microseconds()), "full", None, "store", microseconds())
    taker = Taker(source, DiskPlace(tmp_path / "backups"), NobodyWrites(), Pace(None), microseconds)

    def retire(_: int) -> None:
        (home(source) / STORE_FILE).write_bytes(msgspec.json.encode(Shape(1, NEW.version, (), (NEW.version,))))
        (home(source) / MIGRATIONS_FILE).write_bytes(b'{"state": "done"}')

    with pytest.raises(StoreUnavailable, match="changed the store's versions"):
        taker.take(begun, None, retire)
    manifest = taker.take(begun, None)
    assert manifest.shape.version == NEW.version
    copy = Layout.of(tmp_path / "copy", "", "", {})
    Restorer(DiskPlace(tmp_path / "backups"), copy, Pace(None)).restore(manifest, None)
    assert (home(copy) / MIGRATIONS_FILE).read_bytes() == b'{"state": "done"}'


def test_how_far_migrations_were_is_told_as_of_the_beginning(tmp_path: Path) -> None:
    source = made(tmp_path / "store")
    manifest = taken(
        source, tmp_path / "backups", None, lambda _: (home(source) / MIGRATIONS_FILE).write_bytes(b"later")
    )
    copy = Layout.of(tmp_path / "copy", "", "", {})
    Restorer(DiskPlace(tmp_path / "backups"), copy, Pace(None)).restore(manifest, None)
    assert (home(copy) / MIGRATIONS_FILE).read_bytes() == b'{"state": "backfill"}'
