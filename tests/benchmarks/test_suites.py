"""The suites of `memstrata bench` run against a live service and count what they should. No test here knows a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import contexts, core, latency, lexical, recall
from serve_app.client.data_sets import read_data_set, written
from serve_app.client.explained import Explained
from serve_app.client.http import Client, Json
from serve_app.errors import InvalidRequest
from tests.api.running import Running

PETS = {"cat": "Biscuit hides from thunder", "dog": "Rex digs up tulips", "parrot": "Kiwi repeats the doorbell"}


@pytest.fixture(scope="module")
def address(service: Running) -> str:
    return service.listen()


@pytest.fixture
def client(service: Running, address: str) -> Iterator[Client]:
    with Client(address, service.key) as client:
        yield client


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One conversation of three turns in three sessions, and four queries; one of them without evidence."""
    turns = [
        {
            "conversation_id": "pets",
            "session": pet,
            "dia_id": f"turn-{pet}",
            "speaker": "Ada",
            "text": text,
            "timestamp": f"2024-05-0{day}T08:00:00Z",
        }
        for day, (pet, text) in enumerate(PETS.items(), 1)
    ]
    queries: list[dict[str, Any]] = [
        {"query": text, "evidence": [f"turn-{pet}"], "category_name": "single"} for pet, text in PETS.items()
    ]
    queries[0]["timestamp"] = "2024-05-01T09:00:00Z"
    queries.append({"query": "nothing answers this", "evidence": [], "category_name": "none"})
    (tmp_path / "conversations.jsonl").write_text("\n".join(map(json.dumps, turns)))
    (tmp_path / "queries.jsonl").write_text(
        "\n".join(json.dumps({"conversation_id": "pets", **query}) for query in queries)
    )
    return tmp_path


def recalled(client: Client, data: Path, **options: Any) -> Json:
    return recall.measure(client, read_data_set(data), recall.Options(**options))


def test_recall_counts_what_is_found(client: Client, data: Path) -> None:
    """Each turn is found by its own words; a query without evidence is left out."""
    groups = of_service(recalled(client, data, mode="lexical", rows=False))
    assert set(groups) == {"all", "single"}
    assert groups["all"]["queries"] == 3
    assert groups["all"]["recall@5"] == groups["all"]["session_hit@10"] == 1.0


def test_recall_counts_what_is_not_found(client: Client, data: Path) -> None:
    """Evidence that a search does not give is missing from the recall."""
    rewritten(data, 1, query="thunder", evidence=["turn-dog", "turn-cat"])
    measured = recalled(client, data, mode="lexical", rows=False)
    assert of_service(measured)["all"]["recall@5"] == pytest.approx(2.5 / 3, abs=1e-4)


def test_every_row_has_every_group_and_the_service_as_it_is_comes_last(client: Client, data: Path) -> None:
    measured = recalled(client, data)
    assert list(measured["rows"]) == ["BM25", "dense", "fusion", "+ MaxSim", "as it is"]
    assert all(groups["all"]["queries"] == 3 for groups in measured["rows"].values())
    assert "p95_ms" not in measured["rows"]["+ MaxSim"]["all"]
    shown = recall.table(measured)
    assert shown.count("as it is") == len(of_service(measured)) == 2


def test_a_ranker_of_the_others_never_sees_what_it_is_tested_on(client: Client, data: Path) -> None:
    """And its scores decide the order."""
    doubled(data)
    heard: list[tuple[set[str], set[str]]] = []

    def trainer(taught: Sequence[Explained], tested: Sequence[Explained], /) -> list[list[float]]:
        heard.append(({one.case.group for one in taught}, {one.case.group for one in tested}))
        return [[float(hit.place in one.case.gold) for hit in one.hits] for one in tested]

    measured = recalled(client, data, trainer=trainer)
    assert heard == [({"pets-2"}, {"pets"}), ({"pets"}, {"pets-2"})]
    assert measured["rows"][recall.TRAINED]["all"]["recall@5"] == 1.0


