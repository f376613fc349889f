"""What an id may be: the one rule for users, sessions, turns, fact keys and tenants; and whole numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from serve_app.errors import InvalidRequest

ID_CHARACTERS_MAX: Final = 256

ID_PATTERN: Final = r"^(?![\s\S]*[\x00-\x1f\x7f-\x9f])"
"""No control character (category Cc) anywhere. Means the same to Python and to JavaScript, unlike `$` and `\\Z`."""

_ID: Final = re.compile(ID_PATTERN)
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def identifier(text: str | None, name: str) -> str:
    """The text, if it is an id. Raises InvalidRequest that names it."""
    if text is None:
        raise InvalidRequest(f"{name} is missing")
    if not 1 <= len(text) <= ID_CHARACTERS_MAX or not _ID.match(text) or not _is_text(text):
        raise InvalidRequest(f"{name}: an id has 1-{ID_CHARACTERS_MAX} characters, none a control character")
    return text


def _is_text(text: str) -> bool:
    """Halves of surrogate pairs come from a command line whose bytes are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def integer(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number among query parameters. Raises InvalidRequest."""
    text = query.get(name)
    if text is None:
        return default
    if not _WHOLE_NUMBER.fullmatch(text):
        raise InvalidRequest(f"{name}: a whole number is needed")
    value = int(text)
    if not least <= value <= most:
        raise InvalidRequest(f"{name}: from {least} to {most}")
    return value
