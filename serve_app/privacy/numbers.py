"""Numbers with a check digit, and passports: payment cards, Chinese ids, IBANs.

A number counts only if its check digit is right; what stands around it decides where that is not enough.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import cache

from stdnum import iban as iban_rules
from stdnum import numdb
from stdnum.cn import ric

from serve_app.privacy.cues import cues, nearest
from serve_app.privacy.kinds import Span

_NO_SEPARATORS = str.maketrans("", "", " -.")

# ---- payment cards

_CARD = re.compile(
    r"(?<![0-9A-Za-z_])(?<![0-9A-Za-z][.-])(?:\d{12,19}"
    r"|\d{4}(?P<a>[ .-])\d{4}(?P=a)\d{4}(?P=a)\d{1,4}(?:(?P=a)\d{1,3})?"
    r"|\d{4}(?P<b>[ .-])\d{6}(?P=b)\d{4,5}"
    r"|\d{6}(?P<c>[ -])\d{7,13})(?![0-9A-Za-z_]|[.-]\d)"
)
_DOUBLED = str.maketrans("0123456789", "0246813579")
_FIRST_GROUP = re.compile(r"\d+")
_NETWORKS = re.compile(
    r"4(?:\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d+"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|64[4-9]|65|60|81|82|508)\d+"  # Discover, RuPay
    r"|(?:30[0-5]|36|38|39)\d{12}"  # Diners
    r"|35(?:2[89]|[3-8]\d)\d{12,15}"  # JCB
    r"|62\d{14,17}"  # UnionPay
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3]|220[0-4])\d+"  # Maestro, Mir
)
_CARD_CUES = cues(
    "card cards visa mastercard amex discover unionpay jcb diners credit debit pan cc cvv tarjeta 卡 卡号 "
    "银行卡 信用卡 "
    "借记卡 储蓄卡 银联 付款卡 カード カード番号 クレジットカード",
    "order orders tracking invoice ticket reference ref imei serial sn sku barcode ean upc isbn isbn id uid "
    "hash count "
    "total amount timestamp shipment parcel waybill 订单 订单号 单号 运单 运单号 快递 快递单号 流水 流水号 编号 "
    "序列号 条码 条形码 "
    "货号 发票 发票号 批号 金额 数量 合计 时间戳 注文 注文番号 追跡番号 pedido factura envío seguimiento",
)
CARD_LENGTHS_SURE = (14, 15, 16)
"""Lengths at which a number needs no word that says card: the others are seldom, and chance has more room."""


def credit_cards(text: str) -> Iterator[Span]:
    found = _CARD.search(text)
    while found is not None:
        number = found.group().translate(_NO_SEPARATORS)
        if _is_card(text, found.start(), number):
            yield Span(*found.span(), "credit_card")
            at = found.end()
        else:
            at = found.start() + len(_group_at(text, found.start()))
        found = _CARD.search(text, at)


def _group_at(text: str, start: int) -> str:
    group = _FIRST_GROUP.match(text, start)
    return group.group() if group else ""


def _is_card(text: str, start: int, number: str) -> bool:
    if number[0] not in "2345689" or len(set(number)) == 1 or not _check_digit_is_right(number):
        return False
    cue = nearest(text, start, _CARD_CUES)
    if cue is not None and cue.speaks_for:
        return True
    sure = len(number) in CARD_LENGTHS_SURE or number.startswith("62")
    return cue is None and sure and _NETWORKS.fullmatch(number) is not None


def _check_digit_is_right(number: str) -> bool:
    """By Luhn's rule (ISO/IEC 7812-1). A text of digits alone asks this often, and stdnum takes three times as long."""
    return (sum(map(int, number[::-2])) + sum(map(int, number[-2::-2].translate(_DOUBLED)))) % 10 == 0


# ---- Chinese resident ids

_CN_ID = re.compile(
    r"(?<![0-9A-Za-z_])(?<![0-9A-Za-z][.-])[1-8]\d{5}(?P<a>[ -]?)(?:\d{8}|\d{4}[ -]\d{2}[ -]\d{2})(?P=a)\d{3}[0-9Xx]"
    r"(?![0-9A-Za-z_])"
    r"|(?<![0-9A-Za-z_])(?<![0-9A-Za-z][.-])[1-8](?:\d{3}[ -]\d{4}[ -]\d{4}[ -]\d{4}[ -]\d[0-9Xx]"
    r"|\d{2}[ -]\d{3}[ -]\d{4}[ -]\d{4}[ -]\d{3}[0-9Xx]|\d{5}[ -]\d{4}[ -]\d{4}[ -]\d{3}[0-9Xx])(?![0-9A-Za-z_])"
)
_CN_ID_OLD = re.compile(r"(?<![0-9A-Za-z_])[1-8]\d{14}(?![0-9A-Za-z_])")
_ID_CUES = cues(
    "身份证 身份证号 身份证件 证件 证件号 居民证 身份号码 id identity",
)
YEAR_MIN, YEAR_MAX = 1850, 2100


