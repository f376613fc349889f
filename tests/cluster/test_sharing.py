"""What services of one process share is opened once, and ended by its owner alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serve_app.cluster.sharing import Shared
from serve_app.config import Settings
from serve_app.models.rerank import CrossEncoding, ModelOptions, PairReranker, Scores

WAIT_S = 20.0


class Longest:
    """A `PairModel`."""

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> Scores:
        return np.array([len(text) / 100 for text in texts])


def test_a_cross_encoder_is_opened_once_and_ends_with_the_process() -> None:
    opened: list[ModelOptions] = []

    def open_one(options: ModelOptions) -> PairReranker | None:
        opened.append(options)
        return CrossEncoding(options.model, Longest) if options.model else None

    shared = Shared(Settings(), reranker=open_one)
    opening = shared.injected()["reranker"]
    first, second, other = (opening(ModelOptions(model=name)) for name in ("a", "a", "b"))
    assert [one.model for one in opened] == ["a", "b"]
    assert (first.name, other.name) == ("a", "b")
    assert opening(ModelOptions()) is None
    first.close()
    assert second.ask("q", ["aa"], float("inf")).result(WAIT_S).tolist() == [0.02]
    shared.close()
