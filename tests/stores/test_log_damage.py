"""Damaged and missing segments: the tail is cut and named, a hole makes the log read-only, folded damage is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from serve_app.errors import LogDamaged, StoreUnavailable
from serve_app.ports import SegmentStore
from serve_app.stores.log import Entry
from serve_app.stores.segment import SEQ_SPAN_MAX, Header, encode, number_of, segment_name, torn_name
from tests.stores.logs import add, content, derive, filled, held, memory, opened
from tests.stores.unreliable import Unreliable, fails

TAIL = (b"first of the tail", b"second")


def log_with_a_tail() -> tuple[dict[str, bytes], list[Entry], list[Entry], list[int]]:
    """The segments, the entries before the newest one, its own, and where in it the header and each entry end."""
    store = memory()
    log, _ = opened(store)
    before = add(log, b"old") + add(log, b"older", b"newer")
    tail = add(log, *TAIL)
    header = Header(4, 1, "writer", tail[-1].seq, before[-1].seq, 0)
    counts = range(len(tail) + 1)
    ends = [len(encode(msgspec.structs.replace(header, count=kept), tail[:kept])) for kept in counts]
    return content(store), before, tail, ends


def damaged_tails() -> Iterator[tuple[bytes, int, bool]]:
    """Every cut and every changed byte of the tail: its bytes, how many entries stay, whether the header does."""
    segments, _, _, ends = log_with_a_tail()
    whole = segments[segment_name(4)]
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0xFF
        stays = max(sum(end <= at for end in ends) - 1, 0)
        yield whole[:at], stays, at >= ends[0]
        yield bytes(changed), stays, at >= ends[0]
        yield whole[:at] + bytes(len(whole) - at), stays, at >= ends[0]
    yield whole + b"garbage", len(TAIL), True


def test_a_tail_torn_at_any_byte_keeps_what_is_before_it_and_is_named() -> None:
    segments, before, tail, _ = log_with_a_tail()
    for damaged, stays, header_stays in damaged_tails():
        store = filled(segments | {segment_name(4): damaged})
        log, recovery = opened(store)
        kept = before + tail[:stays]
        assert list(recovery.entries) == kept
        (damage,) = recovery.damages
        assert (damage.kind, damage.segment) == ("torn_tail", segment_name(4))
        assert str(damage) == f"torn tail: segment {segment_name(4)} {damage.reason}"
        assert damage.entries_lost == (len(tail) - stays if header_stays else None)
        assert log.damage == damage
        assert store.read(torn_name(4)) == damaged
        assert log.next_seq > tail[-1].seq, "a seq that was acknowledged and lost is not given out again"

        kept += add(log, b"written after the repair")
        for _ in range(2):
            log, recovery = opened(store)
            assert (list(recovery.entries), recovery.damages) == (kept, ())
            assert log.next_seq > kept[-1].seq


def test_a_lost_header_gives_up_as_many_seqs_as_it_could_have_used() -> None:
    segments, before, _, _ = log_with_a_tail()
    store = filled(segments | {segment_name(4): b""})
    log, recovery = opened(store)
    assert recovery.damages[0].reason == "empty"
    assert log.next_seq == before[-1].seq + SEQ_SPAN_MAX + 1
    assert log.epoch == 3, "the lost header may have held an epoch"


def test_a_torn_tail_that_is_folded_loses_nothing() -> None:
    segments, _, tail, _ = log_with_a_tail()
    store = filled(segments | {segment_name(4): segments[segment_name(4)][:-1]})
    log, recovery = opened(store, folded_seq=tail[-1].seq)
    assert (recovery.entries, recovery.damages[0].entries_lost) == ((), 0)
    assert log.next_seq == tail[-1].seq + 1


def test_a_lost_header_behind_dropped_segments_is_a_torn_tail() -> None:
    """The fence of the first writer stays, and between it and the newest segment all is folded and gone."""
    store = memory()
    log, _ = opened(store)
    add(log, b"folded")
    folded_seq = add(log, b"folded too")[0].seq
    add(log, b"newest")
    log.drop_through(folded_seq)
    assert store.names() == [segment_name(1), segment_name(4)]
    torn = filled(content(store) | {segment_name(4): b""})
    log, recovery = opened(torn, folded_seq)
    assert [damage.kind for damage in recovery.damages] == ["torn_tail"]
    assert log.writable


def test_a_repair_that_was_cut_short_is_done_again() -> None:
    segments, before, tail, _ = log_with_a_tail()
    damaged = segments[segment_name(4)][:-1]
    store = Unreliable(filled(segments | {segment_name(4): damaged}), [fails])
    with pytest.raises(StoreUnavailable):
        opened(store)
    assert held(store) == tuple(before + tail[:1])
    assert store.read(torn_name(4)) == damaged


def test_torn_bytes_are_kept_until_they_are_folded() -> None:
    segments, _, tail, _ = log_with_a_tail()
    store = filled(segments | {segment_name(4): segments[segment_name(4)][:-1]})
    opened(store)
    log, _ = opened(store)
    log.drop_through(tail[0].seq)
    assert torn_name(4) in store.names(), "its segment still holds seqs that are not folded"
    log.drop_through(tail[-1].seq)
    assert torn_name(4) not in store.names()


def segments_of_five() -> tuple[dict[str, bytes], list[Entry]]:
    """Segment 1 is a fence, 2 to 6 hold seqs 1 to 5."""
    store = memory()
    log, _ = opened(store)
    entries = [entry for n in range(5) for entry in add(log, f"entry {n}".encode())]
    return content(store), entries


def assert_read_only(segments: dict[str, bytes], named: str, entries: Sequence[Entry], folded_seq: int = 0) -> None:
    store = filled(segments)
    log, recovery = opened(store, folded_seq)
    (damage,) = recovery.damages
    assert (damage.kind, damage.segment) == ("hole", named)
    assert list(recovery.entries) == list(entries)
    assert not log.writable
    for attempt in (lambda: add(log, b"new"), log.settle):
        with pytest.raises(LogDamaged, match=named):
            attempt()
    assert log.drop_through(100) == 0
    assert content(store) == segments, "a log with a hole is left as it is"


def test_a_changed_byte_in_the_middle_makes_the_log_read_only() -> None:
    segments, entries = segments_of_five()
    name = segment_name(4)
    for at in range(len(segments[name])):
        changed = bytearray(segments[name])
        changed[at] ^= 0xFF
        assert_read_only(segments | {name: bytes(changed)}, name, entries[:2])


def test_a_missing_middle_makes_the_log_read_only() -> None:
    segments, entries = segments_of_five()
    for number, seq in ((2, 1), (3, 2), (4, 3), (5, 4)):
        rest = {name: data for name, data in segments.items() if name != segment_name(number)}
        assert_read_only(rest, segment_name(number), entries[: seq - 1])


def test_a_missing_beginning_makes_the_log_read_only() -> None:
    segments, _ = segments_of_five()
    rest = {name: data for name, data in segments.items() if (number_of(name) or 0) >= 4}
    assert_read_only(rest, segment_name(3), [], folded_seq=1)


def test_an_intact_part_of_a_broken_middle_is_given() -> None:
    store = memory()
    log, _ = opened(store)
    entries = add(log, b"one", b"two", b"three") + add(log, b"four")
    segments = content(store)
    broken = segments[segment_name(2)][:-1]
    assert_read_only(segments | {segment_name(2): broken}, segment_name(2), entries[:2])


def test_segments_that_lie_under_each_others_names_are_not_mixed_up() -> None:
    segments, entries = segments_of_five()
    swapped = {segment_name(3): segments[segment_name(4)], segment_name(4): segments[segment_name(3)]}
    assert_read_only(segments | swapped, segment_name(3), entries[:1])


def test_two_unreadable_segments_at_the_end_are_a_hole_and_not_a_torn_tail() -> None:
    segments, entries = segments_of_five()
    assert_read_only(segments | {segment_name(5): b"", segment_name(6): b""}, segment_name(5), entries[:3])


def test_a_missing_segment_before_an_unreadable_newest_is_a_hole() -> None:
    segments, entries = segments_of_five()
    rest = {name: data for name, data in segments.items() if name != segment_name(5)}
    assert_read_only(rest | {segment_name(6): b""}, segment_name(5), entries[:3])


def test_a_segment_lost_behind_dropped_ones_is_a_hole() -> None:
    segments, _ = segments_of_five()
    rest = {name: data for name, data in segments.items() if number_of(name) in {1, 5, 6}}
    assert_read_only(rest, segment_name(4), [], folded_seq=2)


def test_folded_damage_does_not_matter() -> None:
    segments, entries = segments_of_five()
    for damaged in (b"", segments[segment_name(3)][:-1], b"garbage" * 20, None):
        changed = {name: data for name, data in segments.items() if name != segment_name(3)}
        changed |= {} if damaged is None else {segment_name(3): damaged}
        for folded_seq in (2, 3):
            log, recovery = opened(filled(changed), folded_seq)
            assert (list(recovery.entries), recovery.damages) == (entries[folded_seq:], ())
            add(log, b"new")
        assert_read_only(changed, segment_name(3), [], folded_seq=1)


def test_a_damaged_fence_loses_nothing() -> None:
    store = memory()
    wrote = add(opened(store)[0], b"one")
    log, _ = opened(store)
    wrote += add(log, b"two")
    changed = filled(content(store) | {segment_name(3): b""})
    log, recovery = opened(changed)
    assert (list(recovery.entries), recovery.damages) == (wrote, ())
    add(log, b"three")


def test_tables_older_than_the_log_are_a_hole() -> None:
    store = memory()
    add(opened(store, folded_seq=50)[0], b"51")
    log, recovery = opened(store, folded_seq=40)
    assert (recovery.entries, recovery.damages[0].kind, log.writable) == ((), "hole", False)


# ---- derived segments behind the damage


def tail_with_derived_behind() -> tuple[dict[str, bytes], list[Entry], list[Entry]]:
    """As `log_with_a_tail`, and segments 5 and 6, which can be computed again; gives the derived entries last."""
    segments, before, tail, _ = log_with_a_tail()
    store = filled(segments)
    header = Header(5, 1, "writer", tail[-1].seq + 2, tail[-1].seq, 2, derived=True)
    vectors = [Entry(tail[-1].seq + 1, b"vector"), Entry(tail[-1].seq + 2, b"another")]
    summary = [Entry(tail[-1].seq + 3, b"summary")]
    store.create(segment_name(5), encode(header, vectors))
    last = msgspec.structs.replace(header, number=6, last_seq=summary[-1].seq, prev_last_seq=header.last_seq, count=1)
    store.create(segment_name(6), encode(last, summary))
    return content(store), before + tail, vectors + summary


def without(segments: dict[str, bytes], number: int) -> dict[str, bytes]:
    return {name: data for name, data in segments.items() if name != segment_name(number)}


def test_derived_segments_behind_a_torn_one_leave_it_a_torn_tail_at_any_byte() -> None:
    segments, turns, derived = tail_with_derived_behind()
    before = turns[: -len(TAIL)]
    for damaged, stays, header_stays in damaged_tails():
        lost = len(TAIL) - stays
        if not lost:
            continue
        store = filled(segments | {segment_name(4): damaged})
        log, recovery = opened(store)
        kept = turns[: len(before) + stays]
        assert list(recovery.entries) == kept, "nothing is given that speaks of what was lost"
        (damage,) = recovery.damages
        assert (damage.kind, damage.segment) == ("torn_tail", segment_name(4))
        assert damage.entries_lost == (lost if header_stays else None)
        assert store.read(torn_name(4)) == damaged
        assert log.next_seq == derived[-1].seq + 1, "no seq is given out again, and none is given up"
        assert log.epoch == 2

        kept += add(log, b"written after the repair")
        kept += derive(log, b"and its vector")
        for _ in range(2):
            log, recovery = opened(store)
            assert (list(recovery.entries), recovery.damages) == (kept, ())


def test_damage_that_loses_nothing_costs_no_derived_segment_either() -> None:
    segments, turns, derived = tail_with_derived_behind()
    store = filled(segments | {segment_name(4): segments[segment_name(4)] + b"garbage"})
    for _ in range(2):
        _, recovery = opened(store)
        assert (list(recovery.entries), recovery.damages) == (turns + derived, ())
    folded = filled(segments | {segment_name(4): b""})
    _, recovery = opened(folded, folded_seq=turns[-1].seq)
    assert (list(recovery.entries), recovery.damages) == (derived, ())


@pytest.mark.parametrize("damaged", [b"", None], ids=["header lost", "entry lost"])
def test_a_repair_with_derived_segments_behind_may_stop_anywhere(damaged: bytes | None) -> None:
    """Before it nothing is changed; after it, and before the fence, the loss is named again."""
    segments, turns, _ = tail_with_derived_behind()
    torn = segments[segment_name(4)][:-1] if damaged is None else damaged
    kept = turns[: len(turns) - (1 if damaged is None else len(TAIL))]
    store = Unreliable(filled(segments | {segment_name(4): torn}), [fails, fails])
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            opened(store)
    assert store.read(torn_name(4)) == torn
    assert segment_name(7) not in store.names()
    log, recovery = opened(store)
    assert list(recovery.entries) == kept
    assert [(damage.kind, damage.segment) for damage in recovery.damages] == [("torn_tail", segment_name(4))]
    kept += add(log, b"new")
    _, recovery = opened(store)
    assert (list(recovery.entries), recovery.damages) == (kept, ())


def test_what_another_writer_stored_between_repair_and_fence_counts() -> None:
    segments, turns, derived = tail_with_derived_behind()
    seq = derived[-1].seq
    theirs = Header(7, 1, "writer", seq + 1, seq, 1)
    vector = Header(8, 1, "writer", seq + 2, seq + 1, 1, derived=True)

    def rival(target: SegmentStore, name: str, data: bytes) -> None:
        target.create(segment_name(7), encode(theirs, [Entry(seq + 1, b"just in time")]))
        target.create(segment_name(8), encode(vector, [Entry(seq + 2, b"its vector")]))
        target.create(name, data)

    store = Unreliable(filled(segments | {segment_name(4): b""}), [rival])
    _, recovery = opened(store)
    kept = [*turns[: -len(TAIL)], Entry(seq + 1, b"just in time")]
    assert list(recovery.entries) == kept
    assert [damage.segment for damage in recovery.damages] == [segment_name(4)]
    assert held(store) == tuple(kept)


def test_derived_segments_that_count_for_nothing_leave_with_what_was_cut() -> None:
    segments, turns, _ = tail_with_derived_behind()
    store = filled(segments | {segment_name(4): segments[segment_name(4)][:-1]})
    log, _ = opened(store)
    new = add(log, b"new")
    log.drop_through(turns[-2].seq)
    assert held(store, folded_seq=turns[-2].seq) == tuple(new)
    log, _ = opened(store, folded_seq=turns[-2].seq)
    new += add(log, b"newer")
    log.drop_through(new[-1].seq)
    assert not {segment_name(number) for number in (4, 5, 6)} & set(store.names())
    assert held(store, folded_seq=new[-1].seq) == ()


@pytest.mark.parametrize("damaged", [b"", None], ids=["header lost", "entry lost"])
def test_a_fence_behind_the_damage_makes_it_a_hole(damaged: bytes | None) -> None:
    """Whoever made the fence had read the segment whole: no crash has torn it since."""
    segments, turns, _ = tail_with_derived_behind()
    torn = segments[segment_name(4)][:-1] if damaged is None else damaged
    store = filled(segments)
    opened(store)
    kept = turns[: len(turns) - (1 if damaged is None else len(TAIL))]
    assert_read_only(content(store) | {segment_name(4): torn}, segment_name(4), kept)


def test_derived_segments_of_which_one_is_missing_or_unreadable_prove_nothing() -> None:
    segments, turns, _ = tail_with_derived_behind()
    torn = segments | {segment_name(4): segments[segment_name(4)][:-1]}
    assert_read_only(without(torn, 5), segment_name(4), turns[:-1])
    assert_read_only(torn | {segment_name(5): b""}, segment_name(4), turns[:-1])
    assert_read_only(torn | {segment_name(5): torn[segment_name(6)]}, segment_name(4), turns[:-1])
    assert_read_only(without(segments, 4), segment_name(4), turns[: -len(TAIL)])


def test_a_torn_derived_segment_at_the_end_takes_no_turn_with_it() -> None:
    segments, turns, derived = tail_with_derived_behind()
    for damaged in (b"", segments[segment_name(6)][:-1]):
        store = filled(segments | {segment_name(6): damaged})
        _, recovery = opened(store)
        assert list(recovery.entries) == turns + derived[:-1]
        assert [(damage.kind, damage.segment) for damage in recovery.damages] == [("torn_tail", segment_name(6))]
