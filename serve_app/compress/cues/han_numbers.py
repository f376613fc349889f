"""Chinese and Japanese numbers as figures: 一万二 -> 12000, 13万5 -> 135000, 两百六 -> 260, 十一点半 -> 11点半. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

NUMERAL = r"[零〇一二三四五六七八九十百千万亿两半壹贰叁肆伍陆柒捌玖拾佰仟萬億兩貳參陸]"
"""One character of a number written out."""

NUMBER = rf"(?:\d[\d,]{{0,15}}(?:\.\d{{1,8}})?(?:[万亿萬億]\d{{0,4}}千?|[百千]\d{{0,3}})?|{NUMERAL}{{1,12}})"
"""A number in figures, written out, or both (13万5)."""

LENGTH_MAX = 24
"""Longer runs are no number anybody reads: they stay as they are."""

_DIGITS = dict(zip("零〇一二三四五六七八九两壹贰叁肆伍陆柒捌玖兩貳參陸", "0012345678921234567892236", strict=True))
_SCALES = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_MYRIADS = {"万": 10_000, "萬": 10_000, "亿": 100_000_000, "億": 100_000_000}
_PART = re.compile(r"\d+(?:\.\d+)?|.")


def figure(text: str) -> str:
    """The number as plain decimal digits; what is none as it stands."""
    text = text.replace(",", "").strip()
    if not text or len(text) > LENGTH_MAX:
        return text
    value = _value(text)
    return text if value is None else format(value.normalize(), "f")


def _value(text: str) -> Decimal | None:
    """Reads from left to right: a digit waits for its scale, a section for its myriad."""
    if all(char in _DIGITS for char in text) and len(text) > 2:  # said digit by digit: 一六五
        return Decimal("".join(_DIGITS[char] for char in text))
    total = section = Decimal(0)
    waiting: Decimal | None = None
    last_scale = Decimal(1)
    for part in _PART.findall(text):
        if part[0].isdigit():
            waiting = Decimal(part)
        elif part in _DIGITS:
            waiting = Decimal(_DIGITS[part])
            last_scale = Decimal(1) if part in "零〇" else last_scale
        elif part in _SCALES:
            section += (Decimal(1) if waiting is None else waiting) * _SCALES[part]
            waiting, last_scale = None, Decimal(_SCALES[part])
        elif part in _MYRIADS:
            total += (section + (waiting or 0) or 1) * _MYRIADS[part]
            section, waiting, last_scale = Decimal(0), None, Decimal(_MYRIADS[part])
        elif part == "半":
            section += last_scale / 2
        else:
            return None
    if waiting is None:
        return total + section
    # 一万二 and 两百六 leave the last scale out; 十二 and 二百零六 do not.
    return total + section + waiting * (last_scale / 10 if last_scale > 10 else 1)
