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
    if kind is _constants.SUBPATTERN:
        return _of_sequence(value[-1])
    if kind is _constants.ATOMIC_GROUP:
        return _of_sequence(value)
    if kind is _constants.BRANCH:
        each = [_of_sequence(one) for one in value[1]]
        return frozenset().union(*each) if all(each) else frozenset()
    if kind in _REPEATS and value[0] > 0:
        return _of_sequence(value[2])
    return frozenset()
