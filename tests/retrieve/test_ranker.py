"""A ranker file: what is one, that LightGBM's trees say the same here, and what a row's columns add."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.errors import RankerUnusable
from serve_app.retrieve.features import FEATURES
from serve_app.retrieve.ranker import LEAVES_MAX, Ranker, open_ranker, shipped

FUSED, LATE = FEATURES.index("fused"), FEATURES.index("late_weighted")

STUMP: dict[str, Any] = {
    "column": [0],
    "threshold": [0.5],
    "unknown_left": [True],
    "left": [-1],
    "right": [-2],
    "inner": [0.0],
    "leaf": [-1.0, 1.0],
}

LOOP = {name: (side or [0.0]) * 3 for name, side in STUMP.items()} | {
    "left": [-1, 2, 1],
    "right": [-2, -3, -4],
    "leaf": [0.0, 1.0, 2.0, 3.0],
}
"""Its second and third node are each other's children: each is reached once, and none of them from the root."""


def file_of(*trees: dict[str, Any], **changed: Any) -> bytes:
    whole = {
        "format": "memstrata-ranker-1",
        "trained_on": "nothing",
        "features": ["fused"],
        "late_share": 0.0,
        "trees": trees or [STUMP],
    }
    return msgspec.json.encode(whole | changed)


def some_rows(seed: int, n: int = 60) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, len(FEATURES))).astype(np.float32)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


def test_a_tree_sends_each_row_to_its_leaf() -> None:
    rows = np.full((4, len(FEATURES)), np.nan, np.float32)
    rows[:3, FUSED] = [0.4, 0.5, np.nextafter(np.float32(0.5), np.float32(1))]
    low, high = round(1 / (1 + np.e), 4), round(1 / (1 + 1 / np.e), 4)
    assert Ranker(file_of()).scores(rows).tolist() == [low, low, high, low]
    right = Ranker(file_of(STUMP | {"unknown_left": [False]}))
    assert right.scores(rows)[3] == high


def test_a_tree_may_be_one_leaf() -> None:
    lone = {"column": [], "threshold": [], "unknown_left": [], "left": [], "right": [], "inner": [], "leaf": [2.0]}
    rows = some_rows(0, 3)
    both = Ranker(file_of(lone, STUMP))
    parts = Ranker(file_of()).contributions(rows).sum(axis=1) + 2
    np.testing.assert_allclose(both.contributions(rows).sum(axis=1), parts)
    np.testing.assert_allclose(both.scores(rows), 1 / (1 + np.exp(-parts)), atol=1e-4)
    assert set(Ranker(file_of(lone)).scores(rows).tolist()) == {0.8808}


def test_late_interaction_counts_beside_the_trees_where_it_is_known() -> None:
    rows = np.full((2, len(FEATURES)), np.nan, np.float32)
    rows[0, LATE] = 0.5
    alone, beside = Ranker(file_of()), Ranker(file_of(late_share=0.25))
    assert beside.scores(rows)[0] == pytest.approx(0.75 * alone.scores(rows)[0] + 0.125, abs=1e-4)
    assert beside.scores(rows)[1] == alone.scores(rows)[1]


def test_a_score_is_the_rows_own_whatever_list_it_is_in() -> None:
    ranker, rows = shipped(), some_rows(1)
    scores = ranker.scores(rows)
    order = np.random.default_rng(2).permutation(len(rows))
    assert ranker.scores(rows[order]).tolist() == scores[order].tolist()
    assert [ranker.scores(row[None])[0] for row in rows[:10]] == scores[:10].tolist()
    assert Ranker(msgspec.json.encode(ranker.file)).scores(rows).tolist() == scores.tolist()
    assert ((scores >= 0) & (scores <= 1)).all()


def test_nothing_known_and_nothing_found_are_ranked_too() -> None:
    nothing = np.full((3, len(FEATURES)), np.nan, np.float32)
    assert len(set(shipped().scores(nothing).tolist())) == 1
    assert shipped().scores(nothing[:0]).shape == (0,)


def test_what_the_columns_add_makes_up_the_score() -> None:
    ranker, rows = shipped(), some_rows(3)
    parts = ranker.contributions(rows)
    assert parts.shape == (len(rows), len(FEATURES) + 1)
    assert np.ptp(parts[:, -1]) == 0
    late = np.nan_to_num(np.clip(rows[:, LATE], 0, 1))
    share = np.where(np.isnan(rows[:, LATE]), 0, ranker.file.late_share)
    mixed = (1 - share) / (1 + np.exp(-parts.sum(axis=1))) + share * late
    np.testing.assert_allclose(mixed, ranker.scores(rows), atol=1e-4)


def test_a_tree_of_one_leaf_is_one() -> None:
    bare = {name: [] for name in STUMP} | {"leaf": [2.0]}
    assert set(Ranker(file_of(bare)).scores(some_rows(1))) == {0.8808}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"tree\nversion=v4\n", "no ranker file"),
        (file_of(format="memstrata-ranker-2"), "no ranker file"),
        (file_of(extra=1), "extra"),
        (file_of(features=["fused", "horoscope", "weather"]), "horoscope, weather"),
        (file_of(late_share=1.5), "late_share"),
        (file_of(trees=[]), "0 trees"),
        (file_of(STUMP, STUMP | {"column": [1]}), "tree 1 asks for a column"),
        (file_of(STUMP | {"right": [0]}), "each leaf once"),
        (file_of(STUMP | {"left": [-2]}), "each leaf once"),
        (file_of(LOOP), "each leaf once"),
        (file_of(STUMP | {"leaf": [-1e308, 1e308]}), "beyond 4000"),
        (file_of(STUMP | {"threshold": []}), "different lengths"),
        (file_of(STUMP | {"leaf": [0.0] * (LEAVES_MAX + 1)}), "leaves"),
        (file_of().replace(b"0.5", b"1e999"), "no ranker file"),
    ],
)
def test_what_is_no_ranker_is_refused_by_name(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "ranker.json"
    path.write_bytes(text)
    with pytest.raises(RankerUnusable, match=says) as refused:
        open_ranker(path)
    assert str(path) in str(refused.value)


def test_a_ranker_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RankerUnusable, match="nowhere"):
        open_ranker(tmp_path / "nowhere.json")


def test_the_shipped_one_has_a_name_of_its_content() -> None:
    assert shipped().name.startswith("lambdarank-")
    assert shipped() is shipped()
    assert Ranker(file_of()).name != Ranker(file_of(late_share=0.1)).name
