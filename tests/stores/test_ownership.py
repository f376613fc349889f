"""A table or an index that gives what is another's is not believed, on any path out of it."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lancedb.expr import Expr, col, lit

from serve_app.core import Owner
from serve_app.memory.memory import MemoryOptions
from serve_app.placement import shard_of
from serve_app.stores.hot_faiss import FaissHotIndex
from serve_app.stores.ownership import live_of, rows_of
from tests.api.running import Running, hash_settings

SHARDS = 2
SECRET = "zirconia"
MODES = ("hybrid", "dense", "lexical")


def users_of(shard: int, count: int) -> list[str]:
    users = (f"user-{n}" for n in range(1_000))
    return list(islice((user for user in users if shard_of(Owner("default", user), SHARDS) == shard), count))


ANN, BEN = users_of(0, 2)
"""Two users of one shard: their rows lie in the same table."""


class LyingIndex(FaissHotIndex):
    """Gives every owner's vectors to everyone."""

    def products(self, owner: str, query: Any) -> Any:
        found = [super(LyingIndex, self).products(one, query) for one in list(self._blocks)]
        return np.concatenate([rows for rows, _ in found]), np.concatenate([scores for _, scores in found])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Running]]:
    """Starts a service on the same folder, with few turns in memory, after the one before has stopped."""
    started: list[Running] = []

    def begin() -> Running:
        for running in started:
            running.run(running.service.stop())
        started.append(Running(hash_settings(tmp_path, memory=MemoryOptions(owner_turns_resident=8))))
        return started[-1]

    yield begin
    for running in started:
        running.stop()


@pytest.fixture(params=["table", "index"])
def lie(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on the table ignores the owner that it is asked for, as if the library dropped the condition; or the
    index gives the vectors of all."""

    def anybody(*_: str) -> Expr:
        return col("seq") > lit(-1)

    def begin() -> None:
        if request.param == "index":
            monkeypatch.setattr("serve_app.stores.hot_faiss.FaissHotIndex", LyingIndex)
            return
        monkeypatch.setattr("serve_app.stores.lance.owned", anybody)
        monkeypatch.setattr("serve_app.stores.vector_reads.owned", anybody)
        monkeypatch.setattr("serve_app.stores.lance.of_either", anybody)

    return begin


def views(running: Running, user: str) -> dict[str, str]:
    """All that this user can get at."""
    shown: dict[str, Any] = {
        "export": running.call("GET", f"/v1/users/{user}/export").text,
        "facts": running.ok("GET", f"/v1/users/{user}/facts"),
        "turns": running.turns(user, "s"),
        "sessions": running.ok("GET", "/v1/sessions", params={"user_id": user}),
        "filter": running.search(user, "", filters={"roles": ["user"]}, k=100),
        "context": running.context(user, SECRET, session_id="s"),
        "user context": running.context(user, SECRET),
        "one turn": running.call("GET", "/v1/turns/0", params={"user_id": user, "session_id": "s"}).text,
    }
    shown |= {mode: running.search(user, SECRET, mode=mode, tiers=["hot", "warm"]) for mode in MODES}
    return {name: str(view) for name, view in shown.items()}


def two_users(running: Running) -> None:
    """In one shard, each with more turns than stay in memory, under the same ids."""
    for user, said in ((ANN, f"the {SECRET} of ann"), (BEN, "plain words")):
        turns = [{"id": str(n), "role": "user", "content": f"{said} {n}"} for n in range(30)]
        running.append(user, "s", *turns, wait="indexed")
    running.ok("PUT", f"/v1/users/{ANN}/facts/k", json={"value": f"{SECRET} fact"})
    for user in (ANN, BEN):
        running.ok("POST", "/v1/sessions/s/summary:refresh", params={"user_id": user})
    running.fold()


def test_what_a_lying_store_gives_is_shown_to_nobody(start: Callable[[], Running], lie: Callable[[], None]) -> None:
    running = start()
    two_users(running)
    own, others = views(running, ANN), views(running, BEN)
    assert [name for name, view in own.items() if SECRET not in view] == ["sessions"]
    lie()
    running = start()
    for user, before in ((BEN, others), (ANN, own)):
        after = views(running, user)
        for name in ("export", "facts", "turns", "sessions", "one turn"):
            assert after[name] == before[name]
    for view in views(running, BEN).values():
        assert f"{SECRET} of ann" not in view
        assert f"{SECRET} fact" not in view
    assert len(running.search(BEN, "plain words", k=100)["results"]) == 30


def test_rows_of_others_are_left_out() -> None:
    found = pa.table({"owner": ["a", "b", None, "a\x1f", "a"], "seq": [1, 2, 3, 4, 5]})
    assert rows_of(found, "a")["seq"].to_pylist() == [1, 5]
    assert rows_of(found, "a", "b")["seq"].to_pylist() == [1, 2, 5]
    assert rows_of(found.slice(0, 0), "a").num_rows == 0
    assert rows_of(found.slice(0, 1), "a").num_rows == 1


def test_places_of_rows_that_an_owner_has() -> None:
    places, live = live_of([3, 7, 9], np.array([9, 3]))
    assert (places.tolist(), live) == ([2, 0], None)
    places, live = live_of([3, 7, 9], np.array([9, 4, 10, 7]))
    assert live is not None
    assert (live.tolist(), places[live].tolist()) == ([True, False, False, True], [2, 1])
    assert live_of([], np.array([1]))[1] is not None
    assert live_of([], np.array([], np.int64))[0].tolist() == []
