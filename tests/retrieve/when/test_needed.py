"""A rule is tried wherever it could match: what it is said to need stands in all that it matches."""

import re

import pytest

from serve_app.retrieve.when.chinese import CHINESE
from serve_app.retrieve.when.english import ENGLISH
from serve_app.retrieve.when.japanese import JAPANESE
from serve_app.retrieve.when.needed import NEEDED_MAX, needed
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
    ("language", "cases"), [(ENGLISH, english), (CHINESE, chinese), (JAPANESE, japanese), (SPANISH, spanish)]
)
def test_no_rule_is_passed_over_that_would_match(language, cases) -> None:
    passed_over = 0
    for query, *_ in cases.NAMED:
        for text in (query, query.upper(), f"({query})"):
            lowered = text.lower()
            for rule in language.rules:
                assert rule.may_match(lowered) or not rule.words.search(text), (rule.words.pattern, text)
                passed_over += not rule.may_match(lowered)
    assert passed_over > len(cases.NAMED) * len(language.rules)  # most are, or it would be of no use
