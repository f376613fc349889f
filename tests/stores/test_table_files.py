"""The files of one table: what a purge leaves where little of much was erased, and what upkeep may rewrite."""

from __future__ import annotations

import datetime
from pathlib import Path

import lance
import pytest

from serve_app.core import Owner, Turn
from serve_app.errors import StoreUnavailable
from serve_app.models.stub import HashEmbedder
from serve_app.stores import table_files, where
from serve_app.stores.lance import RecordTable
from serve_app.stores.rows import Row, turn_row
from serve_app.stores.table_files import LAG_ROWS, SMALL_FRAGMENTS_MAX, TableFiles

VERSION = HashEmbedder(8).version
ANN, BOB = Owner("acme", "ann").key, Owner("acme", "bob").key
SECRET = "kq7xzp2lmw9sentinel"
LARGE = 5_000


@pytest.fixture
def table(tmp_path: Path) -> RecordTable:
    return RecordTable(str(tmp_path), "shard-0000", (VERSION,), {})


def rows(first: int, count: int, owner: str = BOB, terms: str = "apple") -> list[Row]:
    """Without vectors: they have no part in this."""
    turns = [Turn(f"t{seq}", "s", "user", terms, seq, 1, 1, rev=seq) for seq in range(first, first + count)]
    return [turn_row(owner, turn, [terms]) for turn in turns]


def opened(folder: Path) -> lance.LanceDataset:
    return lance.dataset(str(folder / "shard-0000.lance"))


def shape(folder: Path) -> list[tuple[int, int]]:
    """Rows and deleted rows of each fragment."""
    return [(one.physical_rows, one.num_deletions) for one in opened(folder).get_fragments()]


