"""The rerankers that need no model of their own: late interaction by itself, and the learned ranker.

Both read the columns of `features`. Pure: no clock, no state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serve_app.ports import Shortlist
from serve_app.retrieve.features import FEATURES
from serve_app.retrieve.ranker import Ranker

LATE_SHARE = 0.5
"""What late interaction counts beside the first stage, both scaled over the list."""

LATE = "late_weighted"
"""The column that late interaction is judged by."""

Scores = NDArray[np.float64]


class LateInteraction:
    """The first stage's score and MaxSim in equal parts: what can be done without anything trained."""

    name = "late"

    def scores(self, shortlist: Shortlist, deadline: float) -> Scores:
        """A text without tokens is judged by the stage before."""
        before, late = _scaled(shortlist.scores), _scaled(column(shortlist, LATE))
        late = np.where(np.isnan(late), before, late)
        return (1 - LATE_SHARE) * before + LATE_SHARE * late

    def contributions(self, shortlist: Shortlist) -> dict[str, Scores]:
        return {}


class LearnedRanker:
    """Trees over the columns, late interaction among them."""

    def __init__(self, ranker: Ranker) -> None:
        self._ranker = ranker

    @property
    def name(self) -> str:
        return self._ranker.name

    def scores(self, shortlist: Shortlist, deadline: float) -> Scores:
        return self._ranker.scores(shortlist.features)

    def contributions(self, shortlist: Shortlist) -> dict[str, Scores]:
        """Of each column, and of what all rows have in common."""
        return dict(zip((*FEATURES, "base"), self._ranker.contributions(shortlist.features).T, strict=True))


def column(shortlist: Shortlist, name: str) -> Scores:
    return shortlist.features[:, shortlist.names.index(name)].astype(np.float64)


def _scaled(scores: NDArray[np.floating]) -> Scores:
    """From 0 to 1; NaN stays."""
    low, high = np.fmin.reduce(scores, initial=np.inf), np.fmax.reduce(scores, initial=-np.inf)
    return np.asarray((scores - low) / max(float(high - low), 1e-9), np.float64)
