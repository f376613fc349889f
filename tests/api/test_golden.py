"""Golden queries: stored durably, a tenant's own, and gone with the turns and users that they are about."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.api import schemas
from serve_app.config import StoreOptions
from serve_app.memory import logged
from serve_app.models.embed import EncoderOptions
from serve_app.stores import golden_file
from serve_app.write import golden as upkeep
from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, hash_settings, refused
from tests.api.test_erasure import HALVES, done, in_files, in_process
from tests.write.shards import wait_until


def word() -> str:
    """The one that `test_erasure` looks for: only the service may hold it whole."""
    return "".join(HALVES)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    often = FoldOptions(round_s=0.1, purge_every_s=0.1)
    started = Running(hash_settings(tmp_path, fold=often))
    yield started
    started.stop()


def said(running: Running, user: str = "u", ids: tuple[str, ...] = ("1", "2", "3"), key: str = "") -> None:
    turns = [{"id": one, "role": "user", "content": f"said {one}"} for one in ids]
    running.append(user, "s", *turns, key=key)


def golden(*turns: str, **more: Any) -> dict[str, Any]:
    gold = [{"session_id": "s", "turn_id": turn} for turn in turns or ("1",)]
    return {"user_id": "u", "query": "what was said?", "gold": gold, **more}


def stored(running: Running, *turns: str, key: str = "", **more: Any) -> dict[str, Any]:
    answer = running.call("POST", "/v1/golden", json=golden(*turns, **more), key=key)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def listed(running: Running, key: str = "", **query: Any) -> list[dict[str, Any]]:
    return list(running.ok("GET", "/v1/golden", params=query, key=key)["golden"])


# ---- stored, listed, removed


def test_a_query_is_stored_as_it_was_given_and_outlives_a_restart(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path))
    said(running)
    made = stored(running, "1", "2", as_of="2024-05-06T07:08:09+02:00", note="by hand")
    assert (made["status"], made["query"], made["user_id"], made["note"]) == (
        "stored",
        "what was said?",
        "u",
        "by hand",
    )
    assert made["gold"] == [{"session_id": "s", "turn_id": one} for one in ("1", "2")]
    assert (made["as_of"], made["gone"]) == ("2024-05-06T07:08:09+02:00", 0)
    again = running.again()
    try:
        assert listed(again) == [{name: value for name, value in made.items() if name != "status"}]
    finally:
        again.stop()


def test_an_equal_one_is_stored_once(running: Running) -> None:
    said(running)
    first = stored(running, "1", "2")
    again = stored(running, "2", "1", "2")
    assert (again["status"], again["id"]) == ("duplicate", first["id"])
    others = [stored(running, "1"), stored(running, "1", "2", note="n"), stored(running, "1", "2", as_of=7)]
    assert len({first["id"], *(one["id"] for one in others)}) == 4
    assert len(listed(running)) == 4


def test_pages_cover_all_once_in_order(running: Running) -> None:
    said(running)
    made = [stored(running, "1", query=f"query {number}")["id"] for number in range(7)]
    seen, after = list[str](), {}
    while True:
        page = running.ok("GET", "/v1/golden", params={"limit": 3, **after})
        seen += [one["id"] for one in page["golden"]]
        assert len(page["golden"]) <= 3
        if "next" not in page:
            break
        after = {"after": page["next"]}
    assert seen == made == sorted(made)
    running.ok("DELETE", "/v1/golden", params={"id": made[2]})
    assert [one["id"] for one in listed(running, after=made[2])] == made[3:]


def test_one_or_all_of_a_user_are_removed(running: Running) -> None:
    said(running)
    said(running, "other")
    first, _, third = (stored(running, one) for one in ("1", "2", "3"))
    of_other = stored(running, user_id="other")
    assert running.ok("DELETE", "/v1/golden", params={"id": first["id"]}) == {"deleted": 1}
    refused(running.call("DELETE", "/v1/golden", params={"id": first["id"]}), 404, "not_found")
    wrong_user = {"id": third["id"], "user_id": "other"}
    refused(running.call("DELETE", "/v1/golden", params=wrong_user), 404, "not_found")
    assert running.ok("DELETE", "/v1/golden", params={"user_id": "u"}) == {"deleted": 2}
    assert running.ok("DELETE", "/v1/golden", params={"user_id": "u"}) == {"deleted": 0}
    assert [one["id"] for one in listed(running)] == [of_other["id"]]
    refused(running.call("DELETE", "/v1/golden"), 422, "invalid_request")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (golden("4"), 404, "not_found"),
        (golden("1", "4"), 404, "not_found"),
        (golden(user_id="nobody"), 404, "not_found"),
        (golden() | {"gold": []}, 422, "invalid_request"),
        (golden() | {"gold": [{"session_id": "s", "turn_id": "1"}] * 101}, 422, "invalid_request"),
        (golden(query=""), 422, "invalid_request"),
        (golden(query="   "), 422, "invalid_request"),
        (golden(query=None), 422, "invalid_request"),
        (golden(user_id=None), 422, "invalid_request"),
        (golden(as_of="2024-05-06T07:08:09"), 422, "invalid_request"),
        (golden(as_of="soon"), 422, "invalid_receipt"),
        (golden(note="n" * 5_000), 422, "invalid_request"),
        (golden(hat=1), 422, "invalid_request"),
        (golden(search_id="s-none"), 422, "invalid_request"),
        (golden(query=None, user_id=None, search_id="s-none"), 404, "not_found"),
    ],
)
def test_what_cannot_be_is_refused_and_stores_nothing(
    running: Running, body: dict[str, Any], status: int, code: str
) -> None:
    said(running)
    refused(running.call("POST", "/v1/golden", json=body), status, code)
    assert listed(running) == []
    assert not list((running.data / "golden").glob("*.json"))


@pytest.mark.parametrize("as_of", [12, "12", "0:12", "2024-05-06T07:08:09Z"])
def test_a_moment_is_a_time_a_seq_or_a_receipt(running: Running, as_of: str | int) -> None:
    said(running)
    assert stored(running, as_of=as_of)["as_of"] == as_of


def test_a_tenant_may_hold_so_many_and_so_much(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    said(running)
    monkeypatch.setattr(golden_file, "GOLDEN_QUERIES_MAX", 2)
    monkeypatch.setattr(golden_file, "GOLDEN_CHARACTERS_MAX", 40)
    stored(running, query="a" * 30)
    refused(running.call("POST", "/v1/golden", json=golden(query="b" * 11)), 429, "quota_exceeded")
    stored(running, query="b" * 10)
    refused(running.call("POST", "/v1/golden", json=golden(query="c")), 429, "quota_exceeded")
    assert stored(running, query="a" * 30)["status"] == "duplicate"
    assert len(listed(running)) == 2


def test_bounds_are_told() -> None:
    assert (golden_file.GOLDEN_QUERIES_MAX, golden_file.GOLDEN_CHARACTERS_MAX) == (5_000, 4 << 20)
    assert (schemas.GOLD_TURNS_MAX, logged.SEARCHES_KEPT, logged.SEARCH_KEPT_S) == (100, 1_000, 3_600)
    page = (Path(__file__).parents[2] / "docs/limits.md").read_text()
    for told in ("golden queries of one tenant | 5,000", "gold turns of one golden query | 100", "1,000, for an hour"):
        assert told in page


# ---- whose


def test_golden_queries_are_their_tenants_own(running: Running) -> None:
    mine, theirs = running.make_key(tenant="acme"), running.make_key(tenant="other")
    said(running, key=mine)
    said(running, key=theirs)
    made = stored(running, key=mine)
    assert listed(running, key=theirs) == []
    refused(running.call("DELETE", "/v1/golden", params={"id": made["id"]}, key=theirs), 404, "not_found")
    assert running.ok("DELETE", "/v1/golden", params={"user_id": "u"}, key=theirs) == {"deleted": 0}
    assert len(listed(running, key=mine)) == 1


def test_a_bound_key_sees_and_changes_only_its_user(running: Running) -> None:
    said(running)
    said(running, "guest")
    made = stored(running)
    bound = running.make_key(user_id="guest")
    refused(running.call("POST", "/v1/golden", json=golden(), key=bound), 403, "forbidden")
    refused(running.call("GET", "/v1/golden", params={"user_id": "u"}, key=bound), 403, "forbidden")
    refused(running.call("DELETE", "/v1/golden", params={"user_id": "u"}, key=bound), 403, "forbidden")
    refused(running.call("DELETE", "/v1/golden", params={"id": made["id"]}, key=bound), 404, "not_found")
    own = stored(running, user_id="guest", key=bound)
    assert [one["id"] for one in listed(running, key=bound)] == [own["id"]]
    assert len(listed(running)) == 2


# ---- the end of turns and users


def test_a_turn_that_goes_leaves_its_queries_and_the_last_one_ends_them(running: Running) -> None:
    said(running)
    two, one = stored(running, "1", "2"), stored(running, "1")
    running.ok("DELETE", "/v1/turns/1", params={"user_id": "u", "session_id": "s"})
    (left,) = listed(running)
    assert (left["id"], left["gone"], left["gold"]) == (two["id"], 1, [{"session_id": "s", "turn_id": "2"}])
    wait_until(lambda: one["id"] not in _file_of(running))
    said(running, ids=("1",))
    assert listed(running) == [left], "another turn of that id is not the one that answered"
    running.ok("DELETE", "/v1/sessions/s", params={"user_id": "u"})
    assert listed(running) == []
    wait_until(lambda: two["id"] not in _file_of(running))


def test_a_turn_that_expires_answers_nothing(running: Running) -> None:
    turns = [{"id": "1", "role": "user", "content": "soon gone", "ttl_seconds": 1}, {"id": "2", "role": "user"}]
    running.append("u", "s", turns[0], turns[1] | {"content": "stays"})
    stored(running, "1", "2")
    stored(running, "1")
    assert len(listed(running)) == 2
    time.sleep(1.1)
    (left,) = listed(running)
    assert (left["gone"], [one["turn_id"] for one in left["gold"]]) == (1, ["2"])
    running.ok("POST", "/v1/admin/maintenance", json={"action": "expire"})
    wait_until(lambda: _file_of(running).count('"query"') == 1)


def test_after_an_erasure_nothing_of_the_user_is_left(running: Running) -> None:
    said(running)
    said(running, "other")
    running.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": True})
    stored(running, query=f"where is the {word()}?", note=word())
    search = running.search("u", "said")
    stored(running, query=None, user_id=None, search_id=search["search_id"], note=word())
    stays = stored(running, user_id="other")
    assert any(name.startswith("golden") for name in in_files(running.data))
    assert len(listed(running, user_id="u")) == 2
    done(running, running.ok("DELETE", "/v1/users/u")["erasure_id"])
    assert in_files(running.data) == []
    assert in_process() == []
    assert [one["id"] for one in listed(running)] == [stays["id"]]
    said(running)
    again = {"search_id": search["search_id"], "gold": [{"session_id": "s", "turn_id": "1"}]}
    refused(running.call("POST", "/v1/golden", json=again), 404, "not_found")


def test_an_erasure_shows_at_once(running: Running) -> None:
    said(running)
    stored(running)
    running.ok("DELETE", "/v1/users/u")
    assert listed(running) == []
    refused(running.call("POST", "/v1/golden", json=golden()), 404, "not_found")


def test_an_erasure_waits_for_a_file_that_cannot_be_written(running: Running) -> None:
    said(running)
    stored(running, query=word())
    (file,) = (running.data / "golden").glob("*.json")
    kept = file.read_text()
    file.write_text("[{")
    erasure = running.ok("DELETE", "/v1/users/u")["erasure_id"]
    wait_until(lambda: running.ok("GET", f"/v1/erasures/{erasure}")["state"] == "failed")
    file.write_text(kept)
    done(running, erasure)
    assert in_files(running.data) == []


def test_what_a_crash_left_is_made_good_at_the_next_start(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path))
    said(running)
    gone, stays = stored(running, "1", query=word()), stored(running, "2")
    (file,) = (tmp_path / "golden").glob("*.json")
    before = file.read_bytes()
    running.ok("DELETE", "/v1/turns/1", params={"user_id": "u", "session_id": "s"})
    running.stop()
    file.write_bytes(before)  # as if the process had died between the delete and the file
    file.with_name(f".{file.name}.123").write_bytes(before)
    again = Running(running.settings)
    try:
        assert [one["id"] for one in listed(again)] == [stays["id"]]
        wait_until(lambda: gone["id"] not in file.read_text())
        assert in_files(tmp_path / "golden") == []
    finally:
        again.stop()


def test_a_turn_that_is_deleted_meanwhile_leaves_no_query(running: Running) -> None:
    """Whichever comes first: either the query is refused, or it goes with the turn."""
    for number in range(20):
        said(running, ids=(f"n{number}",))

    async def both(number: int) -> None:
        add = running.ask("POST", "/v1/golden", json=golden(f"n{number}"))
        where = {"user_id": "u", "session_id": "s"}
        remove = running.ask("DELETE", f"/v1/turns/n{number}", params=where)
        added, removed = await asyncio.gather(add, remove)
        assert removed.status_code == 200
        assert added.status_code in (201, 404)

    for number in range(20):
        running.run(both(number))
    assert listed(running) == []
    wait_until(lambda: '"query"' not in _file_of(running))


def test_many_owners_at_once_are_all_looked_at(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "DOUBTFUL_MAX", 2)
    monkeypatch.setattr(upkeep, "OWNERS_A_PART", 1)
    users = [f"u{number}" for number in range(8)]
    for user in users:
        said(running, user)
        stored(running, user_id=user)
    for user in users:
        running.ok("DELETE", "/v1/sessions/s", params={"user_id": user})
    assert listed(running) == []
    wait_until(lambda: '"query"' not in _file_of(running))


# ---- what they say


def test_texts_are_redacted_on_the_way_in_and_when_the_policy_tightens(running: Running) -> None:
    said(running)
    card, mail = "4111 1111 1111 1111", "ada@example.org"
    made = stored(running, query=f"did I give {card} or {mail}?", note=card)
    assert made["query"] == f"did I give [credit_card] or {mail}?"
    assert made["note"] == "[credit_card]"
    assert stored(running, query=f"did I give {card} or {mail}?", note=card)["status"] == "duplicate"
    running.ok("PUT", "/v1/admin/policies/privacy", json={"level": "strict"})
    wait_until(lambda: mail not in _file_of(running))
    assert listed(running)[0]["query"] == "did I give [credit_card] or [email]?"


def test_an_export_holds_them(running: Running) -> None:
    said(running)
    made = stored(running)
    lines = [json.loads(line) for line in running.call("GET", "/v1/users/u/export").content.splitlines()]
    assert [line["id"] for line in lines if line["kind"] == "golden"] == [made["id"]]
    assert lines[-1]["golden"] == 1


# ---- feedback


def test_a_search_that_is_kept_becomes_a_golden_query(running: Running) -> None:
    said(running)
    assert "search_id" not in running.search("u", "said")
    running.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": True})
    answer = running.search("u", "what was said?", now="2024-05-06T07:08:09Z")
    found = answer["results"][0]
    gold = [{"session_id": found["session_id"], "turn_id": found["id"]}]
    made = running.ok("POST", "/v1/golden", json={"search_id": answer["search_id"], "gold": gold, "note": "clicked"})
    assert (made["user_id"], made["query"], made["as_of"]) == ("u", "what was said?", "2024-05-06T07:08:09Z")
    both = {"search_id": answer["search_id"], "gold": gold, "query": "x"}
    refused(running.call("POST", "/v1/golden", json=both), 422, "invalid_request")
    for key in (running.make_key(tenant="other"), running.make_key(user_id="guest")):
        asked = {"search_id": answer["search_id"], "gold": gold}
        refused(running.call("POST", "/v1/golden", json=asked, key=key), 404, "not_found")


def test_a_query_goes_with_a_turn_that_it_took_words_from(running: Running) -> None:
    """Whether it is stored by then or not."""
    running.append("u", "s", {"id": "1", "role": "user", "content": "some talk"})
    running.append("u", "s", {"id": "2", "role": "user", "content": "I bought a Leica Summicron in Portofino"})
    running.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": True})
    asked = [running.search("u", "and how much was it?", session_id="s") for _ in range(2)]
    bodies = [{"search_id": one["search_id"], "gold": [{"session_id": "s", "turn_id": "1"}]} for one in asked]
    assert "Summicron" in running.ok("POST", "/v1/golden", json=bodies[0])["query"]
    running.ok("DELETE", "/v1/turns/2", params={"user_id": "u", "session_id": "s"})
    assert running.ok("GET", "/v1/golden")["golden"] == []
    refused(running.call("POST", "/v1/golden", json=bodies[1]), 404, "not_found")
    ends = time.monotonic() + 10
    while b"Summicron" in b"".join(path.read_bytes() for path in (running.data / "golden").iterdir()):
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_no_search_is_kept_once_the_policy_says_so(running: Running) -> None:
    said(running)
    running.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": True})
    search_id = running.search("u", "said")["search_id"]
    running.ok("PUT", "/v1/admin/policies/golden", json={})
    assert "search_id" not in running.search("u", "said")
    body = {"search_id": search_id, "gold": [{"session_id": "s", "turn_id": "1"}]}
    refused(running.call("POST", "/v1/golden", json=body), 404, "not_found")


def test_searches_that_are_kept_are_bounded_in_number_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged, "SEARCHES_KEPT", 3)
    at = [1_700_000_000_000_000]
    settings = hash_settings(tmp_path, store=StoreOptions(shards=1), encoder=EncoderOptions(model="hash"))
    running = Running(settings, clock=lambda: at[0])
    try:
        said(running)
        running.ok("PUT", "/v1/admin/policies/golden", json={"log_searches": True})
        ids = [running.search("u", f"said {number}")["search_id"] for number in range(4)]
        gold = [{"session_id": "s", "turn_id": "1"}]
        refused(running.call("POST", "/v1/golden", json={"search_id": ids[0], "gold": gold}), 404, "not_found")
        running.ok("POST", "/v1/golden", json={"search_id": ids[1], "gold": gold})
        at[0] += (logged.SEARCH_KEPT_S + 1) * 1_000_000
        refused(running.call("POST", "/v1/golden", json={"search_id": ids[3], "gold": gold}), 404, "not_found")
    finally:
        running.stop()


def _file_of(running: Running) -> str:
    return "".join(path.read_text() for path in (running.data / "golden").glob("*.json"))


def test_a_search_goes_on_where_no_policy_can_be_read(tmp_path: Path) -> None:
    running = Running(hash_settings(tmp_path))
    said(running)
    running.stop()
    (tmp_path / "policies.json").write_text("{")
    again = Running(running.settings)
    try:
        answer = again.search("u", "said")
        assert len(answer["results"]) == 3
        assert "search_id" not in answer
    finally:
        again.stop()