def test_golden_queries_of_the_service_are_measured_like_a_data_set(service: Running, client: Client) -> None:
    texts = list(PETS.values())
    turns = [{"id": str(number), "role": "user", "content": text} for number, text in enumerate(texts)]
    seqs = [service.append("ada", "s", turn, wait="indexed")["results"][0]["seq"] for turn in turns]
    for number, text in enumerate(texts):
        gold = [{"session_id": "s", "turn_id": str(number)}]
        service.ok("POST", "/v1/golden", json={"user_id": "ada", "query": text, "gold": gold, "as_of": seqs[-1]})
    measured = recall.measure(client, None, recall.Options(mode="lexical"))
    assert (of_service(measured)["all"]["queries"], of_service(measured)["all"]["recall@5"]) == (3, 1.0)
    before = [{"session_id": "s", "turn_id": "2"}]
    service.ok("POST", "/v1/golden", json={"user_id": "ada", "query": texts[2], "gold": before, "as_of": seqs[0]})
    measured = recall.measure(client, None, recall.Options(mode="lexical"))
    assert of_service(measured)["all"]["recall@5"] == 0.75
    service.ok("DELETE", "/v1/golden", params={"user_id": "ada"})


def test_without_a_query_there_is_no_figure(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="no query"):
        recall.measure(client, None, recall.Options())


@pytest.mark.parametrize("name", ["conversations.jsonl", "queries.jsonl"])
def test_a_data_set_that_is_not_there_is_said_before_anything_is_written(
    service: Running, client: Client, data: Path, name: str
) -> None:
    (data / name).unlink()
    before = turns_of(service)
    with pytest.raises(InvalidRequest, match=name):
        recalled(client, data)
    assert turns_of(service) == before


def test_a_query_about_what_no_conversation_has_is_said(client: Client, data: Path) -> None:
    rewritten(data, 1, evidence=["turn-fish"])
    with pytest.raises(InvalidRequest, match=r"queries\.jsonl"):
        recalled(client, data)


def test_users_of_a_run_are_erased_even_where_it_fails(service: Running, client: Client, data: Path) -> None:
    class Stops(RuntimeError):
        pass

    def stop(taught: Sequence[Explained], tested: Sequence[Explained], /) -> list[list[float]]:
        raise Stops

    with pytest.raises(Stops):
        recalled(client, data, trainer=stop)
    left = service.ok("GET", "/v1/users", params={"prefix": "bench-"})["users"]
    assert left == []


def test_a_case_is_asked_as_the_query_says(client: Client, data: Path) -> None:
    """Not beyond its time in the middle of a conversation; with the turns it leans on, in their order."""
    rewritten(data, 0, context=["turn-parrot", "turn-dog"])
    with written(client, read_data_set(data), lambda count: None) as there:
        first, second, _ = there.cases
    assert first.body["now"] == "2024-05-01T09:00:00Z"
    assert first.body["filters"] == {"to": "2024-05-01T09:00:00Z"}
    assert [turn["content"] for turn in first.body["history"]] == [PETS["dog"], PETS["parrot"]]
    assert second.body["now"] == "2024-05-03T08:00:00Z"
    assert "filters" not in second.body
    assert second.gold == {("pets/dog", "turn-dog")}


def test_ways_to_cut_are_tried_on_the_same_queries(client: Client, data: Path) -> None:
    pytest.importorskip("jieba")
    pytest.importorskip("bm25s")
    said = {"cat": "猫怕打雷，躲在床下", "dog": "狗把郁金香刨了出来", "parrot": "鹦鹉学门铃的声音"}
    for name, field in (("conversations.jsonl", "text"), ("queries.jsonl", "query")):
        rows = [json.loads(line) for line in (data / name).read_text().splitlines()]
        for row, text in zip(rows, said.values(), strict=False):
            row |= {field: text, "lang": "zh"}
        (data / name).write_text("\n".join(map(json.dumps, rows)))
    measured = lexical.measure(client, data, "zh")
    assert len(measured["rows"]) == 6
    assert {row["all"]["queries"] for row in measured["rows"].values()} == {3}
    assert measured["rows"]["bigrams"]["all"]["recall@5"] == 1.0
    assert measured["rows"][lexical.SERVICE]["all"]["recall@5"] == 1.0
    with pytest.raises(InvalidRequest, match="fr"):
        lexical.measure(client, data, "fr")


