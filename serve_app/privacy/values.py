"""Redaction inside JSON values: strings at any depth, and numbers whose key says what they are.

A key is the cue of its value, as a word before a number is in a sentence. Keys stay, and so does every value that is
not redacted: its type, its digits, its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from serve_app.policies import PrivacyLevel
from serve_app.privacy.keys import looks_random
from serve_app.privacy.kinds import COVERED, Kind, Span
from serve_app.privacy.redact import found, redact, replaced

SECRET_MIN = 16
"""Characters of a token; shorter values under such a key are names and cursors."""

PASSWORD_MIN = 6
INTEGER_DIGITS = range(9, 20)
"""How many digits an integer has that may be a card, an id or a telephone number."""

KEY_CHARACTERS_MAX = 64
"""What is read of a key: more is no name of a field."""

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_TOKEN_KEY = re.compile(
    r"(?:^|[\W_])(?:token|secret|api[\W_]?key|apikey|access[\W_]?key|private[\W_]?key|secret[\W_]?key|auth"
    r"|authorization"
    r"|credentials?|bearer|signature[\W_]?key|encryption[\W_]?key|client[\W_]?secret|x[\W_]?api[\W_]?key|cookie)$"
    r"|密钥|秘钥|令牌|凭证|トークン|シークレット|APIキー",
    re.IGNORECASE,
)
_CURSOR_KEY = re.compile(r"(?:page|next|prev|cursor|continuation|sync|csrf|resume)\W*token", re.IGNORECASE)
"""A place in a list, not a secret."""

_PASSWORD_KEY = re.compile(
    r"(?:^|[\W_])(?:password|passwd|passphrase|pwd|pass|passcode)$|密码|口令|contraseña|パスワード", re.IGNORECASE
)
_ADDRESS_KEY = re.compile(
    r"(?:^|[\W_])(?:address|addr|street|dirección|direccion|domicilio)(?:[\W_]?(?:line)?[\W_]?\d)?$|地址|住址"
    r"|住所|ご住所",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\d.*[^\W\d_]{2}|[^\W\d_]{2}.*\d", re.DOTALL)
_NO_ADDRESS = re.compile(r"://|@|^(?:0x)?[0-9A-Fa-f:.\-]+$")
_GENERAL_KEYS = frozenset(
    ("value", "val", "number", "no", "content", "data", "text", "valor", "值", "号码", "内容", "値")
)
_LABELS = ("type", "kind", "label", "name", "field", "key", "类型", "字段", "种类", "種類", "tipo")
_PLACEHOLDER = re.compile(
    r"[*x•.]+|\[\w+\]|<.*>|\$\{.*\}|(?:true|false|null|none|changeme|redacted|hidden)", re.IGNORECASE
)
_AUTHORIZATION = re.compile(r"(?:bearer|basic|token|digest|apikey)\s+", re.IGNORECASE)


def redact_json(raw: bytes, level: PrivacyLevel) -> bytes:
    """JSON as it was given where nothing is found in it, else compact JSON. Numbers of any size are exact."""
    value = msgspec.json.decode(raw)
    clean = redact_value(value, level)
    return raw if clean is value else msgspec.json.encode(clean)


def redact_value(value: Any, level: PrivacyLevel, key: str = "") -> Any:
    """The very value where nothing is found in it, else a copy without."""
    if isinstance(value, str):
        return redact_named(value, level, key)
    if isinstance(value, dict):
        return _redact_object(value, level)
    if isinstance(value, list):
        clean = [redact_value(one, level, key) for one in value]
        return clean if _changed(value, clean) else value
    if isinstance(value, int) and not isinstance(value, bool) and key:
        return _redact_integer(value, level, key)
    return value


def redact_named(text: str, level: PrivacyLevel, key: str) -> str:
    """A text under a name: a field's, a fact's."""
    cue = _words(key)
    if not key or level == "off" or _CURSOR_KEY.search(cue):
        return redact(text, level).text
    whole = _whole_value(text, cue, COVERED[level])
    spans = _named_spans(text, level, cue) if whole is None else [whole]
    return replaced(text, spans) if spans else text


def _redact_object(value: dict[str, Any], level: PrivacyLevel) -> dict[str, Any]:
    clean = {key: redact_value(one, level, _name(value, key)) for key, one in value.items()}
    return clean if _changed(value.values(), clean.values()) else value


def _name(value: dict[str, Any], key: str) -> str:
    """The key, or, where it only says "value", what a label beside it says."""
    if key.lower() in _GENERAL_KEYS:
        labels = (value[label] for label in _LABELS if label != key and isinstance(value.get(label), str))
        return next((label for label in labels if len(label) <= KEY_CHARACTERS_MAX), key)
    return key


def _changed(before: Iterable[Any], after: Iterable[Any]) -> bool:
    return any(one is not other for one, other in zip(before, after, strict=True))


def _words(key: str) -> str:
    """A key as words: `phoneNumber` and `phone_number` say the same."""
    return _CAMEL.sub(" ", key[-KEY_CHARACTERS_MAX:].replace("_", " "))


def _named_spans(text: str, level: PrivacyLevel, cue: str) -> list[Span]:
    shift = len(cue) + 2
    spans = found(f"{cue}: {text}", level)
    return [Span(span.start - shift, span.end - shift, span.type) for span in spans if span.start >= shift]


def _whole_value(text: str, cue: str, kinds: frozenset[Kind]) -> Span | None:
    """The part of a value that its key alone gives away: a secret, or in a tighter policy an address."""
    if _PLACEHOLDER.fullmatch(text):
        return None
    if "address" in kinds and _ADDRESS_KEY.search(cue) and _ADDRESS.search(text) and not _NO_ADDRESS.search(text):
        return Span(0, len(text), "address")
    if "api_key" not in kinds or "eyJ" in text or "://" in text:
        return None  # a recogniser knows better
    scheme = _AUTHORIZATION.match(text)
    start = scheme.end() if scheme else 0
    return Span(start, len(text), "api_key") if _is_secret(text[start:], cue) else None


def _is_secret(value: str, cue: str) -> bool:
    if any(char.isspace() for char in value) or value.startswith(("/", "./", "~")):
        return False
    if _PASSWORD_KEY.search(cue):
        return len(value) >= PASSWORD_MIN
    return len(value) >= SECRET_MIN and _TOKEN_KEY.search(cue) is not None and looks_random(value)


def _redact_integer(value: int, level: PrivacyLevel, key: str) -> int | str:
    """Only what the key names: an integer is an id, an amount or an instant until something says otherwise."""
    if value < 0 or value.bit_length() > 64 or len(digits := str(value)) not in INTEGER_DIGITS:
        return value
    cue = _words(key)
    if _ABOUT_IT.search(cue):
        return value
    for span in _named_spans(digits, level, cue):
        if (span.start, span.end) == (0, len(digits)) and _NUMBER_KEY[span.type].search(cue):
            return f"[{span.type}]"
    return value


_ABOUT_IT = re.compile(
    r"\W(?:at|ts|time|timestamp|date|on|count|total|hash|version|code)$|(?:phone|mobile|card|tel|fax) id$",
    re.IGNORECASE,
)
"""An instant or an amount that has to do with a number, and is none."""

_NO_KEY = re.compile(r"(?!)")
_NUMBER_KEY: dict[Kind, re.Pattern[str]] = dict.fromkeys(COVERED["strict"], _NO_KEY)
_NUMBER_KEY |= {
    "phone": re.compile(
        r"phone|mobile|(?:^|\W)(?:tel|cell|fax|msisdn|whatsapp)(?:\W|$)|电话|手机|联系|電話|携帯|móvil|movil"
        r"|teléfono|telefono|celular",
        re.IGNORECASE,
    ),
    "credit_card": re.compile(r"card|(?:^|\W)(?:cc|pan)(?:\W|$)|卡号|银行卡|信用卡|カード|tarjeta", re.IGNORECASE),
    "cn_id": re.compile(
        r"身份证|证件|id ?card|identity|national id|(?:^|\W)id ?(?:number|no)(?:\W|$)|idcard", re.IGNORECASE
    ),
    "passport": re.compile(r"passport|护照|pasaporte|パスポート|旅券", re.IGNORECASE),
}
