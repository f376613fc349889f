"""A store that knew one version and no tokens: it opens as it is, takes what is new, and both are found together."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lancedb
import numpy as np
import pytest

from serve_app.core import Turn
from serve_app.models.stub import HashEmbedder
from serve_app.records import VersionVectors
from serve_app.stores.lance_followed import FollowedTable
from serve_app.stores.packing import pack_vectors
from serve_app.stores.table_reader import TableReader
from serve_app.stores.wanted import ANY
from serve_app.write.derived import PutVectors
from serve_app.write.erasing import EraseUser
from serve_app.write.operations import EditTurn
from tests.write.followers import Followed
from tests.write.shards import ANN, BOB, EMBEDDER, VERSION, OneShard, vectors_of, wait_until

BESIDE = HashEmbedder(32)
BOTH = (EMBEDDER, BESIDE)
Opened = Callable[..., OneShard]


def embed_as_before(shard: OneShard, owner: str, *turns: Turn) -> None:
    """As a release did that knew no tokens."""
    made = [vectors_of(turn, parts=2) for turn in turns]
    plain = tuple(type(one)(one.turn_seq, one.rev, one.session, one.turn_id, one.vectors) for one in made)
    assert shard.do(PutVectors(owner, [VersionVectors(VERSION.name, plain)])) == len(turns)


def without_columns(folder: Path, *prefixes: str) -> None:
    """The table in the form that it had before there were columns of these names."""
    uri = str(folder / "tables")
    rows = lancedb.connect(uri).open_table("shard-0000").to_arrow()
    gone = [name for name in rows.column_names if name.startswith(prefixes)]
    assert gone
    shutil.rmtree(folder / "tables")
    lancedb.connect(uri).create_table("shard-0000", data=rows.drop_columns(gone), on_bad_vectors="null")


@pytest.fixture
def old(opened: Opened, tmp_path: Path) -> Path:
    """Three turns of Ann in the table and one in the log, one of Bob; of each owner one turn waits for vectors."""
    shard = opened("store")
    for owner in (ANN, BOB):
        shard.say(owner, "a", "amber road", "waits for vectors")
    embed_as_before(shard, ANN, *shard.shard.turns(ANN, [1]))
    embed_as_before(shard, BOB, *shard.shard.turns(BOB, [3]))
    shard.say_as(ANN, "a", "edited", "birch")
    shard.fold()
    shard.say(ANN, "a", "in the log")
    embed_as_before(shard, ANN, *shard.shard.turns(ANN, [8]))
    shard.close()
    without_columns(tmp_path / "store", "t_")
    return tmp_path / "store"


def near(shard: OneShard, owner: str, text: str, embedder: HashEmbedder = EMBEDDER) -> list[int]:
    """Seqs by the table's vectors of one version, best first."""
    query = embedder.embed([text])[0]
    return [turn.seq for turn, _ in shard.table.nearest(owner, query, 10, ANY, embedder.version.name)]


def tokens(shard: OneShard, owner: str, embedder: HashEmbedder = EMBEDDER) -> dict[int, int]:
    """Of the resident turns that have token vectors, how many."""
    block = shard.block(owner)
    _, offsets = block.tokens(embedder.version.name, list(block.turns), None)
    return {seq: count for seq, count in zip(block.turns, np.diff(offsets).tolist(), strict=True) if count}


@pytest.mark.parametrize("embedders", [(EMBEDDER,), BOTH], ids=["one version", "two versions"])
def test_an_old_store_takes_what_is_new_and_finds_both(
    opened: Opened, old: Path, embedders: tuple[HashEmbedder, ...]
) -> None:
    shard = opened("store", embedders=embedders)
    assert shard.block(ANN).vectors.came.keys() == {1, 8}
    assert shard.shard.pending.keys() == {2, 4, 7}
    assert tokens(shard, ANN) == {}
    new = shard.say(ANN, "a", "cedar table")[0].seq
    assert new is not None
    shard.embed(ANN, *shard.shard.turns(ANN, [2, new]), parts=2)
    for at in ("in memory", "folded", "started again", "purged"):
        if at == "folded":
            shard.fold()
            assert sorted(near(shard, ANN, "amber")) == [1, 2, 8, new]
        if at == "started again":
            shard.restart()
        if at == "purged":
            shard.do(EditTurn(ANN, "a", "edited", "birch no more", None))
            shard.housekeeper().purge_now(0)
            shard.restart()
        block = shard.block(ANN)
        assert block.vectors.came.keys() == {1, 2, 8, new}, at
        assert tokens(shard, ANN).keys() == {2, new}, at
        scores = block.dense(VERSION.name, EMBEDDER.embed(["cedar table"])[0], len(block.columns.seqs), None)
        assert block.columns.seqs[int(np.nanargmax(scores))] == new, at
        assert shard.block(BOB).vectors.count() == 2, at
    if len(embedders) > 1:
        assert tokens(shard, ANN, BESIDE).keys() == {2, new}
        assert near(shard, ANN, "cedar table", BESIDE) == [new, 2]


