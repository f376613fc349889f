"""Paths into JSON data, and the data without what some of them name. Pure.

`$` is the whole; then `.key`, `['any key']`, `[n]` and `[*]`. A path may start without its `$` or `$.`. In
quotes a backslash takes the quote or the backslash after it literally; before anything else it stands for itself.
Numbers keep every digit: what has a fraction or an exponent is read as a Decimal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

import msgspec

from serve_app.errors import InvalidRequest

PATH_CHARACTERS_MAX: Final = 1_024
PATH_STEPS_MAX: Final = 64
PATHS_REMEMBERED: Final = 1_024
"""Paths whose steps are kept: callers use the same ones again and again."""

EACH: Final = -1
"""The step `[*]`."""

Step = str | int
Steps = tuple[Step, ...]

_STEP: Final = re.compile(
    r"""\.(?P<key>[^\s.\[\]'"*]+)|\[(?P<index>[0-9]{1,9}|\*)\]|\[(?P<quote>['"])(?P<quoted>(?:\\.|(?!(?P=quote)|\\).)*)(?P=quote)\]""",
    re.S,
)
_PLAIN_KEY: Final = re.compile(r"""[^\s.\[\]'"*]+""")
_ESCAPED: Final = re.compile(r"""\\(['"\\])""")
_TO_ESCAPE: Final = re.compile(r"""'|\\(?=['"\\]|\Z)""")


class Place(msgspec.Struct, frozen=True):
    """A value that a path names, by its concrete path; places of one document sort in its order by `position`."""

    path: str
    position: tuple[int, ...]
    value: Any


def steps_of(path: str) -> Steps:
    """Raises InvalidRequest where this is no path."""
    if len(path) > PATH_CHARACTERS_MAX:
        raise InvalidRequest(f"a path has at most {PATH_CHARACTERS_MAX} characters")
    return _steps_of(path)


@lru_cache(maxsize=PATHS_REMEMBERED)
def _steps_of(path: str) -> Steps:
    rest, steps, at = _rooted(path), [], 1
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            raise InvalidRequest(f"no path: {path!r} cannot be read from {rest[at : at + 20]!r} on")
        steps.append(_step(match))
        at = match.end()
    if len(steps) > PATH_STEPS_MAX:
        raise InvalidRequest(f"a path has at most {PATH_STEPS_MAX} steps")
    return tuple(steps)


def _rooted(path: str) -> str:
    """A key may begin with `$`, too: that alone makes no root."""
    if path[:1] == "$" and path[1:2] in ("", ".", "["):
        return path
    return f"${path}" if path[:1] == "[" else f"$.{path}"


def _step(match: re.Match[str]) -> Step:
    if match["key"] is not None:
        return match["key"]
    if match["index"] is not None:
        return EACH if match["index"] == "*" else int(match["index"])
    return _ESCAPED.sub(r"\1", match["quoted"])


def written_step(step: Step) -> str:
    """As it stands in a path; `_steps_of` reads it back."""
    if isinstance(step, int):
        return "[*]" if step == EACH else f"[{step}]"
    if _PLAIN_KEY.fullmatch(step):
        return f".{step}"
    return "['" + _TO_ESCAPE.sub(lambda match: "\\" + match[0], step) + "']"


def _free(values: int) -> None:
    """Nobody counts."""


def values(data: Any, steps: Steps, spend: Callable[[int], None] = _free) -> list[Any]:
    """What the path names in this document, in its order. `spend` hears how many values each step comes to."""
    found = [data]
    for step in steps:
        if isinstance(step, str):
            found = [value[step] for value in found if isinstance(value, dict) and step in value]
        elif step == EACH:
            found = [inner for value in found if isinstance(value, list) for inner in value]
        else:
            found = [value[step] for value in found if isinstance(value, list) and step < len(value)]
        spend(len(found))
    return found


def _any(value: Any) -> bool:
    return True


def places(data: Any, steps: Steps, test: Callable[[Any], bool] = _any) -> Iterator[Place]:
    """Those of them that pass the test, with where each stands; one after the other, as they are taken."""
    found: Iterator[Place] = iter((Place("$", (), data),))
    if not steps:
        yield from (place for place in found if test(place.value))
        return
    for step in steps[:-1]:
        found = _each_inside(found, step)
    yield from _each_inside(found, steps[-1], test)


def _each_inside(places: Iterable[Place], step: Step, test: Callable[[Any], bool] = _any) -> Iterator[Place]:
    for place in places:
        yield from _inside(place, step, test)


def _inside(place: Place, step: Step, test: Callable[[Any], bool]) -> Iterator[Place]:
    value = place.value
    if isinstance(step, str):
        if isinstance(value, dict) and step in value and test(value[step]):
            position = (*place.position, list(value).index(step))
            yield Place(place.path + written_step(step), position, value[step])
    elif isinstance(value, list):
        for index in range(len(value)) if step == EACH else range(step, min(step + 1, len(value))):
            if test(value[index]):
                yield Place(f"{place.path}[{index}]", (*place.position, index), value[index])


# ---- documents

_encoder: Final = msgspec.json.Encoder(decimal_format="number")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("a number's exponent is out of range") from error


_decoder: Final = msgspec.json.Decoder(float_hook=_decimal)
parsed: Final[Callable[[bytes | str], Any]] = _decoder.decode
"""JSON text as values, with every digit. Raises msgspec.DecodeError, RecursionError."""

written: Final[Callable[[Any], bytes]] = _encoder.encode
"""Such values as compact JSON."""


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: 3 is 3.0, but true is not 1 and "3" is not 3, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def without(data: bytes, paths: Iterable[str]) -> bytes | None:
    """The document without what the paths name; None where that is the whole.

    A key goes with its value; an element of an array becomes null, so that the others keep their places; `[*]`
    leaves an empty array.
    """
    value = parsed(data)
    for path in paths:
        steps = steps_of(path)
        if not steps:
            return None
        for parent in values(value, steps[:-1]):
            _cut(parent, steps[-1])
    return written(value)


def _cut(parent: Any, step: Step) -> None:
    if isinstance(step, str):
        if isinstance(parent, dict):
            parent.pop(step, None)
    elif isinstance(parent, list):
        if step == EACH:
            parent.clear()
        elif step < len(parent):
            parent[step] = None
