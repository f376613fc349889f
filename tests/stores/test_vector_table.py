"""Vectors of a version beside the rows of its turns: read as one with those inline, forgotten without a trace."""

from __future__ import annotations

from pathlib import Path

import lancedb
import msgspec
import numpy as np
import pytest

from serve_app.core import ROWS_PER_TURN_MAX, Turn
from serve_app.errors import StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.stores import where
from serve_app.stores.lance import RecordTable
from serve_app.stores.lance_followed import FollowedTable
from serve_app.stores.packing import pack_vectors, text_digest
from serve_app.stores.rows import COLD, StoredVectors
from serve_app.stores.table_reader import TableReader
from serve_app.stores.vector_reads import Lacking
from serve_app.stores.vector_table import VectorRow, beside_name
from serve_app.stores.wanted import ANY
from tests.stores.test_lance import ANN, BOB, EMBEDDER, files_with, opened, row_of, turn

NEW = HashEmbedder(48)
BASE = EMBEDDER.version.name


@pytest.fixture
def table(tmp_path: Path) -> RecordTable:
    found = opened(tmp_path)
    found.hold_beside(NEW.version)
    return found


def beside(owner: str, one: Turn, *texts: str, came: int = 0, embedder: HashEmbedder = NEW) -> list[VectorRow]:
    """Its rows, a part of the turn for each text."""
    made = embedder.encode(list(texts) or [one.content], tokens=True)
    assert made.tokens is not None
    tokens = np.concatenate(made.tokens).tobytes()
    return [
        VectorRow(
            row=one.seq * ROWS_PER_TURN_MAX + part,
            rev=one.rev,
            vector_seq=came or one.rev,
            owner=owner,
            session=one.session,
            seq=one.seq,
            digest=text_digest(one.content),
            vector=pack_vectors(made.vectors[part : part + 1]),
            tokens=None if part else tokens,
        )
        for part in range(len(made.vectors))
    ]


def put(table: RecordTable, owner: str, *turns: Turn, inline: bool = True, aside: bool = True, to: int = 0) -> None:
    if aside:
        table.put_beside(NEW.version.name, [row for one in turns for row in beside(owner, one)])
    table.merge([row_of(owner, one, inline) for one in turns], to or turns[-1].rev)


def loaded(table: RecordTable, owner: str, version: str = NEW.version.name) -> dict[int, StoredVectors]:
    return {one.turn_seq: one for one in table.load(owner, 100).vectors.get(version, ())}


def columns(folder: Path) -> list[str]:
    return list(lancedb.connect(str(folder)).open_table("shard-0000").schema.names)


# ---- one with what is inline


def test_every_read_gives_what_lies_beside(table: RecordTable) -> None:
    turns = [turn(seq, f"apple number{seq}") for seq in (1, 2, 3)]
    put(table, ANN, *turns)
    put(table, BOB, turn(4, "apple of another"))
    name, query = NEW.version.name, NEW.embed(["apple number2"])[0]
    held = loaded(table, ANN)
    assert list(held) == [1, 2, 3]
    wanted = NEW.encode([turns[1].content], tokens=True)
    assert wanted.tokens is not None
    assert np.allclose(held[2].parts, wanted.vectors, atol=1e-3)
    assert held[2].tokens == wanted.tokens[0].tobytes()
    assert table.tokens(ANN, name, [2, 4]) == {2: held[2].tokens}
    assert next(one.seq for one, _ in table.nearest(ANN, query, 2, ANY, name)) == 2
    assert len(table.nearest(ANN, query, 9, ANY, name)) == 3
    assert table.vector_rows(ANN) == {
        (version, seq * ROWS_PER_TURN_MAX) for version in (BASE, name) for seq in (1, 2, 3)
    }
    assert table.span(ANN, 2, 3).vectors[name].seqs.tolist() == [2, 3]
    assert loaded(table, BOB, BASE).keys() == {4}