def test_an_old_turn_is_edited_moved_and_erased_like_any_other(opened: Opened, old: Path) -> None:
    shard = opened("store", embedders=BOTH)
    first = shard.shard.turns(ANN, [1])[0]
    shard.do(EditTurn(ANN, "a", first.id, "granite", None))
    shard.embed(ANN, *shard.shard.turns(ANN, [1]))
    shard.fold()
    shard.restart()
    assert tokens(shard, ANN) == {1: 1}
    erasure = shard.do(EraseUser(ANN, "acme"))
    assert erasure.counts["vectors"] == 2 + 2  # the edited turn's under both versions, the parts of the one in the log
    shard.housekeeper().purge_now(0)
    assert shard.block(ANN).vectors.count() == 0
    assert shard.files_with("granite") == []


def test_a_store_of_one_version_goes_on_without_the_other(opened: Opened) -> None:
    """Vectors that a release with more versions recorded are passed over, as they are where it is opened again."""
    shard = opened("store", embedders=BOTH)
    shard.say(ANN, "a", "amber", "birch", "琥珀")
    first, second, third = shard.shard.turns(ANN, [1, 2, 3])
    made = [VersionVectors(VERSION.name, (vectors_of(first),))]
    shard.do(PutVectors(ANN, made))
    only = VersionVectors(BESIDE.version.name, (vectors_of(third, 1, BESIDE),))
    shard.do(PutVectors(ANN, [VersionVectors(VERSION.name, (vectors_of(second),)), only]))
    shard.fold()
    shard.close()
    fewer = opened("store", embedders=(EMBEDDER,))
    assert fewer.block(ANN).vectors.came.keys() == {1, 2}
    assert fewer.shard.pending == {}


def test_a_follower_reads_a_table_without_the_columns_and_then_with_them(opened: Opened, old: Path) -> None:
    with_columns = OneShard.__new__(OneShard)
    with_columns.folder, with_columns.versions = old, (VERSION,)
    followed = Followed(with_columns)
    try:
        assert followed.block(ANN).vectors.came.keys() == {1, 8}
        shard = opened("store")
        shard.embed(ANN, *shard.shard.turns(ANN, [2]))
        shard.embed(BOB, *shard.shard.turns(BOB, [4]))
        shard.fold()
        wait_until(lambda: followed.shard.folded_seq == shard.shard.folded_seq)
        for owner, seq in ((ANN, 2), (BOB, 4)):
            _, offsets = followed.block(owner).tokens(VERSION.name, [seq], None)
            assert offsets[-1] > 0
    finally:
        followed.close()


@pytest.fixture
def readers(old: Path) -> list[TableReader | FollowedTable]:
    return [
        kind(str(old / "tables"), "shard-0000", [VERSION, BESIDE.version], {}) for kind in (TableReader, FollowedTable)
    ]


def test_a_table_that_is_opened_as_it_is_gives_what_it_has(readers: list[TableReader | FollowedTable]) -> None:
    for table in readers:
        stored = table.load(ANN, 10)
        assert [one.turn_seq for one in stored.vectors[VERSION.name]] == [1]
        assert stored.vectors.keys() == {VERSION.name}
        assert table.tokens(ANN, VERSION.name, [1]) == {}
        assert table.nearest(ANN, BESIDE.embed(["amber"])[0], 5, ANY, BESIDE.version.name) == []
        assert table.vector_rows(ANN) == {(VERSION.name, 4096), (VERSION.name, 4097)}
        found = table.session_vectors(ANN, [1, 2])[1]
        expected = pack_vectors(EMBEDDER.embed(["amber road"]))
        np.testing.assert_array_equal(found, np.frombuffer(expected, "<f2").astype(np.float32))


def test_the_vectors_of_a_session_are_of_the_version_that_most_of_it_has(opened: Opened) -> None:
    shard = opened("store", embedders=BOTH)
    shard.say(ANN, "a", "amber", "琥珀", "水晶")
    turns = shard.shard.turns(ANN, [1, 2, 3])
    shard.do(PutVectors(ANN, [VersionVectors(VERSION.name, (vectors_of(turns[0]),))]))
    chinese = tuple(vectors_of(turn, 1, BESIDE) for turn in turns[1:])
    shard.do(PutVectors(ANN, [VersionVectors(BESIDE.version.name, chinese)]))
    shard.fold()
    found = shard.table.session_vectors(ANN, [1, 2, 3])
    assert {seq: len(vector) for seq, vector in found.items()} == {2: 32, 3: 32}
