"""Who judges what nobody has marked: words, both versions alike, or a model; nobody's own side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from serve_app.migrate.judge import RELEVANT, Judge, by_opinions, by_words

POOL = {1: "the walrus sleeps", 2: "a gull flies", 3: "rain again", 4: "walrus and gull", 5: "snow", 6: "fog"}


class Reads:
    """A cross-encoder that likes long texts, or fails."""

    name = "reads"

    def __init__(self, fails: bool = False) -> None:
        self._fails = fails

    def ask(self, query: str, texts: Sequence[str], deadline: float) -> Future[Any]:
        answer: Future[Any] = Future()
        if self._fails:
            answer.set_exception(RuntimeError("no"))
        else:
            answer.set_result(np.array([float(len(text)) for text in texts]))
        return answer


def test_words_find_what_shares_them() -> None:
    scores = by_words("walrus?", POOL)
    assert (scores > 0).tolist() == [True, False, False, True, False, False]
    assert Judge().relevant_alone("walrus?", POOL) == {1, 4}
    assert Judge().relevant_alone("anything else", POOL) == frozenset()


def test_no_version_is_favoured() -> None:
    """Each loves what the other does not know: equal opinions, whichever is asked first."""
    here, there = {1: 0.9, 2: 0.8, 3: 0.7}, {4: 0.9, 5: 0.8, 6: 0.7}
    scores = by_opinions("nothing of it", POOL, (here, there))
    assert scores[:3].tolist() == scores[3:].tolist()
    assert scores.tolist() == by_opinions("nothing of it", POOL, (there, here)).tolist()


def test_words_outweigh_one_version() -> None:
    scores = by_opinions("walrus?", POOL, ({3: 0.9, 1: 0.2}, {1: 0.4}))
    assert max(POOL, key=lambda seq: scores[list(POOL).index(seq)]) == 1


def test_so_many_are_relevant() -> None:
    opinion = {seq: 1.0 / seq for seq in POOL}
    assert Judge().relevant("nothing of it", POOL, (opinion, opinion)) == set(range(1, RELEVANT + 1))
    assert Judge().relevant("nothing of it", POOL, ({}, {})) == frozenset()
    assert Judge().relevant("nothing of it", {}, ({}, {})) == frozenset()


def test_a_model_reads_the_texts_alone() -> None:
    judge = Judge(Reads)
    assert judge.name == "reads"
    assert judge.relevant("q", POOL, ({5: 1.0}, {6: 1.0})) == judge.relevant_alone("q", POOL) == {1, 2, 4}
    with pytest.raises(RuntimeError):
        Judge(lambda: Reads(fails=True)).relevant("q", POOL, ())
