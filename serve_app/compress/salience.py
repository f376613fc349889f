"""How much a sentence is worth keeping, by plain signals that can be read off it. Pure, no model.

What binds (must, never, 不能) and what cannot be guessed again (numbers, dates, names, codes) counts
most; questions and small talk least.
"""

from __future__ import annotations

import re

from serve_app.core import Role

ROLE_WORTH: dict[Role, float] = {"user": 1.0, "tool": 0.5, "assistant": 0.0, "system": 0.0}

BINDING_WORTH = 4.0
LITERAL_WORTH = 1.5
PREFERENCE_WORTH = 1.0
LENGTH_WORTH = 1.0
FULL_LENGTH_BYTES = 60
"""Shorter sentences are worth less; bytes, so that a CJK character weighs as a short word does."""

QUESTION_WORTH = -2.0
SMALL_TALK_WORTH = -3.0
NAMES_COUNTED_MAX = 3

SMALL_TALK_CHARS_MAX = 30
SMALL_TALK_CHARS_MAX_CJK = 8
"""Longer sentences say something after the pleasantry."""

_BINDING = re.compile(
    r"\b(?:must(?!'ve| have)|never(?! (?:been|forget))|cannot|can't(?! (?:wait|believe|beat|imagine|agree))|can not"
    r"|don't|do not|won't|will not|no longer"
    r"|refuse[sd]?|reject(?:s|ed)?|declin(?:e|es|ed)|allergic|allergy|at most|at least|no more than|exceed|limit"
    r"|deadline|required?|forbid(?:den)?|cancel(?:s|led|ed)?|promised?|decided"
    r"|have to|has to|shouldn't|should not|nothing|rather|final)\b"
    r"|(?<![特分])别(?![人的墅])|必须|必須|不能|不要|不得|不可|不许|不吃|不喝|不想|不再|不会|绝不|绝对|千万|禁止|拒绝|最多|至少|不超过|不少于|过敏|只能|取消|一定要|截止|决定"
    r"|不允许|不准|不让|一律|最终|改成|改为|上限|下限|算了|退款"
    r"|しないで|必ず|できない|できません|だめ|ダメ|いけない|いけません|アレルギー|以内|までに|決め|やめ",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d|[一二三四五六七八九十百千万两]+(?:元|块|天|个|点|月|日|年|人|岁|次|位|晚|张|份)")
_DATE = re.compile(
    r"\b(?:\d{4}-\d\d-\d\d|january|february|march|april|june|july|august|september|october|november|december"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|yesterday|tonight|birthday|anniversary)\b"
    r"|[月周]|星期|明天|昨天|后天|生日|曜日|明日|昨日|誕生日",
    re.IGNORECASE,
)
_CODE = re.compile(r"\b(?=[\w-]{0,40}\d)(?=[\w-]{0,40}[A-Za-z])[\w-]{3,40}\b|\w@\w|https?://")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'-]+|[「《『“][^」》』”]{1,40}")
_PREFERENCE = re.compile(
    r"\b(?:i|we|my|our)\b.{0,24}?\b(?:like|love|prefer|hate|dislike|want|need|plan|live|work|is|am|are|called|moved|bought)\b"
    r"|我(?:的|们)?.{0,4}?(?:喜欢|讨厌|想|要|希望|打算|计划|住|叫|是|有|买)|(?:私|僕|俺).{0,4}?(?:は|の)|好き|嫌い|欲しい",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[?？]|(?:吗|呢|か)[。？]?$")
_SMALL_TALK = re.compile(
    r"(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|sure|great|good (?:morning|evening|night|luck)|bye|see you"
    r"|you're welcome|wow|cool|nice|haha|yes|no problem|sounds (?:good|great)|of course)\b",
    re.IGNORECASE,
)
_SMALL_TALK_CJK = re.compile(
    r"你好|您好|谢谢|好的|嗯|哈哈|再见|不客气|没问题|早上好|晚安|ありがとう|こんにちは|おはよう|はい|了解|わかりました"
)


def worth(sentence: str, role: Role) -> float:
    """A score to compare sentences of one conversation with; higher is kept first."""
    score = ROLE_WORTH[role] + LENGTH_WORTH * min(
        1.0, len(sentence.encode("utf-8", "surrogatepass")) / FULL_LENGTH_BYTES
    )
    score += BINDING_WORTH if _BINDING.search(sentence) else 0.0
    score += sum(LITERAL_WORTH for signal in (_NUMBER, _DATE, _CODE) if signal.search(sentence))
    score += min(len(_NAME.findall(sentence)), NAMES_COUNTED_MAX) * LITERAL_WORTH / 2
    score += PREFERENCE_WORTH if _PREFERENCE.search(sentence) else 0.0
    score += QUESTION_WORTH if _QUESTION.search(sentence) else 0.0
    score += SMALL_TALK_WORTH if _is_small_talk(sentence) else 0.0
    return score


def _is_small_talk(sentence: str) -> bool:
    if len(sentence) <= SMALL_TALK_CHARS_MAX_CJK and _SMALL_TALK_CJK.match(sentence):
        return True
    return len(sentence) <= SMALL_TALK_CHARS_MAX and _SMALL_TALK.match(sentence) is not None
