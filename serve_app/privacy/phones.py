"""Telephone numbers: international ones by their country's plan, national ones by their form and the words around.

An amount, a count or an order number may look exactly like a mobile number: the nearest word before it, the unit after
it, or the number that it is listed with tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import phonenumbers
from phonenumbers import PhoneMetadata

from serve_app.privacy.cues import Cue, nearest
from serve_app.privacy.kinds import Span
from serve_app.privacy.phone_words import CUES, SAID_AFTER, UNIT_AFTER

_FORMS = re.compile(
    r"(?P<intl>\+ ?\d(?:[ .\-/]?\(?\d\)?){6,16}|\(\+\d{1,3}\) ?\d(?:[ .\-]?\d){6,13}"
    r"|(?<![0-9]{4} )00[1-9]\d?(?:[ .\-]?\(?\d\)?){7,13})"
    r"|(?:(?P<mobile>(?:\(?86\)?[ -]?)?1[3-9]\d(?:\d{8}|(?P<a>[ -])\d{4}(?P=a)\d{4}|[ -]\d{8}"
    r"|\d[ -]\d{3}[ -]\d{4}|[ -]\d{3}[ -]\d{5}"
    r"|\d[ -]\d{4}[ -]\d{3}))"
    r"|(?P<nanp>(?:1[ .-])?(?:\([2-9]\d{2}\) ?-?|[2-9]\d{2}(?P<b>[ .-]))[2-9]\d{2}[ .-]\d{4})"
    r"|(?P<zero>(?<![0-9]{4} )(?:\(0\d{1,4}\) ?-?\d{2,5}(?:[ -]\d{2,5}){0,3}|\(0\d{2,3}\) ?-?\d{7,8}|0\d{2,3}-\d{7,8}"
    r"|0\d{1,4}(?P<c>[ -])\d{2,6}(?:(?P=c)\d{2,5}){0,3}"
    r"|0\d{2,3} \d{7,8}|0[789]0\d{8}|07[1-9]\d{8}))"
    r"|(?P<hotline>[48]00[ -]\d{3,4}[ -]\d{3,4}|[48]00\d-\d{3}-\d{3})"
    r"|(?P<told>\(?\d{2,4}\)?(?:[ .\-]\d{2,8}){1,5}|\(\d{2,4}\)\d{5,8}|\d{7,12}))(?!\d)"
)
_FIRST = re.compile(r"(?:\+ ?|\(\+?)\d+|\d\d+|1(?=[ .-]\(?[2-9]\d\d)")
_EXTENSION = re.compile(r" ?(?:x|ext|int|分机|转|内線)\W{0,2}\d", re.IGNORECASE)
_CURRENCY_BEFORE = re.compile(r"(?:\d ?[x×*+] |[¥￥$€£#<>%]|==?|[A-Za-z_]\(|(?:RMB|CNY|USD|US\$|HK\$|EUR)) ?$")
_NUMBER_BEFORE = re.compile(r"(?:[0-9A-Za-z_]|[0-9][.\-:]|(?<![0-9]{6})[0-9][/,]|[A-Za-z][-/])$")
_LABEL_BEFORE = re.compile(r"(?:tel|phone|mobile|cell|fax|mob|ph|call|tlf|tfno)[-/]$", re.IGNORECASE)
_NUMBER_AFTER = re.compile(r"[0-9A-Za-z_]|[.\-:]\d|[/,]\d(?!\d{6})|-[A-Za-z]")

_WORD_AFTER = re.compile(r"[ ,，]{0,2}(?:[^\W\d_]|[%+*×=<>])")
_LISTED = re.compile(r"(?:[ ,，、/和或及与跟とや至到-]|and|or|to|y|o)+", re.IGNORECASE)

_DATE = re.compile(r"(?:19|20)\d\d[-./]?[01]?\d[-./]?[0-3]?\d(?!\d)|[0-3]?\d[-.][01]?\d[-.](?:19|20)\d\d(?!\d)")

NEAR = 8
"""Characters between a number and a word that names it."""

LOCAL_DIGITS_MAX = 6
"""No country has numbers of so few digits that are worth a country code."""

TOLD_DIGITS_MIN, TOLD_DIGITS_MAX = 7, 13
LOCAL_MAX = 8
"""Digits of a number without its area; no plan lists these."""

REGIONS = ("CN", "US", "GB", "JP", "ES", "DE", "FR", "HK", "TW", "MX")
"""In whose plans a number without country code is looked up."""

RESERVED = r"07\d{9}|0[789]0\d{8}|01\d{8,9}|0[3-9]0{4}\d{4}"
"""Ranges that plans leave out, for examples and dramas among others."""

_NO_DIGIT = re.compile(r"\D")


def _plan(region: str, country_code: int) -> PhoneMetadata:
    plan = PhoneMetadata.metadata_for_region_or_calling_code(country_code, region)
    assert plan is not None
    assert plan.general_desc is not None
    return plan


def _national_plans() -> re.Pattern[str]:
    plans = [_plan(region, phonenumbers.country_code_for_region(region)) for region in REGIONS]
    short = [str(plan.general_desc.national_number_pattern) for plan in plans if plan.general_desc]
    long = [f"{plan.national_prefix or ''}(?:{form})" for plan, form in zip(plans, short, strict=True)]
    return re.compile("|".join([*long, *short, RESERVED]))


_NATIONAL = _national_plans()


def phones(text: str) -> Iterator[Span]:
    listed: tuple[int, bool] = (-1, False)
    at = 0
    while (first := _FIRST.search(text, at)) is not None:
        start, at = first.span()
        if _part_of_more(text, start):
            continue
        form = _FORMS.match(text, start)
        if form is None and first.group()[0] in "+(":
            start += 1
            form = _FORMS.match(text, start)
        if form is None:
            continue
        end, phone = _judged(text, form, listed)
        if end:
            at, listed = max(at, end), (end, phone)
            if phone:
                yield Span(start, end, "phone")


def _part_of_more(text: str, start: int) -> bool:
    if start == 0 or not text[start - 1].isascii() or text[start - 1] in " \n\"'(":
        return False
    window = text[max(0, start - 8) : start]
    return _NUMBER_BEFORE.search(window) is not None and _LABEL_BEFORE.search(window) is None


def _judged(text: str, form: re.Match[str], listed: tuple[int, bool]) -> tuple[int, bool]:
    """Where the number ends and whether it is a telephone's; 0 where this has the form of none."""
    kind = form.lastgroup if form.lastgroup in ("intl", "mobile", "nanp", "zero", "hotline", "told") else _kind(form)
    end = _international_end(text, form) if kind == "intl" else form.end()
    if end and _NUMBER_AFTER.match(text, end) and not _EXTENSION.match(text, end):
        end = _shortened(text, form.start(), end) if kind == "told" else 0
    if not end:
        return 0, False
    number = text[form.start() : end]
    if kind == "told":
        return (end, True) if _is_told(text, form.start(), end) else (0, False)
    if kind == "zero" and not 9 <= _digits(number) <= 12:
        return 0, False
    verdict = _context(text, form.start(), end, listed)
    if verdict is None:
        verdict = kind != "zero" or _has_a_plan(number)
    return end, verdict


