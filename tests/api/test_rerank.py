"""The second stage and `POST /v1/rerank` over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.errors import Overloaded
from serve_app.memory.reranking import RerankOptions
from serve_app.models.rerank import CrossEncoding
from serve_app.retrieve.features import FEATURES
from tests.api.running import Running, hash_settings, refused

DOCUMENTS = [
    "The bakery closes at six.",
    "Our train to Vienna leaves at noon from platform nine.",
    "He plays the cello.",
    "It may rain tomorrow.",
]
QUERY = "When does the train to Vienna leave?"


def rerank(service: Running, query: str = QUERY, documents: Sequence[Any] = DOCUMENTS, **more: Any) -> dict[str, Any]:
    return service.ok("POST", "/v1/rerank", json={"query": query, "documents": documents, **more})


# ---- documents


def test_the_answer_comes_first(service: Running) -> None:
    answer = rerank(service)
    assert answer["results"][0]["index"] == 1
    assert sorted(one["index"] for one in answer["results"]) == [0, 1, 2, 3]
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert all(set(one) == {"index", "relevance_score"} for one in answer["results"])
    assert answer["usage"]["total_tokens"] > len(QUERY.split())
    assert answer == rerank(service, model=answer["model"])


def test_top_n_and_documents_given_back(service: Running) -> None:
    whole = rerank(service)["results"]
    top = rerank(service, top_n=2, return_documents=True)["results"]
    assert [(one["index"], one["relevance_score"]) for one in top] == [
        (one["index"], one["relevance_score"]) for one in whole[:2]
    ]
    assert top[0]["document"] == {"text": DOCUMENTS[1]}
    assert len(rerank(service, top_n=100)["results"]) == 4


def test_documents_as_objects(service: Running) -> None:
    objects = [{"text": text} for text in DOCUMENTS]
    assert rerank(service, documents=objects)["results"] == rerank(service)["results"]


@pytest.mark.parametrize("documents", [[""], ["", "train", ""], ["🙂"], ["a" * 5_000, "train"]])
def test_strange_documents_have_a_score(service: Running, documents: list[str]) -> None:
    results = rerank(service, "train?", documents)["results"]
    assert sorted(one["index"] for one in results) == list(range(len(documents)))


def test_equal_documents_stay_as_they_came(service: Running) -> None:
    assert [one["index"] for one in rerank(service, documents=["same"] * 5)["results"]] == list(range(5))


@pytest.mark.parametrize(
    "body",
    [
        {"query": "x"},
        {"documents": ["x"]},
        {"query": "x", "documents": "y"},
        {"query": "x", "documents": []},
        {"query": "", "documents": ["y"]},
        {"query": "  ", "documents": ["y"]},
        {"query": "x", "documents": [7]},
        {"query": "x", "documents": [{"title": "y"}]},
        {"query": "x", "documents": ["y"], "top_n": 0},
        {"query": "x", "documents": ["y"], "model": "another"},
        {"query": "x", "documents": ["y"], "depth": 3},
        {"query": "x" * 20_000, "documents": ["y"]},
        {"query": "x", "documents": ["y"] * 1_001},
        {"query": "x", "documents": ["y" * 600_000, "z" * 600_000]},
    ],
)
def test_wrong_input_is_refused(service: Running, body: dict[str, Any]) -> None:
    refused(service.call("POST", "/v1/rerank", json=body), 422, "invalid_request")


def test_no_entry_without_a_key(service: Running) -> None:
    refused(service.call("POST", "/v1/rerank", key=None, json={"query": "x", "documents": ["y"]}), 401, "unauthorized")


# ---- searches


@pytest.fixture(scope="module")
def said(service: Running) -> Running:
    turns = [f"{word} on day {number}" for number in range(40) for word in ("the boat", "a harbour", "green paint")]
    for at in range(0, len(turns), 30):
        service.append("sailor", f"s{at}", *turns[at : at + 30], wait="indexed")
    return service


def contents(answer: dict[str, Any]) -> list[str]:
    return [one["content"] for one in answer["results"]]


def test_reranking_reorders_and_never_drops(said: Running) -> None:
    with_it, without = (said.search("sailor", "the green boat", k=1_000, rerank=rerank) for rerank in (True, False))
    assert sorted(contents(with_it)) == sorted(contents(without))
    assert contents(with_it)[100:] == contents(without)[100:]
    assert "rerank" in with_it["timings_ms"]
    assert "rerank" not in without["timings_ms"]
    assert with_it["degradation"] == {"level": "full", "reasons": []}


@pytest.mark.parametrize("mode", ["lexical", "dense"])
def test_modes_of_one_side_alone_are_given_as_they_are(said: Running, mode: str) -> None:
    both = [said.search("sailor", "the green boat", mode=mode, rerank=rerank, k=50) for rerank in (True, False)]
    assert both[0]["results"] == both[1]["results"]
    assert "rerank" not in both[0]["timings_ms"]


def test_explain_tells_every_feature_of_every_candidate(said: Running) -> None:
    answer = said.search("sailor", "the green boat", k=100, explain=True)
    for one in answer["results"]:
        why = one["explain"]
        assert list(why["features"]) == list(FEATURES)
        assert all(value is None or isinstance(value, int | float) for value in why["features"].values())
        assert {"first_rank", "first_score", "rerankers", "contributions"} < set(why)
        assert why["features"]["late_weighted"] is not None
    ranks = [one["explain"]["first_rank"] for one in answer["results"]]
    assert sorted(ranks) == list(range(1, 101))
    first = said.search("sailor", "the green boat", k=100, rerank=False)
    by_rank = sorted(answer["results"], key=lambda one: one["explain"]["first_rank"])
    assert [one["id"] for one in by_rank] == [one["id"] for one in first["results"]]
    explained = answer["explain"]
    assert explained["tiers"] == ["hot"]
    assert explained["version"].startswith("hash")
    assert (explained["candidates"], explained["reranked"]) == (120, 100)
    assert [one["result"] for one in explained["rerankers"]] == ["ok"] * len(explained["rerankers"])
    assert "explain" not in said.search("sailor", "the green boat")


def test_a_context_explains_its_hits_in_the_same_way(said: Running) -> None:
    context = said.context("sailor", "the green boat", explain=True)
    assert context["retrieved"]
    assert list(context["retrieved"][0]["explain"]["features"]) == list(FEATURES)
    assert context["explain"]["reranked"] > 0
    assert "rerank" in context["timings_ms"]
    plain = said.context("sailor", "the green boat", now=context["now"], as_of=context["as_of"])
    assert "explain" not in plain
    assert plain["context_id"] == context["context_id"]


def test_what_was_reranked_is_counted(said: Running) -> None:
    said.search("sailor", "the green boat")
    metrics = said.call("GET", "/metrics").text
    assert 'memstrata_reranks_total{reranker="late",result="ok"}' in metrics


def test_facts_among_turns_are_in_the_order_of_the_first_stage(said: Running) -> None:
    filters = {"kinds": ["turn", "fact"]}
    both = [said.search("sailor", "boat", filters=filters, rerank=rerank) for rerank in (True, False)]
    assert both[0]["results"] == both[1]["results"]


# ---- a cross-encoder


class Model:
    """Prefers texts that end late in the alphabet; may be told to hang."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()

    def scores(self, query: str, texts: Sequence[str], deadline: float) -> NDArray[np.float64]:
        self.go.wait()
        return np.array([ord(text[-1]) / 1_000 if text else 0.0 for text in texts])


