"""A tenant's stored turns and facts follow its policy when that tightens: all of them, once, and no one else's."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from serve_app.core import Summary
from serve_app.stores.documents_disk import DiskDocuments
from serve_app.stores.policy_file import PolicyFile
from serve_app.stores.rows import pseudonym
from serve_app.write.derived import PutSummary
from serve_app.write.erasing import EraseUser
from serve_app.write.facts import PutFact
from serve_app.write.operations import AppendTurns, EditTurn, NewTurn
from serve_app.write.redaction import redacted_turn
from serve_app.write.rescan import TURNS_A_PART, RedactTurns, Rescan
from tests.write.shards import ANN, BOB, CAT, NEVER, OneShard

MAIL = "anna.kestrel@example.org"
CARD = "4111 1111 1111 1111"


@pytest.fixture
def policies(tmp_path: Path) -> PolicyFile:
    found = PolicyFile(DiskDocuments(tmp_path))
    found.put("acme", "privacy", b'{"level": "off"}')
    return found


@pytest.fixture
def rescan(policies: PolicyFile, tmp_path: Path) -> Rescan:
    return Rescan(policies, DiskDocuments(tmp_path), 1)


def tighten(policies: PolicyFile, level: str = "strict") -> None:
    policies.put("acme", "privacy", msgspec.json.encode({"level": level}))


def rescanned(rescan: Rescan, shard: OneShard) -> int:
    """Calls until there is no more to do."""
    calls = 1
    while rescan.tend(0, shard.writer):
        calls += 1
    return calls


def written(shard: OneShard) -> None:
    shard.say(ANN, "a", f"mail me at {MAIL}", "nothing here", f"card {CARD}")
    shard.say(BOB, "b", f"bob knows {MAIL}")
    shard.say(CAT, "c", f"another tenant: {MAIL}")
    shard.do(PutFact(ANN, "mail", MAIL, None, None))
    shard.do(PutFact(ANN, "mail", f"{MAIL} again", None, None))
    shard.do(PutFact(ANN, "colour", "green", None, None))


def test_all_that_is_stored_follows(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    written(shard)
    colour = shard.block(ANN).facts["colour"]
    tighten(policies)
    assert rescan.state("acme")["state"] == "running"
    rescanned(rescan, shard)
    assert shard.contents(ANN, "a") == ["mail me at [email]", "nothing here", "card [credit_card]"]
    assert shard.contents(BOB, "b") == ["bob knows [email]"]
    assert [fact.value for fact in shard.block(ANN).facts["mail"]] == ["[email] again"]
    assert shard.block(ANN).facts["colour"] == colour
    state = {"state": "done", "stored": "strict", "shards_done": 1, "turns_redacted": 3, "facts_redacted": 1}
    assert rescan.state("acme") == state


def test_another_tenant_keeps_what_it_has(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    written(shard)
    tighten(policies)
    rescanned(rescan, shard)
    assert shard.contents(CAT, "c") == [f"another tenant: {MAIL}"]


def test_a_level_between_takes_what_it_covers(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    written(shard)
    tighten(policies, "secrets")
    rescanned(rescan, shard)
    assert shard.contents(ANN, "a") == [f"mail me at {MAIL}", "nothing here", "card [credit_card]"]
    tighten(policies)
    rescanned(rescan, shard)
    assert shard.contents(ANN, "a")[0] == "mail me at [email]"


def test_nothing_is_written_where_nothing_is_to_be_done(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    written(shard)
    policies.put("acme", "privacy", b'{"level": "off"}')
    before = shard.shard.applied_seq
    assert not rescan.tend(0, shard.writer)
    tighten(policies)
    rescanned(rescan, shard)
    after = shard.shard.applied_seq
    assert after > before
    policies.put("acme", "privacy", b'{"level": "off"}')
    rescanned(rescan, shard)
    assert shard.shard.applied_seq == after


def test_no_byte_of_it_is_left_after_the_purge(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    shard.say(ANN, "a", f"mail me at {MAIL}")
    shard.do(PutFact(ANN, "mail", MAIL, None, None))
    block = shard.block(ANN)
    shard.do(PutSummary(ANN, Summary("a", f"wrote {MAIL}", 1, 1, 3, "v", "h", 0, 1, 2), block.applied_seq))
    shard.fold()
    tighten(policies)
    rescanned(rescan, shard)
    assert shard.shard.purge_due
    assert shard.block(ANN).summary_at("a", None) is None
    shard.housekeeper(NEVER).purge_now(0)
    assert shard.files_with(MAIL) == []
    shard.restart()
    assert shard.contents(ANN, "a") == ["mail me at [email]"]


def test_it_goes_on_where_it_was_stopped(shard: OneShard, policies: PolicyFile, tmp_path: Path) -> None:
    """Each call is made by a service of its own: what one has done, the next does not do again."""
    written(shard)
    tighten(policies)
    calls = 0
    while Rescan(policies, DiskDocuments(tmp_path), 1, tend_s=0).tend(0, shard.writer):
        shard.restart()
        calls += 1
    assert calls >= len((ANN, BOB))
    assert shard.contents(BOB, "b") == ["bob knows [email]"]
    state = Rescan(policies, DiskDocuments(tmp_path), 1).state("acme")
    assert (state["state"], state["turns_redacted"], state["facts_redacted"]) == ("done", 3, 1)


def test_a_long_session_is_done_in_parts(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    count = 2 * TURNS_A_PART + 3
    shard.do(AppendTurns(ANN, "a", [NewTurn("user", f"{number}: {MAIL}") for number in range(count)]))
    tighten(policies)
    rescanned(rescan, shard)
    assert shard.contents(ANN, "a") == [f"{number}: [email]" for number in range(count)]
    assert rescan.state("acme")["turns_redacted"] == count


def test_a_turn_that_was_edited_meanwhile_keeps_its_edit(shard: OneShard) -> None:
    shard.say_as(ANN, "a", "1", f"first {MAIL}")
    read = shard.turn(ANN, "a", "1")
    assert read is not None
    shard.do(EditTurn(ANN, "a", "1", f"second {MAIL}", None))
    assert shard.do(RedactTurns(ANN, [(read, redacted_turn(read, "strict"))], "strict")) == 1
    assert shard.contents(ANN, "a") == ["second [email]"]


def test_data_calls_and_metadata_follow_too(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    data = msgspec.json.encode({"id": 2**70, "mail": MAIL})
    shard.do(AppendTurns(ANN, "a", [NewTurn("tool", id="1", data=data, metadata={"from": MAIL, "n": 1})]))
    tighten(policies)
    rescanned(rescan, shard)
    turn = shard.turn(ANN, "a", "1")
    assert turn is not None
    assert turn.data == b'{"id":%d,"mail":"[email]"}' % 2**70
    assert turn.metadata == {"from": "[email]", "n": 1}


def test_its_file_names_no_user(shard: OneShard, policies: PolicyFile, tmp_path: Path) -> None:
    """A user may be erased while it goes on, and after it."""
    written(shard)
    tighten(policies)
    file = tmp_path / "rescan.json"
    while Rescan(policies, DiskDocuments(tmp_path), 1, tend_s=0).tend(0, shard.writer):
        assert "ann" not in file.read_text()
        assert "bob" not in file.read_text()
    assert Rescan(policies, DiskDocuments(tmp_path), 1).state("acme")["turns_redacted"] == 3


def test_an_owner_erased_on_the_way_is_passed_over(shard: OneShard, policies: PolicyFile, tmp_path: Path) -> None:
    written(shard)
    tighten(policies)
    Rescan(policies, DiskDocuments(tmp_path), 1, tend_s=0).tend(0, shard.writer)
    first = min((ANN, BOB), key=pseudonym)
    shard.do(EraseUser(first, "acme"))
    rescanned(Rescan(policies, DiskDocuments(tmp_path), 1), shard)
    left = shard.contents(ANN, "a") + shard.contents(BOB, "b")
    assert len(left) == (1 if first == ANN else 3)
    assert not any(MAIL in content for content in left)


def test_what_came_in_before_the_rules_knew_it_follows_once_it_is_distrusted(
    shard: OneShard, policies: PolicyFile, rescan: Rescan
) -> None:
    tighten(policies)
    rescanned(rescan, shard)
    written(shard)  # past the door: as rules of an earlier release would have let it in
    rescanned(rescan, shard)
    assert MAIL in shard.contents(ANN, "a")[0]
    policies.distrust(["acme"])
    assert rescan.state("acme")["state"] == "running"
    rescanned(rescan, shard)
    assert shard.contents(ANN, "a") == ["mail me at [email]", "nothing here", "card [credit_card]"]
    assert rescan.state("acme")["state"] == "done"


def test_who_allows_all_is_not_looked_through(shard: OneShard, policies: PolicyFile, rescan: Rescan) -> None:
    written(shard)
    policies.distrust(["acme"])
    assert rescanned(rescan, shard) == 1
    assert MAIL in shard.contents(ANN, "a")[0]
