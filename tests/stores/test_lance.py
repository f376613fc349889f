"""One shard's table on disk: isolation, exactness, what a purge leaves, and reads that never fail."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import lancedb
import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.core import Fact, Owner, Turn
from serve_app.errors import StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.stores import lance, where
from serve_app.stores.lance import RecordTable
from serve_app.stores.packing import pack_vectors, turn_text
from serve_app.stores.rows import WARM, Row, token_column, turn_row, vector_column
from serve_app.stores.table import KEYS_A_SCAN
from serve_app.stores.table_files import SMALL_FRAGMENTS_MAX
from serve_app.stores.terms import index_terms
from serve_app.stores.wanted import ANY, Wanted

EMBEDDER = HashEmbedder(32)
VERSION = EMBEDDER.version.name
ANN, BOB = Owner("acme", "ann").key, Owner("acme", "bob").key
SECRET = "kQ7xZp2LmW9sentinel"

HOSTILE = [
    Owner("acme", user).key
    for user in (
        "ann' OR '1'='1",
        'ann" OR 1=1 --',
        "ann%",
        "an_",
        "%",
        "*",
        "ann\\",
        "ann\\' OR owner LIKE '%",
        "ANN",
        "ann ",
        "a\u0301nn",
        "李雷",
        "ann); DROP TABLE turns; --",
        "${owner}",
        "",
    )
]


@pytest.fixture
def table(tmp_path: Path) -> RecordTable:
    return opened(tmp_path)


def opened(folder: Path) -> RecordTable:
    return RecordTable(str(folder), "shard-0000", (EMBEDDER.version,), {})


def turn(seq: int, content: str, session: str = "a", rev: int | None = None, turn_id: str | None = None) -> Turn:
    identifier = turn_id or f"t{seq}"
    return Turn(identifier, session, "user", content, seq, 1, 1_700_000_000_000_000 + seq, rev=rev or seq)


def row_of(owner: str, one: Turn, embedded: bool = True) -> Row:
    row = turn_row(owner, one, index_terms(turn_text(one)))
    if not embedded:
        return row
    made = EMBEDDER.encode([one.content], tokens=True)
    assert made.tokens is not None
    packed = {vector_column(VERSION): pack_vectors(made.vectors), token_column(VERSION): made.tokens[0].tobytes()}
    return Row(
        **{
            **{name: getattr(row, name) for name in row.__struct_fields__},
            "packed": packed,
            "vector_rev": one.rev,
            "vector_seq": one.rev,
        }
    )


def put(table: RecordTable, owner: str, *turns: Turn) -> None:
    table.merge([row_of(owner, one) for one in turns], turns[-1].rev)


def nearest(
    table: RecordTable, owner: str, query: NDArray[np.float32], k: int, wanted: Wanted = ANY
) -> list[tuple[Turn, float]]:
    return table.nearest(owner, query, k, wanted, VERSION)


def files_with(folder: Path, text: str) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def reopened(folder: Path) -> lancedb.table.Table:
    return lancedb.connect(str(folder)).open_table("shard-0000")


# ---- isolation


def test_no_id_reads_or_deletes_what_is_another_owners(table: RecordTable) -> None:
    owners = [ANN, BOB, *HOSTILE]
    for seq, owner in enumerate(owners, 1):
        put(table, owner, turn(seq, f"apple of number{seq}", session="a' OR '1'='1", turn_id="x' OR 1=1 --"))
    query = EMBEDDER.embed(["apple"])[0]
    for seq, owner in enumerate(owners, 1):
        assert [one.seq for one in table.load(owner, 10).turns] == [seq]
        assert [one.seq for one in table.turns(owner, list(range(50)))] == [seq]
        assert [one.seq for one, _ in nearest(table, owner, query, 50)] == [seq]
        assert [one.seq for one, _ in table.matching(owner, ["appl", "apple"], 50)] == [seq]
    for owner in owners:
        gone = where.every(where.owned(owner), where.of_session("a' OR '1'='1"), where.of_id("x' OR 1=1 --"))
        assert table.delete(gone) == 1
        assert table.load(owner, 10).index == ()


def test_hostile_terms_and_sessions_find_nothing(table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"))
    for text in ("' OR '1'='1", "*", "apple' OR", '"', "%", "owner:bob", "+apple -pie", "(", "\\"):
        assert table.matching(ANN, [text], 5) == []
        assert table.delete(where.every(where.owned(ANN), where.of_session(text))) == 0
        assert table.delete(where.every(where.owned(ANN), where.of_id(text))) == 0
    assert len(table.load(ANN, 10).turns) == 1


def test_an_owner_is_found_among_many_others(table: RecordTable) -> None:
    """The filter is applied before the best are taken, not after."""
    table.merge([row_of(BOB, turn(seq, "apple apple apple")) for seq in range(1, 400)], 399)
    put(table, ANN, turn(400, "one apple in a long row of other words about the weather"))
    assert [one.seq for one, _ in table.matching(ANN, index_terms("apple"), 3)] == [400]
    assert [one.seq for one, _ in nearest(table, ANN, EMBEDDER.embed(["apple apple apple"])[0], 3)] == [400]


# ---- reading


def test_turns_in_memory_are_left_out_but_for_those_that_have_left_it_since(table: RecordTable) -> None:
    """Also those of a colder tier stay in, and those from before what memory holds."""
    rows = [row_of(ANN, turn(seq, "apple")) for seq in range(1, 7)]
    table.merge([*rows[:4], msgspec.structs.replace(rows[4], tier=WARM), rows[5]], 6)
    query, k = EMBEDDER.embed(["apple"])[0], 50

    def found(wanted: Wanted) -> list[set[int]]:
        near, match = nearest(table, ANN, query, k, wanted), table.matching(ANN, index_terms("apple"), k, wanted)
        return [{one.seq for one, _ in near}, {one.seq for one, _ in match}]

    assert found(Wanted(resident_from=3)) == [{1, 2, 5}] * 2
    assert found(Wanted(resident_from=3, moved=[4, 99])) == [{1, 2, 4, 5}] * 2
    assert found(Wanted(resident_from=3, until=1)) == [{1}] * 2
    assert found(Wanted(resident_from=3, moved=range(3, 4 + KEYS_A_SCAN))) == [{1, 2, 3, 4, 5, 6}] * 2


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("我想去上海旅行", "上海"),
        ("东京は寒い", "寒い"),
        ("서울 날씨", "날씨"),
        ("order ZX-81Q arrived", "ZX-81Q"),
        ("API配置 was changed", "API配置"),
        ("she was running late", "run"),
        ("it costs 42.50 €", "42.50"),
        ("see https://example.org/a?b=c", "example.org"),
    ],
)
def test_words_and_codes_of_every_script_are_found(table: RecordTable, content: str, query: str) -> None:
    put(table, ANN, turn(1, "nothing of that kind"), turn(2, content))
    assert [one.seq for one, _ in table.matching(ANN, index_terms(query), 5)] == [2]
    table.purge(2)
    assert [one.seq for one, _ in table.matching(ANN, index_terms(query), 5)] == [2]


def test_the_nearest_are_exact_and_best_first(table: RecordTable) -> None:
    contents = [f"{first} {second}" for first in ("amber", "birch", "cedar", "fern") for second in map(str, range(50))]
    turns = [turn(seq, content) for seq, content in enumerate(contents, 1)]
    put(table, ANN, *turns)
    query = EMBEDDER.embed(["birch 7"])[0]
    stored = EMBEDDER.embed(contents).astype("<f2").astype(np.float32)
    expected = np.sort(stored @ query)[::-1][:20]
    found = nearest(table, ANN, query, 20)
    assert [score for _, score in found] == pytest.approx(expected.tolist(), abs=2e-3)
    for one, score in found:
        assert score == pytest.approx(float(stored[one.seq - 1] @ query), abs=2e-3)


def test_a_vector_of_an_older_state_is_not_used(table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"))
    table.merge([row_of(ANN, turn(1, "pear", rev=2), embedded=False)], 2)
    assert nearest(table, ANN, EMBEDDER.embed(["apple"])[0], 5) == []
    assert table.load(ANN, 5).vectors == {}
    assert table.without_vectors() == [(ANN, "a", 1, 2)]


def test_a_load_gives_all_ids_and_the_newest_bodies(table: RecordTable) -> None:
    put(table, ANN, *(turn(seq, f"turn {seq}", session="ab"[seq % 2]) for seq in range(1, 31)))
    stored = table.load(ANN, 7)
    assert [one.seq for one in stored.index] == list(range(1, 31))
    assert [one.seq for one in stored.turns] == list(range(24, 31))
    assert [one.turn_seq for one in stored.vectors[VERSION]] == list(range(24, 31))


def test_an_unknown_owner_has_nothing(table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"))
    stored = table.load(BOB, 5)
    assert (stored.index, stored.turns, stored.facts, stored.changed_seq) == ((), (), (), 0)
    assert table.turns(BOB, []) == []
    assert table.matching(ANN, [], 5) == []


def test_a_load_of_many_rows_is_that_of_few(table: RecordTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """One scan or several: the same owner comes of it."""
    put(table, ANN, *(turn(seq, f"turn {seq}", session="ab"[seq % 2]) for seq in range(1, 31)))
    fact = Fact("diet", "vegan", 31, 0)
    body = msgspec.msgpack.encode(fact)
    mark = Row(row=32 * 4096 + 1, rev=32, kind="mark", owner=ANN, seq=32, id="changed")
    table.merge([Row(row=31 * 4096, rev=31, kind="fact", owner=ANN, seq=31, id="diet", body=body), mark], 33)
    at_once = table.load(ANN, 7)
    monkeypatch.setattr(lance, "LOADED_AT_ONCE", 5)
    in_parts = table.load(ANN, 7)
    assert msgspec.structs.replace(in_parts, vectors={}) == msgspec.structs.replace(at_once, vectors={})
    assert [(one.turn_seq, one.vector_seq) for one in in_parts.vectors[VERSION]] == [
        (seq, seq) for seq in range(24, 31)
    ]
    for one, other in zip(in_parts.vectors[VERSION], at_once.vectors[VERSION], strict=True):
        assert np.array_equal(one.parts, other.parts)
        assert one.tokens == other.tokens != b""
    assert (at_once.facts, at_once.changed_seq, at_once.folded_seq) == ((fact,), 32, 33)


def test_a_load_gives_the_words_that_were_indexed(table: RecordTable) -> None:
    put(table, ANN, turn(1, "API配置 was changed"), turn(2, "running late"))
    stored = table.load(ANN, 5)
    assert [terms.split(" ") for terms in stored.terms] == [index_terms(turn_text(one)) for one in stored.turns]


# ---- writing


def test_an_older_state_never_replaces_a_newer_one(table: RecordTable) -> None:
    put(table, ANN, turn(1, "newer", rev=5))
    table.merge([row_of(ANN, turn(1, "older", rev=3))], 4)
    assert [one.content for one in table.load(ANN, 5).turns] == ["newer"]
    assert table.folded_seq() == 5


def test_what_was_merged_is_there_after_opening_again(tmp_path: Path, table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"))
    fact = Fact("diet", "vegan", 2, 0)
    table.merge(
        [Row(row=2 * 4096, rev=2, kind="fact", owner=ANN, seq=2, id="diet", body=msgspec.msgpack.encode(fact))], 2
    )
    again = opened(tmp_path)
    assert again.folded_seq() == 2
    assert again.load(ANN, 5).facts == (fact,)
    assert [one.content for one in again.load(ANN, 5).turns] == ["apple"]


def test_compacting_keeps_everything(table: RecordTable) -> None:
    for seq in range(1, SMALL_FRAGMENTS_MAX + 10):
        put(table, ANN, turn(seq, f"number{seq}"))
    before = (table.load(ANN, 100).turns, table.folded_seq())
    assert table.fragments() > SMALL_FRAGMENTS_MAX
    table.compact()
    assert table.fragments() < 5
    assert (table.load(ANN, 100).turns, table.folded_seq()) == before
    assert [one.seq for one, _ in table.matching(ANN, index_terms("number7"), 5)] == [7]
    assert len(nearest(table, ANN, EMBEDDER.embed(["number7"])[0], 100)) == SMALL_FRAGMENTS_MAX + 9


def test_a_table_that_was_made_but_not_indexed_is_indexed_when_opened(tmp_path: Path, table: RecordTable) -> None:
    """As a stop between the two leaves it."""
    put(table, ANN, turn(1, "API配置"), turn(2, "API"))
    reopened(tmp_path).drop_index("terms_idx")
    assert [one.seq for one, _ in opened(tmp_path).matching(ANN, ["配置"], 5)] == [1]
    assert [index.columns for index in reopened(tmp_path).list_indices() if index.index_type == "FTS"] == [["terms"]]


# ---- forgetting


@pytest.mark.parametrize("others", [0, 1, 200])
def test_a_purge_leaves_no_byte_of_what_was_deleted(tmp_path: Path, table: RecordTable, others: int) -> None:
    put(
        table, ANN, *(turn(seq, f"other {seq}") for seq in range(10, 10 + others)), turn(1, f"a {SECRET} word", rev=999)
    )
    table.purge(999)
    put(table, ANN, turn(1_000, "more"))
    assert len(files_with(tmp_path, SECRET)) >= 1
    assert len(files_with(tmp_path, SECRET.lower())) >= 1, "the index holds the term"
    table.delete(where.every(where.owned(ANN), where.of_seq(1)))
    table.merge([], 1_001)
    table.purge(1_001)
    assert files_with(tmp_path, SECRET) == []
    assert files_with(tmp_path, SECRET.lower()) == []
    assert len(table.load(ANN, 1_000).turns) == others + 1
    assert table.folded_seq() == 1_001


def test_a_purge_takes_what_an_unfinished_write_left(tmp_path: Path, table: RecordTable) -> None:
    """A data file that no version names: the process was stopped between writing it and the commit."""
    put(table, ANN, turn(1, f"{SECRET} once"))
    data = tmp_path / "shard-0000.lance" / "data"
    (held,) = [path for path in data.iterdir() if SECRET.encode() in path.read_bytes()]
    shutil.copy(held, data / f"{'01' * 12}{'ab' * 13}.lance")
    table.delete(where.of_seq(1))
    table.merge([], 2)
    table.purge(2)
    assert files_with(tmp_path, SECRET) == []


def test_a_purge_is_due_until_it_was_done(tmp_path: Path, table: RecordTable) -> None:
    mark = Row(row=7 * 4096 + 1, rev=7, kind="mark", owner=ANN, seq=7, id="changed")
    assert not table.purge_due()
    table.merge([mark], 8)
    assert opened(tmp_path).purge_due()
    table.purge(8)
    assert not table.purge_due()
    assert not opened(tmp_path).purge_due()
    assert table.load(ANN, 5).changed_seq == 7


def test_reads_go_on_while_the_table_is_purged(table: RecordTable) -> None:
    put(table, ANN, *(turn(seq, f"number{seq} apple") for seq in range(1, 301)))
    query = EMBEDDER.embed(["apple"])[0]
    failed: list[Exception] = []
    reads = 0
    purged = threading.Event()

    def read() -> None:
        nonlocal reads
        while not purged.is_set():
            try:
                assert len(table.load(ANN, 500).turns) >= 300
                assert len(nearest(table, ANN, query, 10)) == 10
                assert len(table.matching(ANN, index_terms("apple"), 10)) == 10
                reads += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for seq in range(1_000, 1_008):
        put(table, ANN, turn(seq, "apple pie"))
        table.delete(where.of_seq(seq))
        table.purge(seq)
    purged.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert reads > 0


def test_a_table_that_is_gone_is_named(tmp_path: Path, table: RecordTable) -> None:
    put(table, ANN, turn(1, "apple"))
    shutil.rmtree(tmp_path / "shard-0000.lance")
    calls: Sequence[object] = (
        lambda: table.load(ANN, 5),
        lambda: nearest(table, ANN, EMBEDDER.embed(["apple"])[0], 5),
        lambda: table.merge([], 5),
    )
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call()  # type: ignore[operator]


# ---- tables of earlier releases


def test_a_table_without_tiers_and_arrival_times_is_completed_when_it_is_opened(tmp_path: Path) -> None:
    """Its turns are in no colder tier, and none of them is old at once."""
    made = opened(tmp_path / "new")
    put(made, ANN, turn(1, "apple"), turn(2, "pear"))
    rows = reopened(tmp_path / "new").to_arrow().drop_columns(["tier", "arrived_at"])
    old = lancedb.connect(str(tmp_path / "old")).create_table("shard-0000", data=rows, on_bad_vectors="null")
    assert "tier" not in old.schema.names
    before = time.time_ns() // 1000
    table = opened(tmp_path / "old")
    assert [one.content for one in table.load(ANN, 5).turns] == ["apple", "pear"]
    assert [(age.seq, age.tier) for age in table.ages(ANN)] == [(1, 0), (2, 0)]
    assert all(before <= age.arrived_at <= time.time_ns() // 1000 for age in table.ages(ANN))
    put(table, ANN, turn(3, "plum"), turn(2, "pear tree", rev=9))
    again = opened(tmp_path / "old")
    assert [one.content for one in again.load(ANN, 5).turns] == ["apple", "pear tree", "plum"]
    assert [age.arrived_at for age in again.ages(ANN)][1:] == [1, 1]
    assert len(nearest(again, ANN, EMBEDDER.embed(["plum"])[0], 5)) == 3
    assert [one.seq for one, _ in again.matching(ANN, index_terms("plum"), 5)] == [3]
    assert again.folded_seq() == 9
