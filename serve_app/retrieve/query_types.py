"""What kind of query it is, by rules: English, Chinese, Japanese and Spanish. Pure, and bounded: the event loop asks.

small_talk   a greeting, thanks or a goodbye, and nothing else
follow_up    goes on where the last turn stopped, or points at it: "and how much was it?", 那价格呢
temporal     names a time, or asks for one
instruction  asks for something to be made or done rather than known: "write ...", 帮我写
lookup       everything else: what was said, what is so
"""

from __future__ import annotations

import re
from typing import Final

from serve_app.core import TimeWindow
from serve_app.layouts import QueryType
from serve_app.retrieve.expand import continues, is_elliptic

READ_CHARACTERS_MAX: Final = 400
"""Of a longer query so much is read, its beginning. Repeats below are possessive: no text is read twice over."""

_SMALL_TALK: Final = re.compile(
    r"(?:(?:hi|hello|hey|good (?:morning|afternoon|evening|night)|thank you|thanks?|thx|bye|goodbye|see you|okay|ok|"
    r"great|cool|nice|how are you|what's up|so much|very much|a lot|there|you too|"
    r"hola|buenos días|buenas (?:tardes|noches)|gracias|muchas|adiós|hasta luego|qué tal|vale|"
    r"你好|您好|嗨|早上好|下午好|晚上好|晚安|早|谢谢|謝謝|多谢|感谢|再见|拜拜|好的|好|嗯|在吗|辛苦了|"
    r"こんにちは|おはよう|こんばんは|おやすみ|ありがとう|ございます|さようなら|はい|了解|お疲れ様です)[\s,.!?~，。！？、～…]*+)++",
    re.I,
)
_ASKS_WHEN: Final = re.compile(
    r"\b(?:when|what (?:time|day|date|year|month)|how (?:long|often)|which (?:day|date|month|year)|"
    r"cuándo|qué día|hace cuánto)\b|什么时候|什麼時候|几点|幾點|几号|幾號|哪天|哪一天|哪年|何时|何時|多久|"
    r"いつ|何日|何月",
    re.I,
)
_INSTRUCTION: Final = re.compile(
    r"\W*(?:(?:please|now|then|por favor|(?:can|could|would|will) you|i (?:want|need) you to|help me)\W+)*+"
    r"(?:write|draft|compose|make|create|build|generate|translate|summari[sz]e|rewrite|rephrase|shorten|list|plan|book|order|"
    r"send|schedule|calculate|compute|convert|fix|refactor|implement|design|explain|prepare|add|remove|update|change|set|"
    r"escribe|redacta|crea|haz|traduce|resume|genera|prepara|calcula|reserva|envía|explica)\b|"
    r"\s*(?:请|請|麻烦你?|现在|那就)*+(?:你?(?:帮我|幫我|给我|給我|替我|帮忙))|"
    r"\s*(?:请|請)?(?:写|寫|翻译|翻譯|总结|總結|生成|列出|制定|改写|改寫|解释|解釋|安排|预订|预定|计算|計算|推荐|推薦|设计)|"
    r".*(?:書いて|作って|翻訳して|要約して|まとめて|教えて|してください|してくれ|お願いします)[。!！？?\s]*$",
    re.I | re.S,
)


def query_type(query: str, window: TimeWindow | None) -> QueryType:
    """`window`: the time that the query names, if it names one."""
    text = query[:READ_CHARACTERS_MAX].strip()
    if _SMALL_TALK.fullmatch(text):
        return "small_talk"
    if len(query) <= READ_CHARACTERS_MAX and continues(text) and is_elliptic(text):
        return "follow_up"
    if window is not None or _ASKS_WHEN.search(text):
        return "temporal"
    return "instruction" if _INSTRUCTION.match(text) else "lookup"
