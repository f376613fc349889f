"""The kinds of what is redacted, and which of them each level of a policy covers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from serve_app.policies import PrivacyLevel

Kind = Literal[
    "email",
    "phone",
    "cn_id",
    "credit_card",
    "iban",
    "ipv4",
    "ipv6",
    "mac",
    "api_key",
    "jwt",
    "passport",
    "url_credentials",
    "address",
]

SECRETS: frozenset[Kind] = frozenset({"credit_card", "cn_id", "passport", "iban", "api_key", "jwt", "url_credentials"})
ALL: frozenset[Kind] = SECRETS | {"email", "phone", "ipv4", "ipv6", "mac", "address"}

COVERED: dict[PrivacyLevel, frozenset[Kind]] = {"off": frozenset(), "secrets": SECRETS, "strict": ALL}


class Span(NamedTuple):
    """Where something stands, in code points of the text that was given."""

    start: int
    end: int
    type: Kind
