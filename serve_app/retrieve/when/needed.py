"""What a text has to hold for a pattern to match anywhere in it: most queries name no time, and are told so cheaply.

Read off the pattern's own parse, so that it can never say less than the pattern does. Where nothing can be told,
the pattern is simply tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

NEEDED_MAX: Final = 40
"""More words than that cost about as much to look for as the pattern itself."""

_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


def needed(pattern: str, flags: int) -> tuple[str, ...]:
    """Lower-case pieces of text of which one stands in whatever the pattern matches; empty where none is known."""
    found = _of_sequence(_parser.parse(pattern, flags))
    return tuple(sorted(found)) if found and len(found) <= NEEDED_MAX else ()


def needs_digit(pattern: str, flags: int) -> bool:
    """Whether a digit, of any script, stands in whatever the pattern matches."""
    return _has_digit(_parser.parse(pattern, flags))


def _has_digit(parsed: Iterable[tuple[Any, Any]]) -> bool:
    return any(_is_digit(kind, value) for kind, value in parsed)


def _is_digit(kind: Any, value: Any) -> bool:
    if kind is _constants.LITERAL:
        return chr(value).isdecimal()
    if kind is _constants.RANGE:
        return chr(value[0]) >= "0" and chr(value[1]) <= "9"
    if kind is _constants.CATEGORY:
        return value is _constants.CATEGORY_DIGIT
    if kind in (_constants.IN, _constants.BRANCH):
        return all(_is_digit(*one) if kind is _constants.IN else _has_digit(one) for one in _choices(kind, value))
    inner = _inside(kind, value)
    return inner is not None and _has_digit(inner)


def _choices(kind: Any, value: Any) -> Any:
    return value if kind is _constants.IN else value[1]


def _inside(kind: Any, value: Any) -> Any:
    """What a group or a repetition holds that has to match; None for all else."""
    if kind is _constants.SUBPATTERN:
        return value[-1]
    if kind is _constants.ATOMIC_GROUP:
        return value
    return value[2] if kind in _REPEATS and value[0] > 0 else None


def _of_sequence(parsed: Iterable[tuple[Any, Any]]) -> frozenset[str]:
    """Of the parts that all have to match, the one that tells most."""
    candidates: list[frozenset[str]] = []
    run = ""
    for kind, value in parsed:
        if kind is _constants.LITERAL:
            run += chr(value).lower()
            continue
        candidates.append(frozenset({run}) if run else frozenset())
        run = ""
        candidates.append(_of_part(kind, value))
    candidates.append(frozenset({run}) if run else frozenset())
    told = [one for one in candidates if one]
    return max(told, key=lambda one: (min(map(len, one)), -len(one)), default=frozenset())


def _of_part(kind: Any, value: Any) -> frozenset[str]:
    if kind is _constants.BRANCH:
        each = [_of_sequence(one) for one in value[1]]
        return frozenset().union(*each) if all(each) else frozenset()
    inner = _inside(kind, value)
    return frozenset() if inner is None else _of_sequence(inner)
