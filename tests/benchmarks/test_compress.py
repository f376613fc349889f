"""`memstrata bench compress` against a live service: it counts what it should. No test here knows a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import compress
from benchmarks.conversation import replayed
from benchmarks.dialogues import Dialogue, endless, read_dialogues
from serve_app.client.http import Client
from serve_app.compress import retention
from serve_app.errors import InvalidRequest
from tests.api.running import Running

SAID = [
    ("user", "Nothing with peanuts, please: I am allergic to peanuts.", "2025-03-01T10:00:00Z"),
    ("assistant", "Understood. We spoke a while about the weather on the coast.", "2025-03-01T10:01:00Z"),
    ("user", "The budget must not exceed 4,850 euros.", "2025-03-01T10:02:00Z"),
    ("assistant", "A little rain came down over the harbour, and then it went away again.", "2025-03-01T10:03:00Z"),
]
LINE = {
    "id": "one",
    "turns": [{"role": role, "text": text, "timestamp": at} for role, text, at in SAID * 4],
    "must_keep": [{"key_tokens": [["peanut", "nut"], "allergic"]}, {"key_tokens": ["zebra"]}],
}


@pytest.fixture
def client(service: Running) -> Iterator[Client]:
    with Client(service.listen(), service.key) as client:
        yield client


def test_what_is_kept_is_counted_and_the_default_does_not_drift(client: Client, tmp_path: Path) -> None:
    (tmp_path / "constraints.dev.jsonl").write_text(json.dumps(LINE) + "\n" + json.dumps(LINE | {"id": "two"}))
    found = compress.measure(client, tmp_path, compress.Options(repeats=3))
    assert (found["dialogues"], found["must_keep"], found["retention"]) == (2, 4, 0.5)
    assert found["drift"] == {"mean": 0.0, "max": 0.0}
    assert found["over_target"] == 0
    assert 0 < found["ratio"] < 0.6
    assert compress.table(found)


def test_a_conversation_turn_by_turn_gives_what_it_gives_at_once(client: Client) -> None:
    dialogue = Dialogue("one", [{"role": role, "content": text} for role, text, _ in SAID])
    found = replayed(client, [dialogue], 23, 600)
    assert (found["turns"], found["drift"], found["over_target"]) == (23, 0.0, 0)
    assert 0 < found["tokens_max"] <= 600
    assert found["append_ms"]["last_to_first"] > 0
    assert client.context({"user_id": "x", "session_id": "s", "query": "q", "budget_tokens": 100})["summary"] is None


def test_an_endless_conversation_says_nothing_twice() -> None:
    dialogue = Dialogue("one", [{"role": role, "content": text} for role, text, _ in SAID])
    turns = list(islice(endless([dialogue, dialogue]), 16))
    assert [turn["id"] for turn in turns] == [f"t{n}" for n in range(1, 17)]
    assert [turn["created_at"] for turn in turns] == sorted(turn["created_at"] for turn in turns)
    assert turns[0]["content"] != turns[8]["content"]


def test_the_packaged_dialogues_say_what_must_be_kept() -> None:
    packaged = Path(retention.__file__).with_name(retention.HELD_OUT_FILE)
    read = read_dialogues(packaged)
    assert [len(one.must_keep) for one in read] == [len(one.must_keep) for one in retention.held_out()]
    assert all(isinstance(word, str) for one in read for words in one.must_keep for word in words)


@pytest.mark.parametrize("text", ["", "{", '{"id": "one"}', '{"id": "x", "turns": [{"role": "user"}]}'])
def test_data_that_holds_no_dialogues_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "constraints.jsonl").write_text(text)
    with pytest.raises(InvalidRequest):
        read_dialogues(tmp_path)
    with pytest.raises(InvalidRequest):
        read_dialogues(tmp_path / "constraints.jsonl")
