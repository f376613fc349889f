"""The privacy policy of a tenant, as a client meets it: on the way in, at `/v1/redact`, and when it tightens."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.write.housekeeping import FoldOptions
from tests.api.running import Running, hash_settings, refused

MAIL = "anna.kestrel@example.org"
CARD = "4111 1111 1111 1111"
BIG = 123456789012345678901234567890
WAIT_S = 20.0
TENANTS = (f"tenant-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    often = FoldOptions(round_s=0.05, purge_every_s=0.05)
    running = Running(hash_settings(tmp_path_factory.mktemp("redaction"), fold=often))
    yield running
    running.stop()


@pytest.fixture
def key(service: Running) -> str:
    """An administrator's, of a tenant of its own."""
    return service.make_key(role="admin", tenant=next(TENANTS))


def set_level(service: Running, key: str, level: str) -> None:
    service.ok("PUT", "/v1/admin/policies/privacy", json={"level": level}, key=key)


def rescan(service: Running, key: str) -> dict[str, Any]:
    """Its state once it is done."""
    ends = time.monotonic() + WAIT_S
    while True:
        state = service.ok("GET", "/v1/admin/policies/privacy", key=key)["rescan"]
        if state["state"] == "done":
            return state
        assert time.monotonic() < ends, state
        time.sleep(0.05)


def stored(service: Running, key: str, turn_id: str = "1") -> dict[str, Any]:
    return service.ok("GET", f"/v1/turns/{turn_id}", params={"user_id": "u", "session_id": "s"}, key=key)


def files_with(folder: Path, text: str) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def everything(turn_id: str = "1") -> dict[str, Any]:
    """A turn with an address in each of its parts."""
    return {
        "id": turn_id,
        "role": "assistant",
        "content": f"write to {MAIL}",
        "speaker": MAIL,
        "data": {"mail": MAIL, "n": BIG, "x": 1.5, "list": [None, True, MAIL]},
        "tool_calls": [{"id": "c", "name": "send", "arguments": {"to": MAIL, "count": 3}}],
        "metadata": {"from": MAIL, "ok": True},
    }


def test_every_part_of_a_turn_is_redacted(service: Running, key: str) -> None:
    set_level(service, key, "strict")
    service.append("u", "s", everything(), key=key)
    turn = stored(service, key)
    assert (turn["content"], turn["speaker"]) == ("write to [email]", "[email]")
    assert turn["data"] == {"mail": "[email]", "n": BIG, "x": 1.5, "list": [None, True, "[email]"]}
    assert turn["tool_calls"][0]["arguments"] == {"to": "[email]", "count": 3}
    assert turn["metadata"] == {"from": "[email]", "ok": True}
    assert files_with(service.data, MAIL) == []


def test_edits_and_facts_are_redacted(service: Running, key: str) -> None:
    set_level(service, key, "strict")
    service.append("u", "s", {"id": "1", "role": "user", "content": "old"}, key=key)
    place = {"user_id": "u", "session_id": "s"}
    service.ok("PATCH", "/v1/turns/1", params=place, json={"metadata": {"from": MAIL}}, key=key)
    assert stored(service, key)["content"] == "old"
    edited = service.ok("PATCH", "/v1/turns/1", params=place, json={"content": f"new {MAIL}"}, key=key)
    assert edited["content"] == "new [email]"
    assert edited["metadata"] == {"from": "[email]"}
    assert service.ok("PUT", "/v1/users/u/facts/mail", json={"value": MAIL}, key=key)["value"] == "[email]"
    assert service.ok("PUT", "/v1/users/u/facts/phone", json={"value": "2125550147"}, key=key)["value"] == "[phone]"


def test_the_default_takes_secrets_and_leaves_addresses(service: Running, key: str) -> None:
    service.append("u", "s", {"id": "1", "role": "user", "content": f"{MAIL} pays with {CARD}"}, key=key)
    assert stored(service, key)["content"] == f"{MAIL} pays with [credit_card]"


def test_off_leaves_all(service: Running, key: str) -> None:
    set_level(service, key, "off")
    service.append("u", "s", everything(), {"id": "2", "role": "user", "content": CARD}, key=key)
    assert stored(service, key)["data"]["mail"] == MAIL
    assert stored(service, key, "2")["content"] == CARD


def test_a_long_turn_is_redacted_like_a_short_one(service: Running, key: str) -> None:
    content = f"{'word ' * 20_000} {CARD} {'word ' * 20_000}"
    service.append("u", "s", {"id": "1", "role": "user", "content": content}, key=key)
    assert stored(service, key)["content"] == content.replace(CARD, "[credit_card]")


@pytest.mark.parametrize(("before", "after"), list(itertools.product(["off", "secrets", "strict"], repeat=2)))
def test_the_same_turn_again_is_a_duplicate_whatever_the_policy(
    service: Running, key: str, before: str, after: str
) -> None:
    turn = everything() | {"content": f"{MAIL} {CARD}"}
    set_level(service, key, before)
    service.append("u", "s", turn, key=key)
    set_level(service, key, after)
    assert service.append("u", "s", turn, key=key)["results"][0]["status"] == "duplicate"
    other = service.append("u", "s", turn | {"content": "something else"}, key=key)
    assert other["results"][0]["status"] == "rejected"


