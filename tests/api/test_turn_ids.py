"""Ids for turns that come without: nothing else of a body changes, and answers read as if it had been asked once."""

from __future__ import annotations

import msgspec
import pytest

from serve_app.api.turn_ids import identified, stored_by_us


def test_only_turns_without_ids_get_one_and_all_else_stays_as_it_was() -> None:
    body = b'{"user_id":"u","turns":[{"role":"user","content":"a","data":{"n":12345678901234567890123.10}},'
    body += b'{"id":"mine","role":"user","content":"b"},{"id": null,"role":"user","content":"c"}],"wait":"indexed"}'
    given = identified(body)
    assert given is not None
    assert b'{"n":12345678901234567890123.10}' in given.body
    before, after = (msgspec.json.decode(one) for one in (body, given.body))
    ids = [turn.pop("id") for turn in after["turns"]]
    for turn in before["turns"]:
        turn.pop("id", None)
    assert after == before
    assert ids[1] == "mine"
    assert {msgspec.json.encode(ids[0]), msgspec.json.encode(ids[2])} == given.made
    assert len({*ids}) == 3
    again = identified(given.body)
    assert again == (given.body, frozenset())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"turns": 3}', b'{"turns": [3]}', b'{"turns": null}'])
def test_what_is_no_such_body_is_left_to_who_refuses_it(body: bytes) -> None:
    assert identified(body) is None


def test_a_duplicate_of_an_id_made_here_is_what_was_stored() -> None:
    results = [{"id": "t-1", "seq": 1, "status": "duplicate"}, {"id": "mine", "seq": 2, "status": "duplicate"}]
    answer = msgspec.json.encode({"session_id": "s", "receipt": "0:2", "results": results})
    told = msgspec.json.decode(stored_by_us(answer, frozenset({b'"t-1"'})))
    assert [one["status"] for one in told["results"]] == ["stored", "duplicate"]
    assert told["receipt"] == "0:2"
    assert stored_by_us(answer, frozenset()) == answer
    refusal = b'{"detail": "\\"duplicate\\" is no id"}'
    assert stored_by_us(refusal, frozenset({b'"t-1"'})) == refusal
