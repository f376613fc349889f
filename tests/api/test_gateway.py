"""A gateway: what writes goes to the shard's writer and comes back as it is; what reads is answered here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_app.api.forwarding import ForwardOptions
from serve_app.api.limits import LimitOptions
from serve_app.api.sent_hits import SentHits
from serve_app.asgi import Answered, Asked
from serve_app.config import StoreOptions
from serve_app.core import Owner
from serve_app.errors import InvalidRequest
from serve_app.service import Service
from serve_app.write.hits import Noted
from tests.api.clustered import Clustered, Direct
from tests.api.running import Running, hash_settings, refused


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clustered]:
    one = Clustered(tmp_path_factory.mktemp("cluster"))
    one.start()
    one.start()
    yield one
    one.stop()


@pytest.fixture
def gateway(cluster: Clustered) -> Running:
    return cluster.gateways[0]


def test_what_is_written_here_is_read_here_at_once(cluster: Clustered, gateway: Running) -> None:
    for shard in range(cluster.shards):
        user = cluster.user_in(shard)
        for number in range(10):
            word = f"word{number}"
            assert gateway.append(user, "own", word)["receipt"].startswith(f"{shard}:")
            assert gateway.turns(user, "own")[-1]["content"] == word
            assert gateway.found(user, word, mode="lexical")[0] == word


def test_each_write_goes_to_the_shard_of_its_user_and_comes_back_as_it_is(cluster: Clustered, gateway: Running) -> None:
    user = cluster.user_in(1)
    turn = {"id": "t", "role": "user", "content": "kept"}
    assert gateway.append(user, "s", turn)["results"][0]["status"] == "stored"
    assert gateway.append(user, "s", turn)["results"][0]["status"] == "duplicate"
    at = {"user_id": user, "session_id": "s"}
    assert gateway.ok("PATCH", "/v1/turns/t", params=at, json={"content": "changed"})["content"] == "changed"
    assert [one["content"] for one in gateway.turns(user, "s")] == ["changed"]
    assert gateway.ok("PUT", f"/v1/users/{user}/facts/colour", json={"value": "blue"})["value"] == "blue"
    assert gateway.ok("GET", f"/v1/users/{user}/facts/colour")["value"] == "blue"
    assert gateway.ok("DELETE", f"/v1/users/{user}/facts/colour")["deleted"] == 1
    refused(gateway.call("GET", f"/v1/users/{user}/facts/colour"), 404, "not_found")
    assert gateway.ok("DELETE", "/v1/turns/t", params=at)["deleted"] == 1
    refused(gateway.call("DELETE", "/v1/turns/t", params=at), 404, "not_found")
    gateway.append(user, "s", "more")
    assert gateway.ok("DELETE", "/v1/sessions/s", params={"user_id": user})["deleted"] == 1
    assert gateway.turns(user, "s") == []
    assert {shard for shard, asked in cluster.ways[0].asked if b"/v1/" in asked.path and user in str(asked)} == {1}


def test_what_is_wrong_is_answered_as_ever(gateway: Running) -> None:
    refused(gateway.call("POST", "/v1/sessions/s/turns", content=b"{"), 400, "invalid_json")
    refused(gateway.call("POST", "/v1/sessions/s/turns", json={"turns": []}), 422, "invalid_request")
    refused(gateway.call("POST", "/v1/sessions/s/turns", json={"user_id": 3, "turns": [1]}), 422, "invalid_request")
    refused(gateway.call("DELETE", "/v1/sessions/s"), 422, "invalid_request")
    refused(
        gateway.call("PATCH", "/v1/turns/t", params={"user_id": "u", "session_id": "s"}, json={}),
        422,
        "invalid_request",
    )
    bound = gateway.make_key(user_id="me")
    body = {"user_id": "other", "turns": [{"role": "user", "content": "x"}]}
    refused(gateway.call("POST", "/v1/sessions/s/turns", json=body, key=bound), 403, "forbidden")
    refused(gateway.call("POST", "/v1/sessions/s/turns", json=body, key="mk_none_x"), 401, "unauthorized")


def test_a_lost_answer_stores_nothing_twice_and_is_told_as_if_it_had_come(cluster: Clustered, gateway: Running) -> None:
    user, way = cluster.user_in(0), cluster.ways[0]
    left = ["lost"]
    way.lose = lambda asked: asked.method == "POST" and bool(left) and bool(left.pop())
    answer = gateway.append(user, "lossy", "one", {"role": "user", "content": "two", "id": None}, "three")
    assert not left
    assert [one["status"] for one in answer["results"]] == ["stored"] * 3
    assert [one["content"] for one in gateway.turns(user, "lossy")] == ["one", "two", "three"]
    left = ["lost"]
    answer = gateway.append(user, "lossy", {"role": "user", "content": "four", "id": "mine"})
    assert [one["status"] for one in answer["results"]] == ["duplicate"]  # so says a client's own second try, too
    way.lose = lambda asked: False


def test_a_deletion_whose_answer_was_lost_is_no_404(cluster: Clustered, gateway: Running) -> None:
    user, way = cluster.user_in(0), cluster.ways[0]
    gateway.append(
        user, "gone", {"id": "a", "role": "user", "content": "a"}, {"id": "b", "role": "user", "content": "b"}
    )
    left = ["lost"]
    way.lose = lambda asked: asked.method == "DELETE" and bool(left) and bool(left.pop())
    at = {"user_id": user, "session_id": "gone"}
    refused(gateway.call("DELETE", "/v1/turns/a", params=at), 503, "store_unavailable")
    left = ["lost"]
    refused(gateway.call("DELETE", "/v1/sessions/gone", params={"user_id": user}), 503, "store_unavailable")
    left = ["lost"]
    refused(gateway.call("DELETE", f"/v1/users/{user}"), 503, "store_unavailable")
    way.lose = lambda asked: False
    erasures = [asked for _, asked in way.asked if asked.method == "DELETE" and asked.path.startswith(b"/v1/users/")]
    assert len([one for one in erasures if one.path.endswith(user.encode())]) == 1


def test_a_deletion_whose_answer_was_lost_is_not_surely_undone(cluster: Clustered, gateway: Running) -> None:
    user, way = cluster.user_in(0), cluster.ways[0]
    gateway.append(user, "undone", {"id": "a", "role": "user", "content": "a"})
    left = ["lost"]

    def lost_and_gone(asked: Asked) -> bool:
        if asked.method != "DELETE" or not left:
            return False
        way.gone.add(0)
        return bool(left.pop())

    way.lose = lost_and_gone
    at = {"user_id": user, "session_id": "undone"}
    refused(gateway.call("DELETE", "/v1/turns/a", params=at), 503, "store_unavailable")
    way.gone.clear()
    way.lose = lambda asked: False
    refused(gateway.call("DELETE", "/v1/turns/a", params=at), 404, "not_found")


def test_reads_go_on_while_a_writer_is_away_and_writes_are_told_to_come_again(
    cluster: Clustered, gateway: Running
) -> None:
    user, way = (
        cluster.user_in(
            1,
        ),
        cluster.ways[0],
    )
    gateway.append(user, "away", "the river was high")
    way.gone.add(1)
    answer = gateway.call(
        "POST", "/v1/sessions/away/turns", json={"user_id": user, "turns": [{"role": "user", "content": "x"}]}
    )
    refused(answer, 503, "shard_elsewhere")
    assert int(answer.headers["retry-after"]) >= 1
    assert gateway.found(user, "river", mode="lexical") == ["the river was high"]
    told = gateway.ok("GET", "/readyz", key=None)["degraded"]
    assert {one["what"] for one in told} == {"upstream"}
    assert 1 in {one["shard"] for one in told}
    lines = gateway.ok("GET", "/v1/admin/stats")["shards"]
    assert [(one["shard"], one["known_by"]) for one in lines] == [(0, "writer"), (1, "gateway")]
    way.gone.clear()
    gateway.append(user, "away", "y")
    assert gateway.ok("GET", "/readyz", key=None)["degraded"] == []
    metrics = gateway.call("GET", "/metrics", key=None).text
    assert 'outcome="shard_elsewhere",route="POST /v1/sessions/{session_id}/turns"' in metrics


def test_maintenance_is_of_every_shard_or_of_the_one_that_is_named(gateway: Running) -> None:
    done = gateway.ok("POST", "/v1/admin/maintenance", json={"action": "fold"})
    assert (done["action"], [one["shard"] for one in done["shards"]]) == ("fold", [0, 1])
    done = gateway.ok("POST", "/v1/admin/maintenance", json={"action": "fold", "shard": 1})
    assert [one["shard"] for one in done["shards"]] == [1]
    refused(gateway.call("POST", "/v1/admin/maintenance", json={"action": "fold", "shard": 9}), 422, "invalid_request")
    refused(gateway.call("POST", "/v1/admin/maintenance", json={"action": "none"}), 422, "invalid_request")


def test_small_files_are_changed_here_and_count_everywhere(cluster: Clustered, gateway: Running) -> None:
    other, user = cluster.gateways[1], cluster.user_in(0)
    key = gateway.make_key()
    assert other.call("GET", "/v1/sessions", params={"user_id": user}, key=key).status_code == 200
    layout = {"shares": {"system": 0, "facts": 0, "summary": 0, "retrieved": 0, "recent": 80, "query": 20}}
    gateway.ok("PUT", "/v1/admin/layouts/own", json=layout)
    assert other.ok("GET", "/v1/admin/layouts/own")["shares"]["recent"] == 80
    gateway.ok("PUT", "/v1/admin/policies/privacy", json={"level": "strict"})
    assert "a@b.example" not in other.append(user, "private", "write to a@b.example").get("content", "")
    assert other.turns(user, "private")[-1]["content"] == "write to [email]"
    gateway.ok("PUT", "/v1/admin/policies/privacy", json={})
    gateway.ok("DELETE", f"/v1/admin/keys/{key.split('_')[1]}")
    refused(other.call("GET", "/v1/sessions", params={"user_id": user}, key=key), 401, "unauthorized")


def test_golden_queries_are_kept_here_and_go_with_their_turns(cluster: Clustered, gateway: Running) -> None:
    user = cluster.user_in(1)
    gateway.append(user, "g", {"id": "gold", "role": "user", "content": "an answer"})
    gold = {"user_id": user, "query": "which?", "gold": [{"session_id": "g", "turn_id": "gold"}]}
    assert gateway.ok("POST", "/v1/golden", json=gold)["status"] == "stored"
    assert [one["query"] for one in cluster.gateways[1].ok("GET", "/v1/golden")["golden"]] == ["which?"]
    gateway.ok("DELETE", "/v1/turns/gold", params={"user_id": user, "session_id": "g"})
    refused(gateway.call("POST", "/v1/golden", json=gold), 404, "not_found")
    assert gateway.ok("GET", "/v1/golden")["golden"] == []


def test_an_erasure_is_found_at_once_and_to_its_end_also_elsewhere(cluster: Clustered, gateway: Running) -> None:
    user = cluster.user_in(0)
    gateway.append(user, "s", "to be erased")
    erasure = gateway.ok("DELETE", f"/v1/users/{user}")["erasure_id"]
    for one in cluster.gateways:
        assert one.ok("GET", f"/v1/erasures/{erasure}")["counts"]["turns"] >= 1
    assert gateway.turns(user, "s") == []
    ends = time.monotonic() + 20
    while gateway.ok("GET", f"/v1/erasures/{erasure}")["state"] != "done":
        assert time.monotonic() < ends
        time.sleep(0.05)
    for unknown in (erasure[:-1] + ("0" if erasure[-1] != "0" else "1"), "er-99-x", "x"):
        refused(gateway.call("GET", f"/v1/erasures/{unknown}"), 404, "not_found")


def test_vectors_that_were_waited_for_are_found_by_their_receipt_elsewhere(
    cluster: Clustered, gateway: Running
) -> None:
    user = cluster.user_in(1)
    for number in range(5):
        receipt = gateway.append(user, "v", f"the bridge number {number}", wait="indexed")["receipt"]
        answer = cluster.gateways[1].search(user, f"the bridge number {number}", mode="dense", min_receipt=receipt)
        assert answer["results"][0]["content"] == f"the bridge number {number}"


def test_backups_and_migrations_are_refused_by_name(gateway: Running) -> None:
    refused(gateway.call("POST", "/v1/admin/backups", json={}), 422, "not_supported")
    refused(gateway.call("POST", "/v1/admin/migrations", json={}), 422, "not_supported")
    assert gateway.ok("GET", "/v1/admin/backups") == {"backups": []}
    assert gateway.ok("GET", "/v1/admin/migrations")["migrations"] == []


def test_hits_go_to_the_writers_and_nobody_else_can_send_them(cluster: Clustered) -> None:
    gateway = cluster.start(forward=ForwardOptions(hits_s=0.05))
    user = cluster.user_in(0)
    gateway.append(user, "h", "the river was high")
    noted = cluster.writers[0].service._noted[0]
    assert gateway.found(user, "river", mode="lexical") == ["the river was high"]
    ends = time.monotonic() + 10
    while not noted.of(Owner("default", user).key):
        assert time.monotonic() < ends
        time.sleep(0.02)
    for one in (gateway, cluster.writers[0]):
        assert one.call("NOTE_HITS", "/v1/search", content=b"x").status_code == 405
        assert one.call("NOTE_HITS", "/", content=b"x").status_code in (404, 405)


def test_one_that_ends_sends_its_hits_first(cluster: Clustered) -> None:
    gateway, user = cluster.start(), cluster.user_in(1)
    gateway.append(user, "last", "the harbour was full")
    gateway.found(user, "harbour", mode="lexical")
    cluster.gateways.remove(gateway)
    gateway.stop()
    assert cluster.writers[1].service._noted[1].of(Owner("default", user).key)
    assert not cluster.ways.pop().running


def test_a_defect_on_the_way_loses_no_hits(tmp_path: Path) -> None:
    class Defective(Direct):
        defects = 1
        came = 0

        async def ask(self, shard: int, asked: Asked, within_s: float, *, repeatable: bool = False) -> Answered:
            if self.defects:
                self.defects -= 1
                raise RuntimeError("a defect")
            self.came += 1
            return Answered(204, (), b"")

    async def scene() -> None:
        way, noted = Defective({}), {0: Noted()}
        noted[0].note("owner", [1, 2], 3)
        hits = SentHits(noted, way, 0.01)
        hits.start()
        async with asyncio.timeout(10):
            while not way.came:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        await hits.stop()
        assert way.came == 1

    asyncio.run(scene())


def test_a_gateway_needs_a_way_and_others_have_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="a way to the writers"):
        Service(hash_settings(tmp_path, role="gateway"))
    with pytest.raises(InvalidRequest, match="a way to the writers"):
        Service(hash_settings(tmp_path), upstream=Direct({}))


def test_one_that_cannot_start_leaves_its_way(tmp_path: Path) -> None:
    way = Direct({})
    nowhere = Service(hash_settings(tmp_path, role="gateway", store=StoreOptions()), upstream=way)
    with pytest.raises(InvalidRequest, match="name the store's number of shards"):
        asyncio.run(nowhere.start())
    assert not way.running


@pytest.mark.parametrize("deadline_ms", [10**15, -(10**15)])
def test_a_deadline_that_is_none_makes_no_wait_longer_or_shorter(
    cluster: Clustered, gateway: Running, deadline_ms: int
) -> None:
    turns = [{"role": "user", "content": "x"}]
    body = {"user_id": "u", "turns": turns, "wait": "indexed", "deadline_ms": deadline_ms}
    refused(gateway.call("POST", "/v1/sessions/s/turns", json=body), 422, "invalid_request")
    assert ForwardOptions().wait_s <= cluster.ways[0].within_s[-1] <= ForwardOptions().wait_s + 60


def test_what_it_has_taken_is_answered_before_it_ends(cluster: Clustered) -> None:
    gateway, way, user = cluster.start(), cluster.ways[-1], cluster.user_in(0)
    held = threading.Event()
    way.lose = lambda asked: held.set() or time.sleep(0.3) or False  # type: ignore[func-returns-value]
    body = {"user_id": user, "turns": [{"role": "user", "content": "under way"}]}
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(gateway.call("POST", "/v1/sessions/end/turns", json=body).status_code)
    )
    asking.start()
    assert held.wait(10)
    ending = asyncio.run_coroutine_threadsafe(gateway.service.stop(), gateway.loop)
    ending.result(20)
    asking.join()
    assert answers == [201]
    refused(gateway.call("GET", "/v1/sessions", params={"user_id": user}), 503, "not_ready")


def test_searches_of_who_is_erased_are_forgotten_here(cluster: Clustered, gateway: Running) -> None:
    user = "to-be-forgotten"
    gateway.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": True})
    gateway.append(user, "s", {"id": "t", "role": "user", "content": "the river was high"})
    found = gateway.search(user, "river", mode="lexical")["search_id"]
    gold = {"search_id": found, "gold": [{"session_id": "s", "turn_id": "t"}]}
    assert gateway.ok("POST", "/v1/golden", json=gold)["query"] == "river"
    gateway.ok("DELETE", f"/v1/users/{user}")
    assert gateway.ok("GET", "/v1/golden")["golden"] == []
    refused(gateway.call("POST", "/v1/golden", json=gold), 404, "not_found")
    gateway.ok("PUT", "/v1/admin/policies/golden", json={})


def test_reads_find_places_while_writes_wait(cluster: Clustered, gateway: Running) -> None:
    """More writes of one tenant than it may have at work wait for a writer that is away."""
    gateway = cluster.start(limits=LimitOptions(tenant_requests=4))
    user, way = cluster.user_in(0), cluster.ways[-1]
    way.gone.add(0)
    body = {"user_id": user, "turns": [{"role": "user", "content": "x"}]}

    async def all_at_once() -> list[int]:
        writes = [asyncio.ensure_future(gateway.ask("POST", "/v1/sessions/s/turns", json=body)) for _ in range(8)]
        await asyncio.sleep(0.05)
        read = await gateway.ask("GET", "/v1/sessions", params={"user_id": user})
        return [read.status_code, *sorted({one.status_code for one in await asyncio.gather(*writes)})]

    assert gateway.run(all_at_once()) == [200, 429, 503]
