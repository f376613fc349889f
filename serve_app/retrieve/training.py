"""Training a ranker from queries with known answers. LightGBM is imported here, when it is needed, and nowhere else.

Promises the same file for the same examples, and honest figures: `cross_validated` ranks each group of queries by a
model that has seen nothing of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.errors import NotSupported
from serve_app.retrieve.features import FEATURES, Rows, of_dense, of_late
from serve_app.retrieve.ranker import LEAVES_MAX, Ranker, RankerFile, Tree

DEPTHS: Final = (5, 10, 25, 50)

INSTALL: Final = "pip install lightgbm"

QUERIES_A_LEAF: Final = 20
IN_LEAF_LEAST: Final = 5
"""A leaf holds a candidate for each so many queries, and no fewer than so many: of few queries little can be learned,
but that."""


class Example(NamedTuple):
    """One query with its candidates, in the order of the first stage."""

    query: str
    """Its id."""
    group: str
    """The author or the conversation: in `cross_validated` no model sees two queries of one group apart."""
    rows: Rows
    gold: NDArray[np.bool_]
    """Shape (n,): which candidates answer the query."""
    wanted: int
    """How many turns answer it, those that are not among the candidates included."""


class TrainingOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Small trees, grown slowly, with columns left out at random: what is learned has to hold for other people."""

    trees: int = 100
    leaves: int = 15
    learning_rate: float = 0.05
    in_leaf_min: int = 80
    """Candidates in a leaf; fewer where there are few queries, see QUERIES_A_LEAF."""
    l2: float = 10.0
    columns_share: float = 0.6
    rows_share: float = 0.7
    seeds: tuple[int, ...] = (1, 2, 3)
    """A forest each; the mean of them ranks."""
    candidates: int = 60
    """Of each list so many are learned from: those further back teach little more and take as long."""
    late_hidden_every: int = 4
    dense_hidden_every: int = 8
    """Every so manieth query is learned from once more as it looks without tokens, and without vectors, too: turns and
    whole memories may have none, and are to be ranked no worse than the first stage does."""
    late_share: float = 0.35
    """Of the score. The trees fit their own kind of conversations; the rest is what needs no training."""
    left_out: tuple[str, ...] = ()
    """Features that are not to be learned from."""


