"""The scripts of a text, against the names that Unicode gives its letters."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from serve_app.scripts import has_latin, has_other

SHARED_BY_ALL = [(0xB5, 0xB5), (0x2B9, 0x2FF), (0x2100, 0x214F), (0xA788, 0xA788), (0x1D400, 0x1D7FF)]
FORMS_OF_LATIN = ("LATIN", "FULLWIDTH LATIN", "FEMININE ORDINAL", "MASCULINE ORDINAL", "KELVIN SIGN", "ANGSTROM SIGN")
SAID_LATIN = (*FORMS_OF_LATIN, "MODIFIER LETTER", "ROMAN NUMERAL", "SUPERSCRIPT LATIN", "TURNED SMALL")


@pytest.mark.parametrize(
    ("text", "latin", "other"),
    [
        ("", False, False),
        ("12.50 € 😀 ½ ②", False, False),
        ("Where does Zoë live?", True, False),
        ("Łódź, Đà Nẵng, İstanbul", True, False),
        ("她住在哪里", False, True),
        ("はい", False, True),
        ("где она живёт", False, True),
        ("أين تسكن", False, True),
        ("ที่ไหน", False, True),
        ("she said 你好", True, True),
        ("５０％ off", True, False),
        ("ＡＢＣ", True, False),
        ("5 µm, 𝑥 + 𝑦 ∈ ℕ", True, False),
        ("١٢٣", False, False),
    ],
)
def test_letters_alone_count(text: str, latin: bool, other: bool) -> None:
    assert (has_latin(text), has_other(text)) == (latin, other)


def test_every_letter_is_of_one_kind_at_most() -> None:
    letters = [chr(point) for point in range(sys.maxunicode + 1) if chr(point).isalpha()]
    assert not [one for one in letters if has_latin(one) and has_other(one)]


def test_letters_are_latin_where_their_names_say_so() -> None:
    shared = {point for first, last in SHARED_BY_ALL for point in range(first, last + 1)}
    points = [point for point in range(sys.maxunicode + 1) if chr(point).isalpha() and point not in shared]
    named = {chr(point): unicodedata.name(chr(point), "") for point in points}
    assert [name for one, name in named.items() if has_latin(one) == has_other(one)] == []
    assert [name for one, name in named.items() if name.startswith(FORMS_OF_LATIN) and not has_latin(one)] == []
    assert [name for one, name in named.items() if has_latin(one) and not name.startswith(SAID_LATIN)] == []
