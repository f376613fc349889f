"""Text to search terms: the one place that decides what a word is, for turns and for queries.

Promises: the same text gives the same terms in every process. Case, width, accents and English
inflection do not matter. Scripts that write no spaces are cut into character pairs; a Han character, which is
a word or half of one, is looked for by itself, too (docs/golden.md has the figures). A code keeps
its whole and its parts (`ZX-81Q` gives `zx81q`, `zx` and `81q`), so either finds it. An emoji is a
term of its own. No character has a meaning in a query. Every part of a long text is covered.

English function words are indexed, and looked for only where a query has nothing else; Chinese function
characters by themselves never, only in their pairs.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import Stemmer

TERM_CHARS_MAX: Final = 128
"""A longer run of letters is cut here, in the text and in the query alike."""

TERMS_MAX: Final = 400_000
"""Of a text with more words, or pairs, those of its beginning and of its end are kept, half and half."""

PAIR: Final = 2

NO_CACHE: Final = 0
"""Stems that are remembered: none, since no cache of words could forget those of a turn that is erased."""

_UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff"  # Hangul
    "\u3005-\u3007\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # Kana and iteration marks
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)


def _marks() -> str:
    """Character class of the vowel signs and other marks that belong to the letter before them."""
    ranges: list[list[int]] = []
    for point in range(0x0300, 0xFE00):
        if unicodedata.category(chr(point)).startswith("M") and not re.match(f"[{_UNSPACED}]", chr(point)):
            if ranges and ranges[-1][1] == point - 1:
                ranges[-1][1] = point
            else:
                ranges.append([point, point])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


_LETTER: Final = rf"[^\W_{_UNSPACED}]"
_MARK: Final = rf"[{_marks()}]"
_LETTERS: Final = rf"{_LETTER}++(?:{_MARK}++{_LETTER}*+)*+"
_WORD: Final = re.compile(rf"{_LETTERS}(?:'{_LETTERS})*+")
_CODE: Final = re.compile(rf"(?<!{_LETTER})(?<!{_MARK}){_LETTERS}(?:[-_.:/@+#&,]{_LETTERS})++")
_ASCII_SURFACE: Final = re.compile("[A-Za-z0-9]++(?:[-_.:/@+#&,'][A-Za-z0-9]++)*+")
_ASCII_WORD: Final = re.compile("[a-z0-9]++(?:'[a-z0-9]++)*+")
_ASCII_JOINT: Final = re.compile("[-_.:/@+#&,][a-z0-9]")
_ASCII_CODE: Final = re.compile("(?<![a-z0-9])[a-z0-9]++(?:[-_.:/@+#&,][a-z0-9]++)++")
"""The same words and codes of a text without other letters, found several times as fast."""

_SURFACE: Final = re.compile(rf"{_LETTERS}(?:[-_.:/@+#&,'\u2019]{_LETTERS})*+")
_RUN: Final = re.compile(f"[{_UNSPACED}]+")
_HAN: Final = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_PICTURE: Final = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}|[\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
)
_SKIN_TONES: Final = frozenset("\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff")
_ACCENTS: Final = re.compile("[\u0300-\u036f]+")
_HAS_DIGIT: Final = re.compile(r"\d")
_APOSTROPHES: Final = ("\u2018", "\u2019", "\u02bc")
_MEASURE: Final = re.compile(r"\d+(?:am|pm|st|nd|rd|th|s|h|k|m|g|kg|km|cm|mm|min|gb|mb)")
_WITHOUT_JOINERS: Final = str.maketrans("", "", "-_,")

CODE_DIGITS_MIN: Final = 5
"""A bare number of fewer digits may be a year, a price or a count; from here on it is an id."""

_ELISION_LETTERS_MIN: Final = 4
"""A part beside an apostrophe is a word from this length on: `O'Brien` holds `brien`, `don't` no `don`."""

_ENGLISH_FUNCTION_WORDS: Final = """
    a about also am an and any are as at be been being but by can could did do does doing done for from
    get got had has have having he her hers him his how i if in into is it its just me must
    my no not of off on or our ours out over shall she should so some such than that the their theirs them
    then there these they this those to too up very was we were what when where which while who whom
    whose why will with would you your yours
    i'm i've i'll i'd you're you've you'll you'd we're we've we'll we'd they're they've they'll they'd
    he'll he'd she'll she'd it'll don't doesn't didn't isn't aren't wasn't weren't haven't hasn't hadn't
    can't couldn't won't wouldn't shouldn't