def _kind(form: re.Match[str]) -> str:
    return next(name for name in ("intl", "mobile", "nanp", "zero", "hotline", "told") if form[name] is not None)


def _international_end(text: str, form: re.Match[str]) -> int:
    """The longest part that some country's plan allows, ending where a group of digits ends."""
    start, end = form.span()
    while end - start > 7:
        if not text[end : end + 1].isdigit() and _is_possible(text[start:end]):
            return end
        end = _shortened(text, start, end)
    return 0


def _is_possible(number: str) -> bool:
    """Whether some country has numbers of this length."""
    digits = _NO_DIGIT.sub("", number)
    digits = digits[2:] if digits.startswith("00") else digits
    return any(
        len(digits) - size in _lengths(int(digits[:size])) for size in range(1, 4) if digits[size:] and digits[0] != "0"
    )


@cache  # by three digits
def _lengths(country_code: int) -> frozenset[int]:
    """How many digits a number has after this country code; none for a code that no country has."""
    regions = phonenumbers.COUNTRY_CODE_TO_REGION_CODE.get(country_code, ())
    plans = [_plan(region, country_code) for region in regions]
    found = [length for plan in plans if plan.general_desc for length in plan.general_desc.possible_length]
    return frozenset(length for length in found if length > LOCAL_DIGITS_MAX)


def _shortened(text: str, start: int, end: int) -> int:
    """Without the last group of digits; 0 where that is all."""
    while end > start and text[end - 1].isdigit():
        end -= 1
    while end > start and not text[end - 1].isdigit():
        end -= 1
    return end if end - start >= 7 else 0


def _context(text: str, start: int, end: int, listed: tuple[int, bool]) -> bool | None:
    """What the surroundings say: True, False, or nothing."""
    follows = start - listed[0] <= NEAR and listed[0] > 0 and _LISTED.fullmatch(text, listed[0], start) is not None
    if follows and not _WORD_AFTER.match(text, end):
        return listed[1]
    cue = nearest(text, start, CUES)
    named = cue is not None and cue.speaks_for
    if named and cue is not None and cue.distance <= NEAR:
        return True
    if _unit_follows(text, end) or _CURRENCY_BEFORE.search(text, max(0, start - 5), start):
        return False
    if follows:
        return listed[1]
    if named:
        return True
    if _speaks_against(cue) or (_WORD_AFTER.match(text, end) and SAID_AFTER.match(text, end)):
        return False
    return None


def _unit_follows(text: str, end: int) -> bool:
    return _WORD_AFTER.match(text, end) is not None and UNIT_AFTER.match(text, end) is not None


def _speaks_against(cue: Cue | None) -> bool:
    return cue is not None and not cue.speaks_for and not cue.beyond_comma


def _is_told(text: str, start: int, end: int) -> bool:
    """A number without a form of its own needs a word right before it, and a plan that knows it."""
    digits = _digits(text[start:end])
    if _DATE.match(text, start, end):
        return False
    if not (TOLD_DIGITS_MIN <= digits <= TOLD_DIGITS_MAX) or (digits > LOCAL_MAX and not _has_a_plan(text[start:end])):
        return False
    cue = nearest(text, start, CUES)
    if cue is None or not cue.speaks_for or cue.beyond_comma:
        return False
    return cue.distance <= NEAR or (cue.distance <= 2 * NEAR and not _unit_follows(text, end))


def _has_a_plan(number: str) -> bool:
    return _NATIONAL.fullmatch(_NO_DIGIT.sub("", number)) is not None


def _digits(number: str) -> int:
    return sum(char.isdigit() for char in number)
