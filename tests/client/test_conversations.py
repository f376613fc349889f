"""Both file forms, and how they are cut into calls."""

import json
from collections import Counter

import pytest

from serve_app.client.conversations import Entry, batches, read_entries
from serve_app.client.http import Client
from serve_app.client.ingest import BATCH_TURNS, IngestStopped, Survey, ingest, survey
from serve_app.errors import InvalidRequest
from tests.client.answering import Answering

ROW = {
    "conversation_id": "c1",
    "session": 2,
    "seq": 0,
    "dia_id": "D2:1",
    "speaker": "Mel",
    "text": "Look!",
    "timestamp": "2023-05-08T13:56:00",
    "image_caption": "a dog",
}


@pytest.fixture
def write(tmp_path):
    def write(*rows):
        path = tmp_path / "turns.jsonl"
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), "utf-8")
        return path

    return write


def test_a_data_set_turn(write):
    (entry,) = read_entries(write(ROW))
    assert entry == Entry(
        "c1",
        "c1/2",
        {
            "id": "D2:1",
            "role": "user",
            "speaker": "Mel",
            "content": "Look! [shares a photo: a dog]",
            "created_at": "2023-05-08T13:56:00Z",
        },
        line=1,
    )


@pytest.mark.parametrize(
    "timestamp", ["2023-05-08T13:56:00Z", "2023-05-08T13:56:00+08:00", "2023-05-08T13:56:00-05:00"]
)
def test_an_offset_is_kept(write, timestamp):
    (entry,) = read_entries(write(ROW | {"timestamp": timestamp}))
    assert entry.turn["created_at"] == timestamp


def test_an_exported_turn_is_written_anew(write):
    row = {"user_id": "u", "session_id": "s", "id": "1", "role": "tool", "data": {"n": 1}, "seq": 9, "kind": "turn"}
    fact = {"kind": "fact", "user_id": "u", "key": "name", "value": "Lin"}
    assert list(read_entries(write(row, fact))) == [Entry("u", "s", {"id": "1", "role": "tool", "data": {"n": 1}}, 1)]


@pytest.mark.parametrize("line", ["{", "[1]", '{"conversation_id": "c"}', '{"role": "user"}'])
def test_a_bad_line_is_named(write, line):
    with pytest.raises(InvalidRequest, match=r"turns.jsonl:2: "):
        list(read_entries(write(ROW, line)))


def test_broken_json_names_one_line(write):
    with pytest.raises(InvalidRequest) as said:
        list(read_entries(write(ROW, '{"a":', ROW)))
    assert str(said.value).count("line") == 0
    assert "turns.jsonl:2: no JSON, column 6: Expecting value" in str(said.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(InvalidRequest, match=r"nowhere.jsonl"):
        list(read_entries(tmp_path / "nowhere.jsonl"))


def test_batches_keep_sessions_apart_and_order():
    entries = [Entry("u", session, {"id": str(n)}) for n, session in enumerate("aaabba")]
    found = [[(entry.session, entry.turn["id"]) for entry in batch] for batch in batches(entries, 2)]
    assert found == [[("a", "0"), ("a", "1")], [("a", "2")], [("b", "3"), ("b", "4")], [("a", "5")]]


def test_ingest_counts_what_became_of_each_turn(write):
    results = [{"id": "1", "status": "stored"}, {"id": "2", "status": "rejected", "error": "id_conflict"}]
    path = write(ROW, ROW | {"dia_id": "D2:2"})
    seen = []
    with Answering({"/v1/sessions": [(201, {}, {"results": results})]}) as service, Client(service.url) as client:
        done = ingest(client, path, seen.append)
    assert done.statuses == Counter(stored=1, rejected=1)
    assert (done.complete, seen) == (False, [2])
    assert done.rejected == ["c1/2 2: id_conflict"]


def test_a_refused_batch_names_its_lines(write):
    """After a blank line and a batch that is written."""
    path = write("", *(ROW | {"dia_id": str(n)} for n in range(BATCH_TURNS + 2)))
    taken = (201, {}, {"results": [{"id": "1", "status": "stored"}]})
    refused = (422, {}, {"code": "invalid_request", "detail": "role"})
    with (
        Answering({"/v1/sessions": [taken, refused]}) as service,
        Client(service.url) as client,
        pytest.raises(
            IngestStopped, match=r"lines 102 to 103 .*the lines before are written.*422 invalid_request: role"
        ),
    ):
        ingest(client, path, lambda _: None)


def test_a_refusal_of_the_first_batch_says_that_nothing_is_written(write):
    refused = (403, {}, {"code": "forbidden"})
    with (
        Answering({"/v1/sessions": [refused]}) as service,
        Client(service.url) as client,
        pytest.raises(IngestStopped, match=r"lines 1 to 1 .*nothing was written") as stopped,
    ):
        ingest(client, write(ROW), lambda _: None)
    assert stopped.value.code == "forbidden"


def test_turns_without_an_id_are_counted(write):
    turn = {"user_id": "u", "session_id": "s", "role": "user", "content": "x"}
    assert survey(write(turn, turn | {"id": "1"}, turn)) == Survey(turns=3, without_id=2)
