"""Search over a whole service: filters are exhaustive, hot and warm together are exact, and gaps are named."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from serve_app.core import Turn
from serve_app.errors import StoreUnavailable
from serve_app.memory.memory import MemoryOptions
from serve_app.models.stub import HashEmbedder
from serve_app.ports import EncodedQuery
from serve_app.records import TurnPut, TurnVectors, VectorsPut
from serve_app.retrieve.filters import Filters
from serve_app.retrieve.question import Question
from serve_app.retrieve.search import search
from serve_app.retrieve.warm import TERMS_LOOKED_FOR, WARM_CANDIDATES
from serve_app.stores.block import Block
from serve_app.stores.exact import ExactHotIndex
from serve_app.stores.packing import pack_vectors
from serve_app.stores.rows import StoredOwner, StoredTurn
from serve_app.stores.views import MONTHS
from serve_app.stores.wanted import Wanted
from serve_app.write.archiving import Archiver
from tests.api.running import Running, hash_settings, word

RESIDENT = 20
SAID = 150
MODES = ["hybrid", "lexical", "dense"]
DAY_US = 86_400_000_000
FLOAT16_NOISE = 2e-3


# ---- filters


@pytest.fixture(scope="module")
def diary(service: Running) -> list[dict[str, Any]]:
    """Sixty turns of one user over three sessions, with every kind of thing that filters speak of."""
    choose = random.Random(7)
    turns = []
    for number in range(60):
        role = choose.choice(["user", "assistant", "system", "tool"])
        turn = {
            "id": f"d{number}",
            "role": role,
            "content": f"entry {word(number)} of the diary",
            "created_at": f"2024-03-{1 + number % 28:02d}T00:00:00Z",
            "metadata": {"mood": choose.choice([1, True, "1", 2.0, None]), "n": number},
            "session": choose.choice("abc"),
        }
        if role == "tool":
            turn |= {"tool_name": choose.choice(["weather", "stock"]), "tool_call_id": f"c{number}"}
        turns.append(turn)
    for turn in turns:
        sent = {name: turn[name] for name in turn if name != "session"}
        service.append("diarist", turn["session"], sent, wait="indexed")
    return turns


def mood(turn: dict[str, Any]) -> Any:
    return turn["metadata"]["mood"]


def ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer["results"]]


@pytest.mark.parametrize(
    ("filters", "holds"),
    [
        ({"roles": ["user"]}, lambda turn: turn["role"] == "user"),
        ({"roles": ["tool", "system"]}, lambda turn: turn["role"] in ("tool", "system")),
        ({"from": "2024-03-10T00:00:00Z"}, lambda turn: turn["created_at"] >= "2024-03-10"),
        ({"to": "2024-03-10T00:00:00Z"}, lambda turn: turn["created_at"] < "2024-03-10"),
        (
            {"from": "2024-03-10T02:00:00+02:00", "to": "2024-03-11T00:00:00Z"},
            lambda turn: turn["created_at"].startswith("2024-03-10"),
        ),
        ({"tool_name": "stock"}, lambda turn: turn.get("tool_name") == "stock"),
        (
            {"metadata": {"mood": 1}},
            lambda turn: mood(turn) == 1 and mood(turn) is not True,
        ),
        ({"metadata": {"mood": True}}, lambda turn: mood(turn) is True),
        ({"metadata": {"mood": "1"}}, lambda turn: mood(turn) == "1"),
        ({"metadata": {"mood": None}}, lambda turn: mood(turn) is None),
        ({"metadata": {"mood": 2, "n": 999}}, lambda turn: False),
        (
            {"roles": ["user"], "metadata": {"mood": 2}, "to": "2024-03-20T00:00:00Z"},
            lambda turn: turn["role"] == "user" and mood(turn) == 2.0 and turn["created_at"] < "2024-03-20",
        ),
    ],
)
@pytest.mark.parametrize("session", [None, "a"])
def test_filters_without_a_query_give_exactly_the_matches_newest_first(
    service: Running, diary: list[dict[str, Any]], filters: dict[str, Any], holds: Any, session: str | None
) -> None:
    where = {} if session is None else {"session_id": session}
    expected = [turn["id"] for turn in diary if holds(turn) and session in (None, turn["session"])]
    assert ids(service.search("diarist", filters=filters, k=100, **where)) == expected[::-1]
    assert ids(service.search("diarist", filters=filters, k=2, **where)) == expected[::-1][:2]


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_no_score_drops_what_a_filter_lets_through(service: Running, diary: list[dict[str, Any]], mode: str) -> None:
    """Every turn holds `entry`, so that every match of the filter is a result."""
    for role in ("user", "tool"):
        expected = {turn["id"] for turn in diary if turn["role"] == role}
        answer = service.search("diarist", "entry", filters={"roles": [role]}, k=100, mode=mode)
        assert set(ids(answer)) == expected


def test_a_session_alone_is_a_filter(service: Running, diary: list[dict[str, Any]]) -> None:
    assert (
        ids(service.search("diarist", session_id="b", k=100))
        == [turn["id"] for turn in diary if turn["session"] == "b"][::-1]
    )
    assert ids(service.search("diarist", session_id="none", k=100)) == []


@pytest.mark.parametrize("mode", MODES)
def test_k_bounds_the_results_and_none_comes_twice(service: Running, diary: list[dict[str, Any]], mode: str) -> None:
    for k in (1, 7, 1_000):
        answer = service.search("diarist", "diary entry", k=k, mode=mode)
        assert len(ids(answer)) == len(set(ids(answer))) == min(k, len(diary))
        scores = [result["score"] for result in answer["results"]]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_every_turn_is_first_for_its_own_word(service: Running, diary: list[dict[str, Any]], mode: str) -> None:
    for number, turn in enumerate(diary[::6]):
        assert ids(service.search("diarist", word(6 * number), mode=mode))[0] == turn["id"]


def test_an_unknown_user_has_no_results(service: Running) -> None:
    assert service.search("nobody", "anything")["results"] == []
    assert service.search("nobody", filters={"roles": ["user"]})["results"] == []


def test_cold_alone_holds_nothing_yet(service: Running, diary: list[dict[str, Any]]) -> None:
    cold = service.search("diarist", "entry", tiers=["cold"])
    assert cold["results"] == []
    assert cold["degradation"] == {"level": "full", "reasons": []}


def test_what_has_expired_is_never_found(service: Running) -> None:
    past = "2020-01-01T00:00:00Z"
    gone = {"role": "user", "content": "the gherkin expired", "created_at": past, "ttl_seconds": 60}
    living = {"role": "user", "content": "the gherkin lives", "ttl_seconds": 3_600}
    service.append("expiring", "s", gone, living)
    assert service.found("expiring", "gherkin") == ["the gherkin lives"]
    assert service.found("expiring", filters={"roles": ["user"]}) == ["the gherkin lives"]
    assert service.found("expiring", "gherkin", now="2099-01-01T00:00:00Z") == []
    assert "gherkin" not in str(service.context("expiring", "gherkin?", now="2099-01-01T00:00:00Z")["messages"][:-1])


def test_an_expired_turn_does_not_speak_through_the_rewritten_query(service: Running) -> None:
    gone = {"role": "user", "content": "Meet Wolfgang", "created_at": "2020-01-01T00:00:00Z", "ttl_seconds": 60}
    service.append("hush", "s", gone)
    assert service.search("hush", "what about it?", session_id="s")["query"]["rewritten"] == "what about it?"
    service.append("hush", "s", "Meet Annegret")
    assert "Annegret" in service.search("hush", "what about it?", session_id="s")["query"]["rewritten"]


# ---- hot and warm


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that holds few turns of a user in memory."""
    options = MemoryOptions(owner_turns_resident=RESIDENT)
    running = Running(hash_settings(tmp_path_factory.mktemp("small"), memory=options))
    yield running
    running.stop()


