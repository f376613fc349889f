"""Quotes that nothing inside can end."""

from hypothesis import given
from hypothesis import strategies as st

from serve_app.context.quote import Record, block, mark_of, moment

records = st.lists(
    st.builds(Record, st.text(max_size=20), st.text(max_size=60) | st.text("0123456789abcdef", max_size=300)),
    min_size=1,
    max_size=5,
)


@given(records)
def test_mark_occurs_in_the_frame_only(given_records):
    """Texts stand unaltered, and the mark is found once a record and twice more."""
    mark = mark_of(given_records)
    text = block("Title", given_records)
    assert all(mark not in record.text + record.source for record in given_records)
    assert text.count(mark) == len(given_records) + 2
    lines = [f"[{mark} {record.source}] {record.text}\n" for record in given_records]
    assert text.endswith("".join(lines) + f"[{mark} end]")


def test_mark_grows_until_no_text_contains_it():
    """Against a text full of hexadecimal digits some marks must be longer than six; none is ever found in it."""
    digits = "".join(f"{number:05x}" for number in range(2**16))
    marks = [mark_of([Record(f"source {number}", digits)]) for number in range(300)]
    assert all(mark not in digits for mark in marks)
    assert {6, 7} <= {len(mark) for mark in marks}


def test_moments_are_rfc_3339_in_the_offset_of_the_sender():
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert moment(1_683_536_400_999_999, 540) == "2023-05-08T18:00:00+09:00"
    assert moment(-62_135_596_800_000_000 - 9 * 3_600_000_000, 540) == "0001-01-01T00:00:00+09:00"