def train(examples: Sequence[Example], options: TrainingOptions | None = None, trained_on: str = "") -> bytes:
    """The content of a ranker file.

    Raises ValueError where there is nothing to learn from, NotSupported without LightGBM.
    """
    options = options or TrainingOptions()
    seen = [_ahead(one, options.candidates) for one in examples]
    usable = [one for one in seen if one.gold.any() and not one.gold.all()]
    if not usable:
        raise ValueError("no query has both a candidate that answers it and one that does not")
    chosen = [place for place, name in enumerate(FEATURES) if name not in options.left_out]
    data = _dataset(usable + _with_less(usable, options), chosen)
    in_leaf = min(options.in_leaf_min, max(IN_LEAF_LEAST, len(usable) // QUERIES_A_LEAF))
    forests = [_grown(data, options, in_leaf, seed) for seed in options.seeds]
    roots = [one["tree_structure"] for forest in forests for one in forest["tree_info"]]
    trees = tuple(_tree(root, len(forests)) for root in roots)
    names = tuple(FEATURES[place] for place in chosen)
    return msgspec.json.encode(
        RankerFile("memstrata-ranker-1", trained_on or _described(usable), names, options.late_share, trees)
    )


def cross_validated(examples: Sequence[Example], options: TrainingOptions | None = None) -> dict[str, float]:
    """Recall at each depth, `first.recall@k` as the list came and `recall@k` ranked by a model of the other groups."""
    ranked: list[NDArray[np.bool_]] = []
    ordered: list[Example] = []
    for group in sorted({one.group for one in examples}):
        model = Ranker(train([one for one in examples if one.group != group], options))
        own = [one for one in examples if one.group == group]
        ordered += own
        ranked += [one.gold[np.argsort(-model.scores(one.rows), kind="stable")] for one in own]
    return _recalls("first.", [one.gold for one in ordered], ordered) | _recalls("", ranked, ordered)


def _recalls(prefix: str, ranked: Sequence[NDArray[np.bool_]], examples: Sequence[Example]) -> dict[str, float]:
    wanted = np.array([max(one.wanted, 1) for one in examples])
    return {
        f"{prefix}recall@{depth}": float(np.mean([gold[:depth].sum() for gold in ranked] / wanted)) for depth in DEPTHS
    }


def _ahead(example: Example, candidates: int) -> Example:
    return example._replace(rows=example.rows[:candidates], gold=example.gold[:candidates])


def _with_less(examples: Sequence[Example], options: TrainingOptions) -> list[Example]:
    late = [place for place, name in enumerate(FEATURES) if of_late(name)]
    dense = [place for place, name in enumerate(FEATURES) if of_dense(name)]
    hidden = [_hidden(one, late) for one in examples[:: options.late_hidden_every]]
    return hidden + [_hidden(one, late + dense) for one in examples[:: options.dense_hidden_every]]


def _hidden(example: Example, columns: Sequence[int]) -> Example:
    rows = example.rows.copy()
    rows[:, columns] = np.nan
    return example._replace(rows=rows)


def _described(examples: Sequence[Example]) -> str:
    return f"{len(examples)} queries of {len({one.group for one in examples})} groups"


def _lightgbm() -> Any:
    try:
        return importlib.import_module("lightgbm")
    except ImportError as error:
        raise NotSupported(f"training a ranker needs LightGBM: {INSTALL}") from error


def _dataset(examples: Sequence[Example], chosen: Sequence[int]) -> Callable[[dict[str, Any]], Any]:
    lightgbm = _lightgbm()
    table = np.concatenate([one.rows[:, chosen] for one in examples])
    gold = np.concatenate([one.gold for one in examples]).astype(np.int32)
    sizes = [len(one.gold) for one in examples]
    names = [FEATURES[place] for place in chosen]
    return lambda params: lightgbm.Dataset(table, gold, group=sizes, feature_name=names, params=params)


def _grown(data: Callable[[dict[str, Any]], Any], options: TrainingOptions, in_leaf: int, seed: int) -> Any:
    """LightGBM's own description of a forest, see `Booster.dump_model`."""
    params = {
        "objective": "lambdarank",
        "lambdarank_truncation_level": 20,
        "label_gain": [0, 1],
        "num_leaves": min(options.leaves, LEAVES_MAX),
        "learning_rate": options.learning_rate,
        "min_data_in_leaf": in_leaf,
        "lambda_l2": options.l2,
        "feature_fraction": options.columns_share,
        "bagging_fraction": options.rows_share,
        "bagging_freq": 1,
        "max_bin": 63,
        "seed": seed,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    return _lightgbm().train(params, data(params), options.trees).dump_model()


def _tree(root: dict[str, Any], forests: int) -> Tree:
    """A tree of one of several forests, whose mean counts."""
    nodes: list[dict[str, Any]] = []
    leaves: list[float] = []

    def place(node: dict[str, Any]) -> int:
        if "leaf_value" in node:
            leaves.append(node["leaf_value"] / forests)
            return -len(leaves)
        nodes.append(node)
        number = len(nodes) - 1
        node["sides"] = (place(node["left_child"]), place(node["right_child"]))
        return number

    place(root)
    return Tree(
        column=tuple(node["split_feature"] for node in nodes),
        threshold=tuple(node["threshold"] for node in nodes),
        unknown_left=tuple(_unknown_left(node) for node in nodes),
        left=tuple(node["sides"][0] for node in nodes),
        right=tuple(node["sides"][1] for node in nodes),
        inner=tuple(node["internal_value"] / forests for node in nodes),
        leaf=tuple(leaves),
    )


def _unknown_left(node: dict[str, Any]) -> bool:
    """Where no unknown value was seen in training, LightGBM takes one for 0."""
    return bool(node["default_left"]) if node["missing_type"] == "NaN" else bool(node["threshold"] >= 0)
