"""Entities in structured data: string leaves under keys that name ids, people, places, goods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from serve_app.entities import words
from serve_app.entities.values import NAME_CHARACTERS_MAX, Entity, EntityClass, entity

DATA_BYTES_MAX: Final = 262_144
"""Longer data are not looked into."""

LEAVES_MAX: Final = 2_000
"""Values of one turn's data that are looked at."""

DEPTH_MAX: Final = 32

_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")


def in_data(data: bytes) -> Iterator[Entity]:
    """Of ids those with a digit, whole numbers of 5 digits or more among them; of names those with a letter."""
    if len(data) > DATA_BYTES_MAX:
        return
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return
    for key, leaf in _leaves(value):
        kind = _kind(key)
        if kind is not None and (name := _name(leaf, kind)):
            yield entity(name, kind)


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves with the key that they stand under, in the order of the document."""
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    looked = 0
    while waiting and looked < LEAVES_MAX:
        key, one, depth = waiting.pop()
        looked += 1
        if isinstance(one, dict):
            inside = [(name, inner, depth + 1) for name, inner in one.items()]
        elif isinstance(one, list):
            inside = [(key, inner, depth + 1) for inner in one]
        else:
            yield key, one
            continue
        if depth < DEPTH_MAX:
            waiting += inside[LEAVES_MAX::-1]


def _kind(key: str) -> EntityClass | None:
    """By the last word of the key; of an id by the word before it: `order_id` is an order's, `customer_id` a code."""
    spelt = [word.lower() for word in _WORDS.findall(key)]
    if not spelt:
        return None
    if spelt[-1] in words.ID_FIELDS or spelt == ["tracking"]:
        return "order" if any(words.FIELDS.get(word) == "order" for word in spelt) else "code"
    if spelt[-1] == "name" and len(spelt) > 1:
        return words.FIELDS.get(spelt[-2], "name")
    return words.FIELDS.get(spelt[-1])


def _name(leaf: Any, kind: EntityClass) -> str:
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return str(leaf) if kind in ("order", "code") and leaf >= 10_000 else ""
    if not isinstance(leaf, str) or not 2 <= len(leaf) <= NAME_CHARACTERS_MAX or leaf.startswith("["):
        return ""
    fits = any(map(str.isdigit, leaf)) and " " not in leaf if kind in ("order", "code") else any(map(str.isalpha, leaf))
    return leaf.strip() if fits and "\n" not in leaf else ""
