"""Memories of mem0 keep their ids, times and metadata."""

import json
from datetime import UTC, datetime

import pytest

from jobs.mem0_export import Over, memories_of, placed
from serve_app.client.conversations import Entry, FactEntry
from serve_app.errors import InvalidRequest

NOW = datetime(2026, 12, 1, tzinfo=UTC)
MEMORY = {
    "id": "f4cbdb08-7062-4f3e-8eb2-9f5c80dfe64c",
    "memory": "Prefers trains to planes",
    "hash": "0f3e",
    "metadata": {"topic": "travel"},
    "created_at": "2024-07-26T10:29:36.630547-07:00",
    "updated_at": None,
    "user_id": "alex",
    "agent_id": "planner",
    "run_id": "trip-1",
}


def test_a_memory_is_a_turn_with_its_id_its_time_and_its_metadata():
    assert placed(MEMORY, NOW) == Entry(
        "alex",
        "trip-1",
        {
            "id": MEMORY["id"],
            "role": "user",
            "content": "Prefers trains to planes",
            "created_at": "2024-07-26T10:29:36.630547-07:00",
            "metadata": {"topic": "travel", "mem0": {"agent_id": "planner", "run_id": "trip-1", "hash": "0f3e"}},
        },
    )


def test_a_memory_whose_metadata_names_a_key_is_that_fact():
    memory = MEMORY | {"metadata": {"fact_key": "diet"}, "memory": "vegetarian"}
    assert placed(memory, NOW) == FactEntry("alex", "diet", {"value": "vegetarian"})
    assert isinstance(placed(memory, NOW, "slot"), Entry)


@pytest.mark.parametrize(
    ("fields", "user"), [({}, "agent/planner"), ({"agent_id": None}, "run/trip-1"), ({"user_id": "lin"}, "lin")]
)
def test_what_belongs_to_no_user_is_its_agents_or_its_runs(fields, user):
    assert placed(MEMORY | {"user_id": None} | fields, NOW).user == user


def test_a_memory_of_no_run_goes_to_one_session():
    assert placed(MEMORY | {"run_id": None}, NOW).session == "mem0"


def test_a_life_that_is_over_is_not_brought_over_and_another_ends_with_its_day():
    with pytest.raises(Over):
        placed(MEMORY | {"expiration_date": "2026-11-30"}, NOW)
    day = {"created_at": "2026-12-01T00:00:00Z", "expiration_date": "2026-12-02"}
    assert placed(MEMORY | day, NOW).turn["ttl_seconds"] == 2 * 86_400


@pytest.mark.parametrize(
    "fields",
    [{"memory": ""}, {"memory": 3}, {"metadata": [1]}, {"created_at": "yesterday"}, {"expiration_date": "soon"}],
)
def test_what_cannot_be_read_is_refused(fields):
    with pytest.raises(InvalidRequest):
        placed(MEMORY | fields, NOW)


def test_a_page_a_list_and_a_single_memory_are_read_the_oldest_first():
    older = MEMORY | {"id": "older", "created_at": "2024-07-26T17:00:00Z"}  # before the other, which is at 17:29
    for shape in ([MEMORY, older], {"count": 2, "next": None, "results": [MEMORY, older]}):
        assert [one["id"] for one in memories_of(json.dumps(shape).encode())] == ["older", MEMORY["id"]]
    assert list(memories_of(json.dumps(MEMORY).encode())) == [MEMORY]
    with pytest.raises(InvalidRequest):
        list(memories_of(b"[1]"))
    with pytest.raises(InvalidRequest):
        list(memories_of(b"{"))
