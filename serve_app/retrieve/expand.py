"""What a query says beyond its words: keywords, a self-contained rewrite, a date that it names.

Deterministic rules, no model; English and Chinese first. For another language they give less,
and never anything wrong: its words are looked for as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from serve_app.stores.terms import index_terms, is_function_word, query_terms, terms_of_each, unspaced_runs, words
from serve_app.stores.views import MONTHS

KEYWORDS_MAX: Final = 5
"""Keywords of a query."""

READ_CHARACTERS_MAX: Final = 2_048
"""Of a longer text so much is read for keywords, its beginning: it may be read on the event loop."""

ELLIPTIC_CHARACTERS_MAX: Final = 400
"""A longer query stands for itself."""

HISTORY_TURNS_MAX: Final = 2
"""Turns before an elliptic query that its rewrite draws from."""

CARRIED_WORDS_MAX: Final = 8
"""Words that a rewrite takes over from them."""

ELLIPTIC_TERMS_MAX: Final = 20
"""A query with more terms (of Chinese: character pairs) than this stands for itself."""

LEAD_CHARACTERS: Final = 24
"""So much of what stands before a month is looked at."""

PIECE_CHARS_MAX: Final = 6
"""A longer unspaced run without a function word is cut into keywords of this length."""

_CODE_RANK, _NAME_RANK, _WORD_RANK = 0, 1, 2

_ASKING_WORDS: Final = (
    "please remind tell know remember recall show find give say said says mention mentioned talk talked"
)
_ASKING: Final = frozenset(_ASKING_WORDS.split())
"""English words that ask rather than name what is asked for."""

_ANAPHOR_WORDS: Final = "it its that this those these they them their he him his she her one ones there then both other"
_ANAPHORS: Final = frozenset(_ANAPHOR_WORDS.split())

_HAN_FUNCTION: Final = re.compile(
    "什么时候|什么样|什么|怎么样|怎么办|怎么|怎样|为什么|为何|如何|哪里|哪儿|哪[一几]?[个些天家位种次条本款台]|哪|多少钱?|多久|"
    "多[大高重远长宽深快]|几[个号点次位种条瓶天年月]|我们|你们|他们|她们|它们|咱们|大家|自己|这个|那个|这些|那些|这样|那样|这么|"
    "那么|这边|那边|这次|那次|这回|那回|记不记得|还记得|记得|告诉|请问|麻烦|帮忙|能不能|可不可以|是不是|有没有|要不要|会不会|"
    "因为|所以|但是|不过|而且|然后|如果|虽然|已经|曾经|一共|总共|分别|本来|最后|最初|最早|最近|一共|之前|以前|之后|以后|当时|"
    "当初|原来|后来|上次|上回|来着|现在|目前|时候|可以|应该|需要|觉得|知道|"
    "什麼時候|什麼|怎麼|為什麼|哪個|哪裡|幾個|幾多|幾時|我們|你們|他們|她們|這個|那個|這些|還記得|記得|嗰個|邊個|咩|點解|點樣|"
    "[的了吗呢吧啊嘛呀么着过得地是在有和与跟或把被给对从向到就都也还又很再请让我你您他她它咱这那谁嗎麼過與給對從還請讓這誰]"
)
_HAN_ANAPHOR: Final = re.compile("[它他她]|那|这|其|当时|原来|后来|之前|上次|上回|另外|佢|嗰|呢")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA_RUN: Final = re.compile("[\u3041-\u309f]+")

_CONTINUES: Final = re.compile(
    r"^\W*(?:and|but|what about|how about|then|y|pero|qué tal|じゃあ|では|それで)\b|呢[\s？?。!！~～]*$|"
    r"^\s*那么?(?![个個条條家次天年时時本部位件台臺句节節里裡边邊笔筆种種项項首张張份些段场場间間只隻座辆輛双雙款])|咧[？?]?$|は[？?]\s*$",
    re.I,
)
_NUMERALS: Final = {
    tens + unit: ten * 10 + one
    for ten, tens in enumerate(("", "十", "二十", "三十"))
    for one, unit in enumerate(("", *"一二三四五六七八九"))
    if 0 < ten * 10 + one < 32
}
_MONTH_WORD: Final = re.compile(r"\b(" + "|".join(f"{month[:3]}(?:{month[3:]})?" for month in MONTHS) + r")\b", re.I)
_SURE_MONTHS: Final = frozenset(month.lower() for month in MONTHS) - {"march", "may"}
_BEFORE_MONTH: Final = re.compile(
    r"(?:\b(\d{1,2})(?:st|nd|rd|th)?(?: of)?|\b(?:in|of|since|until|till|during|by|last))[ ,]+$", re.I
)
_AFTER_MONTH: Final = re.compile(r"\.?[ ,]+(?:the )?(?:(\d{1,2})(?:st|nd|rd|th)?\b|\d{4}\b)", re.I)
_YEAR: Final = re.compile(r"(?<![\w.-])((?:19|20)\d\d)(?![\w-]|\.\d)|((?:19|20)\d\d)\s*[年년]")
_ISO_DATE: Final = re.compile(r"(?<![\w-])((?:19|20)\d\d)[-/.](\d{1,2})(?:[-/.](\d{1,2}))?(?![\w-])")
_CJK_DATE: Final = re.compile(
    r"(\d{1,2}|[一二三四五六七八九十]{1,2})\s*[月월](?:\s*(\d{1,2}|[一二三四五六七八九十]{1,3})\s*[日号號일])?"
)


_HAS_DIGIT: Final = re.compile(r"\d")
_PERHAPS_MONTH: Final = re.compile("|".join(["[月월]", *(month[:3] for month in MONTHS)]), re.I)
"""Most queries name no date: these tell at one look."""


class NamedDate(NamedTuple):
    """The parts of a calendar date that a query spells out; None where it does not."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


