"""Codes, ids, orders, addresses of mail and web: what holds digits or signs and names one thing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from serve_app.entities.values import EntityClass

DIGITS_ALONE_MIN: Final = 6
"""A bare number of fewer digits may be a year, a price or a count, unless a word before it says what it is."""

_WEB: Final = re.compile(r"(?:https?://|www\.)[^\s<>\"'，。）)\]]{3,200}", re.I)
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}")
_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]+(?:[-_./:+#][A-Za-z0-9]+)*(?![A-Za-z0-9])")
_ORDER: Final = re.compile(
    r"(?:(?<![A-Za-z])(?:orders?|invoices?|bookings?|reservations?|tracking|shipments?|parcel|confirmation|receipt|ticket|po|"
    r"pedido|factura|reserva|env[ií]o|commande|bestellung)(?![A-Za-z])"
    r"(?:[\s_]*(?:number|no|num|nr|id|code|ref(?:erence)?|n[uú]mero))?|"
    r"订单号?|訂單號?|单号|單號|运单号?|快递号?|发票号?|预订号|注文番号|注文|予約番号|追跡番号|伝票番号)"
    r"(?:[\s\"']*(?:编号|編號|番号|is|was|es|是|为|為|は|[#:：.№]|=|n[.º°])){0,3}[\s\"']*"
    r"(?P<id>(?=[A-Za-z_-]*\d)[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*)",
    re.I,
)
_ORDER_CODE: Final = re.compile(r"(?:INV|ORD|ORDER|PO|SO|BK|TRK|RMA|DHL|UPS)[-_#]?\d{3,}[\w-]*|1Z[0-9A-Z]{16}", re.I)
_FILE: Final = re.compile(
    r"(?<![\w./-])[\w-][\w./-]{0,120}\.(?:py|js|ts|tsx|java|go|rs|rb|cpp|sh|sql|ya?ml|toml|json|csv|tsv|xlsx?|xlsm|"
    r"docx?|pptx?|pdf|txt|md|log|png|jpe?g|mp[34]|zip|tar|gz)(?![\w-])",
    re.I,
)
_NO_CODE: Final = re.compile(
    r"\d+(?:[.:/,-]\d+)*(?:am|pm|st|nd|rd|th|s|h|d|w|hr|hrs|min|mins|k|m|g|kg|km|cm|mm|mi|ml|l|lb|lbs|oz|ft|in|gb|mb|tb|kb|"
    r"px|x|e|c|f|v|w|kw|hz|mph|bn|mn|yr|yrs|ish|p|usd|eur|gbp|rmb|hp|kcal|cal)?"
    r"|\d+(?:[-/]\d+)?-[a-z]+(?:-[a-z]+)*|[a-z]+-\d{1,2}|\d+s?|mid-\d+s?|[a-z]+(?:[-/][a-z]+)*|\d+x\d+(?:x\d+)?"
    r"|(?:\d+(?:h|m|min|s)){2,}|\d{1,2}(?::\d\d)?(?:am|pm)?-\d{1,2}(?::\d\d)?(?:am|pm)?|q[1-4]|[a-z]{1,2}\d",
    re.I,
)
"""Times, measures, ranges, counted words: digits, and no code. Of codes in lower case too little would be left."""

_UPPER: Final = re.compile(r"[A-Z]+[-_/]?[A-Z0-9]*\d[A-Z0-9]*(?:[-_/.][A-Z0-9]+)*")
"""In capitals and beginning with one: a code, however short."""

_VERSION: Final = re.compile(r"v\d+(?:\.\d+){1,3}(?:[-+][\w.]+)?|\d+\.\d+\.\d+(?:[-+.][\w.]+)?", re.I)
_QUARTER: Final = re.compile(r"[QHA][1-4]")
_MONEY: Final = frozenset("$€£¥￥")


class Coded(NamedTuple):
    start: int
    end: int
    kind: EntityClass
    name: str


def addresses(text: str) -> Iterator[Coded]:
    """Of the web and of mail."""
    for match in _WEB.finditer(text):
        yield Coded(match.start(), match.end(), "url", match[0].rstrip(".,;:!?"))
    if "@" in text:
        for match in _MAIL.finditer(text):
            yield Coded(match.start(), match.end(), "email", match[0])


def orders(text: str) -> Iterator[Coded]:
    """Ids that a word before them, or their own form, makes those of an order, a booking, a parcel, an invoice.

    Few digits are a count or a size (`order 12`, `order A4`), unless the whole looks like a code (`order ZX-81Q`).
    """
    for match in _ORDER.finditer(text):
        digits, is_code = sum(map(str.isdigit, match["id"])), _UPPER.fullmatch(match["id"]) is not None
        if digits >= 3 or (digits == 2 and is_code and len(match["id"]) >= 5):
            yield Coded(match.start("id"), match.end("id"), "order", match["id"])


def codes(text: str) -> Iterator[Coded]:
    """Other ids, version numbers and names of files."""
    if "." in text:
        for match in _FILE.finditer(text):
            yield Coded(match.start(), match.end(), "code", match[0])
    for match in _TOKEN.finditer(text):
        token = match[0]
        if len(token) < 3 or not any(map(str.isdigit, token)):
            continue
        if _ORDER_CODE.fullmatch(token):
            yield Coded(match.start(), match.end(), "order", token)
        elif _is_code(token) and text[max(0, match.start() - 1) : match.start()] not in _MONEY:
            yield Coded(match.start(), match.end(), "code", token)


def _is_code(token: str) -> bool:
    if token.isdigit():
        return len(token) >= DIGITS_ALONE_MIN
    if _VERSION.fullmatch(token) or (_UPPER.fullmatch(token) and not _QUARTER.fullmatch(token)):
        return True
    return _NO_CODE.fullmatch(token) is None