def tell(running: Running, user: str, numbers: Sequence[int]) -> None:
    turns = [{"id": f"n{n}", "role": "user", "content": f"the {word(n)} is number {n}"} for n in numbers]
    running.append(user, "s", *turns, wait="indexed")


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize("folded", [True, False])
def test_an_owner_larger_than_memory_is_searched_exactly(small: Running, mode: str, folded: bool) -> None:
    user = f"large-{mode}-{folded}"
    for start in range(0, SAID, 50):
        tell(small, user, range(start, start + 50))
    if folded:
        small.fold()
    tiers = set()
    for number in range(0, SAID, 7):
        answer = small.search(user, word(number), mode=mode, k=3)
        assert ids(answer)[0] == f"n{number}"
        assert len(set(ids(answer))) == len(ids(answer))
        assert answer["degradation"] == {"level": "full", "reasons": []}
        tiers.add(answer["results"][0]["tier"])
    assert tiers == {"hot", "warm"}


def test_the_nearest_vectors_of_hot_and_warm_together_are_the_nearest_of_all(
    small: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Archiver, "tend_shard", lambda *_: False)  # an archive knows neighbours, which count, too
    for start in range(0, SAID, 50):
        tell(small, "near", range(start, start + 50))
    small.fold()
    turns = small.turns("near", "s")
    day = datetime.now(UTC)
    texts = [f"user ({day.day} {MONTHS[day.month - 1]} {day.year}): {one['content']}" for one in turns]
    vectors = EMBEDDER.embed(texts)
    for number in range(0, SAID, 9):
        query = f"number {number} {word(number)}"
        near = dict(zip([one["id"] for one in turns], (vectors @ EMBEDDER.embed([query])[0]).tolist(), strict=True))
        answer = small.search("near", query, mode="dense", k=RESIDENT + 5)
        fewest = sorted(near.values())[-RESIDENT - 5]
        assert len(set(ids(answer))) == RESIDENT + 5
        assert min(near[one] for one in ids(answer)) >= fewest - FLOAT16_NOISE


