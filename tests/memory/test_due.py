"""When a session is due for a summary."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.context.tokens import open_tokenizer
from serve_app.core import SECOND_US, Summary, Turn
from serve_app.memory.due import SummaryOptions, Why, age_due_at, fills_zone, why_due
from serve_app.policies import SummaryPolicy

TOKENIZER = open_tokenizer()
NOW = 10**15
OPTIONS = SummaryOptions(every_turns=5, max_age_s=600, zone_tokens=100)


def turn(text: str = "hello there", age_s: float = 0.0) -> Turn:
    at = NOW - round(age_s * SECOND_US)
    return Turn("t", "s", "user", text, 1, at, at)


def summary(left: float) -> Summary:
    """With so much of its time to live left, of 1."""
    made = NOW - round((1 - left) * 4_000 * SECOND_US)
    return Summary("s", "text", 1, 1, 1, "v", "h", 2, made, made + 4_000 * SECOND_US)


@pytest.mark.parametrize(
    ("new", "latest", "read", "why"),
    [
        ([turn()] * 5, None, False, "turns"),
        ([turn()] * 4, None, True, None),
        ([turn("one two three " * 20)] * 2, None, False, "zone"),
        ([turn(age_s=599)], None, False, None),
        ([turn(age_s=600)], None, False, "age"),
        ([], summary(0.5), True, None),
        ([], summary(0.1), True, "end"),
        ([], summary(-1.0), True, "end"),
        ([], summary(-1.0), False, None),
        ([turn()], summary(-1.0), True, "end"),
    ],
)
def test_when_it_is_due(new: list[Turn], latest: Summary | None, read: bool, why: Why | None) -> None:
    assert why_due(len(new), new, latest, NOW, read, OPTIONS, TOKENIZER) == why


def test_it_is_due_as_soon_as_its_age_says() -> None:
    new = [turn(age_s=10), turn()]
    at = age_due_at(new, OPTIONS)
    assert why_due(2, new, None, at - 1, False, OPTIONS, TOKENIZER) is None
    assert why_due(2, new, None, at, False, OPTIONS, TOKENIZER) == "age"


@given(st.lists(st.text(max_size=60), max_size=4), st.integers(1, 80))
def test_the_shortcut_by_bytes_never_changes_what_counting_says(texts: list[str], tokens: int) -> None:
    counted = sum(TOKENIZER.count(text) for text in texts) >= tokens
    assert fills_zone([turn(text) for text in texts], tokens, TOKENIZER) == counted


def test_a_policy_wins_where_it_says_something() -> None:
    assert SummaryOptions().under(SummaryPolicy()) == SummaryOptions()
    tight = SummaryOptions(settle_s=1.0).under(SummaryPolicy(every_turns=2, ttl_s=3_600))
    assert tight == SummaryOptions(settle_s=1.0, every_turns=2, ttl_s=3_600)
    assert set(SummaryPolicy.__struct_fields__) <= set(SummaryOptions.__struct_fields__)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"ttl_s": 0}', type=SummaryPolicy)


def test_a_summary_by_another_compressor_is_made_anew_if_it_is_read() -> None:
    made = summary(0.5)
    for version, read, why in (("v", True, None), ("w", True, "version"), ("w", False, None)):
        assert why_due(0, [], made, NOW, read, OPTIONS, TOKENIZER, version) == why