@pytest.mark.parametrize(
    ("way", "text", "terms"),
    [
        (lexical.words, "我要咖啡, Ada!", ["我要咖啡", "ada"]),
        (lexical.pairs, "我要咖啡, Ada!", ["ada", "我要", "要咖", "咖啡"]),
        (lexical.pairs, "茶", ["茶"]),
        (lexical.pairs_and_singles, "咖啡", ["咖啡", "咖", "啡"]),
        (lexical.pairs_and_singles, "茶", ["茶"]),
    ],
)
def test_how_text_is_cut(way: lexical.Cut, text: str, terms: list[str]) -> None:
    assert way(text) == terms


def of_service(measured: Json) -> Json:
    """The groups of the row of the service as it is."""
    return dict(measured["rows"][recall.AS_IT_IS])


def turns_of(service: Running) -> int:
    return sum(shard["turns_in_memory"] for shard in service.ok("GET", "/v1/admin/stats")["shards"])


def rewritten(data: Path, number: int, **changes: Any) -> None:
    """Change one query."""
    queries = [json.loads(line) for line in (data / "queries.jsonl").read_text().splitlines()]
    queries[number] |= changes
    (data / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))


def doubled(data: Path) -> None:
    """A second conversation that says and asks the same."""
    for name in ("conversations.jsonl", "queries.jsonl"):
        rows = [json.loads(line) for line in (data / name).read_text().splitlines()]
        rows += [row | {"conversation_id": "pets-2"} for row in rows]
        (data / name).write_text("\n".join(map(json.dumps, rows)))


class Heard(Client):
    """Keeps what it is asked: queries, and the kind of user of each append of one turn."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key)
        self.queries: list[str] = []
        self.appends: list[str] = []

    def search(self, body: Json) -> Json:
        self.queries.append(body["query"])
        return super().search(body)

    def append(self, user: str, session: str, turns: list[Json], wait: str = "durable") -> Json:
        if wait == "durable":
            self.appends.append(user.rpartition("-")[2])
        return super().append(user, session, turns, wait)


def test_a_second_run_asks_other_queries(service: Running, address: str) -> None:
    """So that the first run's vectors, which the service still holds, do not help it."""
    with Heard(address, service.key) as first, Heard(address, service.key) as second:
        seeds = {latency.measure(client, turns=1, repeats=1)["seed"] for client in (first, second)}
    assert len(seeds) == 2
    assert set(first.queries) & set(second.queries) == {latency.CACHED_QUERY}


def test_appends_to_either_session_take_turns(service: Running, address: str) -> None:
    with Heard(address, service.key) as client:
        latency.measure(client, turns=1, repeats=3)
    assert client.appends == ["short", "long"] * 4


def test_latency_measures_each_kind(client: Client) -> None:
    measured = latency.measure(client, turns=120, repeats=3)
    assert {"text search", "append at 100 turns", "append at 120 turns"} <= set(measured["ms"])
    assert all(0 < times["p50"] <= times["p95"] for times in measured["ms"].values())
    assert measured["append_long_to_short"] > 0
    assert "append, long session to short" in latency.table(measured)


def test_contexts_are_timed_by_stage_and_their_user_is_gone(service: Running, client: Client) -> None:
    measured = contexts.measure(client, core.GOLDEN, turns=120, queries=3, budget_tokens=1_000)
    assert measured["queries"] == 3
    for stages in measured["ms"].values():
        assert 0 < stages["pack"]["p50"] <= stages["total"]["p50"] <= stages["total"]["p95"]
    left = service.ok("GET", "/v1/users", params={"prefix": "bench-"})["users"]
    assert not [one for one in left if one["user_id"].endswith("-context")]
    assert "120 turns" in contexts.table(measured)