@pytest.fixture
def crossed(tmp_path: Path) -> Iterator[tuple[Running, Model]]:
    model = Model()
    settings = hash_settings(tmp_path, rerank=RerankOptions(model="cross", deadline_ms=300))
    running = Running(settings, reranker=lambda options: CrossEncoding(options.model, lambda: model))
    running.append("u", "s", "boat z", "boat y", "boat x", "boat a", wait="indexed")
    deadline = time.monotonic() + 10
    while running.search("u", "boat")["degradation"]["reasons"] and time.monotonic() < deadline:
        time.sleep(0.02)  # it is loaded beside the service's start
    yield running, model
    model.go.set()
    running.stop()


def test_a_cross_encoder_has_the_last_word(crossed: tuple[Running, Model]) -> None:
    service, _ = crossed
    answer = service.search("u", "boat", explain=True)
    assert contents(answer) == ["boat z", "boat y", "boat x", "boat a"]
    assert answer["explain"]["rerankers"][-1]["name"] == "cross"
    answer = rerank(service, "boat", ["boat a", "boat z"])
    assert (answer["model"], [one["index"] for one in answer["results"]]) == ("cross", [1, 0])
    encoder = service.search("u", "boat", explain=True)["explain"]["version"]
    assert rerank(service, "boat", ["boat a", "boat z"], model=encoder)["model"] == encoder


