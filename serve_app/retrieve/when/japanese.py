"""How Japanese names times."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from serve_app.retrieve.when import expressions as ex
from serve_app.retrieve.when import holidays, numeric, periods
from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.holiday_names import JAPANESE as JAPANESE_HOLIDAYS
from serve_app.retrieve.when.language import Language, rule
from serve_app.retrieve.when.numerals import han
from serve_app.retrieve.when.periods import Grain, Span

Match = re.Match[str]

_WEEKDAYS: Final = {name: number for number, name in enumerate("月火水木金土日")}
_DAYS: Final = {
    "一昨々日": -3, "さきおととい": -3, "一昨日": -2, "おととい": -2, "おとつい": -2, "昨日": -1, "きのう": -1, "前日": -1,
    "今日": 0, "きょう": 0, "本日": 0, "明日": 1, "あした": 1, "あす": 1, "明後日": 2, "あさって": 2,
}  # fmt: skip
_SHORT_PARTS: Final = {
    "昨夜": (-1, "evening"), "昨晩": (-1, "evening"), "ゆうべ": (-1, "evening"), "一昨夜": (-2, "evening"),
    "今朝": (0, "morning"), "けさ": (0, "morning"), "今夜": (0, "evening"), "今晩": (0, "evening"),
    "明朝": (1, "morning"), "明晩": (1, "evening"),
}  # fmt: skip
_YEARS: Final = {"一昨々年": -3, "一昨年": -2, "おととし": -2, "去年": -1, "昨年": -1, "前年": -1, "今年": 0, "本年": 0,
                 "来年": 1, "再来年": 2}  # fmt: skip
_AHEAD: Final = {"先々": -2, "先先": -2, "先": -1, "前": -1, "今": 0, "来": 1, "翌": 1, "再来": 2}
_WHICH: Final = r"(?P<which>先々|先先|先|今|再来|来)"
_PART: Final = r"(?P<part>未明|深夜|早朝|午前中?|午後|お?昼(?:頃|ごろ|過ぎ)?|正午|夕方|朝|夜|晩)"
_PARTS: Final = {"未明": "dawn", "昼": "noon", "正": "noon", "午後": "afternoon", "夕": "evening", "夜": "evening",
                 "晩": "evening", "深夜": "evening"}  # fmt: skip
_N: Final = r"(?P<count>\d{1,4}|[一二三四五六七八九十百半数]{1,4})"
_UNIT: Final = r"(?P<unit>秒|分|時間|日|週間|週|[かカヶヵケ箇]月|ヶ月|月|年|四半期)"
_UNITS: Final = {"秒": "minute", "分": "minute", "時間": "hour", "日": "day", "週間": "week", "週": "week", "年": "year",
                 "四半期": "quarter"}  # fmt: skip
_MONTH: Final = r"(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月"
_DAY: Final = r"(?P<day>[12]\d|3[01]|0?[1-9]|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])日(?!間|前|後|目)"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)年"
_ERA: Final = r"(?P<era>令和|平成|昭和)(?P<era_year>元|\d{1,2})年"
_ERAS: Final = {"令和": 2018, "平成": 1988, "昭和": 1925}
_SEASONS: Final = {"春": 3, "夏": 6, "秋": 9, "冬": 12}
_STRETCHES: Final = {"初め": "begin", "はじめ": "begin", "始め": "begin", "初旬": "first", "上旬": "first", "頭": "begin",
                     "中旬": "middle", "半ば": "middle", "なかば": "middle", "下旬": "late", "末": "end", "終わり": "end"}  # fmt: skip


def _unit(name: str) -> str:
    return "month" if name.endswith("月") else _UNITS[name]


def _ago(match: Match, clock: Clock) -> Meaning:
    words, unit = match["count"], _unit(match["unit"])
    count = han(words) / (60 if match["unit"] == "秒" else 1)
    if words == "半" and unit == "year":
        count, unit = 6, "month"
    if unit == "minute" and (words == "数" or count < 1):
        return ex.just_now(clock)
    return ex.ago(clock, count, unit, vague=words == "数")


def _half_hour_ago(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, han(match["count"]) + 0.5, _unit(match["unit"]))


def _from_now(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, -han(match["count"]), _unit(match["unit"]))


def _rolling(match: Match, clock: Clock) -> Meaning:
    words = match["count"]
    sign = -1 if match["which"] in ("今後", "これから", "向こう") else 1
    return ex.rolling(clock, sign * han(words), _unit(match["unit"]), vague=words == "数")


def _named_day(match: Match, clock: Clock) -> Meaning:
    return ex.day(clock, _DAYS[match[0]])


def _short_part(match: Match, clock: Clock) -> Meaning:
    return ex.part_of(clock, *_SHORT_PARTS[match[0]])


def _part_name(words: str) -> str:
    bare = words.removeprefix("お")
    return _PARTS.get(bare[:2]) or _PARTS.get(bare[:1], "morning")


def _part(match: Match, clock: Clock) -> Meaning:
    return ex.part(_part_name(match["part"]))


def _clock_time(match: Match, clock: Clock) -> Meaning:
    hour = int(han(match["hour"]))
    minute = 30 if match["minute"] == "半" else int(han((match["minute"] or "0").rstrip("分")))
    afternoon = match["part"] and _part_name(match["part"]) in ("afternoon", "evening")
    return ex.clock_time(hour + 12 if afternoon and hour < 12 else hour, minute)


def _weekday(match: Match, clock: Clock) -> Meaning:
    number, which = _WEEKDAYS[match["weekday"]], match["which"]
    if which is None:
        return ex.weekday(clock, number)
    if which in ("この前", "前"):
        return ex.weekday(clock._replace(future=False), number)._replace(again=None)
    if which in ("次", "今度"):
        return ex.weekday(clock._replace(future=True), number)._replace(again=None)
    return ex.weekday(clock, number, ahead=_AHEAD[which])


def _nth_weekday(match: Match, clock: Clock) -> Meaning:
    return ex.nth_weekday(int(han(match["nth"])) if match["nth"] else -1, _WEEKDAYS[match["weekday"]])


def _weekend(match: Match, clock: Clock) -> Meaning:
    return ex.weekend(clock, _AHEAD[match["which"]] if match["which"] else None)


def _week(match: Match, clock: Clock) -> Meaning:
    return ex.week(clock, _AHEAD[match["which"]])


def _month(match: Match, clock: Clock) -> Meaning:
    return ex.month(clock, _AHEAD[match["which"]])


def _year(match: Match, clock: Clock) -> Meaning:
    return ex.year(clock, _YEARS[match[0]])


def _calendar_year(match: Match, clock: Clock) -> Meaning:
    return ex.calendar_year(int(match["year"]))


def _era_year(match: Match, clock: Clock) -> Meaning:
    number = 1 if match["era_year"] == "元" else int(match["era_year"])
    return ex.calendar_year(_ERAS[match["era"]] + number)


def _named_month(match: Match, clock: Clock) -> Meaning:
    return ex.named_month(clock, int(han(match["month"])))


def _date(match: Match, clock: Clock) -> Meaning:
    return ex.of_month(clock, int(han(match["month"])), int(han(match["day"])))


def _day_of_month(match: Match, clock: Clock) -> Meaning:
    return ex.day_of_month(clock, int(han(match["day"])), weak=True)


def _season(match: Match, clock: Clock) -> Meaning:
    return ex.season(clock, _SEASONS[match["season"]])._replace(span=None, again=None)


def _this_season(match: Match, clock: Clock) -> Meaning:
    return ex.nth_of_these(ex.season(clock, _SEASONS[match["season"]]), clock, -1 if match["which"] == "昨" else 0)


def _stretch(match: Match, clock: Clock) -> Meaning:
    return ex.stretch(_STRETCHES[match["stretch"]])


def _quarter(match: Match, clock: Clock) -> Meaning:
    return ex.named_quarter(clock, int(han(match["number"])))


def _which_quarter(match: Match, clock: Clock) -> Meaning:
    return ex.quarter(clock, _AHEAD[match["which"]])


def _half_year(match: Match, clock: Clock) -> Meaning:
    return ex.named_half(clock, 1 if match[0].startswith("上") else 2)


def _year_end(match: Match, clock: Clock) -> Meaning:
    return ex.every_year(clock, Grain.MONTH, lambda chosen: periods.months(chosen, 12))


def _holiday(of_year: holidays.OfYear, match: Match, clock: Clock) -> Meaning:
    return ex.holiday(clock, of_year)


def _now(match: Match, clock: Clock) -> Meaning:
    return Meaning(Span(clock.now, clock.now), Grain.MOMENT, weak=True)


RULES: Final = (
    *numeric.RULES,
    rule(r"たった今|今さっき|ついさっき|さっき|さきほど|先ほど|先程|つい先", lambda match, clock: ex.just_now(clock)),
    rule("|".join(_SHORT_PARTS), _short_part),
    rule("|".join(sorted(_DAYS, key=len, reverse=True)), _named_day),
    rule(rf"(?<!毎)(?:{_WHICH})?週末", _weekend),
    rule(r"(?<=月の)(?:第(?P<nth>[1-5一二三四五])|最後の)(?P<weekday>[月火水木金土日])曜日?", _nth_weekday),
    rule(
        r"(?<!毎週)(?<!毎)(?:(?P<which>先々|先先|先|今|再来|来)週の?)?(?P<weekday>[月火水木金土日])曜日?",
        _weekday,
    ),
    rule(rf"{_WHICH}週(?!刊|号|末)", _week),
    rule(rf"{_YEAR}(?!度?前|間)", _calendar_year),
    rule(_ERA, _era_year),
    rule("|".join(sorted(_YEARS, key=len, reverse=True)), _year),
    rule(rf"(?<![\dヶかカヵケ箇]){_MONTH}{_DAY}", _date),
    rule(rf"(?<![\d]){_MONTH}(?!間|ちゃん|さん|くん|君|様)", _named_month),
    rule(rf"{_WHICH}月", _month),
    rule(rf"(?:{_WHICH.replace('先々|先先|先|今|再来|来', '前|今|来')})四半期", _which_quarter),
    rule(r"第(?P<number>[1-4一二三四])四半期", _quarter),
    rule(r"[上下]半期", _half_year),
    rule(r"年末", _year_end),
    rule(r"(?<=[月年週])の?(?P<stretch>初め|はじめ|始め|初旬|上旬|頭|中旬|半ば|なかば|下旬|末|終わり)", _stretch),
    rule(r"(?P<which>この|昨|今)(?P<season>春|夏|秋|冬)", _this_season),
    rule(r"(?<=[のた年])(?P<season>春|夏|秋|冬)(?!休み)", _season),
    *(rule(words, partial(_holiday, of_year)) for words, of_year in JAPANESE_HOLIDAYS.items()),
    rule(rf"{_N}{_UNIT}半(?:ほど|くらい|ぐらい)?前", _half_hour_ago),
    rule(rf"(?<![第\d]){_N}{_UNIT}(?:ほど|くらい|ぐらい)?前(?!後)", _ago),
    rule(rf"(?P<which>過去|ここ|この|最近|直近|今後|これから|向こう)の?{_N}{_UNIT}間?(?!前|後)", _rolling),
    rule(rf"(?<![第\d]){_N}{_UNIT}後(?!半)", _from_now),
    rule(rf"(?<=月)の?{_DAY}", _day_of_month),
    rule(rf"(?<![\d第]){_DAY}(?=[にはのかまで以、。？?]|$)", _day_of_month),
    rule(
        rf"(?:{_PART})の?(?P<hour>\d{{1,2}}|十[一二]?|[一二三四五六七八九])時(?P<minute>半|\d{{1,2}}分?)?(?!間)",
        _clock_time,
    ),
    rule(_PART + r"(?!食|会|日新聞|ごはん|ご飯|御飯)", _part),
    rule(r"現在|今(?=まで|に至る)", _now),
)

_MASKED: Final = re.compile(
    "《[^》\n]{1,80}》|「[^」\n]{1,80}」|『[^』\n]{1,80}』|“[^”\n]{1,80}”|毎[日週月年朝晩]|毎週[月火水木金土日]曜日?|日曜大工|"
    "明日香|今日子|三月兎|昨日の敵|春日|朝日|夕日|一日中|半日|バージョン\\s*[\\d.]+"
)
_FILLER: Final = re.compile(r"[\s、,]*の?\s*")
_JOINT: Final = re.compile(r"\s*(?:から|より|〜|～|~|-|ー|と)\s*")
_LEAD: Final = re.compile(r"(?:(?P<within>先月の|今月の|[、。のはが]|^))\s*$")
_TRAIL: Final = re.compile(
    r"\s*(?:頃|ごろ)?(?:(?P<since>以降|以来|から|より後)(?!は?何)|(?P<until>までに?)|(?P<before>以前|より前|前(?!後|半|の))|"
    r"(?P<after>の後|よりあと)|(?P<around>前後|あたり)|(?P<within>に|は|の|、|。|？|\?|$))"
)
_FUTURE: Final = re.compile("予定|でしょう|つもり|します(?!か。)|締め切り|何時から|ますか")
_PAST: Final = re.compile("した|った|んだ|ました|でした|いた")

JAPANESE: Final = Language(RULES, _MASKED, _FILLER, _JOINT, _LEAD, _TRAIL, _FUTURE, _PAST)
