"""Training: the same trees here as in LightGBM, the same file for the same examples, and folds that see nothing."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from serve_app.retrieve.features import FEATURES
from serve_app.retrieve.ranker import Ranker
from serve_app.retrieve.training import Example, TrainingOptions, cross_validated, train

SMALL = TrainingOptions(trees=12, leaves=7, in_leaf_min=5, seeds=(1, 2), late_share=0.0)
FUSED, TOLD = FEATURES.index("fused"), FEATURES.index("late_weighted")


def examples(seed: int = 0, queries: int = 40) -> list[Example]:
    """Lists in an order that tells nothing, answered by the candidate with the largest of one column."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(queries):
        rows = rng.normal(size=(30, len(FEATURES))).astype(np.float32)
        gold = rows[:, TOLD] == rows[:, TOLD].max()
        rows[rng.random(rows.shape) < 0.05] = np.nan
        made.append(Example(f"q{number}", f"author {number % 4}", rows, gold, 1))
    return made


def test_the_same_examples_give_the_same_file() -> None:
    assert train(examples(), SMALL, "nobody") == train(examples(), SMALL, "nobody")
    assert train(examples(), SMALL) != train(examples(1), SMALL)


def test_numpy_and_lightgbm_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[lightgbm.Booster] = []
    really = lightgbm.train

    def kept(*arguments: object, **named: object) -> lightgbm.Booster:
        grown.append(really(*arguments, **named))  # type: ignore[arg-type]
        return grown[-1]

    monkeypatch.setattr(lightgbm, "train", kept)
    ranker = Ranker(train(examples(), SMALL))
    rows = np.concatenate([one.rows for one in examples(5)])
    rows[0] = np.nan
    rows[1] = 0
    wanted = np.mean([model.predict(rows) for model in grown], axis=0)
    np.testing.assert_allclose(ranker.contributions(rows).sum(axis=1), wanted, atol=1e-6)
    np.testing.assert_allclose(ranker.scores(rows), 1 / (1 + np.exp(-wanted)), atol=1e-4)


def test_what_is_learned_ranks_others_queries() -> None:
    figures = cross_validated(examples(queries=60), SMALL)
    assert figures["recall@5"] > 0.8 > 0.5 > figures["first.recall@5"]


def test_a_group_is_ranked_by_a_model_that_saw_nothing_of_it() -> None:
    """One author's answers are the others' turned upside down: who had seen them would do well on them."""
    told = [
        one._replace(rows=-one.rows, group="contrary") if number % 4 == 0 else one
        for number, one in enumerate(examples(queries=60))
    ]
    contrary = [one for one in told if one.group == "contrary"]
    model = Ranker(train([one for one in told if one.group != "contrary"], SMALL))
    found = np.mean([one.gold[np.argsort(-model.scores(one.rows))][:5].any() for one in contrary])
    assert found < 0.3


def test_gold_that_the_first_stage_missed_counts_as_missed() -> None:
    told = [one._replace(wanted=2) for one in examples()]
    assert cross_validated(told, SMALL)["recall@50"] == 0.5


def test_features_can_be_left_out() -> None:
    ranker = Ranker(train(examples(), TrainingOptions(trees=5, seeds=(1,), left_out=("late_weighted",))))
    assert "late_weighted" not in ranker.file.features
    assert len(ranker.file.features) == len(FEATURES) - 1


def test_only_the_first_of_a_list_are_learned_from() -> None:
    ahead = [one for one in examples() if one.gold[:15].any()]
    cut = [one._replace(rows=one.rows[:15], gold=one.gold[:15]) for one in ahead]
    options = TrainingOptions(trees=5, in_leaf_min=5, seeds=(1,), candidates=15)
    assert train(ahead, options, "x") == train(cut, options, "x")


def test_nothing_to_learn_from_is_said() -> None:
    told = [one._replace(gold=np.zeros(30, np.bool_)) for one in examples()]
    with pytest.raises(ValueError, match="no query"):
        train(told, SMALL)
