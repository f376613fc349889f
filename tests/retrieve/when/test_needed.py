"""A rule is tried wherever it could match: what it is said to need stands in all that it matches."""

import re

import pytest

from serve_app.retrieve.when.chinese import CHINESE
from serve_app.retrieve.when.english import ENGLISH
from serve_app.retrieve.when.japanese import JAPANESE
from serve_app.retrieve.when.needed import NEEDED_MAX, needed, needs_digit
from serve_app.retrieve.when.spanish import SPANISH
from tests.retrieve.when import test_chinese as chinese
from tests.retrieve.when import test_english as english
from tests.retrieve.when import test_japanese as japanese
from tests.retrieve.when import test_spanish as spanish


@pytest.mark.parametrize(
    ("pattern", "pieces"),
    [
        ("ago", ("ago",)),
        (r"\d+ Days? ago", (" day",)),
        ("last (?:week|month)", ("last ",)),
        ("(?:Mon|Tue)day", ("day",)),
        ("(?:week|month)s?", ("month", "week")),
        (r"(?:week|\d)s?", ()),
        (r"\d{4}", ()),
        ("(?:ago)?x", ("x",)),
        ("(?:ago){2,}", ("ago",)),
        ("(?=ago)x", ("x",)),
        ("|".join(chr(0x4E00 + at) for at in range(NEEDED_MAX + 1)) + "|ab", ()),
    ],
)
def test_what_a_pattern_needs(pattern: str, pieces: tuple[str, ...]) -> None:
    assert needed(pattern, re.IGNORECASE) == pieces


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        (r"\d", True),
        ("[0-9]th", True),
        ("(?:1[0-2]|[1-9])月", True),
        (r"(?:one|\d+) ago", False),
        (r"(?:the \d)?rd", False),
        (r"(?:\d\d){1,2}", True),
        (r"\w\w", False),
        ("[0-9x]", False),
        (r"(?<=\d)th", False),
    ],
)
def test_whether_a_pattern_needs_a_digit(pattern: str, needs: bool) -> None:
    assert needs_digit(pattern, re.IGNORECASE) == needs


@pytest.mark.parametrize(
    ("language", "cases"), [(ENGLISH, english), (CHINESE, chinese), (JAPANESE, japanese), (SPANISH, spanish)]
)
def test_no_rule_is_passed_over_that_would_match(language, cases) -> None:
    passed_over = 0
    for query, *_ in cases.NAMED:
        for text in (query, query.upper(), f"({query})"):
            digits = any(map(str.isdecimal, text))
            for rule in language.rules:
                may = rule.may_match(text.lower(), digits)
                assert may or not rule.words.search(text), (rule.words.pattern, text)
                passed_over += not may
    assert passed_over > len(cases.NAMED) * len(language.rules)  # most are, or it would be of no use
