"""The entities of a turn as one text, for the table's column: the number of the rules, then a line for each.

No line for a name as it is written: that is read in the turn. What other rules recognised is not known here, and nor is
what a table of an earlier release lacks: whoever asks looks into the turn then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from serve_app.entities.values import CLASSES, RULES, Entity, EntityClass

_HEAD: Final = str(RULES)
_SIGN_OF: Final[dict[EntityClass, str]] = {name: chr(ord("a") + place) for place, name in enumerate(CLASSES)}
_CLASS_OF: Final = {sign: name for name, sign in _SIGN_OF.items()}


def packed(entities: Iterable[Entity]) -> str:
    return "\n".join((_HEAD, *(_SIGN_OF[one.kind] + one.key for one in entities)))


def unpacked(text: str | None) -> list[Entity] | None:
    """With empty names; None where the turn has to be looked into."""
    if text is None:
        return None
    head, *lines = text.split("\n")
    return [Entity("", _CLASS_OF[line[0]], line[1:]) for line in lines] if head == _HEAD else None
