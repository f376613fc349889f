"""Ranges cover all of a store's tables, once."""

from itertools import pairwise

import pytest

from jobs.stored_rows import RANGE_SEQS, STRETCH_SEQS, STRETCHES_MAX, Source, StoredTable, folded_seqs, stretches
from serve_app.config import load_settings
from tests.api.running import Running, hash_settings


@pytest.mark.parametrize("ends", [[0], [5, 0], [STRETCH_SEQS, STRETCH_SEQS - 1], [10**9, 3, 10**8]])
def test_every_seq_of_every_table_is_in_one_stretch(ends):
    found = stretches(ends)
    assert [one.number for one in found] == list(range(len(found)))
    assert len(found) <= STRETCHES_MAX + 2 * len(ends) + 2
    for shard, end in enumerate(ends):
        for root in ("tables", "cold"):
            theirs = [one for one in found if (one.shard, one.root) == (shard, root)]
            assert (theirs[0].first, theirs[-1].last) == (0, end)
            assert all(one.last + 1 == other.first for one, other in pairwise(theirs))


def warm(source, shard):
    return StoredTable(source, shard, "tables")


def test_what_a_service_has_folded_is_read_in_order_whoever_it_is(tmp_path):
    running = Running(hash_settings(tmp_path / "data"))
    for number in range(RANGE_SEQS + 20):
        running.append(f"u{number % 7}", "s", f"n{number}")
    running.fold()
    source = Source(load_settings(tmp_path / "data").layout)
    ends = folded_seqs(source, 2)
    seqs = [
        [seq for part in warm(source, shard).ranges(0, end, ["seq"], ["turn"]) for seq in part["seq"].to_pylist()]
        for shard, end in enumerate(ends)
    ]
    assert sum(map(len, seqs)) == RANGE_SEQS + 20
    assert all(one == sorted(one) for one in seqs)
    cold = StoredTable(source, 0, "cold").ranges(0, 100, ["seq"])
    assert [part.num_rows for part in cold] == []
    running.stop()
