"""The words of a text that say what it is about: stems, or character pairs where no spaces are written. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from serve_app.stores.terms import is_function_word, telling_runs, terms_of_each, words

RUN_WORD_CHARS_MAX = 4
"""A run of so many characters is taken for a word; a longer one for its pairs."""

LETTERS_MIN = 3
"""Shorter words of alphabets tell little."""

_SPANISH: Final = """
    algo algún aquí así aún bien cada como con cual cuando del desde donde dos ella ellas ellos entre era eran eres
    esa esas ese eso esos esta estaba estamos estar estas este esto estos estoy está están fue fueron hace hacer
    hasta hay las les los mas mis muy más nada nos nosotros otra otro para pero poco por porque pues que quien qué
    ser será si sin sobre solo son soy sus sólo también tan tanto tengo tiene tienen todo todos tus una uno unos
    usted vale vamos vez ya yo
"""
_SPANISH_FUNCTION_WORDS: Final = frozenset(_SPANISH.split())
_COMMON: Final = """
    actually again already also always another anything back because best better bit both come day days different
    each eight else enough even ever every everything few find first five four give going gonna good got great guess
    he's hello help here here's hey how how's however hundred just keep kind know last least less let let's like
    little long look lot made make many maybe mean more most much need needs never new next nice nine nothing now
    okay one only other part people please pretty put quite really right said same say says see seven she's six
    something sounds still stuff sure take tell ten thank thanks that's there's thing things think though thought
    three time times today tomorrow tonight two until use used using very want wants way week well went what's
    whatever where's who's work works yeah yes yesterday yet
"""
_COMMON_WORDS: Final = frozenset(_COMMON.split())


def vocabulary(text: str, words_max: int) -> dict[str, str]:
    """Each such word, as it is compared, with how it is first written. At most `words_max` are read of either kind."""
    found: dict[str, str] = {}
    for word, spelt in chain(_spaced(text, words_max), _unspaced(text, words_max)):
        found.setdefault(word, spelt)
    return found


def _spaced(text: str, words_max: int) -> Iterator[tuple[str, str]]:
    spelt = [word for word in words(text)[:words_max] if _tells(word)]
    for word, terms in zip(spelt, terms_of_each(spelt), strict=True):
        for term in terms:
            yield term, word


def _tells(word: str) -> bool:
    lowered = word.lower().replace("’", "'")
    if len(word) < LETTERS_MIN and not word.isdigit():
        return False
    return not (is_function_word(word) or lowered in _COMMON_WORDS or lowered in _SPANISH_FUNCTION_WORDS)


def _unspaced(text: str, words_max: int) -> Iterator[tuple[str, str]]:
    for run in telling_runs(text)[:words_max]:
        for at in range(len(run) - 1):
            pair = run[at : at + 2]
            yield pair, run if len(run) <= RUN_WORD_CHARS_MAX else pair