def test_filters_reach_all_that_has_left_memory(small: Running) -> None:
    tell(small, "sifted", range(60))
    assert len(small.found("sifted", filters={"roles": ["user"]}, k=1_000)) == 60
    small.fold()
    newest_first = [f"the {word(n)} is number {n}" for n in reversed(range(60))]
    assert small.found("sifted", filters={"roles": ["user"]}, k=1_000) == newest_first
    assert small.found("sifted", session_id="s", k=45) == newest_first[:45]


@pytest.mark.parametrize("mode", MODES)
def test_what_has_expired_hides_nothing_that_lives_outside_memory(small: Running, mode: str) -> None:
    """There are more of the best than the tables are asked for at first."""
    user = f"hidden-{mode}"
    gone = [{"role": "user", "content": "kumquat kumquat", "ttl_seconds": 3_600} for _ in range(WARM_CANDIDATES + 20)]
    living = "a long tail of other words with one kumquat among them"
    for start in range(0, len(gone), 60):
        small.append(user, "s", *gone[start : start + 60])
    small.append(user, "s", living, wait="indexed")
    tell(small, user, range(2 * RESIDENT))
    small.fold()
    said = small.found(user, "kumquat", now="2099-01-01T00:00:00Z", mode=mode, k=60)
    assert living in said
    assert "kumquat kumquat" not in said


@pytest.mark.parametrize("mode", MODES)
def test_as_many_come_from_outside_memory_as_are_asked_for(small: Running, mode: str) -> None:
    """What memory holds matches better, and takes no places of the others."""
    user, many = f"many-{mode}", WARM_CANDIDATES + 30
    for start in range(0, many, 65):
        numbers = range(start, min(start + 65, many))
        small.append(user, "s", *[f"kumquat in the long story number {n}" for n in numbers], wait="indexed")
    small.append(user, "s", *["kumquat"] * RESIDENT, wait="indexed")
    small.fold()
    results = small.search(user, "kumquat", mode=mode, k=many + RESIDENT)["results"]
    assert len(results) == many + RESIDENT
    assert {result["tier"] for result in results} == {"hot", "warm"}


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_is_exhaustive_in_every_mode_and_tier(small: Running, mode: str) -> None:
    """Also where no word of the query is found."""
    user = f"exhaustive-{mode}"
    tell(small, user, range(2 * RESIDENT))
    small.fold()
    answer = small.search(user, "nothingofthekind", filters={"roles": ["user"]}, mode=mode, k=100)
    assert set(ids(answer)) == {f"n{n}" for n in range(2 * RESIDENT)}
    assert len(ids(answer)) == 2 * RESIDENT
    assert small.found(user, "nothingofthekind", filters={"roles": ["tool"]}, mode=mode) == []


