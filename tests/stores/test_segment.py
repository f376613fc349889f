"""The segment codec: what is written is read back, and no damage is taken for data."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.stores.segment import (
    SEQ_SPAN_MAX,
    WRITER_ID_BYTES_MAX,
    Entry,
    Header,
    decode,
    encode,
    number_of,
    segment_name,
    torn_name,
)

ENTRIES = (Entry(11, b"first"), Entry(13, b""), Entry(14, "第三".encode()))


def header_of(entries: tuple[Entry, ...], prev_last_seq: int = 10, writer_id: str = "w") -> Header:
    last_seq = entries[-1].seq if entries else prev_last_seq
    return Header(7, 3, writer_id, last_seq, prev_last_seq, len(entries))


def ends_of(entries: tuple[Entry, ...]) -> list[int]:
    """Where the header ends, and then each entry: the lengths of segments with so many entries."""
    return [len(encode(header_of(entries[:kept]), entries[:kept])) for kept in range(len(entries) + 1)]


@st.composite
def entry_runs(draw: st.DrawFn) -> tuple[Entry, ...]:
    steps = draw(st.lists(st.tuples(st.integers(1, 9), st.binary(max_size=40)), max_size=8))
    seqs = [10 + sum(step for step, _ in steps[: at + 1]) for at in range(len(steps))]
    return tuple(Entry(seq, payload) for seq, (_, payload) in zip(seqs, steps, strict=True))


@settings(deadline=None)
@given(entry_runs(), st.text(max_size=20), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_a_segment_is_read_back_whole(
    entries: tuple[Entry, ...], writer_id: str, kinds: tuple[bool, bool, bool]
) -> None:
    fence, derived, cut = kinds
    plain = header_of(entries, writer_id=writer_id)
    header = msgspec.structs.replace(plain, fence=fence, derived=derived, cut=cut)
    data = encode(header, entries)
    decoded = decode(data)
    assert (decoded.header, decoded.entries, decoded.fault) == (header, entries, None)
    assert decoded.valid_bytes == len(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_without_an_error(data: bytes) -> None:
    assert decode(data).fault is not None


def test_payloads_stand_in_the_segment_as_they_are() -> None:
    assert "第三".encode() in encode(header_of(ENTRIES), ENTRIES)


def test_every_cut_keeps_the_entries_before_it() -> None:
    data, ends = encode(header_of(ENTRIES), ENTRIES), ends_of(ENTRIES)
    for length in range(len(data)):
        decoded = decode(data[:length])
        kept = max(sum(end <= length for end in ends) - 1, 0)
        assert decoded.entries == ENTRIES[:kept]
        assert decoded.fault == (f"truncated at byte {length}" if length else "empty")
        assert (decoded.header is None) == (length < ends[0])
        assert decoded.valid_bytes == (ends[kept] if decoded.header else 0)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_changed_byte_is_noticed_and_named(mask: int) -> None:
    data, ends = encode(header_of(ENTRIES), ENTRIES), ends_of(ENTRIES)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= mask
        decoded = decode(bytes(changed))
        assert decoded.entries == ENTRIES[: max(sum(end <= at for end in ends) - 1, 0)]
        assert decoded.fault is not None
        assert (decoded.header is None) == (at < ends[0])


def test_a_checksum_mismatch_names_the_byte_where_the_entry_begins() -> None:
    data, ends = bytearray(encode(header_of(ENTRIES), ENTRIES)), ends_of(ENTRIES)
    data[-1] ^= 0xFF
    assert decode(bytes(data)).fault == f"checksum mismatch at byte {ends[2]}"


def test_zeros_and_garbage_behind_the_entries_are_trailing_bytes() -> None:
    data = encode(header_of(ENTRIES), ENTRIES)
    for tail in (bytes(40), b"\xff" * 97, data):
        decoded = decode(data + tail)
        assert decoded.entries == ENTRIES
        assert decoded.fault == f"trailing bytes at byte {len(data)}"


def test_a_zeroed_page_is_not_an_entry() -> None:
    data = encode(header_of(ENTRIES), ENTRIES)
    start = ends_of(ENTRIES)[1]
    assert decode(data[:start] + bytes(len(data) - start)).entries == ENTRIES[:1]


@pytest.mark.parametrize(
    ("header", "entries"),
    [
        (Header(1, 1, "w", 2, 0, 1), (Entry(1, b""), Entry(2, b""))),
        (Header(1, 1, "w", 2, 0, 2), (Entry(2, b""), Entry(1, b""))),
        (Header(1, 1, "w", 2, 0, 2), (Entry(1, b""), Entry(1, b""))),
        (Header(1, 1, "w", 2, 0, 1), (Entry(3, b""),)),
        (Header(1, 1, "w", 6, 5, 1), (Entry(5, b""),)),
        (Header(1, 1, "w", 4, 5, 0), ()),
        (Header(1, 1, "w", SEQ_SPAN_MAX + 1, 0, 0), ()),
        (Header(1, 1, "w" * (WRITER_ID_BYTES_MAX + 1), 0, 0, 0), ()),
    ],
    ids=["count", "order", "twice", "outside", "overlap", "backwards", "span", "writer"],
)
def test_a_contradiction_is_never_written(header: Header, entries: tuple[Entry, ...]) -> None:
    with pytest.raises(ValueError):
        encode(header, entries)


def test_names_are_numbers_that_sort_as_text() -> None:
    assert segment_name(42) == "00000000000000000042.seg"
    assert sorted([segment_name(10), segment_name(9)]) == [segment_name(9), segment_name(10)]
    assert number_of(segment_name(42)) == 42
    assert number_of(torn_name(42)) is None
    assert number_of(torn_name(42), "torn") == 42
    assert number_of("42.seg") is None
    assert number_of(".00000000000000000042.seg.ab.tmp") is None


def test_a_segment_of_a_release_that_knew_fences_only_is_read() -> None:
    """The byte after the format was 1 for a fence and 0 for everything else."""
    plain = header_of(ENTRIES)
    data = encode(plain, ENTRIES)
    assert data[6] == 0
    assert decode(data).header == plain
    assert encode(msgspec.structs.replace(plain, fence=True), ENTRIES)[6] == 1
