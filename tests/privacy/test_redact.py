"""What is found in texts of four languages, what is left alone, and that any text is done with quickly."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.privacy.kinds import COVERED, Span
from serve_app.privacy.redact import MARGIN, PIECE, redact
from tests.privacy.texts import FOUND, HARMLESS, unmarked

CPU_S_A_MIB_MAX = 12.0
"""A wide bound: what is caught is work that grows faster than the text, which takes hours."""

HOSTILE = [
    *(
        "1",
        "1 ",
        "1-",
        "1.",
        "@",
        "a@",
        "a@b.",
        "+1",
        "(1",
        "eyJ",
        "eyJaaaaaaaa.",
        ":",
        "ab:",
        "a://b:",
        "sk-",
        "4111 ",
    ),
    *("DE89 ", "13800001234 ", "号", "路1号", "0 ", "１", "key=", "password:", "-----BEGIN PRIVATE KEY-----", "1 Aaa "),
]

ALPHABET = st.characters(codec="utf-8") | st.sampled_from("0123456789-+@.:()[] 号路电话")


@pytest.mark.parametrize("marked", FOUND)
def test_it_is_found_where_it_stands(marked: str) -> None:
    text, spans = unmarked(marked)
    clean = redact(text, "strict")
    assert set(clean.spans) == spans
    assert not any(text[span.start : span.end] in clean.text for span in spans)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays(text: str) -> None:
    assert redact(text, "strict") == (text, ())


@pytest.mark.parametrize("marked", FOUND)
def test_a_level_takes_what_it_covers_and_no_more(marked: str) -> None:
    text, spans = unmarked(marked)
    assert redact(text, "off") == (text, ())
    found = set(redact(text, "secrets").spans)
    assert found == {span for span in spans if span.type in COVERED["secrets"]}


@given(st.text(ALPHABET, max_size=80))
def test_spans_lie_in_the_text_and_make_up_the_redacted_one(text: str) -> None:
    clean = redact(text, "strict")
    at, rebuilt = 0, ""
    for span in clean.spans:
        assert at <= span.start < span.end <= len(text)
        rebuilt += text[at : span.start] + f"[{span.type}]"
        at = span.end
    assert rebuilt + text[at:] == clean.text


@pytest.mark.parametrize("before", ["👨‍👩‍👧 ", "é\u0301 ", "𝔘𝔫𝔦 ", "写信给 "])
def test_offsets_count_code_points(before: str) -> None:
    found = redact(f"{before}a.b@example.org", "strict").spans
    assert found == (Span(len(before), len(before) + len("a.b@example.org"), "email"),)


@pytest.mark.parametrize("place", [0, PIECE - 8, PIECE, 2 * PIECE - 3, 2 * PIECE + MARGIN, 3 * PIECE + 2 * MARGIN])
def test_a_long_text_is_searched_to_its_end(place: int) -> None:
    """Wherever in it something stands, also across the border of two pieces."""
    filler = "the quick brown fox jumps over it "
    before = (filler * (place // len(filler) + 1))[:place]
    text = f"{before} card 4111 1111 1111 1111, a@example.org {filler * (4 * PIECE // len(filler))}"
    found = redact(text, "strict")
    assert [(text[span.start : span.end], span.type) for span in found.spans] == [
        ("4111 1111 1111 1111", "credit_card"),
        ("a@example.org", "email"),
    ]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_work_grows_with_the_length_alone(piece: str) -> None:
    text = piece * ((1 << 16) // len(piece))
    started = time.process_time()
    redact(text, "strict")
    assert time.process_time() - started < CPU_S_A_MIB_MAX / 16


def test_what_is_redacted_stays_redacted() -> None:
    for marked in FOUND:
        once = redact(unmarked(marked)[0], "strict").text
        assert redact(once, "strict").text == once