@pytest.mark.parametrize("fold", ["before", "after", "never"])
def test_what_was_deleted_or_edited_is_not_found_as_it_was(small: Running, fold: str) -> None:
    user = f"forgetful-{fold}"
    tell(small, user, range(60))
    if fold == "before":
        small.fold()
    where = {"user_id": user, "session_id": "s"}
    small.ok("DELETE", "/v1/turns/n3", params=where)
    small.ok("DELETE", "/v1/turns/n55", params=where)
    for turn in ("n4", "n56"):
        small.ok("PATCH", f"/v1/turns/{turn}", params=where, json={"content": f"changed {turn} quixotic"})
    if fold == "after":
        small.fold()
    for number in (3, 55, 4, 56):
        said = small.found(user, word(number), k=100)
        assert all(word(number) not in one for one in said)
    assert set(small.found(user, "quixotic", k=2)) == {"changed n4 quixotic", "changed n56 quixotic"}
    assert len(small.found(user, filters={"roles": ["user"]}, k=100)) == 58
    small.ok("DELETE", "/v1/sessions/s", params={"user_id": user})
    assert small.found(user, word(10), k=100) == []


# ---- one block, and tables that fail

EMBEDDER = HashEmbedder()


def encoded(vector: NDArray[np.float32]) -> EncodedQuery:
    return EncodedQuery(EMBEDDER.version.name, vector)


class Tables:
    """A table with what it is given, or with a fault."""

    def __init__(self, turns: Sequence[Turn], fault: Exception | None = None) -> None:
        self._turns = {turn.seq: turn for turn in turns}
        self._fault = fault

    def nearest(self, owner: str, query: np.ndarray, k: int, wanted: Wanted, version: str) -> list[tuple[Turn, float]]:
        return self._given()

    def matching(self, owner: str, terms: Sequence[str], k: int, wanted: Wanted) -> list[tuple[Turn, float]]:
        return self._given()

    def turns(self, owner: str, seqs: Sequence[int]) -> list[Turn]:
        return [turn for turn, _ in self._given() if turn.seq in seqs]

    def _given(self) -> list[tuple[Turn, float]]:
        if self._fault is not None:
            raise self._fault
        return [(turn, 0.5) for turn in self._turns.values()]


def turn(seq: int, content: str, **more: Any) -> Turn:
    times = {"arrived_at": seq * DAY_US, "created_at": seq * DAY_US}
    return Turn(id=f"t{seq}", session="s", role="user", content=content, seq=seq, rev=seq, **times, **more)


def block_of(resident: Sequence[Turn], older: Sequence[Turn] = ()) -> Block:
    """A block with the content of `resident`, and the ids only of `older`."""
    block = Block("owner", (EMBEDDER.version,), {EMBEDDER.version.name: ExactHotIndex(EMBEDDER.version.dimension)})
    index = tuple(StoredTurn(one.seq, one.session, one.id, one.created_at) for one in older)
    block.restore(StoredOwner(index=index), max((one.seq for one in older), default=0))
    for one in resident:
        block.apply(TurnPut("owner", one))
    return block


def asked(block: Block, table: Tables, query: str = "apple", **question: Any) -> Any:
    wanted = {"mode": "lexical", "k": 10, "now": 0, **question}
    return search(block, Question(query, **wanted), None, table, table.turns)


def test_as_of_shows_what_was_there_then() -> None:
    block = block_of([turn(n, f"apple {n}") for n in range(1, 10)])
    for seq in (0, 1, 5, 9, 99):
        found = asked(block, Tables([]), as_of=seq).found
        assert sorted(one.turn.seq for one in found) == list(range(1, min(seq, 9) + 1))
        newest = asked(block, Tables([]), query="", as_of=seq, filters=Filters(session="s")).found
        assert [one.turn.seq for one in newest] == list(range(min(seq, 9), 0, -1))


