"""Secrets of machines: API keys, tokens, private keys, JSON web tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serve_app.privacy.kinds import Span

KEY_MIN, KEY_MAX = 16, 4_096
PEM_MAX = 12 << 10
VARIETY_MIN = 6
"""Different characters that a secret has at least; fewer are a placeholder (`sk-xxxxxxxx`)."""

_FORMS = (
    # What a key of this form begins with, and the rest of it.
    (("sk-",), r"(?:[a-z]{2,8}-)?(?:[a-z]{2,8}\d{2}-|v\d-)?[\w-]{20,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
    (("sk_live_", "sk_test_", "pk_live_", "pk_test_", "rk_live_", "rk_test_", "whsec_"), r"[\w+/=]{16,}"),  # Stripe
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), r"\w{20,}"),
    (("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glsoat-"), r"[\w-]{20,}"),  # GitLab
    (("AKIA", "ASIA", "AGPA", "AIDA", "AROA"), r"[A-Z0-9]{16}(?![A-Z0-9])"),  # AWS
    (("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-"), r"[\w-]{16,}"),  # Slack
    (("AIza", "GOCSPX-", "ya29."), r"[\w-]{20,}"),  # Google
    (
        ("npm_", "hf_", "gsk_", "r8_", "rubygems_", "dckr_pat_", "dckr_oat_", "lin_api_", "glsa_", "ntn_", "secret_"),
        r"[\w-]{20,}",
    ),
    (
        ("shpat_", "shpca_", "shppa_", "shpss_", "dop_v1_", "doo_v1_", "dor_v1_", "figd_", "sbp_", "sntrys_"),
        r"[\w-]{20,}",
    ),
    (("tskey-", "vercel_", "nvapi-", "phc_", "sq0atp-", "sq0csp-", "tvly-", "xai-", "pplx-"), r"[\w-]{20,}"),
    (("SG.",), r"[\w-]{16,}\.[\w-]{16,}"),  # SendGrid
    (("pypi-", "xkeysib-", "PMAK-", "NRAK-"), r"[\w-]{20,}"),
    (("LTAI",), r"[0-9A-Za-z]{12,24}"),  # Alibaba
    (("AKID",), r"[0-9A-Za-z]{28,36}"),  # Tencent
    (("ATATT3",), r"[\w=-]{24,}"),
    (("dapi", "key-", "SK", "AC"), r"[0-9a-f]{32}(?![0-9A-Za-z])"),
    (("AGE-SECRET-KEY-1",), r"[0-9A-Z]{40,}"),
    ((":AA",), r"[\w-]{32,33}(?![\w-])"),  # Telegram, after the number of the bot
)
_TOKENS = tuple(
    (
        begins,
        re.compile(
            rf"(?<![0-9A-Za-z_]){'(?:[0-9]{8,10})' if begins == ':AA' else ''}{re.escape(begins)}{rest}", re.ASCII
        ),
    )
    for prefixes, rest in _FORMS
    for begins in prefixes
)
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{8,2048}\.[\w-]{4,8192}(?:\.[\w-]{0,2048}){1,3}", re.ASCII)

_SCHEME_WORDS = ("bearer", "basic", "token")
_SCHEME = re.compile(r"\b(?:bearer|basic|token)[ \t]+[\"']?([\w.~+/=-]{16,4096})", re.IGNORECASE | re.ASCII)
_NAME_WORDS = ("key", "token", "secret", "credential", "clave", "密钥", "秘钥", "令牌", "凭证", "キー", "トークン")
_NAMED = re.compile(
    r"(?:(?<![A-Za-z])(?:(?:api|access|secret|private|account|auth|shared|client)?(?:key|token|secret)"
    r"|credentials?|clave)"
    r"|密钥|秘钥|令牌|凭证|キー|トークン)"
    r"[\"']?[ \t]{0,4}(?:[:=：]|=>|是|为|は|is|es)[ \t]{0,4}[\"']?([\w.~+/-]{16,512}={0,2})",
    re.IGNORECASE | re.ASCII,
)
PASSWORD_WORDS = ("密码", "口令", "contraseña", "パスワード")
_PASSWORD = re.compile(
    r"(?:password|passwd|passphrase|passwort|\bpwd|contraseña|密码|口令|パスワード)[\"']?[ \t]{0,4}(?:[:=：]|是"
    r"|为|は)"
    r"[ \t]{0,4}[\"']?([\x21\x23-\x26\x28-\x2b\x2d-\x3a\x3c-\x7e]{8,128})",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[0-9A-Za-z]{8,}")
_WORDS = re.compile(r"[a-z]*(?:[A-Z][a-z]{2,})*")
"""CamelCase: each capital is followed by small letters."""

_PEM = "-----BEGIN "
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


def jwts(text: str) -> Iterator[Span]:
    if "eyJ" in text:
        for found in _JWT.finditer(text):
            yield Span(found.start(), found.start() + len(found.group().rstrip(".")) + _unsigned(found.group()), "jwt")


def _unsigned(token: str) -> int:
    """1 where the dot that ends a token is its own: that of an empty signature."""
    return int(token.endswith(".") and token.rstrip(".").count(".") == 1)


def api_keys(text: str) -> Iterator[Span]:
    if _PEM in text:
        yield from _private_keys(text)
    yield from _tokens(text)
    lower = text.lower()
    for words, pattern in ((_SCHEME_WORDS, _SCHEME), (_NAME_WORDS, _NAMED)):
        if any(word in lower for word in words):
            for found in pattern.finditer(text):
                yield from _value(text, found.start(1), found.end(1))


def passwords(text: str) -> Iterator[Span]:
    for found in _PASSWORD.finditer(text):
        if is_strong(found[1]):
            yield Span(found.start(1), found.start(1) + len(found[1].rstrip(".)]}")), "api_key")


def _tokens(text: str) -> Iterator[Span]:
    for begins, pattern in _TOKENS:
        if begins in text:
            for found in pattern.finditer(text):
                if looks_random(found.group()):
                    yield Span(found.start(), found.start() + len(found.group().rstrip("-.")), "api_key")


def _value(text: str, start: int, end: int) -> Iterator[Span]:
    value = text[start:end].rstrip(".-")
    if looks_random(value) and not _UUID.fullmatch(value):
        yield Span(start, start + len(value), "api_key")


def looks_random(value: str) -> bool:
    """Whether this is no word and no placeholder: letters and digits, or both cases mixed, in some variety."""
    if len(set(value)) < VARIETY_MIN:
        return False
    return any(_is_random(part) for part in _PARTS.findall(value))


def _is_random(part: str) -> bool:
    digits = any(char.isdigit() for char in part)
    upper, lower = part != part.lower(), part != part.upper()
    return (digits and (upper or lower)) or (upper and lower and _WORDS.fullmatch(part) is None)


def is_strong(value: str) -> bool:
    """Whether this can be a password that somebody chose, and not a word about passwords."""
    classes = (str.islower, str.isupper, str.isdigit, lambda char: not char.isalnum())
    used = sum(any(map(one, value)) for one in classes)
    return used >= 3 and len(set(value)) >= VARIETY_MIN and value[0] not in "<${[/" and "://" not in value


def _private_keys(text: str) -> Iterator[Span]:
    start = text.find(_PEM)
    while start >= 0:
        label_end = text.find("-----", start + len(_PEM), start + 80)
        label = text[start + len(_PEM) : label_end] if label_end > 0 else ""
        close = text.find(f"-----END {label}-----", label_end, start + PEM_MAX) if "PRIVATE KEY" in label else -1
        if close > 0:
            yield Span(start, close + len(label) + len("-----END -----"), "api_key")
        start = text.find(_PEM, max(close, start + 1))
