"""The word lists of `words.toml`, and the common English words of `common_words.txt`, as the rules look them up."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any, Final, get_args

from serve_app.entities.values import EntityClass

_FOLDER: Final = resources.files(__package__)
_LISTS: Final[dict[str, dict[str, Any]]] = tomllib.loads(_FOLDER.joinpath("words.toml").read_text("utf-8"))
_LATIN: Final = _LISTS["latin"]
_HAN: Final = _LISTS["han"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


COMMON: Final = _set(_FOLDER.joinpath("common_words.txt").read_text("utf-8"))
"""Stand in lower case in everyday talk."""

NEVER: Final = _set(_LATIN["never"])
OPENERS: Final = _set(_LATIN["openers"])
PERSON_TITLES: Final = _set(_LATIN["person_titles"])
RELATIONS: Final = _set(_LATIN["relations"])
GREETINGS: Final = _set(_LATIN["greetings"])
PLACE_BEFORE: Final = _set(_LATIN["place_before"])
PLACE_AFTER: Final = _set(_LATIN["place_after"])
PLACE_OPENERS: Final = _set(_LATIN["place_openers"])
ORGANISATION_AFTER: Final = _set(_LATIN["organisation_after"])
ORGANISATION_OPENERS: Final = _set(_LATIN["organisation_openers"])
ORGANISATION_BEFORE: Final = frozenset(_LATIN["organisation_before"])
PLACES: Final = _set(_LATIN["places"]) | frozenset(_LATIN["long_places"])
VERBS: Final = _set(_LATIN["verbs"])
LINKS: Final = _set(_LATIN["links"])

NO_NAME_ENDINGS: Final = tuple(_LATIN["no_name_endings"].split())
HAN_TITLES: Final = tuple(_HAN["titles"].split())
SURNAMES: Final[str] = _HAN["surnames"]
FULL_NAME_CUES: Final = tuple(_HAN["full_name_cues"].split())
HONORIFICS: Final = tuple(_HAN["honorifics"].split())
NO_HONOURED: Final = _set(_HAN["no_honoured"])
CITIES: Final = tuple(_HAN["cities"].split())
NOWHERE: Final = _set(_HAN["nowhere"])
NO_NAME_SIGNS: Final[str] = _HAN["no_name_signs"]

ROLES: Final = _set(_LISTS["speakers"]["roles"])

FIELDS: Final[dict[str, EntityClass]] = {
    word: kind for kind in get_args(EntityClass) for word in _LISTS["fields"].get(kind, "").split()
}
ID_FIELDS: Final = _set(_LISTS["fields"]["ids"])