def test_a_version_has_some_of_its_vectors_inline_and_others_beside(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.merge([row_of(ANN, turn(seq, f"apple number{seq}")) for seq in (1, 2)], 2)
    table.hold_beside(EMBEDDER.version)
    late = [turn(seq, f"pear number{seq}") for seq in (3, 4)]
    again = turn(2, "apple number2")
    rows = [row for one in (*late, again) for row in beside(ANN, one, came=9, embedder=EMBEDDER)]
    table.put_beside(BASE, rows)
    table.merge([row_of(ANN, one, embedded=False) for one in late], 9)
    assert [(seq, one.vector_seq) for seq, one in loaded(table, ANN, BASE).items()] == [(1, 1), (2, 9), (3, 9), (4, 9)]
    assert table.span(ANN, 1, 4).vectors[BASE].seqs.tolist() == [1, 2, 3, 4]
    assert table.vectors_between(BASE, 2, 4).seqs.tolist() == [2, 3]
    assert table.tokens(ANN, BASE, [1, 2, 3, 4]).keys() == {1, 2, 3, 4}
    assert table.session_vectors(ANN, [1, 2, 3, 4]).keys() == {1, 2, 3, 4}
    found = table.nearest(ANN, EMBEDDER.embed(["pear number3"])[0], 4, ANY, BASE)
    assert found[0][0].seq == 3
    assert sorted(one.seq for one, _ in found) == [1, 2, 3, 4]
    assert table.lacking(BASE) == []


def test_what_is_of_another_state_does_not_count(table: RecordTable) -> None:
    """As between the two commits of a fold: beside stands a state that the turn is no longer, or not yet in."""
    name = NEW.version.name
    put(table, ANN, turn(1, "apple"), turn(2, "pear"))
    table.merge([row_of(ANN, turn(1, "plum", rev=5))], 5)
    table.put_beside(name, beside(ANN, turn(2, "quince", rev=7)))
    table.put_beside(name, beside(ANN, turn(3, "not there")))
    assert loaded(table, ANN) == {}
    assert table.nearest(ANN, NEW.embed(["apple"])[0], 9, ANY, name) == []
    assert table.tokens(ANN, name, [1, 2, 3]) == {}
    assert {version for version, _ in table.vector_rows(ANN)} == {BASE}
    assert table.span(ANN, 1, 3).vectors[name].seqs.tolist() == []
    assert [one.seq for one in table.lacking(name)] == [2, 1]


def test_what_came_after_the_watermark_is_left_to_the_tail(table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"), aside=False)
    table.put_beside(NEW.version.name, beside(ANN, turn(1, "apple"), came=8))
    assert loaded(table, ANN) == {}
    table.merge([], 8)
    assert loaded(table, ANN).keys() == {1}


def test_a_unit_that_comes_twice_is_there_once(table: RecordTable, tmp_path: Path) -> None:
    long = turn(1, "one two three")
    put(table, ANN, long, aside=False, to=9)
    for came, texts in ((5, ("one", "two", "three")), (5, ("one", "two", "three")), (6, ("one two", "three"))):
        table.put_beside(NEW.version.name, beside(ANN, long, *texts, came=came))
    name = beside_name("shard-0000", NEW.version.name)
    assert lancedb.connect(str(tmp_path)).open_table(name).count_rows() == 2
    assert loaded(table, ANN)[1].parts.shape == (2, 48)
    assert table.vector_rows(ANN) >= {(NEW.version.name, 1 * ROWS_PER_TURN_MAX + part) for part in (0, 1)}


# ---- what lacks vectors


def test_what_lacks_vectors_comes_by_state_and_page(table: RecordTable) -> None:
    name = NEW.version.name
    turns = [turn(seq, f"apple number{seq}") for seq in range(1, 8)]
    table.merge([row_of(ANN, one) for one in turns], 8)
    table.merge([row_of(ANN, turn(2, "again", rev=9))], 9)
    table.put_beside(name, [row for one in (turns[0], turns[3]) for row in beside(ANN, one)])
    table.merge([msgspec.structs.replace(row_of(ANN, turns[4]), tier=COLD)], 10)
    everything = table.lacking(name)
    assert everything == [Lacking(ANN, "a", seq, rev) for seq, rev in ((3, 3), (6, 6), (7, 7), (2, 9))]
    assert table.lacking(name, 0, 2) == everything[:2]
    assert table.lacking(name, 6, 2) == everything[2:]
    assert table.lacking(name, 9) == []
    assert table.lacking(BASE) == []


# ---- versions come and go


def test_a_version_is_held_while_others_read_and_again_after_a_restart(tmp_path: Path) -> None:
    table = opened(tmp_path)
    before = columns(tmp_path)
    table.hold_beside(NEW.version)
    table.hold_beside(NEW.version)
    put(table, ANN, turn(1, "apple"))
    assert columns(tmp_path) == before
    again = opened(tmp_path)
    assert again.beside == {}
    again.hold_beside(NEW.version)
    assert again.beside == {NEW.version.name: NEW.version}
    assert loaded(again, ANN).keys() == {1}


def test_a_released_version_leaves_no_bytes_and_begins_empty_when_held_again(
    table: RecordTable, tmp_path: Path
) -> None:
    put(table, ANN, turn(1, "apple"))
    table.release(NEW.version.name)
    table.release(NEW.version.name)
    assert not list(tmp_path.glob(f"{beside_name('shard-0000', NEW.version.name)}*"))
    assert loaded(table, ANN) == {}
    assert table.nearest(ANN, NEW.embed(["apple"])[0], 3, ANY, NEW.version.name) == []
    table.hold_beside(NEW.version)
    assert loaded(table, ANN) == {}
    assert [one.seq for one in table.lacking(NEW.version.name)] == [1]


def test_a_released_version_gives_its_columns_up(table: RecordTable, tmp_path: Path) -> None:
    put(table, ANN, *(turn(seq, f"apple number{seq}") for seq in range(1, 50)))
    packed = pack_vectors(EMBEDDER.embed(["apple number7"]))
    assert files_with_bytes(tmp_path, packed)
    table.release(BASE)
    put(table, ANN, turn(50, "one more"), inline=False)
    assert loaded(table, ANN, BASE) == {}
    assert len(loaded(table, ANN)) == 50
    table.purge(50)
    assert not files_with_bytes(tmp_path, packed)
    assert len(loaded(RecordTable(str(tmp_path), "shard-0000", (), {}), ANN, BASE)) == 0


def test_columns_of_a_version_that_is_no_longer_held_harm_no_merge(table: RecordTable, tmp_path: Path) -> None:
    """As after a crash between the change of the store's description and the release of the tables."""
    put(table, ANN, turn(1, "apple"), turn(2, "pear"))
    table.delete(where.of_seq(2))
    again = RecordTable(str(tmp_path), "shard-0000", (), {})
    again.hold_beside(NEW.version)
    put(again, ANN, turn(3, "plum"), turn(1, "apples", rev=4), inline=False)
    assert loaded(again, ANN).keys() == {3, 1}
    again.release(BASE)
    assert BASE not in "".join(columns(tmp_path))


def test_nothing_is_released_while_a_backup_copies(table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"))
    with table.hold.holding(), pytest.raises(StoreUnavailable):
        table.release(NEW.version.name)
    assert loaded(table, ANN).keys() == {1}


def test_followers_find_what_has_come_and_survive_what_goes(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    follower = FollowedTable(str(tmp_path), "shard-0000", (EMBEDDER.version,), {})
    follower.hold_beside(NEW.version)
    writer.hold_beside(NEW.version)
    put(writer, ANN, turn(1, "apple"))
    assert loaded(follower, ANN) == {}
    follower.refresh()
    assert loaded(follower, ANN).keys() == {1}
    reader = TableReader(str(tmp_path), "shard-0000", (EMBEDDER.version,), {})
    reader.hold_beside(NEW.version)
    assert loaded(reader, ANN).keys() == {1}
    writer.release(NEW.version.name)
    for one in (follower, reader):
        assert loaded(one, ANN) == {}
        assert one.nearest(ANN, NEW.embed(["apple"])[0], 3, ANY, NEW.version.name) == []
    follower.refresh()
    assert loaded(follower, ANN, BASE).keys() == {1}
    follower.release(NEW.version.name)
    assert follower.beside == {}


def test_any_version_has_a_name_that_a_table_can_have(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for name in ("bge-m3.1", "models/bge@main: 3", "李雷", "../up", "x" * 300):
        version = msgspec.structs.replace(NEW.version, name=name)
        table.hold_beside(version)
        table.put_beside(name, beside(ANN, turn(1, "apple")))
        assert len(loaded(table, ANN, name)) == 0
    put(table, ANN, turn(1, "apple"), aside=False)
    assert all(len(loaded(table, ANN, name)) == 1 for name in table.beside)


# ---- erasure


def test_what_was_forgotten_is_in_no_file(table: RecordTable, tmp_path: Path) -> None:
    kept, gone = turn(1, "apple"), turn(2, "the very secret pear", session="secret-session")
    put(table, ANN, kept)
    put(table, BOB, gone)
    rows = beside(BOB, gone)
    assert rows[0].tokens is not None
    assert files_with_bytes(tmp_path, rows[0].vector)
    assert files_with_bytes(tmp_path, rows[0].tokens)
    theirs = where.every(where.owned(BOB), where.before(3))
    table.forget_beside([theirs])
    table.delete(theirs)
    table.purge(3)
    for mark in (rows[0].vector, rows[0].tokens, text_digest(gone.content)):
        assert not files_with_bytes(tmp_path, mark)
    assert not files_with(tmp_path, BOB)
    assert not files_with(tmp_path, "secret-session")
    assert loaded(table, ANN).keys() == {1}


def files_with_bytes(folder: Path, sought: bytes) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and sought in path.read_bytes()]


def test_a_table_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
    """A process that is killed in it leaves a folder without any version."""
    table = opened(tmp_path)
    root = next(tmp_path.rglob("*.lance")).parent
    for name in (beside_name("shard-0000", NEW.version.name), "shard-0007"):
        left = root / f"{name}.lance" / "_transactions"
        left.mkdir(parents=True)
        (left / ".tmpQzmK7m").write_bytes(b"")
    followed = FollowedTable(str(root), "shard-0000", (EMBEDDER.version,), {})
    followed.hold_beside(NEW.version)
    assert not followed.tables_beside
    table.hold_beside(NEW.version)
    put(table, ANN, turn(1, "amber"))
    assert table.lacking(NEW.version.name) == []
    assert RecordTable(str(root), "shard-0007", (EMBEDDER.version,), {}).folded_seq() == 0


def test_a_table_that_has_lost_its_versions_is_not_made_again(table: RecordTable, tmp_path: Path) -> None:
    put(table, ANN, turn(1, "amber"))
    files = next(tmp_path.rglob(f"{beside_name('shard-0000', NEW.version.name)}.lance"))
    for manifest in files.glob("_versions/*"):
        manifest.unlink()
    with pytest.raises(StoreUnavailable):
        opened(tmp_path).hold_beside(NEW.version)
