"""`memstrata train-ranker`: what it writes loads, its figures are of queries that were held out, nothing is left."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve_app import train_ranker
from serve_app.cli import main
from serve_app.client.data_sets import Case, joined, part_of, read_data_set
from serve_app.client.explained import Explained, Hit, NotExplained
from serve_app.client.http import Client
from serve_app.errors import InvalidRequest, StoreUnavailable
from serve_app.retrieve.features import FEATURES
from serve_app.retrieve.ranker import open_ranker
from tests.api.running import Running, word

pytest.importorskip("lightgbm")

CONVERSATIONS = ("en-a-01", "en-a-02", "en-b-01", "en-b-02")
TURNS = 12


@pytest.fixture(scope="module")
def address(service: Running) -> str:
    return service.listen()


@pytest.fixture
def client(service: Running, address: str) -> Iterator[Client]:
    with Client(address, service.key) as client:
        yield client


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Conversations of turns with words of their own; each query asks for some of one turn's words."""
    source, turns, queries = random.Random(7), list[dict[str, Any]](), list[dict[str, Any]]()
    for place, name in enumerate(CONVERSATIONS):
        for number in range(TURNS):
            said = [word(1_000 * place + 10 * number + at) for at in range(6)]
            at = f"2024-05-{number + 1:02}T08:00:00Z"
            turn = {"dia_id": f"t{number}", "session": "1", "speaker": "Ada", "text": " ".join(said), "timestamp": at}
            turns.append({"conversation_id": name, **turn})
            asked = " ".join(source.sample(said, 2))
            queries.append({"conversation_id": name, "query": asked, "evidence": [f"t{number}"], "lang": "en"})
    for file, rows in (("conversations.jsonl", turns), ("queries.jsonl", queries)):
        (tmp_path / file).write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def users(service: Running) -> list[str]:
    return [one["user_id"] for one in service.ok("GET", "/v1/users", params={"prefix": "bench-"})["users"]]


