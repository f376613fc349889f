"""Proper names of scripts without capitals, by the words around them: titles, endings of places and firms, brackets.

Chinese and Japanese write no spaces, so that a rule sees where a name ends and has to guess where it begins: names
that no cue delimits are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from serve_app.entities import words
from serve_app.entities.values import Entity, entity

_HAN: Final = r"[\u3005\u4e00-\u9fff]"


def _without(signs: str) -> str:
    """The class of Han signs but for these, as ranges: looked up at once, where a look ahead costs each sign."""
    ranges, start = [], 0x4E00
    for end in [*sorted(map(ord, signs)), 0xA000]:
        if end > start:
            ranges.append(f"{chr(start)}-{chr(end - 1)}")
        start = end + 1
    return f"[\u3005{''.join(ranges)}]"


_NAMING: Final = _without(words.NO_NAME_SIGNS)
_TITLED: Final = re.compile(rf"([{words.SURNAMES}]{_NAMING}{{0,2}})({'|'.join(words.HAN_TITLES)})")
_CALLED: Final = re.compile(
    rf"(?:{'|'.join(words.FULL_NAME_CUES)})\s?([{words.SURNAMES}]{_HAN}{{1,2}})(?=[，。,.！!？?、；;\s)）]|です|と申|といい|$)"
)
_HONOURED: Final = re.compile(
    rf"(?<![\u3005\u4e00-\u9fff])({_HAN}{{1,4}}|[\u30a1-\u30fa\u30fc]{{2,10}})({'|'.join(words.HONORIFICS)})"
)
_HONOURED_KANA: Final = re.compile(rf"([\u30a1-\u30fa\u30fc]{{2,10}})({'|'.join(words.HONORIFICS)})")
_CITIES: Final = "|".join(sorted(words.CITIES, key=len, reverse=True))
_CITY: Final = re.compile(_CITIES)
_REGION: Final = re.compile(rf"(?:{_CITIES}|{_NAMING}{{1,4}}?)(?:省|市|县|縣|県|区|區|镇|鎮|町|村)")
_STREET: Final = re.compile(rf"({_NAMING}{{1,4}}?(?:大道|路|街|弄|巷))(?=\s?[0-9０-９一二三四五六七八九十])")
_SITE: Final = re.compile(
    rf"({_NAMING}{{2,6}}?(?:国际机场|國際機場|机场|機場|空港|火车站|高铁站|南站|北站|东站|西站|駅|公园|公園|博物馆|博物館|体育馆|广场))"
)
_FIRM: Final = re.compile(
    rf"({_NAMING}{{2,8}}?(?:公司|集团|集團|银行|銀行|大学|大學|医院|醫院|株式会社|事务所|研究所|研究院|中学|小学))"
    rf"|(株式会社[\u3005\u30a1-\u30fa\u30fc\u4e00-\u9fff]{{2,10}})"
)
_FIRM_SIGN: Final = re.compile("[司团團行学學院社所]")
_TITLE_SIGN: Final = re.compile(f"[{''.join(sorted({title[-1] for title in words.HAN_TITLES}))}]")
_CALLED_SIGN: Final = re.compile("[叫字名姓]")
_WORK: Final = re.compile(r"《([^《》\n]{1,60})》|『([^『』\n]{1,60})』")


def names(text: str) -> Iterator[Entity]:
    """Rule after rule; what several find alike is one."""
    yield from _people(text)
    yield from _places(text)
    for match in _FIRM.finditer(text) if _FIRM_SIGN.search(text) else ():
        name = match[1] or match[2]
        if name not in words.NOWHERE:
            yield entity(name, "organisation")
    if "《" in text or "『" in text:
        for match in _WORK.finditer(text):
            yield entity(match[1] or match[2], "product")


def _people(text: str) -> Iterator[Entity]:
    """A surname alone is named with its title; a full name without."""
    for match in _TITLED.finditer(text) if _TITLE_SIGN.search(text) else ():
        yield entity(match[1] if len(match[1]) > 1 else match[0], "person")
    for match in _CALLED.finditer(text) if _CALLED_SIGN.search(text) else ():
        yield entity(match[1], "person")
    if any(one in text for one in words.HONORIFICS):
        for pattern in (_HONOURED, _HONOURED_KANA):
            for match in pattern.finditer(text):
                if match[1] not in words.NO_HONOURED and not (match[2] in "先生氏君" and len(match[1]) < 2):
                    yield entity(match[1], "person")


def _places(text: str) -> Iterator[Entity]:
    """What one pattern takes, the next one does not see: `杭州市` is not `杭州`, too."""
    for sign, pattern, group in _PLACES:
        if not sign.search(text):
            continue
        named = [match for match in pattern.finditer(text) if _is_place(match[0], match[group])]
        yield from (entity(match[group], "place") for match in named)
        for match in reversed(named):
            text = f"{text[: match.start()]}\x01{text[match.end() :]}"


def _is_place(whole: str, name: str) -> bool:
    return len(name) > 1 and not {name, name[-2:], whole} & words.NOWHERE


_PLACES: Final = (
    (re.compile("[省市县縣県区區镇鎮町村]"), _REGION, 0),
    (re.compile("[道路街弄巷]"), _STREET, 1),
    (re.compile("[场場港站駅园園馆館]"), _SITE, 1),
    (re.compile(f"[{''.join(sorted({city[0] for city in words.CITIES}))}]"), _CITY, 0),
)
"""Each with a sign that has to be there: to look for that costs next to nothing."""
