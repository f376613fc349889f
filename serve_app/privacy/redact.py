"""Redaction of one text: what the level covers becomes `[type]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from serve_app.policies import PrivacyLevel
from serve_app.privacy.addresses import addresses
from serve_app.privacy.folding import folded
from serve_app.privacy.keys import PASSWORD_WORDS, api_keys, jwts, passwords
from serve_app.privacy.kinds import COVERED, Kind, Span
from serve_app.privacy.network import emails, ipv4, ipv6, macs, urls_with_password
from serve_app.privacy.numbers import cn_ids, credit_cards, ibans, passports
from serve_app.privacy.phones import phones

_TRIGGER = re.compile(r"[0-9０-９@＠_:]")
"""All that is recognised holds one of these; a text without any costs one search."""

PIECE = 64 << 10
"""Characters that are searched at once: a search holds the interpreter's lock, and others wait for it."""

MARGIN = 16 << 10
"""Nothing that is recognised is longer."""

LONG_WORD = 16
"""Characters of the shortest token."""


def _needs(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


def _has_one_of(*words: str) -> Callable[[str], object]:
    return lambda text: any(word in text for word in words)


def _has_long_word(text: str) -> bool:
    return max(map(len, text.split()), default=0) >= LONG_WORD


# Single patterns that begin with few characters, and plain words: cheap to look for.
_number_of_12 = _needs(r"\d(?:[ .-]?+\d){11}")
_at = _has_one_of("@")
_capital_after_number = _needs(r"\d[A-Za-z]? [A-Z]")
_street_word = _has_one_of(
    "号", "號", "都", "道", "府", "県", "alle ", "C/", "venida ", "Av", "laza ", "aseo ", "arrer "
)


def _street(text: str) -> object:
    return _street_word(text) or _capital_after_number(text)


class Recogniser(NamedTuple):
    kind: Kind
    needs: Callable[[str], object]
    """True of every text that holds one: elsewhere the search itself is spared."""
    find: Callable[[str], Iterator[Span]]


# Of two that overlap the one that comes first here stays.
RECOGNISERS = (
    Recogniser("url_credentials", _at, urls_with_password),
    Recogniser("jwt", _has_one_of("eyJ"), jwts),
    Recogniser("api_key", _has_long_word, api_keys),
    Recogniser("api_key", _has_one_of("assw", "ASSW", "assphrase", "pwd", "PWD", *PASSWORD_WORDS), passwords),
    Recogniser("email", _at, emails),
    Recogniser("iban", _needs(r"\d\d[ -]?[0-9A-Za-z]{4}[ -]?[0-9A-Za-z]{4}"), ibans),
    Recogniser("cn_id", _number_of_12, cn_ids),
    Recogniser("credit_card", _number_of_12, credit_cards),
    Recogniser("passport", _needs(r"\d\d[\dA-Za-z]{2} ?\d\d"), passports),
    Recogniser("ipv6", _needs(r":[0-9A-Fa-f]{0,4}:"), ipv6),
    Recogniser("mac", _needs(r"[:.-][0-9A-Fa-f]{2,4}[:.-]"), macs),
    Recogniser("ipv4", _needs(r"\d\.\d{1,3}\.\d"), ipv4),
    Recogniser("phone", _needs(r"\d(?:[ ().\-/]{0,2}\d){6}"), phones),
    Recogniser("address", _street, addresses),
)
_OF_LEVEL = {level: tuple(one for one in RECOGNISERS if one.kind in kinds) for level, kinds in COVERED.items()}


class Redacted(NamedTuple):
    text: str
    spans: tuple[Span, ...]
    """In the text that was given, in order; none overlaps another."""


def redact(text: str, level: PrivacyLevel) -> Redacted:
    spans = found(text, level)
    return Redacted(replaced(text, spans), spans) if spans else Redacted(text, ())


def found(text: str, level: PrivacyLevel) -> tuple[Span, ...]:
    """What the level covers, in order. The work grows with the length of the text, whatever it says."""
    if level == "off" or _TRIGGER.search(text) is None:
        return ()
    plain = folded(text)
    if len(plain) > PIECE + 2 * MARGIN:
        return _found_in_pieces(plain, level)
    return _found(plain, level)


def _found(plain: str, level: PrivacyLevel) -> tuple[Span, ...]:
    asked = [one for one in _OF_LEVEL[level] if one.needs(plain)]
    return _apart(span for one in asked for span in one.find(plain))


def _found_in_pieces(plain: str, level: PrivacyLevel) -> tuple[Span, ...]:
    """Each piece with a margin on either side: what begins in a piece is found whole, and with what stands "
    "around it."""
    kept: list[Span] = []
    for start in range(0, len(plain), PIECE):
        shift = max(0, start - MARGIN)
        for one in _found(plain[shift : start + PIECE + MARGIN], level):
            span = Span(one.start + shift, one.end + shift, one.type)
            if start <= span.start < start + PIECE and (not kept or kept[-1].end <= span.start):
                kept.append(span)
    return tuple(kept)


def replaced(text: str, spans: Iterable[Span]) -> str:
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], f"[{span.type}]"]
        at = span.end
    return "".join([*parts, text[at:]])


def _apart(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Those that overlap none before them, in order of place."""
    kept: list[Span] = []
    taken = bytearray()
    for span in spans:
        if len(taken) < span.end:
            taken.extend(bytes(span.end - len(taken)))
        if not any(taken[span.start : span.end]):
            taken[span.start : span.end] = b"\x01" * (span.end - span.start)
            kept.append(span)
    return tuple(sorted(kept))