"""
_FUNCTION_WORDS: Final = frozenset(_ENGLISH_FUNCTION_WORDS.split())

_FUNCTION_CHARACTERS: Final = frozenset(
    "的地得着著了过過吗嗎呢吧啊呀嘛么麼"  # particles
    "我你您他她它们們咱自己"
    "这這那哪谁誰什怎几幾多少样樣个個时時候"
    "是有在和跟与與及或而但就也都还還又再才很太最更不没沒"
    "会會能可要去来來说說到给給把被让讓对對从從为為以上下里裡中前后後一"
)
"""Of Chinese, in both forms: each stands in so many turns that it tells none from the others."""

_TELLING_RUN: Final = re.compile(f"(?:(?![\u3040-\u309f{''.join(sorted(_FUNCTION_CHARACTERS))}])[{_UNSPACED}])++")


class _StemmerOfThread(threading.local):
    """A Snowball stemmer keeps state while it works, so that each thread has its own."""

    def __init__(self) -> None:
        self.stemmer = Stemmer.Stemmer("english", NO_CACHE)


_of_thread: Final = _StemmerOfThread()


def index_terms(text: str) -> list[str]:
    """All terms that a turn is found by, with repetitions: a bag, whose order carries no meaning."""
    return _terms(text, asked=False)


def query_terms(text: str) -> list[str]:
    """The terms to look for: like those of a turn, without function words, and without letters by themselves."""
    terms = _terms(text, asked=True)
    return [term for term in terms if term not in _FUNCTION_STEMS] or terms


def terms_of_each(words: Sequence[str]) -> list[frozenset[str]]:
    """The distinct terms of each of several words: plain ones, which most are, have their stem alone."""
    folded = [word.lower() if word.isascii() and word.isalnum() else "" for word in words]
    stems = _stems(folded)
    return [
        frozenset((stem[:TERM_CHARS_MAX],)) if plain else frozenset(index_terms(word))
        for word, plain, stem in zip(words, folded, stems, strict=True)
    ]


class QueryTerms(NamedTuple):
    """A query read once: see `index_terms`, `query_terms` and `code_terms`."""

    said: tuple[str, ...]
    wanted: tuple[str, ...]
    codes: tuple[str, ...]


def read_query(text: str) -> QueryTerms:
    folded = _fold(text)
    spelt, joined = _spelt(folded), _codes(folded)
    said = _of_words(spelt, joined)
    if folded.isascii():
        wanted = said
    else:
        wanted = said + _of_other_signs(folded, asked=True)
        said = said + _of_other_signs(folded, asked=False)
    wanted = [term for term in wanted if term not in _FUNCTION_STEMS] or wanted
    codes = _code_terms(spelt, joined) if _HAS_DIGIT.search(folded) else []
    return QueryTerms(tuple(said), tuple(wanted), tuple(codes))


def is_function_word(word: str) -> bool:
    """Whether an English word only holds a sentence together (`the`, `which`, `didn't`)."""
    return _fold(word) in _FUNCTION_WORDS


def words(text: str) -> list[str]:
    """The words of scripts that write spaces, in order and as they are written; a code is one word."""
    return (_ASCII_SURFACE if text.isascii() else _SURFACE).findall(text)


def placed_words(text: str) -> list[tuple[int, int]]:
    """Where each word begins and ends in the text, in order; of scripts that write no spaces each letter is one."""
    found = [(word.start(), word.end()) for word in (_ASCII_SURFACE if text.isascii() else _SURFACE).finditer(text)]
    if not text.isascii():
        found += [(at, at + 1) for run in _RUN.finditer(text) for at in range(run.start(), run.end())]
    return sorted(found)


def unspaced_runs(text: str) -> list[str]:
    """The runs of Han, Kana, Hangul, Thai, Lao, Khmer and Burmese letters, in order and as they are written."""
    return [] if text.isascii() else _RUN.findall(text)


def telling_runs(text: str) -> list[str]:
    """The same without the characters that only hold a sentence together, which end a run: Chinese function characters
    and hiragana.
    """
    return [] if text.isascii() else _TELLING_RUN.findall(text)


def code_terms(text: str) -> list[str]:
    """The codes and ids in a query (`ZX-81Q`, `v1.2.3`, `90331`), each as a turn that holds it is indexed."""
    folded = _fold(text)
    return _code_terms(_spelt(folded), _codes(folded))


def _code_terms(spelt: list[str], joined: list[str]) -> list[str]:
    wholes = [_joined(code) for code in joined if _HAS_DIGIT.search(code)]
    parts = {part for code in joined for part in _WORD.findall(code)}
    alone = [word for word in spelt if word not in parts and _is_code(word)]
    return _bounded(wholes + _stems(alone))


def _spelt(folded: str) -> list[str]:
    return (_ASCII_WORD if folded.isascii() else _WORD).findall(folded)


def _codes(folded: str) -> list[str]:
    if folded.isascii():
        return _ASCII_CODE.findall(folded) if _ASCII_JOINT.search(folded) else []
    return _CODE.findall(folded)


def _is_code(word: str) -> bool:
    """A number of several digits, or digits among letters, but no time of day and no ordinal (`7pm`, `3rd`)."""
    digits = sum(map(str.isdigit, word))
    return digits >= CODE_DIGITS_MIN if digits == len(word) else digits > 0 and not _MEASURE.fullmatch(word)


def _terms(text: str, *, asked: bool) -> list[str]:
    folded = _fold(text)
    found = _of_words(_spelt(folded), _codes(folded))
    return found if folded.isascii() else found + _of_other_signs(folded, asked=asked)


def _of_words(spelt: list[str], joined: list[str]) -> list[str]:
    return _bounded(_stems(spelt)) + _bounded([_joined(code) for code in joined])


def _of_other_signs(folded: str, *, asked: bool) -> list[str]:
    """Of scripts that write no spaces, and pictures."""
    grams = _bounded(_grams(_RUN.findall(folded), asked=asked))
    return grams + _bounded([picture for picture in _PICTURE.findall(folded) if picture not in _SKIN_TONES])


def _fold(text: str) -> str:
    """One form for what readers take as the same: width, case, Latin, Greek and Cyrillic accents, apostrophes."""
    if text.isascii():
        return text.lower()
    for apostrophe in _APOSTROPHES:
        text = text.replace(apostrophe, "'")
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFKC", bare).casefold()


def _stems(words: list[str]) -> list[str]:
    """Stems of all words, and of the parts of those with an apostrophe that is no possessive (the stem drops that)."""
    elided = [word for word in words if "'" in word and not word.endswith("'s")]
    if elided:
        words = words + [part for word in elided for part in word.split("'") if len(part) >= _ELISION_LETTERS_MIN]
    stems: list[str] = _of_thread.stemmer.stemWords(words)
    return stems


def _joined(code: str) -> str:
    """A code without the signs that people leave out or vary: `zx-81q` and `zx81q`, `1,200` and `1200` are one."""
    return code.translate(_WITHOUT_JOINERS)


def _grams(runs: Iterable[str], *, asked: bool) -> list[str]:
    """Pairs and single characters. Of what is asked for only the single ones that mean something, and of a run of two,
    which is a word, none.
    """
    grams: list[str] = []
    for run in runs:
        grams += [run[at : at + 2] for at in range(len(run) - 1)]
        if not asked or len(run) == 1:
            grams += run
        elif len(run) > PAIR:
            grams += [one for one in run if _means_something(one)]
    return grams


def _means_something(character: str) -> bool:
    """Letters of alphabets and syllabaries mean nothing by themselves."""
    return _HAN.match(character) is not None and character not in _FUNCTION_CHARACTERS


def _bounded(terms: list[str]) -> list[str]:
    if len(terms) > TERMS_MAX:
        terms = terms[: TERMS_MAX // 2] + terms[-TERMS_MAX // 2 :]
    if max(map(len, terms), default=0) <= TERM_CHARS_MAX:
        return terms
    return [term[:TERM_CHARS_MAX] for term in terms]


_FUNCTION_STEMS: Final = frozenset(_stems(sorted(_FUNCTION_WORDS)))
