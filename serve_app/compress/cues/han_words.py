"""Content words of Chinese and Japanese text without a dictionary: single characters that say something. Pure.

A later statement often names its subject in other words than an earlier one (换一台新的, 换新), but seldom without
one of its characters.
"""

from __future__ import annotations

import re

_FUNCTION = frozenset(
    "的了是我你他她它们在有和就不人都一个上也很到说要去会着没看好自己这那里来对能可以还用但与及或把被给让从向为于而且"
    "因所如果要是么什怎哪谁吗呢吧啊呀嘛哦嗯别最再又才刚已经将得地过起之其此某每各该应请帮您咱俺点些多少几两二三四五六七八九十"
    "百千万亿零半左右大小上下前后内外中间时候天月日年号周期今明昨早晚现目先后次回以只另外本来改换成定按算直接还有"
    "們個這還沒會讓對過來時後裡為與並從給請許說記號點兩萬億現別麼嗎幾歲當應該經將們只"
)
_FUNCTION_RUN = re.compile(f"[{''.join(sorted(_FUNCTION))}]+")
_RUN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+")
_LATIN = re.compile(r"[a-z][a-z0-9_.+-]{1,40}")
_KATAKANA = re.compile(r"[\u30a1-\u30ff]{2,20}")


def words(folded: str) -> frozenset[str]:
    """Characters that are no function words, pairs of them that stand together, and words of Latin and katakana."""
    runs = _RUN.findall(_FUNCTION_RUN.sub(" ", folded))
    characters = {char for run in runs for char in run}
    pairs = {run[place : place + 2] for run in runs for place in range(len(run) - 1)}
    return frozenset(characters.union(pairs, _LATIN.findall(folded), _KATAKANA.findall(folded)))
