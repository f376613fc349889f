"""Records survive the codec, and what a log of this release holds can be read by the next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serve_app.core import Fact, Owner, Summary, ToolCall, Turn
from serve_app.records import (
    Erasure,
    ErasureDone,
    FactGone,
    FactPut,
    Record,
    SessionGone,
    SummaryPut,
    TurnGone,
    TurnPut,
    TurnVectors,
    UserGone,
    VectorsPut,
    VersionVectors,
    decode_record,
    encode_record,
)

OWNER = Owner("acme", "李雷").key

PLAIN = Turn(id="1", session="a", role="user", content="hello", seq=7, arrived_at=1, created_at=2, rev=7)
FULL = Turn(
    id="é'; --",
    session="日记",
    role="tool",
    content="",
    seq=8,
    arrived_at=-1,
    created_at=253_402_300_799_999_999,
    offset_minutes=-720,
    speaker="Ann 👩‍👩‍👧",
    tool_calls=(ToolCall("c1", "search", {"q": ["上海", 1.5, None, True]}),),
    tool_call_id="c0",
    tool_name="prices",
    data=b'{"price": 12345678901234567890.10}',
    metadata={"n": 2**64 - 1, "deep": {"list": [-(2**63)]}},
    expires_at=5,
    rev=9,
)
ERASURE = Erasure(id="er-0-1", tenant="acme", requested_at=3, state="running", counts={"turns": 2})


def item(seq: int, tokens: bytes = b"") -> TurnVectors:
    return TurnVectors(seq, seq, "a", str(seq), b"\x00\x01", tokens)


RECORDS: list[tuple[Record, int]] = [
    (TurnPut(OWNER, PLAIN), 7),
    (TurnPut(OWNER, FULL), 9),
    (TurnGone(10, OWNER, "日记", "1", 7), 10),
    (SessionGone(11, OWNER, "日记"), 11),
    (UserGone(12, OWNER, ERASURE), 12),
    (ErasureDone(13, "", msgspec.structs.replace(ERASURE, state="done", completed_at=4)), 13),
    (FactPut(OWNER, Fact("diet", "vegan", 14, 1, "preferences", 9)), 14),
    (FactGone(15, OWNER, "diet"), 15),
    (SummaryPut(OWNER, Summary("日记", "short", 7, 8, 1, "v", "h", 16, 1, 2)), 16),
    (VectorsPut(17, OWNER, "hash_64", (TurnVectors(7, 7, "a", "1", b"\x00\x01"),)), 17),
    (VectorsPut(18, OWNER, "hash_64", (item(7, b"\x7f" * 64),), (VersionVectors("hash_32", (item(7), item(8))),)), 18),
]


@pytest.mark.parametrize(("record", "seq"), RECORDS, ids=lambda value: type(value).__name__)
def test_a_record_comes_back_as_it_was_and_knows_its_seq(record: Record, seq: int) -> None:
    assert record.seq == seq
    assert decode_record(encode_record(record)) == record


def test_a_turn_of_an_older_release_lacks_only_what_has_a_default() -> None:
    needed = {"id": "1", "session": "a", "role": "user", "content": "x", "seq": 1, "arrived_at": 2, "created_at": 3}
    payload = msgspec.msgpack.encode({"type": "turn", "owner": OWNER, "turn": needed})
    assert decode_record(payload) == TurnPut(OWNER, Turn(**needed))  # type: ignore[arg-type]


def test_vectors_of_an_older_release_are_of_one_version_and_without_tokens() -> None:
    packed = [7, 7, "a", "1", b"\x00\x01"]
    payload = {"type": "vectors", "seq": 17, "owner": OWNER, "version": "hash_64", "items": [packed]}
    found = decode_record(msgspec.msgpack.encode(payload))
    assert found == VectorsPut(17, OWNER, "hash_64", (TurnVectors(7, 7, "a", "1", b"\x00\x01", b""),), ())


def test_vectors_of_one_version_are_written_as_older_releases_read_them() -> None:
    record = VectorsPut(17, OWNER, "hash_64", (item(7),))
    written = msgspec.msgpack.decode(encode_record(record))
    assert written.keys() == {"type", "seq", "owner", "version", "items"}


def test_the_vectors_of_a_turn_are_those_of_all_versions() -> None:
    record = VectorsPut.of(1, OWNER, [VersionVectors(name, seqs) for name, seqs in BY_VERSION])
    assert record is not None
    assert [one.version for one in record.versions] == ["one", "two"]
    assert {seq: list(made) for seq, made in record.of_turns().items()} == {7: ["one", "two"], 8: ["one"], 9: ["two"]}
    left = record.only(lambda one: one.turn_seq == 9)
    assert left == VectorsPut(1, OWNER, "two", (item(9),))
    assert record.only(lambda one: False) is None
    assert record.only(lambda one: True) == record
    assert VectorsPut.of(1, OWNER, [VersionVectors("one", ())]) is None


BY_VERSION = [("none", ()), ("one", (item(7), item(8))), ("two", (item(7), item(9)))]


def test_a_field_of_a_newer_release_is_passed_over() -> None:
    payload = msgspec.msgpack.encode({"type": "fact_gone", "seq": 1, "owner": OWNER, "key": "k", "reason": "asked"})
    assert decode_record(payload) == FactGone(1, OWNER, "k")


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"garbage", encode_record(RECORDS[0][0])[:-1], msgspec.msgpack.encode({"type": "no such thing"})],
)
def test_what_is_no_record_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_record(payload)


def test_the_size_of_a_turn_counts_whatever_is_written_out_of_it() -> None:
    large = "x" * 5_000
    plain = Turn(id="a", session="s", role="user", content="few", seq=1, arrived_at=1, created_at=1)
    assert plain.characters == 3
    held: list[dict[str, Any]] = [
        {"content": large},
        {"data": large.encode()},
        {"metadata": {"note": large}},
        {"tool_calls": (ToolCall("c", "look", {"at": large}),)},
    ]
    for one in held:
        assert msgspec.structs.replace(plain, **one).characters >= len(large)
