"""The gate of a reranker, over a whole service: equal ones pass, a worse one and a late one do not."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from serve_app.memory.configurations import set_in
from serve_app.memory.reranking import RerankOptions
from serve_app.migrate.page import page
from serve_app.migrate.record import Gate, Migration, State, Terms
from serve_app.migrate.report import of_migration
from serve_app.migrate.trials import RerankerTrials
from serve_app.models.rerank import CrossEncoding, ModelOptions
from serve_app.routing import drawn
from tests.api.running import Running
from tests.migrate.trying import fill, small

USERS = ("ann", "bob")


class Slow:
    """A cross-encoder that takes longer than any search waits, but for the first text that it is given."""

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> np.ndarray[Any, Any]:
        if len(texts) > 1:
            time.sleep(0.02)
        return np.linspace(0.9, 0.1, len(texts))


def slow(options: ModelOptions) -> CrossEncoding | None:
    return CrossEncoding(options.model, Slow) if options.model else None


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    one = small(tmp_path_factory.mktemp("reranked"), opened={"reranker": slow})
    for user in USERS:
        fill(one, user)
    yield one
    one.stop()


def gate_of(
    running: Running,
    options: RerankOptions,
    state: State = "verify",
    stopped: Callable[[], bool] = lambda: False,
    share: float = 0.05,
) -> Gate | None:
    """As Control asks it; the trial is withdrawn afterwards."""
    serving, trials = running.service.serving, RerankerTrials(running.service.rerankers)
    asked = Migration("m1", "reranker", state, 0, Terms(k=5, loss=0.05, canary_share=share), options=set_in(options))
    migration = replace(asked, **trials.open(asked))
    serving.change(serving.plan.followed_by(trials.epoch(serving.plan.now, migration)))
    try:
        return running.service.reranker_gates.of(migration, state, stopped)
    finally:
        back = replace(migration, state="rolling_back")
        serving.change(serving.plan.followed_by(trials.epoch(serving.plan.now, back)))
        trials.withdraw(back)


def test_an_equal_one_passes_and_is_timed(running: Running) -> None:
    gate = gate_of(running, RerankOptions(deadline_ms=300))
    assert gate is not None
    assert gate.verdict == "passed"
    assert gate.figures["overall"]["difference"] == 0.0
    assert gate.figures["counts"]["golden"] == gate.figures["counts"]["drawn"] == 24 * len(USERS)
    base, target = gate.figures["rerank"]["base"], gate.figures["rerank"]["target"]
    assert base["names"] == target["names"] == ("late",)
    assert base["asked"] == target["asked"] == 24 * len(USERS)
    assert base["failing"] == target["failing"] == 0
    assert 0 < target["p50"] <= target["p95"]
    assert target["cost"] > 0
    told = page(of_migration(Migration("m1", "reranker", "verify", 0, Terms(), gates=(gate,), names=("late",))))
    assert "Milliseconds of the second stage, p95" in told


def test_one_that_finds_less_fails(running: Running) -> None:
    gate = gate_of(running, RerankOptions(late=False))
    assert gate is not None
    assert gate.verdict == "failed"
    assert gate.figures["overall"]["high"] < 0
    assert "recall@5" in gate.reasons[0]


def test_one_that_is_always_late_fails_however_good_it_is(running: Running) -> None:
    gate = gate_of(running, RerankOptions(model="slow", deadline_ms=5))
    assert gate is not None
    assert gate.verdict == "failed"
    target = gate.figures["rerank"]["target"]
    assert target["failing"] > 0.9 * target["asked"]
    assert "without an opinion of the new reranker" in gate.reasons[0]


def test_in_the_canary_its_users_are_asked_for_or_all_where_they_have_too_few_queries(running: Running) -> None:
    places = sorted(drawn("m1", f"default\x1f{user}") for user in USERS)
    for share, drawn_from in ((places[0] + 1e-9, 1), (places[1] + 1e-9, 2), (0.0, 2)):
        gate = gate_of(running, RerankOptions(deadline_ms=300), "canary", share=share)
        assert gate is not None
        assert (gate.state, gate.verdict) == ("canary", "passed")
        assert gate.figures["counts"]["drawn"] == 24 * drawn_from


def test_it_is_stopped_between_queries(running: Running) -> None:
    asked = itertools.count()
    assert gate_of(running, RerankOptions(deadline_ms=300), stopped=lambda: next(asked) >= 3) is None
    assert next(asked) < 10