@pytest.mark.parametrize("query", ["apple", ""])
def test_as_of_holds_in_warm_too(query: str) -> None:
    older = [turn(1, "apple one"), turn(2, "apple two")]
    block = block_of([turn(3, "apple three")], older)
    found = asked(block, Tables(older), query=query, as_of=1, filters=Filters(session="s")).found
    assert [one.turn.seq for one in found] == [1]


def test_a_table_that_fails_is_named_and_hot_is_given() -> None:
    block = block_of([turn(3, "apple three")], [turn(1, "apple one")])
    for query in ("apple", ""):
        answer = asked(block, Tables([], StoreUnavailable("down")), query=query, filters=Filters(session="s"))
        assert [one.turn.seq for one in answer.found] == [3]
        assert answer.reasons == ("warm: store_unavailable",)


def test_hot_alone_asks_no_table() -> None:
    block = block_of([turn(3, "apple three")], [turn(1, "apple one")])
    answer = asked(block, Tables([], StoreUnavailable("down")), tiers=frozenset({"hot"}))
    assert ([one.turn.seq for one in answer.found], answer.reasons) == ([3], ())


@pytest.mark.parametrize(("query", "k", "alone"), [("apple", 2, True), ("apple", 3, False), ("apple quince", 2, False)])
def test_hot_answers_alone_if_it_has_enough_that_is_close_and_every_word(query: str, k: int, alone: bool) -> None:
    block = block_of([], [turn(1, "quince one")])
    vector = EMBEDDER.embed(["apple"])
    for one in (turn(2, "apple two"), turn(4, "apple four")):
        vectors = TurnVectors(one.seq, one.rev, "s", one.id, pack_vectors(vector))
        block.apply(TurnPut("owner", one))
        block.apply(VectorsPut(one.seq + 1, "owner", EMBEDDER.version.name, (vectors,)))
    table = Tables([], StoreUnavailable("asked"))
    answer = search(block, Question(query, "hybrid", k, 0), encoded(vector[0]), table, table.turns)
    assert [found.turn.seq for found in answer.found] == [4, 2]
    assert answer.reasons == (() if alone else ("warm: store_unavailable",))


@pytest.mark.parametrize(("known", "alone"), [(TERMS_LOOKED_FOR - 1, False), (TERMS_LOOKED_FOR, True)])
def test_hot_is_checked_for_a_bounded_number_of_words(known: int, alone: bool) -> None:
    words = " ".join(word(n) for n in range(known))
    block = block_of([], [turn(1, "quince one")])
    vector = EMBEDDER.embed(["apple"])
    block.apply(TurnPut("owner", turn(2, words)))
    vectors = TurnVectors(2, 2, "s", "t2", pack_vectors(vector))
    block.apply(VectorsPut(3, "owner", EMBEDDER.version.name, (vectors,)))
    table = Tables([], StoreUnavailable("asked"))
    answer = search(block, Question(f"{words} {words} quince", "hybrid", 1, 0), encoded(vector[0]), table, table.turns)
    assert answer.reasons == (() if alone else ("warm: store_unavailable",))


def test_rows_of_a_table_that_lags_behind_are_not_believed() -> None:
    """It still holds a turn that is gone, one of another session's id, and one that memory holds newer."""
    living = turn(1, "apple one")
    gone, newer = turn(2, "apple gone"), turn(3, "apple three")
    block = block_of([newer], [living])
    table = Tables([living, gone, turn(3, "apple old state")])
    assert [(one.turn.content, one.tier) for one in asked(block, table).found] == [
        ("apple three", "hot"),
        ("apple one", "warm"),
    ]


def test_expired_rows_of_a_table_are_left_out() -> None:
    older = [turn(1, "apple one", expires_at=5), turn(2, "apple two", expires_at=7)]
    found = asked(block_of([turn(3, "pear")], older), Tables(older), now=5).found
    assert [one.turn.seq for one in found if "apple" in one.turn.content] == [2]