def test_without_a_policy_two_turns_with_two_addresses_are_not_the_same(service: Running, key: str) -> None:
    set_level(service, key, "off")
    service.append("u", "s", {"id": "1", "role": "user", "content": MAIL}, key=key)
    other = service.append("u", "s", {"id": "1", "role": "user", "content": "bea@example.org"}, key=key)
    assert other["results"][0]["status"] == "rejected"


def test_what_is_stored_follows_a_policy_that_tightens(service: Running, key: str) -> None:
    mail = f"x{MAIL}"  # in no other test
    set_level(service, key, "off")
    service.append("u", "s", {"id": "1", "role": "user", "content": f"mail {mail}"}, key=key, wait="indexed")
    service.ok("PUT", "/v1/users/u/facts/mail", json={"value": mail}, key=key)
    service.fold()
    assert files_with(service.data, mail)
    set_level(service, key, "strict")
    state = rescan(service, key)
    assert (state["stored"], state["turns_redacted"], state["facts_redacted"]) == ("strict", 1, 1)
    assert stored(service, key)["content"] == "mail [email]"
    assert service.ok("GET", "/v1/users/u/facts", key=key)["facts"][0]["value"] == "[email]"
    found = service.ok("POST", "/v1/search", json={"user_id": "u", "query": "mail"}, key=key)
    assert [one["content"] for one in found["results"]] == ["mail [email]"]
    service.ok("POST", "/v1/admin/maintenance", json={"action": "compact"})
    assert files_with(service.data, mail) == []


def test_a_rescan_can_be_asked_for(service: Running, key: str) -> None:
    set_level(service, key, "off")
    service.append("u", "s", {"id": "1", "role": "user", "content": CARD}, key=key)
    set_level(service, key, "secrets")
    service.ok("POST", "/v1/admin/maintenance", json={"action": "rescan"})
    assert rescan(service, key)["state"] == "done"
    assert stored(service, key)["content"] == "[credit_card]"


def test_a_rescan_of_tenants_is_for_their_administrators(service: Running, key: str) -> None:
    tenant = service.ok("GET", "/v1/admin/keys", key=key)["keys"][0]["tenant"]
    wanted = {"action": "rescan", "tenants": [tenant]}
    begun = service.call("POST", "/v1/admin/maintenance", json=wanted, key=key)
    assert (begun.status_code, begun.json()["tenants"]) == (202, [tenant])
    assert rescan(service, key)["stored"] == "secrets"
    others = wanted | {"tenants": [tenant, "another"]}
    refused(service.call("POST", "/v1/admin/maintenance", json=others, key=key), 403, "forbidden")
    assert service.call("POST", "/v1/admin/maintenance", json=others).status_code == 202
    fold = wanted | {"action": "fold"}
    refused(service.call("POST", "/v1/admin/maintenance", json=fold, key=key), 422, "invalid_request")


def test_a_text_is_redacted_on_request(service: Running, key: str) -> None:
    text = f"👩‍🚀 {MAIL}, {CARD}"
    strict = service.ok("POST", "/v1/redact", json={"text": text}, key=key)
    assert strict["text"] == "👩‍🚀 [email], [credit_card]"
    assert [text[span["start"] : span["end"]] for span in strict["spans"]] == [MAIL, CARD]
    secrets = service.ok("POST", "/v1/redact", json={"text": text, "policy": "secrets"}, key=key)
    assert [span["type"] for span in secrets["spans"]] == ["credit_card"]
    assert service.ok("POST", "/v1/redact", json={"text": text, "policy": "off"}, key=key) == {
        "text": text,
        "spans": [],
    }
    long = service.ok("POST", "/v1/redact", json={"text": "word " * 100_000 + MAIL}, key=key)
    assert long["text"] == "word " * 100_000 + "[email]"


@pytest.mark.parametrize("body", [{}, {"text": 1}, {"text": "a", "policy": "most"}, {"text": "a", "more": 1}])
def test_a_wrong_request_for_redaction_is_refused(service: Running, key: str, body: dict[str, Any]) -> None:
    refused(service.call("POST", "/v1/redact", json=body, key=key), 422, "invalid_request")


def test_a_policy_is_read_and_set_by_its_administrator(service: Running, key: str) -> None:
    assert service.ok("GET", "/v1/admin/policies/privacy", key=key)["policy"] == {"level": "secrets"}
    assert service.ok("PUT", "/v1/admin/policies/lifecycle", json={"cold_after_s": None}, key=key)["policy"] == {
        "warm_after_s": 7 * 86_400,
        "cold_after_s": None,
    }
    assert "rescan" not in service.ok("GET", "/v1/admin/policies/lifecycle", key=key)
    refused(service.call("PUT", "/v1/admin/policies/privacy", json={"level": "most"}, key=key), 422, "invalid_request")
    refused(service.call("PUT", "/v1/admin/policies/colour", json={}, key=key), 404, "not_found")
    refused(service.call("PUT", "/v1/admin/policies/backup", json={}, key=key), 403, "forbidden")
    assert service.ok("PUT", "/v1/admin/policies/backup", json={"keep_s": 60})["policy"]["keep_s"] == 60