def test_a_cross_encoder_that_hangs_costs_its_deadline_once_and_is_named(crossed: tuple[Running, Model]) -> None:
    service, model = crossed
    model.go.clear()
    began = time.monotonic()
    answer = service.search("u", "hanging boat")
    assert answer["degradation"] == {"level": "full", "reasons": ["rerank: deadline"]}
    assert len(answer["results"]) == 4
    assert time.monotonic() - began < 5
    time.sleep(0.1)
    began = time.monotonic()
    for number in range(20):
        assert service.search("u", f"boat {number}")["degradation"]["reasons"] == ["rerank: overloaded"]
        assert service.context("u", f"boat {number}")["degradation"]["reasons"] == ["rerank: overloaded"]
    assert time.monotonic() - began < 20 * 0.3
    refused(service.call("POST", "/v1/rerank", json={"query": "x", "documents": ["y"]}), 429, "overloaded")
    model.go.set()
    deadline = time.monotonic() + 10
    while service.search("u", "free boat")["degradation"]["reasons"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert contents(service.search("u", "free boat"))[0] == "boat z"


def test_the_callers_deadline_is_kept_when_it_hangs(crossed: tuple[Running, Model]) -> None:
    service, model = crossed
    model.go.clear()
    began = time.monotonic()
    answer = service.search("u", "late boat", deadline_ms=100)
    assert answer["degradation"]["reasons"] == ["rerank: deadline"]
    assert time.monotonic() - began < 0.3


def test_a_service_goes_on_where_the_model_cannot_be_loaded(tmp_path: Path) -> None:
    settings = hash_settings(tmp_path, rerank=RerankOptions(model=str(tmp_path / "nothing")))
    running = Running(settings)
    try:
        running.append("u", "s", "boat z", wait="indexed")
        deadline = time.monotonic() + 30
        while (answer := running.search("u", "boat"))["degradation"]["reasons"] == ["rerank: overloaded"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer["degradation"]["reasons"] == ["rerank: failed"]
        assert contents(answer) == ["boat z"]
        problem = running.call("POST", "/v1/rerank", json={"query": "x", "documents": ["y"]})
        refused(problem, 503, "reranker_unavailable")
    finally:
        running.stop()


@pytest.mark.parametrize(
    "options", [RerankOptions(ranker="none"), RerankOptions(late=False), RerankOptions(late=False, ranker="none")]
)
def test_any_part_may_be_left_out(tmp_path: Path, options: RerankOptions) -> None:
    running = Running(hash_settings(tmp_path, rerank=options))
    try:
        running.append("u", "s", "a boat", "a harbour", wait="indexed")
        assert contents(running.search("u", "the boat"))[0] == "a boat"
        assert running.search("u", "the boat")["degradation"]["reasons"] == []
    finally:
        running.stop()


def test_an_overloaded_model_is_no_error() -> None:
    """The name under which a search goes on is that of the port's error."""
    assert Overloaded.code == "overloaded"