def files_with(folder: Path, text: str) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_one_row_of_a_large_fragment_leaves_no_byte(
    tmp_path: Path, table: RecordTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine by itself lets a deleted row stand where it is less than a tenth of its fragment, and has no neighbour
    that would be merged with it: a fragment that is full has none."""
    monkeypatch.setattr(table_files, "FRAGMENT_ROWS", LARGE)
    table.merge([*rows(1, LARGE), *rows(LARGE + 1, 1, ANN, SECRET)], LARGE + 1)
    table.purge(LARGE + 1)
    table.delete(where.owned(ANN))
    table.merge([], LARGE + 2)
    assert (LARGE + 2, 2) in shape(tmp_path), "one large fragment; the row and the former watermark are deleted"
    assert len(files_with(tmp_path, SECRET)) > 0
    table.purge(LARGE + 2)
    assert files_with(tmp_path, SECRET) == []
    assert sum(deleted for _, deleted in shape(tmp_path)) <= 1, "but for the watermark, which was merged since"
    assert len(table.load(BOB, LARGE).index) == LARGE


def test_a_purge_rewrites_only_what_holds_deleted_rows(
    tmp_path: Path, table: RecordTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "FRAGMENT_ROWS", 100)
    for place in range(4):
        table.merge(rows(1_000 * (place + 1), 150, ANN if place == 2 else BOB), 10_000)
    table.purge(10_000)
    data = tmp_path / "shard-0000.lance" / "data"
    before = {path.name for path in data.iterdir()}
    table.delete(where.every(where.owned(ANN), where.of_seq(3_010)))
    table.purge(10_001)
    kept = before & {path.name for path in data.iterdir()}
    assert len(kept) >= 2, "the fragments of the others lie where they lay"
    assert len(table.load(ANN, 1_000).index) == 149


def test_upkeep_leaves_full_fragments_alone(
    tmp_path: Path, table: RecordTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one round rewrites does not grow with the table."""
    monkeypatch.setattr(table_files, "FRAGMENT_ROWS", 40)
    full: set[str] = set()
    for round_ in range(3):
        for step in range(SMALL_FRAGMENTS_MAX):
            first = 1_000 * (1 + round_) + 10 * step
            table.merge(rows(first, 10), first + 9)
        table.compact()
        files = {file.path for one in opened(tmp_path).get_fragments() for file in one.data_files()}
        assert full <= files, "a fragment that was full was written again"
        full = {
            file.path
            for one in opened(tmp_path).get_fragments()
            if one.physical_rows >= 40 and not one.num_deletions
            for file in one.data_files()
        }
        assert full
    assert table.fragments() < 3 * SMALL_FRAGMENTS_MAX / 2
    assert len(table.load(BOB, 1_000).index) == 3 * 10 * SMALL_FRAGMENTS_MAX


def test_upkeep_is_bounded_in_rows(tmp_path: Path, table: RecordTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "FRAGMENT_ROWS", 40)
    monkeypatch.setattr(table_files, "COMPACTED_ROWS_MAX", 120)
    for step in range(SMALL_FRAGMENTS_MAX):
        table.merge(rows(10 * (step + 1), 10), 10 * (step + 2))
    before = table.fragments()
    table.compact()
    assert before - 12 <= table.fragments() < before


def test_the_owners_index_follows_and_the_words_wait_for_a_compaction(table: RecordTable) -> None:
    table.merge(rows(1, LAG_ROWS + 10), LAG_ROWS + 10)
    table.compact()
    unindexed = {index.columns[0]: index.num_unindexed_rows for index in table._table.list_indices()}
    assert (unindexed["owner"], unindexed["row"], unindexed["seq"]) == (0, 0, 0)
    assert unindexed["terms"] > LAG_ROWS
    assert len(table.matching(BOB, ["apple"], 3)) == 3, "rows that the index does not know are found all the same"


def test_a_tag_stops_the_promise_of_a_purge_and_not_the_upkeep(tmp_path: Path, table: RecordTable) -> None:
    """A tagged version keeps its files: what was erased is then not said to be gone."""
    table.merge(rows(1, 10, ANN, SECRET), 10)
    opened(tmp_path).tags.create("kept", table.version())
    table.delete(where.owned(ANN))
    with pytest.raises(StoreUnavailable):
        table.purge(11)
    TableFiles(str(tmp_path / "shard-0000.lance"), {}).drop_versions(datetime.timedelta(0))
    assert len(files_with(tmp_path, SECRET)) > 0
    opened(tmp_path).tags.delete("kept")
    table.purge(11)
    assert files_with(tmp_path, SECRET) == []


def test_a_merge_after_a_rewrite_that_the_handle_has_not_seen_loses_nothing(tmp_path: Path, table: RecordTable) -> None:
    """As when the upkeep stops between its commit and the look at it."""
    table.merge(rows(1, 100), 100)
    table.delete(where.of_seq(5))
    TableFiles(str(tmp_path / "shard-0000.lance"), {}).rewrite_deleted()
    assert table.version() < opened(tmp_path).version
    table.merge(rows(90, 20), 109)
    assert len(table.load(BOB, 1_000).index) == 108
    assert table.delete(where.of_seq(7)) == 1
    assert (len(table.load(BOB, 1_000).index), table.folded_seq()) == (107, 109)


def test_what_a_dropped_column_held_leaves_the_files_with_upkeep_in_bounded_parts(
    table: RecordTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full fragments without a deleted row, too: nothing else would ever rewrite them."""
    monkeypatch.setattr(table_files, "FRAGMENT_ROWS", 1_000)
    monkeypatch.setattr(table_files, "COMPACTED_ROWS_MAX", 2_000)
    for first in range(1, 5_001, 1_000):
        table.merge(rows(first, 1_000), first + 999)
    column = max(field.id() for field in opened(tmp_path).lance_schema.fields())
    table.release(VERSION.name)
    before = holding(tmp_path, column)
    table.compact()
    left = holding(tmp_path, column)
    assert 0 < left < before
    for _ in range(before):
        table.compact()
    assert holding(tmp_path, column) == 0
    assert len(table.turns(BOB, [1, 2_500, 5_000])) == 3
    assert [turn.seq for turn, _ in table.matching(BOB, ["apple"], 3)]


def holding(folder: Path, column: int) -> int:
    """Fragments whose files hold the column."""
    fragments = opened(folder).get_fragments()
    return sum(any(column in file.fields for file in one.metadata.files) for one in fragments)
