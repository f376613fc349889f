"""The load of a migration finds nothing wrong where nothing is, and each kind of fault where there is one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from benchmarks.broken_encoder import broken, packaged
from benchmarks.migration import missed
from benchmarks.migration_load import SHARES, Faults, LoadClient, Once, word_of
from benchmarks.migration_spaces import OFF_MAX, Spaces
from serve_app.client.data_sets import DataSet, read_data_set, written
from serve_app.client.http import Client
from tests.api.running import Running, hash_settings

STEPS = 120


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("service")))
    running.url = running.listen()  # type: ignore[attr-defined]
    yield running
    running.stop()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    folder = tmp_path_factory.mktemp("data")
    turns = [
        {
            "conversation_id": "c",
            "session": 1,
            "dia_id": f"D{at}",
            "speaker": "Ann",
            "text": f"the boat number {at} left",
        }
        | {"timestamp": "2023-05-08T13:56:00"}
        for at in range(20)
    ]
    queries = [{"conversation_id": "c", "query": f"boat number {at}", "evidence": [f"D{at}"]} for at in range(5)]
    for name, rows in (("conversations", turns), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_data_set(folder)


class Loaded:
    """One client of the load on a service that may be changed under it."""

    def __init__(self, service: Running, data: DataSet, there: Any, once: Once, faults: Faults) -> None:
        self.faults = faults
        self.spaces = Spaces(once, faults)
        self.client = LoadClient(once, there.run, 0, there.cases, ["a boat left", "the sea"], faults, self.spaces)

    def step(self, times: int) -> None:
        for _ in range(times):
            self.client.step()


@pytest.fixture
def loaded(service: Running, data: DataSet) -> Iterator[Loaded]:
    faults = Faults()
    with (
        Client(service.url, service.key) as client,  # type: ignore[attr-defined]
        written(client, data, lambda turns: None) as there,
        Once(service.url, service.key, faults) as once,  # type: ignore[attr-defined]
    ):
        yield Loaded(service, data, there, once, faults)


def test_a_service_that_keeps_its_promises_gives_no_fault(loaded: Loaded) -> None:
    loaded.spaces.allowed = None
    loaded.step(STEPS)
    loaded.client.settle()
    assert loaded.faults.counts == {}, loaded.faults.examples
    assert loaded.client.turns > 0
    assert loaded.spaces.seen.versions
    assert loaded.spaces.seen.off_max < 0.01


def test_each_kind_of_fault_is_found(loaded: Loaded, service: Running) -> None:
    loaded.step(STEPS)
    ledger = next(one for one in loaded.client.ledgers if len(one.live) > 1)
    (first, (session, content)), (second, (other, _)) = list(ledger.live.items())[:2]
    at = {"user_id": ledger.user, "session_id": session}
    service.ok("DELETE", f"/v1/turns/{first}", params=at)  # lost: the ledger does not know
    service.ok("PATCH", f"/v1/turns/{second}", params=at | {"session_id": other}, json={"content": f"an old {content}"})
    ledger.gone.append(word_of(content))  # and this came back
    loaded.client.settle()
    assert loaded.faults.counts["lost"] >= 2
    assert loaded.faults.counts["resurrected"] >= 2
    loaded.spaces.allowed = frozenset(["another"])
    case = loaded.client._cases[0]
    answer = service.ok("POST", "/v1/search", json=case.body | {"explain": True})
    loaded.spaces(case, answer)
    assert loaded.faults.counts["mixed"] == 1


def test_a_score_of_another_space_is_mixed(loaded: Loaded, service: Running) -> None:
    case = loaded.client._cases[0]
    answer = service.ok("POST", "/v1/search", json=case.body | {"explain": True})
    for hit in answer["results"]:
        hit["explain"]["features"]["dense"] += 0.2
    for _ in range(8):
        loaded.spaces(case, answer)
    assert loaded.faults.counts["mixed"] > 0
    assert loaded.spaces.seen.off_max > OFF_MAX


def test_a_request_that_fails_is_counted_once_and_not_tried_again(tmp_path: Path) -> None:
    faults = Faults()
    with Once("http://127.0.0.1:9", "k", faults) as once:
        assert once.ask("search", "POST", "/v1/search", {}) is None
    assert faults.counts == {"failed": 1}
    assert once.requests["search"] == 1


def test_the_shares_name_what_a_client_can_do() -> None:
    assert all(hasattr(LoadClient, f"_{name}") for name in SHARES)


RESULT = {"failed": 0, "lost": 0, "resurrected": 0, "mixed": 0, "then": "done", "state": "done"}


@pytest.mark.parametrize(
    ("fields", "entered", "missing"),
    [
        ({}, ["soak", "done"], 0),
        ({"lost": 2}, ["done"], 1),
        ({"state": "rolled_back"}, ["rolled_back"], 1),
        ({"then": "stopped", "state": "rolled_back"}, ["verify", "rolled_back"], 0),
        ({"then": "stopped", "state": "rolled_back"}, ["cutover", "rolled_back"], 1),
        ({"then": "rollback", "state": "rolled_back", "contexts_back": {"contexts": 3, "same": 3}}, ["soak"], 0),
        ({"then": "rollback", "state": "rolled_back", "contexts_back": {"contexts": 3, "same": 2}}, ["soak"], 1),
    ],
)
def test_what_it_was_to_come_to_is_a_bar(fields: dict[str, Any], entered: list[str], missing: int) -> None:
    assert len(missed(RESULT | fields, entered)) == missing


def test_a_broken_encoder_has_the_same_values_in_other_places(tmp_path: Path) -> None:
    """On a small one; the packaged one is 90 MB."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}")
    weights = {"matrix": np.arange(12, dtype=np.float32).reshape(3, 4), "vector": np.arange(4, dtype=np.float32)}
    save_file(weights, source / "model.safetensors")
    one, again, other = (broken(source, tmp_path / str(at), seed) for at, seed in enumerate((1, 1, 2)))
    made, same, another = (load_file(folder / "model.safetensors") for folder in (one, again, other))
    assert sorted(made["matrix"].ravel()) == list(range(12))
    assert made["matrix"].tolist() == same["matrix"].tolist() != another["matrix"].tolist()
    assert made["matrix"].tolist() != weights["matrix"].tolist()
    assert made["vector"].tolist() == weights["vector"].tolist()
    assert (one / "config.json").exists()
    assert (packaged() / "model.safetensors").exists()
