"""The cold table of a shard: what it keeps, for whom, and how it fails."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from serve_app.errors import StorageFull, StoreUnavailable
from serve_app.stores import cold as cold_module
from serve_app.stores import where
from serve_app.stores.cold import ColdTable
from serve_app.stores.rows import turn_row
from serve_app.stores.terms import index_terms
from tests.stores.test_lance import ANN, BOB, HOSTILE, files_with, row_of, turn


def opened(folder: Path) -> ColdTable:
    return ColdTable(str(folder / "cold"), "shard-0000", {})


@pytest.fixture
def table(tmp_path: Path) -> ColdTable:
    return opened(tmp_path)


def test_a_table_that_nothing_went_to_is_not_made(tmp_path: Path, table: ColdTable) -> None:
    assert table.read(ANN, [1]) == []
    assert table.find(ANN, ["apple"], 5) == []
    table.forget(where.owned(ANN))
    table.clean()
    table.tend()
    assert table.answers()
    assert not table.exists
    assert list(tmp_path.rglob("*.lance")) == []


def test_what_was_kept_is_found_by_words_after_opening_again(tmp_path: Path, table: ColdTable) -> None:
    rows = [row_of(ANN, turn(seq, f"apple number{seq} 上海")) for seq in range(1, 4)]
    table.keep(rows)
    table.keep(rows)
    again = opened(tmp_path)
    assert [one.content for one in again.read(ANN, [1, 2, 9])] == ["apple number1 上海", "apple number2 上海"]
    assert [one.seq for one in again.find(ANN, index_terms("number2"), 5)] == [2]
    assert sorted(one.seq for one in again.find(ANN, index_terms("上海"), 5)) == [1, 2, 3]
    assert len(again.find(ANN, index_terms("apple"), 2)) == 2


@pytest.mark.parametrize("owner", [BOB, *HOSTILE])
def test_nobody_finds_what_is_anothers(table: ColdTable, owner: str) -> None:
    table.keep([row_of(ANN, turn(1, "apple")), row_of("zeta\x1fbob", turn(2, "apple"))])
    assert table.read(owner, [1, 2]) == []
    assert table.find(owner, ["appl"], 10) == []
    table.forget(where.owned(owner))
    assert [one.seq for one in table.find(ANN, ["appl"], 10)] == [1]


def test_what_was_forgotten_leaves_the_files_with_a_cleaning(tmp_path: Path, table: ColdTable) -> None:
    table.keep([row_of(ANN, turn(1, "kQ7xZp2LmW9sentinel")), row_of(ANN, turn(2, "stays"))])
    table.forget(where.of_seq(1))
    assert files_with(tmp_path, "kQ7xZp2LmW9sentinel")
    table.clean()
    assert files_with(tmp_path, "kQ7xZp2LmW9sentinel") == []
    assert [one.content for one in table.read(ANN, [1, 2])] == ["stays"]


def test_a_store_that_failed_is_left_alone_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cold").write_text("in the way of the folder")
    table = opened(tmp_path)
    assert not table.answers()
    assert table.trouble is not None
    with pytest.raises(StoreUnavailable, match="do not answer"):
        table.find(ANN, ["apple"], 5)
    (tmp_path / "cold").unlink()
    with pytest.raises(StoreUnavailable, match="do not answer"):
        table.keep([turn_row(ANN, turn(1, "apple"), ["appl"])])
    assert not table.to_be_asked_again
    rested = time.monotonic() + cold_module.REST_S + 1
    monkeypatch.setattr(cold_module.time, "monotonic", lambda: rested)
    assert table.to_be_asked_again
    assert table.find(ANN, ["apple"], 5) == []
    assert table.trouble is None
    table.keep([turn_row(ANN, turn(1, "apple"), ["appl"])])
    assert len(table.find(ANN, ["appl"], 5)) == 1


class Full(ColdTable):
    """Takes nothing more; what it holds can be read."""

    def sync(self) -> None:
        raise StorageFull("no room left for the tables")


def test_a_full_store_is_read_all_the_same(tmp_path: Path, table: ColdTable) -> None:
    table.keep([row_of(ANN, turn(1, "apple"))])
    full = Full(str(tmp_path / "cold"), "shard-0000", {})
    with pytest.raises(StorageFull):
        full.keep([row_of(ANN, turn(2, "pear"))])
    assert [one.seq for one in full.read(ANN, [1])] == [1]
    assert [one.seq for one in full.find(ANN, index_terms("apple"), 5)] == [1]


def test_while_its_files_are_held_nothing_is_cleaned_and_everything_is_read(table: ColdTable) -> None:
    table.keep([row_of(ANN, turn(1, "apple"))])
    table.forget(where.of_seq(1))
    table.keep([row_of(ANN, turn(2, "pear"))])
    with table.hold.holding():
        with pytest.raises(StoreUnavailable, match="backup"):
            table.clean()
        assert [one.seq for one in table.read(ANN, [2])] == [2]
    table.clean()
    assert [one.seq for one in table.read(ANN, [2])] == [2]
