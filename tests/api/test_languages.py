"""Two encoders in one service: each text is read by the one for its script, and asked for by the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.config import MultilingualOptions
from serve_app.errors import InvalidRequest
from tests.api.running import Running, hash_settings, refused

TURNS = ["the walrus sleeps", "海象在睡觉", "the API配置 is lost", "the gull flies"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path, multilingual=MultilingualOptions(model="hash-32")))
    running.append("u", "s", *TURNS, wait="indexed")
    yield running
    running.stop()


@pytest.mark.parametrize(("query", "first"), [("a walrus?", TURNS[0]), ("海象?", TURNS[1]), ("gull", TURNS[3])])
@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_query_finds_by_the_vectors_of_its_script(running: Running, query: str, first: str, mode: str) -> None:
    answer = running.search("u", query, mode=mode)
    assert answer["degradation"]["reasons"] == []
    assert answer["results"][0]["content"] == first


def test_a_store_keeps_its_versions(tmp_path: Path) -> None:
    """Made with two it cannot do with one; made with one it goes on with that one."""
    Running(hash_settings(tmp_path / "two", multilingual=MultilingualOptions(model="hash-32"))).stop()
    with pytest.raises(InvalidRequest, match="hash_32"):
        Running(hash_settings(tmp_path / "two"))
    Running(hash_settings(tmp_path / "one")).stop()
    running = Running(hash_settings(tmp_path / "one", multilingual=MultilingualOptions(model="hash-32")))
    running.append("u", "s", *TURNS, wait="indexed")
    assert running.found("u", "海象?", mode="dense")[0] == TURNS[1]
    assert running.call("POST", "/v1/embeddings", json={"input": "a", "model": "hash_32"}).status_code == 422
    running.stop()


def test_vectors_are_asked_for_by_version_or_model(running: Running) -> None:
    for model, dimension in ((None, 64), ("hash_64", 64), ("hash_32", 32), ("hash", 64)):
        answer = running.ok("POST", "/v1/embeddings", json={"input": "海象"} | ({"model": model} if model else {}))
        assert len(answer["data"][0]["embedding"]) == dimension
        assert answer["model"] == f"hash_{dimension}"
    other = running.call("POST", "/v1/embeddings", json={"input": "a", "model": "another"})
    refused(other, 422, "invalid_request")
    assert "'hash_64' and 'hash_32'" in other.text
    body = {"input": "a", "model": "hash_32", "dimensions": 64}
    assert running.call("POST", "/v1/embeddings", json=body).status_code == 422
