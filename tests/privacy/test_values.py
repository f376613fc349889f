"""Redaction inside JSON: the key is the cue, and all else keeps its value, its type and its digits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.privacy.values import redact_json, redact_named, redact_value

TAKEN = [
    ({"电话": "13800002468"}, "[phone]"),
    ({"phone": 13800002468}, "[phone]"),
    ({"phoneNumber": "2125550147"}, "[phone]"),
    ({"contact_mobile": 8613800001234}, "[phone]"),
    ({"tel": ["555-0147-212 ext", "(212) 555-0147"]}, "[phone]"),
    ({"kind": "mobile", "value": "2125550147"}, "[phone]"),
    ({"cardNumber": 4111111111111111}, "[credit_card]"),
    ({"身份证": "110101190405210039"}, "[cn_id]"),
    ({"idCard": 110101190405210039}, "[cn_id]"),
    ({"passport_no": "E12345678"}, "[passport]"),
    ({"护照号": "G12345678"}, "[passport]"),
    ({"src_ip": "203.0.113.9"}, "[ipv4]"),
    ({"correo": "lucia.ferro@example.es"}, "[email]"),
    ({"地址": "云栖省临川市南湖路77号"}, "[address]"),
    ({"payee": {"iban": "DE89370400440532013000"}}, "[iban]"),
    ({"env": {"NPM_TOKEN": "npm_Ab3dEf6hIj9kLmN0pQrStUvWxYz123456789"}}, "[api_key]"),
    ({"password": "hunter22"}, "[api_key]"),
    ({"apiKey": "9f8e7d6c5b4a39281706f5e4"}, "[api_key]"),
    ({"headers": {"Authorization": "Bearer abcDEF1234567890xyzQ"}}, "Bearer [api_key]"),
    ({"line": "auth key=AKIAZ5GMHYJKLMNOPQRS ok"}, "auth key=[api_key] ok"),
    ({"headers": ["X-Api-Key: 9f8e7d6c5b4a39281706f5e4d3c2b1a0"]}, "X-Api-Key: [api_key]"),
    ({"arguments": '{"phone":"2125550147"}'}, '{"phone":"[phone]"}'),
]

KEPT: list[Any] = [
    {"id": 9007199254740993, "big": 123456789012345678901234567890, "n": -13800001234},
    {"order_id": 13800001234, "count": "13800001234", "price": 13800001234.0, "订单号": "13800001234"},
    {"token": "pg_2", "next_page_token": "CAUQAAabc123DEF456ghi", "max_tokens": 4096},
    {"password": None, "has_password": True, "pwd": "/home/x", "secret": "${SECRET}", "api_key": "****************"},
    {"version": "10.1.2.3", "build": "2025.1.0.7", "fw": "1.10.0"},
    {"ts": 1700000000123, "created": "2025-01-01T00:00:00.5+00:00", "phone_verified_at": 1700000000},
    {"card_last4": "4444", "cards": 2, "phones": 13, "mobile": False},
    {"sha": "9f8e7d6c5b4a", "join": "https://meet.example.com/j/88?pwd=abc"},
    {"address": "0x9f8e7d6c5b4a39281706f5e4d3c2b1a098765432"},
    [1.5, None, "", [], {}, "x"],
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@pytest.mark.parametrize(("value", "left"), TAKEN)
def test_what_the_key_or_the_text_gives_away_is_taken(value: Any, left: str) -> None:
    assert left in leaves(redact_value(value, "strict"))


@pytest.mark.parametrize("value", KEPT)
def test_all_else_is_the_very_value(value: Any) -> None:
    assert redact_value(value, "strict") is value


@given(JSON)
def test_bytes_in_which_nothing_is_found_come_back_as_they_are(value: Any) -> None:
    raw = msgspec.json.encode(value)
    clean = redact_json(raw, "off")
    assert clean is raw
    assert shape(msgspec.json.decode(redact_json(raw, "strict"))) == shape(msgspec.json.decode(raw))


def test_numbers_beside_what_is_taken_keep_their_digits() -> None:
    raw = b'{"id":123456789012345678901234567890,"mail":"a@example.org","x":0.10000000000000001}'
    assert redact_json(raw, "strict") == b'{"id":123456789012345678901234567890,"mail":"[email]","x":0.1}'


def test_the_default_level_leaves_phones_and_addresses() -> None:
    value = {"phone": "13800002468", "ip": "203.0.113.9", "地址": "云栖省临川市南湖路77号"}
    assert redact_value(value, "secrets") is value


def test_the_key_of_a_fact_is_its_cue() -> None:
    assert redact_named("2125550147", "strict", "mobile phone") == "[phone]"
    assert redact_named("2125550147", "strict", "last order") == "2125550147"


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, list):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def shape(value: Any) -> Any:
    """Keys, lengths and numbers: what no redaction changes but for a number that becomes a text."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else None
