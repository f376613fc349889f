"""The cues of each language, and which of them a text is read with."""

from __future__ import annotations

import re

from serve_app.compress.cues.chinese import CHINESE
from serve_app.compress.cues.data import DATA
from serve_app.compress.cues.english import ENGLISH
from serve_app.compress.cues.japanese import JAPANESE
from serve_app.compress.cues.spanish import SPANISH
from serve_app.compress.cues.table import NOTHING, Cues, fold

__all__ = ["DATA", "NOTHING", "Cues", "cues_for", "fold"]

TOLD_BY_CHARS = 2_000
"""Beginning of a text that tells its language."""

SURE_RATIO = 2
"""Words of one language for each of another, above which the text is of that language alone."""

_LATIN = re.compile(r"[a-zA-Z]")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_SPANISH = re.compile(
    r"[ñ¿¡]|[aeiou]\u0301|[áéíóú]|\b(?:el|los|las|una?|que|de|del|para|por|pero|con|sin|es|soy|somos|mi|mis|nos|muy|lo|se|y|ya|hay"
    r"|son|al|en|su|le|nada|nunca)\b",
    re.IGNORECASE,
)
_ENGLISH = re.compile(
    r"\b(?:the|an|and|of|to|is|are|it|it's|i|i'm|i'd|i'll|i've|my|we|we're|our|for|with|but|not|don't|can't|won't|that|that's|this|you|on|at"
    r"|so|was|be|have|has|must|from|by|will|would|there|than|only|please|what|how|if|or|as|need|should|never|nothing|make|now)\b",
    re.IGNORECASE,
)


def cues_for(text: str) -> tuple[Cues, ...]:
    """The tables for a turn's text: of all scripts that occur in it; English and Spanish where nothing tells."""
    found: list[Cues] = []
    if _KANA.search(text):
        found.append(JAPANESE)
    elif _HAN.search(text):
        found.append(CHINESE)
    if _LATIN.search(text) or not found:
        found += _latin(text[:TOLD_BY_CHARS])
    return tuple(found)


def _latin(text: str) -> tuple[Cues, ...]:
    spanish, english = len(_SPANISH.findall(text)), len(_ENGLISH.findall(text))
    if spanish > SURE_RATIO * english:
        return (SPANISH,)
    return (ENGLISH,) if english > SURE_RATIO * spanish else (ENGLISH, SPANISH)
