"""An entity and its key: the one form that decides whether two names are the same. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal, NamedTuple, get_args

EntityClass = Literal["person", "place", "organisation", "product", "name", "order", "code", "date", "email", "url"]
"""`name` is a proper name of which nothing says what it names; `product` covers works (titles), too."""

CLASSES: Final[tuple[EntityClass, ...]] = get_args(EntityClass)
"""In the order that decides which of several classes a name has where they were met equally often."""

NAME_CHARACTERS_MAX: Final = 80
"""A longer name is none."""

RULES: Final = 1
"""What is stored of entities names the rules that recognised them: a change of the rules is a new number."""

_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
_DROPPED: Final = re.compile(r"[\s\-_'\u2018\u2019\u02bc\u00b7\u30fb\u2010-\u2015]+|(?<=[^\W\d_])\.+")
"""Blanks, hyphens, apostrophes, and the full stops of abbreviations; those of `1.2.3` stay."""

_EDGES: Final = ' .,;:!?()[]{}"“”«»#'


class Entity(NamedTuple):
    """What a text names: as it stands there, of which class, and by which key it is found."""

    name: str
    kind: EntityClass
    key: str


def folded(text: str) -> str:
    """The text as keys see it: without case, width, accents, and what `_DROPPED` says.

    The key of a name that stands in a text is a part of this, so that a look here can spare the recognition.
    """
    if text.isascii():
        return _DROPPED.sub("", text.lower())
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return _DROPPED.sub("", unicodedata.normalize("NFKC", bare).casefold())


def key_of(name: str) -> str:
    """Two names of one key are one entity: `ZX-81Q` and `zx 81q`, `Jean-Paul` and `JEAN PAUL`. Empty for no name."""
    return folded(name.strip(_EDGES)).strip(_EDGES)


def entity(name: str, kind: EntityClass, key: str | None = None) -> Entity:
    return Entity(name, kind, key_of(name) if key is None else key)