def cn_ids(text: str) -> Iterator[Span]:
    for found in _CN_ID.finditer(text):
        if _is_cn_id(found.group().translate(_NO_SEPARATORS).upper()):
            yield Span(*found.span(), "cn_id")
    if "证" in text:
        for found in _CN_ID_OLD.finditer(text):
            if _is_old_cn_id(found.group()) and nearest(text, found.start(), _ID_CUES):
                yield Span(*found.span(), "cn_id")


def _is_cn_id(number: str) -> bool:
    """The place is checked by its province only: counties come and go."""
    return len(number) == 18 and _is_date(number[6:14]) and number[-1] == ric.calc_check_digit(number)


def _is_old_cn_id(number: str) -> bool:
    return _is_date(f"19{number[6:12]}")


def _is_date(digits: str) -> bool:
    try:
        return YEAR_MIN <= datetime.date(int(digits[:4]), int(digits[4:6]), int(digits[6:])).year <= YEAR_MAX
    except ValueError:
        return False


# ---- IBAN

_IBAN_START = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}\d{2}(?=[ -]?[0-9A-Za-z]{4})")


def ibans(text: str) -> Iterator[Span]:
    for found in _IBAN_START.finditer(text):
        length = _iban_length(found.group()[:2].upper())
        end = _after_characters(text, found.start(), length) if length else 0
        if end and not _goes_on(text, end) and iban_rules.is_valid(text[found.start() : end], check_country=False):
            yield Span(found.start(), end, "iban")


@cache  # by two letters
def _iban_length(country: str) -> int:
    """Characters of an IBAN of this country; 0 where there are none."""
    info = numdb.get("iban").info(country)[0][1]
    return 4 + sum(int(size) for size in re.findall(r"\d+(?=!)", info.get("bban", ""))) if info else 0


def _after_characters(text: str, start: int, count: int) -> int:
    """Where `count` letters and digits from `start` on end, single separators between them passed over; else 0."""
    position, left = start, count
    while left and position < len(text):
        char = text[position]
        if char.isascii() and char.isalnum():
            left -= 1
        elif char not in " -" or text[position - 1] in " -":
            return 0
        position += 1
    return 0 if left else position


def _goes_on(text: str, end: int) -> bool:
    return text[end : end + 1].isascii() and text[end : end + 1].isalnum()


# ---- passports

_PASSPORT = re.compile(
    r"(?<![0-9A-Za-z_-])(?:[A-Za-z]{1,2}[ -]?\d{4} ?\d{3,4}|[A-Za-z]\d{8}|[A-Za-z]{1,3}\d{6,7}[A-Za-z]?|\d{9}"
    r"|\d{2}[A-Za-z]{2}\d{5})"
    r"(?![0-9A-Za-z_-])"
)
_PASSPORT_WORD = re.compile(r"护照|護照|旅券|パスポート|港澳通行证|台胞证|通行证|passport|pasaporte", re.IGNORECASE)
_PASSPORT_CUES = cues(
    "护照 护照号 護照 旅券 旅券番号 パスポート 通行证 台胞证 passport passports pasaporte pasaportes",
    "order booking reservation reference ref receipt application appointment case ticket invoice tracking flight fee "
    "photo form room 预约 预约号 回执 回执号 受理 受理号 订单 订单号 单号 申请号 流水号 航班 车次 房间 表格 型号 费 "
    "予約 予約番号 受付番号 便名 cita reserva pedido vuelo formulario",
)
_OWNER_AFTER = re.compile(
    r"[ ,，]{0,2}(?:是|为|就是|は|が|is|es)?[ ]?(?:我的|他的|她的|本人|私の|my |his |her |the |our |mi |su )?"
    r"(?:护照|護照|旅券|パスポート|passport|pasaporte)",
    re.IGNORECASE,
)


def passports(text: str) -> Iterator[Span]:
    if _PASSPORT_WORD.search(text) is None:
        return
    for found in _PASSPORT.finditer(text):
        start, end = found.span()
        cue = nearest(text, start, _PASSPORT_CUES)
        lettered = found.group()[0].isalpha() or found.group()[2].isalpha()
        near = cue is not None and cue.speaks_for and (lettered or not cue.beyond_comma)
        if near or (cue is None and lettered and _OWNER_AFTER.match(text, end)):
            yield Span(start, end, "passport")
