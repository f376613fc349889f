"""Postal addresses: those with a house number, in the order and words of Chinese, Japanese, English and Spanish."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serve_app.privacy.kinds import Span

CHINESE_BEFORE_MAX = 32

_HOUSE = re.compile(
    r"(?:路|街|道|巷|弄|胡同|里|村|大厦|小区|园|苑|段)\d{1,5}(?:弄\d{1,4})?[号號](?:院|楼)?"
    r"(?:\d{1,4}(?:号楼|栋|幢|座|单元|层|楼|室|号|户)){0,4}\d{0,5}室?"
)
_CHINESE_BACK = re.compile(r"[\u4e00-\u9fff0-9]{0,32}")  # read backwards
_SAID_BEFORE = re.compile(r".*(?:家住|住在|寄到|送到|地址|收货|快递到|发到|搬到|位于|[住在到寄往址是为去])")
_JAPANESE = re.compile(
    r"[\u4e00-\u9fff]{2,3}[都道府県][\u3040-\u30ff\u4e00-\u9fff]{1,12}[市区町村][\u3040-\u30ff\u4e00-\u9fff]{0,12}"
    r"\d{1,4}(?:丁目|番地?|号|-\d{1,4}){1,4}"
)
_ENGLISH = re.compile(
    r"(?<![\w.-])\d{1,5}[A-Za-z]? (?:[A-Z][\w'.]{0,20} ){1,4}"
    r"(?:Street|St|Road|Rd|Avenue|Ave|Lane|Ln|Drive|Dr|Crescent|Close|Court|Ct|Way|Square|Sq|Terrace|Boulevard"
    r"|Blvd|Place|Pl"
    r"|Gardens|Grove|Parkway|Row|Hill|Mews)\b\.?(?:, (?:Apt|Flat|Unit"
    r"|Suite) \w{1,6})?(?:, [A-Z][a-z'-]{1,20}(?: [A-Z][a-z'-]{1,20}){0,2}){0,3}"
    r"(?:,? [A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|,? [A-Z]{2} \d{5}(?:-\d{4})?)?"
)
_SPANISH = re.compile(
    r"\b(?:[Cc]alle|C/|[Aa]venida|Avda?\.|[Pp]laza|[Pp]aseo|[Cc]arrer) ?(?:(?:de|del|la|las|los"
    r"|el) ){0,3}[A-ZÁÉÍÓÚÑ]\w{1,20}"
    r"(?: (?:de |del |la ){0,2}[A-ZÁÉÍÓÚÑ]\w{1,20}){0,3},? (?:n[.ºo°]{1,2} ?)?\d{1,4}\b(?:, \d[ºª°]? ?\w{1,9})?"
    r"(?:, \d{5}(?: [A-ZÁÉÍÓÚÑ]\w{1,20}){1,2})?"
)


def addresses(text: str) -> Iterator[Span]:
    if not text.isascii():
        yield from _chinese(text)
        yield from (Span(*found.span(), "address") for found in _JAPANESE.finditer(text))
    for pattern in (_ENGLISH, _SPANISH):
        yield from (Span(*found.span(), "address") for found in pattern.finditer(text))


def _chinese(text: str) -> Iterator[Span]:
    for house in _HOUSE.finditer(text):
        floor = max(0, house.start() - CHINESE_BEFORE_MAX)
        backwards = _CHINESE_BACK.match(text[floor : house.start()][::-1])
        before = backwards.end() if backwards else 0
        start = house.start() - before
        said = _SAID_BEFORE.match(text, start, house.start())
        yield Span(said.end() if said else start, house.end(), "address")