def test_it_trains_writes_and_leaves_no_user(service: Running, client: Client, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "ranker.json"
    result = train_ranker.run(client, train_ranker.Options(data, out=out))
    assert result["folds"] == ["en-a", "en-b"]
    assert result["queries"] == len(CONVERSATIONS) * TURNS
    assert list(result["rows"]) == ["fusion", "+ MaxSim", train_ranker.CROSS_VALIDATED, train_ranker.IN_SAMPLE]
    assert open_ranker(out).name == result["ranker"]
    assert users(service) == []
    assert not list(tmp_path.glob(".ranker*"))
    shown = train_ranker.shown(result)
    assert str(out) in shown
    assert "on what it was trained on" in shown


def test_without_a_file_only_figures_are_given_and_users_stay_if_asked(
    service: Running, client: Client, data: Path
) -> None:
    result = train_ranker.run(client, train_ranker.Options(data, folds="2", keep=True))
    assert result["out"] is None
    assert "written nowhere" in train_ranker.shown(result)
    left = users(service)
    assert len(left) == len(CONVERSATIONS)
    for user in left:
        client.erase(user)


def test_longer_memories_are_learned_from_and_measured_by_nothing(
    service: Running, client: Client, data: Path, tmp_path: Path
) -> None:
    alone = train_ranker.run(client, train_ranker.Options(data))
    longer = train_ranker.run(client, train_ranker.Options(data, joined=2))
    assert longer["ranker"] != alone["ranker"]
    assert longer["queries"] == alone["queries"]
    assert longer["rows"]["fusion"] == alone["rows"]["fusion"]
    assert users(service) == []


@pytest.mark.parametrize(
    "changed", [{"joined": 1}, {"joined": 51}, {"joined": 2, "folds": "2"}, {"joined": 2, "data": None}]
)
def test_what_cannot_be_joined_is_refused(client: Client, data: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="--joined"):
        train_ranker.run(client, train_ranker.Options(data)._replace(**changed))


def test_joined_conversations_keep_their_turns_queries_and_part(data: Path) -> None:
    one = read_data_set(data)
    both = joined(one, 2)
    assert list(both.conversations) == ["en-a-joined1", "en-b-joined1"]
    assert {part_of(name) for name in both.conversations} == {"en-a", "en-b"}
    assert (both.turns, len(both.queries)) == (one.turns, len(one.queries))
    for query in both.queries:
        held = both.conversations[query["conversation_id"]].turns
        assert all(query["query"].split()[0] in held[turn].turn["content"] for turn in query["evidence"])
    assert len({entry.session for entry in both.conversations["en-a-joined1"].turns.values()}) == 2
    assert joined(one, 1).conversations == {}


def test_golden_queries_of_the_service_train_as_well(service: Running, client: Client, tmp_path: Path) -> None:
    for user in ("ada", "bob"):
        said = [" ".join(word(100 * number + at) for at in range(5)) for number in range(TURNS)]
        turns = [{"id": str(number), "role": "user", "content": text} for number, text in enumerate(said)]
        service.append(user, "s", *turns, wait="indexed")
        for number, text in enumerate(said):
            gold = [{"session_id": "s", "turn_id": str(number)}]
            query = " ".join(text.split()[:2])
            service.ok("POST", "/v1/golden", json={"user_id": user, "query": query, "gold": gold})
    result = train_ranker.run(client, train_ranker.Options(None, out=tmp_path / "r", folds="conversation"))
    assert (result["folds"], result["queries"]) == (["ada", "bob"], 2 * TURNS)
    with pytest.raises(InvalidRequest, match="one fold"):
        train_ranker.run(client, train_ranker.Options(None, user="ada", folds="conversation"))


def test_without_golden_queries_there_is_nothing_to_learn_from(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="no query"):
        train_ranker.run(client, train_ranker.Options(None, user="nobody"))


def test_the_command_fails_where_it_cannot_do_what_was_asked(
    service: Running, address: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["train-ranker", "--url", address, "--key", service.key]
    assert main([*common, "--data", str(data / "none")]) == 1
    assert main([*common, "--data", str(data), "--folds", "many"]) == 1
    assert main([*common, "--data", str(data), "--out", str(data / "none" / "file")]) == 1
    assert users(service) == []
    assert main([*common, "--data", str(data), "--out", str(data / "ranker"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == str(data / "ranker")


def test_a_file_that_cannot_be_written_is_said(client: Client, data: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        train_ranker.run(client, train_ranker.Options(data, out=tmp_path / "no" / "such" / "folder"))


@pytest.mark.parametrize(
    ("how", "folds"),
    [
        ("part", ["en-a", "en-a", "zh-b", "alice"]),
        ("conversation", ["en-a-01", "en-a-02", "zh-b-01", "alice"]),
        ("2", ["fold 2", "fold 1", "fold 2", "fold 1"]),
    ],
)
def test_folds(how: str, folds: list[str]) -> None:
    cases = [Case("", group, {}, frozenset()) for group in ("en-a-01", "en-a-02", "zh-b-01", "alice")]
    assert train_ranker.folds_of(cases, how) == folds


@pytest.mark.parametrize("how", ["", "1", "101", "-2", "³", "parts"])
def test_no_folds(how: str) -> None:
    with pytest.raises(InvalidRequest, match="folds"):
        train_ranker.folds_of([], how)


def made(group: str, gold: int, names: tuple[str, ...] = FEATURES, hits: int = 30) -> Explained:
    """A case whose gold turn has a `dense` of its own."""
    rows = [[float(name == "dense" and place == gold) for name in names] for place in range(hits)]
    found = [Hit(("s", str(place)), place, place + 1, {}, tuple(row)) for place, row in enumerate(rows)]
    return Explained(Case(group, group, {}, frozenset({("s", str(gold))})), names, found)


def test_what_is_learned_counts_and_columns_are_taken_by_name() -> None:
    whys = [made("a", number % 30, tuple(reversed(FEATURES))) for number in range(60)]
    content = train_ranker.taught(whys, ["a"] * 60)
    (scores,) = train_ranker.judged(content, [made("b", 17)])
    assert int(np.argmax(scores)) == 17
    assert train_ranker.judged(content, [made("b", 0, hits=0)]) == [[]]


def test_a_service_with_other_features_is_refused() -> None:
    with pytest.raises(NotExplained, match="release"):
        train_ranker.taught([made("a", 1, FEATURES[1:])], ["a"])


def test_nothing_can_be_learned_where_no_gold_turn_is_found() -> None:
    with pytest.raises(InvalidRequest):
        train_ranker.taught([made("a", 99)], ["a"])