NO_DATE: Final = NamedDate()


def keywords(query: str) -> list[str]:
    """The up to KEYWORDS_MAX words that carry a query, as written and in its order.

    Codes before names before long words. A query of function words alone is all keywords.
    """
    query = query[:READ_CHARACTERS_MAX]
    found = _distinct(_latin_keywords(query) + _unspaced_keywords(query))
    if not found:
        found = [(_WORD_RANK, word) for word in words(query) or _cut(unspaced_runs(query))]
    best = sorted(found, key=lambda ranked: (ranked[0], -len(ranked[1])))[:KEYWORDS_MAX]
    return [word for rank, word in sorted(best, key=lambda ranked: query.find(ranked[1]))]


def rewritten(query: str, history: Sequence[str]) -> str:
    """A query that can be understood alone: what an elliptic one leaves out is carried over from `history`.

    history: texts of the turns before, oldest first. A query that refers to nothing comes back as it is.
    """
    if not history or not is_elliptic(query):
        return query
    known = set(index_terms(query))
    carried: list[str] = []
    for text in reversed(history[-HISTORY_TURNS_MAX:]):
        for word in keywords(text):
            if not known.issuperset(query_terms(word)):
                known.update(index_terms(word))
                carried.append(word)
    return f"{query} ({', '.join(carried[:CARRIED_WORDS_MAX])})" if carried else query


def is_elliptic(query: str) -> bool:
    """Whether a short query points at something said before: a pronoun and no name, or hardly a word of its own."""
    if len(query) > ELLIPTIC_CHARACTERS_MAX:
        return False
    terms = query_terms(query)
    if len(terms) > ELLIPTIC_TERMS_MAX or any(rank < _WORD_RANK for rank, _ in _latin_keywords(query)):
        return False
    if _HAN.search(query):
        return bool(_HAN_ANAPHOR.search(query))
    return len(terms) < 2 or any(word.lower() in _ANAPHORS for word in words(query))


def continues(query: str) -> bool:
    """Whether a query goes on where the last turn stopped: `and how much was it?`, `那价格呢`, `he too?`.

    Others point further back ("what was it again?"): the last turns would only lead them astray.
    """
    return _CONTINUES.search(query) is not None


def named_date(query: str) -> NamedDate:
    """The date in a query, as far as it is spelt out: `8 May 2023`, `in May`, `2023-05-08`, `2023年5月8日`, `五月`."""
    numbered = _HAS_DIGIT.search(query)
    if numbered and (iso := _ISO_DATE.search(query)):
        return _valid(*(int(part) if part else None for part in iso.groups()))
    year = _YEAR.search(query) if numbered else None
    named_year = int(year[1] or year[2]) if year else None
    if not _PERHAPS_MONTH.search(query):
        return NamedDate(named_year) if named_year else NO_DATE
    if cjk := _CJK_DATE.search(query):
        return _valid(named_year, *(_numeral(part) for part in cjk.groups()))
    return _valid(named_year, *_english_month_day(query))


def _latin_keywords(query: str) -> list[tuple[int, str]]:
    spelt = words(query)
    ranked = []
    for at, word in enumerate(spelt):
        if not word.isalpha() and any(map(str.isdigit, word)):
            ranked.append((_CODE_RANK, word))
        elif is_function_word(word) or word.lower() in _ASKING or (len(word) == 1 and word.isascii()):
            continue
        else:
            ranked.append((_NAME_RANK if at and word[0].isupper() else _WORD_RANK, word))
    return ranked


def _unspaced_keywords(query: str) -> list[tuple[int, str]]:
    pieces: list[str] = []
    for run in unspaced_runs(query):
        if not _HAN.search(run):
            pieces.append(run)
        elif _KANA_RUN.search(run):
            pieces += _KANA_RUN.split(run)
        else:
            pieces += _HAN_FUNCTION.split(run)
    return [(_WORD_RANK, piece) for piece in _cut(pieces) if len(piece) > 1]


def _cut(runs: Iterable[str]) -> list[str]:
    """Pieces of about the same length each, none longer than that."""
    pieces = []
    for run in runs:
        length = max(1, -(-len(run) // max(1, -(-len(run) // PIECE_CHARS_MAX))))
        pieces += [run[at : at + length] for at in range(0, len(run), length)]
    return pieces


def _distinct(ranked: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first of those that stem alike."""
    ranked = list(ranked)
    first: dict[frozenset[str], tuple[int, str]] = {}
    for (rank, word), terms in zip(ranked, terms_of_each([word for _, word in ranked]), strict=True):
        first.setdefault(terms, (rank, word))
    return list(first.values())


def _english_month_day(query: str) -> tuple[int | None, int | None]:
    for found in _MONTH_WORD.finditer(query):
        lead = max(0, found.start() - LEAD_CHARACTERS)
        before, after = _BEFORE_MONTH.search(query, lead, found.start()), _AFTER_MONTH.match(query, found.end())
        if found[1].lower() in _SURE_MONTHS or before or after:
            month = next(at for at, name in enumerate(MONTHS, 1) if name[:3].lower() == found[1][:3].lower())
            day = (before and before[1]) or (after and after[1])
            return month, int(day) if day else None
    return None, None


def _numeral(text: str | None) -> int | None:
    if not text:
        return None
    return int(text) if text.isdecimal() else _NUMERALS.get(text)


def _valid(year: int | None, month: int | None, day: int | None = None) -> NamedDate:
    """Parts that cannot be a month or a day are left out."""
    month = month if month and 1 <= month <= 12 else None
    day = day if month and day and 1 <= day <= 31 else None
    return NamedDate(year, month, day)
