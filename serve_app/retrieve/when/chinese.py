"""How Chinese names times: Mandarin in both scripts, and the words of Cantonese."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from serve_app.retrieve.when import expressions as ex
from serve_app.retrieve.when import holidays, numeric, periods
from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.holiday_names import CHINESE as CHINESE_HOLIDAYS
from serve_app.retrieve.when.language import Language, rule
from serve_app.retrieve.when.numerals import VAGUE, han
from serve_app.retrieve.when.periods import Grain, Span

Match = re.Match[str]

_SIMPLER: Final = str.maketrans(
    "個尋週禮號點內後過來從現這節聖誕國慶兩鐘時間剛當聽舊頭幾開陽龍鬥勞動兒婦師親萬閏臘開陰歲會嚟晝裡裏離終還嗰鬧冇發說講",
    "个寻周礼号点内后过来从现这节圣诞国庆两钟时间刚当听旧头几开阳龙斗劳动儿妇师亲万闰腊开阴岁会来昼里里离终还个闹无发说讲",
)

_N: Final = r"(?P<count>\d{1,4}|[零〇一二两三四五六七八九十百几半数]{1,5})"
_UNIT: Final = r"(?P<unit>分钟|分|个?半?小时|个半?钟头?|个?钟头|天|日|周|个?星期|个?礼拜|个半?月|年|个?季度|秒钟?)"
_UNITS: Final = {"时": "hour", "钟": "hour", "天": "day", "日": "day", "周": "week",
                 "期": "week", "拜": "week", "月": "month", "年": "year", "度": "quarter"}  # fmt: skip
_WEEKDAYS: Final = (
    {name: number for number, name in enumerate("一二三四五六日")}
    | {"天": 6}
    | {str(number): number - 1 for number in range(1, 8)}
)
_WEEK: Final = r"(?:周|星期|礼拜)"
_WHICH: Final = r"(?P<which>上上上|上上|大上|上|这|本|今|呢|当前|下下|下)(?:一|1)?个?"
_AHEAD: Final = {
    "上上上": -3,
    "上上": -2,
    "大上": -2,
    "上": -1,
    "这": 0,
    "本": 0,
    "今": 0,
    "呢": 0,
    "当前": 0,
    "下": 1,
    "下下": 2,
}
_YEAR_WORDS: Final = {"大前年": -3, "前年": -2, "去年": -1, "旧年": -1, "上年": -1, "今年": 0, "本年": 0, "明年": 1, "出年": 1,
                      "后年": 2}  # fmt: skip
_DAYS: Final = {"大前天": -3, "大前日": -3, "前天": -2, "前儿": -2, "昨儿": -1, "今儿": 0, "明儿": 1, "前日": -2, "昨天": -1, "昨日": -1, "琴日": -1, "寻日": -1, "噚日": -1,
                "今天": 0, "今日": 0, "明天": 1, "明日": 1, "听日": 1, "后天": 2, "后日": 2, "大后天": 3}  # fmt: skip
_SHORT_DAYS: Final = {"大前": -3, "前": -2, "昨": -1, "琴": -1, "寻": -1, "噚": -1, "今": 0, "明": 1, "听": 1, "后": 2}
_PART: Final = r"(?P<part>凌晨|清晨|清早|早晨|早上|大早|一早|朝早|上午|上昼|中午|正午|晌午|下午|下昼|午后|晏昼|傍晚|晚上|晚间|夜晚|夜里|夜间|深夜|半夜|午夜|早|晚|夜)"
_PARTS: Final = {"凌晨": "dawn", "中午": "noon", "正午": "noon", "晌午": "noon"} | dict.fromkeys(
    ("下午", "下昼", "午后", "晏昼"), "afternoon"
) | dict.fromkeys(("傍晚", "晚上", "晚间", "夜晚", "夜里", "夜间", "深夜", "半夜", "午夜", "晚", "夜"), "evening")  # fmt: skip
_MONTH: Final = r"(?P<month>1[0-2]|0?[1-9]|十一|十二|十|[一二三四五六七八九])月"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d|[一二][九〇零○][〇零○一二三四五六七八九]{2})年"
_STRETCHES: Final = {"初": "begin", "头": "begin", "上旬": "first", "中": "middle", "中旬": "middle", "下旬": "late",
                     "底": "end", "末": "end", "尾": "end"}  # fmt: skip
_SEASONS: Final = {"春": 3, "夏": 6, "秋": 9, "冬": 12}

_NO_PLACE: Final = r"(?!路|街|广场|大道|大街|村|小区|公园|桥|站|中学|小学|大厦|商场|新区|居士|湾|酒店|[是叫]我|[是叫]谁|是哪位|叫什么名|的电话|[说问]我|这个名字|这首|这部|这本)"


def simplified(text: str) -> str:
    """The text with the characters that matter here in their simplified form, one for one."""
    return text.translate(_SIMPLER)


def _unit(name: str) -> str:
    return "minute" if name.startswith(("分", "秒")) else _UNITS[name.rstrip("头")[-1]]


def _count(match: Match) -> tuple[float, bool]:
    """The number, and whether it is a vague one. 个半 and 半个 count, too."""
    words, unit = match["count"], match["unit"]
    if len(words) > 1 and words.endswith("几"):  # 十几天
        return han(words[:-1]) + ex.FEW, True
    if len(words) > 1 and "半" in words:
        raise ValueError("no number")
    count = han(words) + (0.5 if "半" in unit and words != "半" else 0)
    return (count / 60 if unit.startswith("秒") else count), words in VAGUE


def _ago(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    unit = _unit(match["unit"])
    if unit == "minute" and (vague or count < 1):
        return ex.just_now(clock)
    if match["unit"].startswith("年") and count == 0.5:
        count, unit = 6, "month"
    return ex.ago(clock, count, unit, exact=bool(match["day"]), vague=vague)


def _half_ago(match: Match, clock: Clock) -> Meaning:
    """半个月前, 半年前, 半小时前."""
    return _half(match["unit"], clock, 1)


def _half_from_now(match: Match, clock: Clock) -> Meaning:
    return _half(match["unit"], clock, -1)


def _half(name: str, clock: Clock, sign: int) -> Meaning:
    unit = _unit(name)
    if unit == "year":
        return ex.ago(clock, sign * 6, "month")
    if unit == "month":
        return ex.ago(clock, sign * 15 / 7, "week")
    return ex.ago(clock, sign * 0.5, unit)


def _and_a_half_ago(match: Match, clock: Clock) -> Meaning:
    """一年半前, 两个月半前."""
    return ex.ago(clock, han(match["count"]) + 0.5, _unit(match["unit"]))


def _two_or_three_ago(match: Match, clock: Clock) -> Meaning:
    return ex.between_ago(clock, han(match["least"]), han(match["most"]), _unit(match["unit"]))


def _from_now(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    return ex.ago(clock, -count, _unit(match["unit"]), vague=vague)


def _rolling(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    sign = -1 if match["which"].startswith(("未来", "接下来", "今后", "往后", "之后")) else 1
    if match["which"] in ("这", "呢") and count < 2:
        raise ValueError("this one is not the last one")
    unit = _unit(match["unit"])
    if unit == "month" and count == 0.5:
        return ex.rolling(clock, sign * 15, "day")
    return ex.rolling(clock, sign * count, unit, vague=vague)


def _these_days(match: Match, clock: Clock) -> Meaning:
    count = 2 if match["few"] in ("两", "俩") else ex.FEW
    return ex.rolling(clock, count, _unit(match["unit"]), vague=True)


def _named_day(match: Match, clock: Clock) -> Meaning:
    return ex.day(clock, _DAYS[match[0]])


def _short_day(match: Match, clock: Clock) -> Meaning:
    """今早, 昨晚; with a second part the latter counts: 今早凌晨."""
    word = match["second"] or match["part"]
    return ex.part_of(clock, _SHORT_DAYS[match["day"]], _PARTS.get(word, "morning"))


def _part(match: Match, clock: Clock) -> Meaning:
    return ex.part(_PARTS.get(match["part"], "morning"))


def _week(match: Match, clock: Clock) -> Meaning:
    return ex.week(clock, _AHEAD[match["which"]])


def _weekday(match: Match, clock: Clock) -> Meaning:
    number = _WEEKDAYS[match["weekday"]]
    return ex.weekday(clock, number, ahead=_AHEAD[match["which"]] if match["which"] else None)


def _weekend(match: Match, clock: Clock) -> Meaning:
    return ex.weekend(clock, _AHEAD[match["which"]] if match["which"] else None)


def _month(match: Match, clock: Clock) -> Meaning:
    return ex.month(clock, _AHEAD[match["which"]])


def _quarter(match: Match, clock: Clock) -> Meaning:
    return ex.quarter(clock, _AHEAD[match["which"]])


def _short_year(match: Match, clock: Clock) -> Meaning:
    number = int(match["year"])
    return ex.calendar_year(number + (2000 if number <= (clock.now.year + 10) % 100 else 1900))


def _number(text: str) -> int:
    return int(han(text))


def _calendar_year(match: Match, clock: Clock) -> Meaning:
    return ex.calendar_year(_number(match["year"]))


def _year(match: Match, clock: Clock) -> Meaning:
    return ex.year(clock, _YEAR_WORDS[match[0]])


def _month_of_year(match: Match, clock: Clock) -> Meaning:
    return ex.month_of_year(_number(match["year"]), _number(match["month"]))


def _named_month(match: Match, clock: Clock) -> Meaning:
    return ex.named_month(clock, _number(match["month"]))


def _date(match: Match, clock: Clock) -> Meaning:
    """A day of a month, or days from one to another, of a year where one is named."""
    parts = {name: _number(text) for name, text in match.groupdict().items() if text}
    return ex.of_month(clock, parts["month"], parts["day"], parts.get("last_day"), parts.get("year"))


def _day_of_month(match: Match, clock: Clock) -> Meaning:
    return _bare_day(match, clock)._replace(weak=True)


def _bare_day(match: Match, clock: Clock) -> Meaning:
    last = match.groupdict().get("last_day")
    return ex.day_of_month(clock, _number(match["day"]), _number(last) if last else None)


def _same_day_of_year(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, -12 * _YEAR_WORDS[match["year_word"]], "month", exact=True)


def _same_day_years_ago(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, 12 * _number(match["count"]), "month", exact=True)


def _same_day_before(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, -_AHEAD[match["which"]], "month" if match["unit"] == "月" else "week", exact=True)


def _nth_of_month(match: Match, clock: Clock) -> Meaning:
    """五月的第二个周末, 上个月最后一个周五."""
    nth = -1 if match["nth"] is None else _number(match["nth"])
    if match["weekday"]:
        return ex.nth_weekday(nth, _WEEKDAYS[match["weekday"]])
    return ex.nth_week(nth, weekend=match["end"] is not None)


def _just_now(match: Match, clock: Clock) -> Meaning:
    return ex.just_now(clock)


def _numbered_quarter(match: Match, clock: Clock) -> Meaning:
    return ex.named_quarter(clock, _number(match["number"]))


def _this_season(match: Match, clock: Clock) -> Meaning:
    ahead = {"上": -1, "下": 1}.get(match["which"][0], 0)
    return ex.nth_of_these(ex.season(clock, _SEASONS[match["season"]]), clock, ahead)


def _lunar_day(match: Match, clock: Clock) -> Meaning:
    return ex.every_year(clock, Grain.DAY, holidays.lunar(1, _number(match["day"])))


def _stretch(match: Match, clock: Clock) -> Meaning:
    return ex.stretch(_STRETCHES[match["stretch"]])


def _year_stretch(match: Match, clock: Clock) -> Meaning:
    """年初, 年底 by themselves: of the year where they have begun last."""
    number, count = {"初": (1, 1), "头": (1, 1), "中": (6, 2)}.get(match["stretch"], (12, 1))

    def of_year(chosen: int) -> Span:
        return Span(periods.months(chosen, number).start, periods.months(chosen, number + count).start)

    return ex.every_year(clock, Grain.DAYS, of_year)


def _half_year(match: Match, clock: Clock) -> Meaning:
    return ex.named_half(clock, 1 if match[0].startswith("上") else 2)


def _season(match: Match, clock: Clock) -> Meaning:
    return ex.season(clock, _SEASONS[match["season"]])._replace(span=None, again=None)


def _which_season(match: Match, clock: Clock) -> Meaning:
    ahead = {"去": -1, "今": 0, "明": 1, "前": -2}[match["which"]]
    year = clock.now.year + ahead
    return Meaning(periods.season(year, _SEASONS[match["season"]]), Grain.SEASON)


def _holiday(of_year: holidays.OfYear, match: Match, clock: Clock) -> Meaning:
    return ex.holiday(clock, of_year)


def _clock_time(match: Match, clock: Clock) -> Meaning:
    hour = _number(match["hour"])
    minute = {"半": 30, "一刻": 15, "三刻": 45}.get(match["minute"] or "", 0)
    if match["minute"] and minute == 0:
        minute = _number(match["minute"].rstrip("分"))
    part = _PARTS.get(match["part"], "morning")
    if hour < 12 and (part in ("afternoon", "evening") or (part == "noon" and hour < 3)):
        hour += 12
    return ex.clock_time(hour, minute)


def _that_time_of_year(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, -12 * _YEAR_WORDS[match["year_word"]], "month")


def _now(match: Match, clock: Clock) -> Meaning:
    return Meaning(Span(clock.now, clock.now), Grain.MOMENT, weak=True)


_TO: Final = r"[日号]?(?:到|至|-|~|—|–|－)(?P<last_day>[12]\d|3[01]|0?[1-9]|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九])[日号]"
_DAY_NUMBER: Final = (
    r"(?P<day>[12]\d|3[01]|0?[1-9]|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九]|廿[一二三四五六七八九]?)"
)
_NO_DAY: Final = (
    r"(?!楼|线|房|门|机|选手|文件|电池|汽油|馆|院|桌|车|店|球|位|柜|公路|桥|窗|座|出口|登机|床|档|字|种子|员工|航站|厅|码|"
    r"仓|病|嫌|技师|工位|包|台|小区|地块|井|高炉|方案|模型|实验|样|单|衫)"
)
_AFTER_DAY: Final = r"(?=那天|当天|那日|早|上午|中午|下午|晚|凌晨|[我你他她](?!的)|[，,。？?！]|$|之前|以前|之后|以后|以来|到|至|前|后|开会|的|有|都|聊|说|是)"
_YEAR_WORD: Final = r"(?P<year_word>大前年|前年|去年|旧年|明年)"
_HALF_UNIT: Final = r"(?P<unit>个?小时|个?钟头?|天|个?月|年|个?世纪)"
_ANY_UNIT: Final = _UNIT.replace("|个半?月|", "|个半?月|月|")
_AGO: Final = r"(?:之前|以前|前)(?!后|面|台|端|任|半|提|往|途)"

RULES: Final = (
    *numeric.RULES,
    rule(rf"{_YEAR_WORD}的?(?:今天|今日|同一天|同日)", _same_day_of_year),
    rule(r"(?P<count>[一二两三四五六七八九十\d]{1,2})年前的(?:今天|今日)", _same_day_years_ago),
    rule(r"(?P<which>上上|大上|上)一?个?(?P<unit>周|星期|礼拜|月)的?(?:今天|今日|同一天|同日)", _same_day_before),
    rule(
        r"(?<=月)份?的?(?:第(?P<nth>[一二三四五1-5])个?|最后一?个?)"
        rf"{_WEEK}(?:(?P<weekday>[一二三四五六日天])|(?P<end>末)|(?!年|岁|刊))",
        _nth_of_month,
    ),
    rule(rf"{_YEAR_WORD}的?(?:这个时候|这时候|此时|同期|差不多这时候)", _that_time_of_year),
    rule(r"刚才|刚刚(?!好|够|开始学|满)|(?<![对双地比])方才|头先|啱啱|啱先|正话|刚(?=[说讲提问发聊给报念])", _just_now),
    rule(r"(?:几|两三|一两)分钟(?:之|以)?前|一会儿?(?:之|以)?前", _just_now),
    rule(
        r"(?P<day>大前|前|昨|琴|寻|噚|今|明|听|后)(?P<part>早上?|晨|晚上?|夜里?|朝早?)(?P<second>凌晨|上午|中午|下午)?"
        r"(?!会|期|安|报(?![名告到备考])|点名|餐|饭|宴)",
        _short_day,
    ),
    rule("|".join(sorted(_DAYS, key=len, reverse=True)), _named_day),
    rule(rf"(?<!每个)(?<!每)(?:{_WHICH})?(?:周末|星期末|礼拜末)", _weekend),
    rule(
        rf"(?<![每双单四])(?:{_WHICH})?{_WEEK}(?P<weekday>[一二三四五六日天]|[1-7](?!\d|[天个周小日]))"
        r"(?![岁期围多福年片边遭致密身折转样起般百千万亿月]|[晚早日]报(?![名告到备考]))",
        _weekday,
    ),
    rule(rf"(?<![\d一二三四五六七八九十两几半数]){_WHICH}{_WEEK}(?![一二三四五六日天]|年|岁|刊|边|围)", _week),
    rule(rf"{_YEAR}的?{_MONTH}{_DAY_NUMBER}{_TO}", _date),
    rule(rf"{_YEAR}的?{_MONTH}{_DAY_NUMBER}[日号]", _date),
    rule(rf"{_YEAR}的?{_MONTH}份?(?!\d)", _month_of_year),
    rule(rf"(?<![\d第]){_MONTH}{_DAY_NUMBER}{_TO}", _date),
    rule(rf"(?<![\d第]){_MONTH}{_DAY_NUMBER}[日号]", _date),
    rule(_YEAR, _calendar_year),
    rule(
        r"(?<![\d.一二三四五六七八九十])(?P<year>\d\d)年(?=的?(?:1[0-2]|[1-9]|[一二三四五六七八九十])月|年?[初底末]|"
        r"的?[春夏秋冬]|国庆|五一|春节|中秋)",
        _short_year,
    ),
    rule(rf"(?<![几两半\d一二三四五六七八九十]个){_WHICH}月(?!份?球|季)份?", _month),
    rule(rf"{_WHICH}季度", _quarter),
    rule(r"第?(?P<number>[一二三四1-4])季度(?!假)", _numbered_quarter),
    rule(r"(?<![A-Za-z0-9])Q(?P<number>[1-4])(?![A-Za-z0-9])", _numbered_quarter),
    rule(r"(?<!每)[上下]半年", _half_year),
    rule(r"(?P<which>上个?|这个?|下个?|今年?的?)(?P<season>[春夏秋冬])[天季]", _this_season),
    rule("(?:" + "|".join(sorted(_YEAR_WORDS, key=len, reverse=True)) + ")(?!级)", _year),
    rule(
        r"(?<![十百千万两几半\d一二三四五六七八九])(?:年|岁)(?P<stretch>初(?![一二三四五六七八九十])|底|末|中(?![秋考])|尾)(?!奖)",
        _year_stretch,
    ),
    rule(
        r"(?<=[年月周拜期度])的?月?(?P<stretch>上旬|中旬|下旬|初(?![一二三四五六七八九十])|底|末|尾|头|"
        r"中(?=的|[^\w]|$|我|你))",
        _stretch,
    ),
    rule(r"(?P<which>去|今|明|前)(?P<season>[春夏秋冬])(?!天|季|令|奥)", _which_season),
    rule(r"(?<![中立])(?P<season>[春夏秋冬])(?:[天季]|(?=[^\w]|$|的时候))", _season),
    *(rule(rf"(?:{words}){_NO_PLACE}", partial(_holiday, of_year)) for words, of_year in CHINESE_HOLIDAYS.items()),
    rule(r"(?:大年|正月|年)初(?P<day>十[一二三四五]?|[一二三四五六七八九])", _lunar_day),
    rule(r"(?P<least>[一二两三四五六七八九])(?P<most>[二两三四五六七八九])" + _UNIT + _AGO, _two_or_three_ago),
    rule(rf"(?<!个)半{_HALF_UNIT}多?{_AGO}", _half_ago),
    rule(rf"半{_HALF_UNIT}(?:之后|以后|后)(?!来|面)", _half_from_now),
    rule(rf"{_N}{_UNIT}半{_AGO}", _and_a_half_ago),
    rule(rf"(?<![\d第.零〇一二两三四五六七八九十百]){_N}{_UNIT}多?{_AGO}(?P<day>的?那天)?", _ago),
    rule(
        r"(?P<which>最近这|最近的?|近|过去的?这?|过往|这|呢|未来的?|接下来的?|今后|往后)"
        rf"(?P<count>\d{{1,4}}|[一二两三四五六七八九十百半]{{1,4}}){_ANY_UNIT}(?:以来|来|之?内|里|间)?(?!前|后|级|班|度)",
        _rolling,
    ),
    rule(
        r"(?:这|最近这?|近|过去|(?<!的)前|呢|前面)(?P<few>几|两|俩|些|数)"
        r"(?P<unit>天|日|周|个?星期|个?礼拜|个?月|年)(?!前|后)",
        _these_days,
    ),
    rule(rf"(?<![\d第.零〇一二两三四五六七八九十百]){_N}{_UNIT}(?:之后|以后|后)(?!来|面)", _from_now),
    rule(rf"(?<=月)的?{_DAY_NUMBER}{_TO}", _day_of_month),
    rule(rf"(?<=月)的?{_DAY_NUMBER}[日号]", _day_of_month),
    rule(rf"(?:(?<=[从在自])|(?<![\w.])){_DAY_NUMBER}{_TO}", _bare_day),
    rule(
        rf"(?:(?<=[从在自到至])|(?<![A-Za-z\d第.#\-一二三四五六七八九十路街道巷弄胡同里栋幢座楼院区门])){_DAY_NUMBER}[日号]{_NO_DAY}{_AFTER_DAY}",
        _bare_day,
    ),
    rule(rf"(?<![\d第]){_MONTH}份?(?=[^\w]|$|[^是叫爱喜])", _named_month),
    rule(
        r"(?<![A-Za-z0-9/])(?!(?:1/[234]|2/3|3/4)\s*的)(?P<month>1[0-2]|0?[1-9])/(?P<day>3[01]|[12]\d|0?[1-9])"
        r"(?=\s*(?:那天|当天|我|你|晚|早|上午|下午|的(?!概率|可能|人)))",
        _date,
    ),
    rule(r"(?<![A-Za-z0-9/.])(?P<month>1[0-2]|0?[1-9])\.(?P<day>3[01]|[12]\d|0?[1-9])(?=\s*(?:那天|当天))", _date),
    rule(
        rf"{_PART}(?P<hour>\d{{1,2}}|十[一二]|[一二两三四五六七八九十])[点时]"
        r"(?P<minute>半|一刻|三刻|\d{1,2}分?|[一二三四五]?十[一二三四五六七八九]?分?)?",
        _clock_time,
    ),
    rule(_PART + r"(?!会|期|安|报(?![名告到备考])|餐|饭|宴|市|恋|熟|产|退|婚|年)", _part),
    rule(r"现在|至今|目前|如今|而家|今", _now),
)

_MASKED: Final = re.compile(
    "《[^》\n]{1,80}》|「[^」\n]{1,80}」|“[^”\n]{1,80}”|【[^】\n]{1,80}】|昨日重现|昨日黄花|昨日之|今日头条|明日方舟|明日之[后星]|明日黄花|"
    "明天会更好|昨天今天明天|今天不回家|后天(?:失明|失聪|努力|形成|因素|培养|教育|免疫|获得|性|的影响|环境)|先天.{0,6}后天|"
    "每[个天周月年逢][一二三四五六日天早晚上周末星期礼拜]*|天天|春夏秋冬|春天在哪里|四季(?!度)|半天(?!前)|等一下|一时半会|一会儿(?!前)|"
    "三分钟热度|百年孤独|一周年|周年|半年报|(?<![去今明前])年年(?![初底末中尾])|日日|春晚|三月兔|七月与安生|八月长安|五月天|五月花(?![了钱费掉])|八月桂花|三月三(?![日号十天])|星期五餐厅|九月(?:同学|是|叫)|"
    "[一二三四五六七八九十]月(?:是|叫|爱|喜欢|它|她|他|这个名字|这只|那只|的主人|和她|和他)|(?:我家|猫|狗|女儿|儿子|叫|名叫|名为)[一二三四五六七八九十]月|"
    "周[一二三四五六日](?:围|岁|福|多|成|礼)|(?:小|老|叫)(?:周|国庆|元旦|立春|冬至)[一二三四五六日]?|国庆(?:[是叫说]|同学|哥|叔|他|和我)|"
    "(?<![年月大])(?:初|高|大|小)[一二三四五六](?=学|的?时候|年级|班|数|语|英|上|下|毕|，|。|$)|[一二三四五六七八九\\d]年级|[一二三四五六]年[一二三四五六七八九]班|"
    "版本\\s*\\d[\\d.]*|\\d+(?:\\.\\d+){2,3}(?!\\d)(?<!\\d{4}\\.\\d\\.\\d)(?<!\\d{4}\\.\\d\\d\\.\\d\\d)(?<!\\d{4}\\.\\d\\.\\d\\d)(?<!\\d{4}\\.\\d\\d\\.\\d)|"
    "周末愉快|十月怀胎|二月红|(?:中秋|端午|春节|元宵|圣诞|国庆|新年|元旦|五一)(?:月饼|粽子|晚会|快乐)|上下|早上好|晚上好|下午好|早安|晚安|上午好|中午好|礼拜堂|今晚报|夏天的风|秋天的第一杯|冬奥|春运"
)
_FILLER: Final = re.compile(r"[\s,，]*(?:份)?的?(?:那个?|这个?|在)?\s*")
_JOINT: Final = re.compile(r"(?:号|日)?\s*(?:一直)?(?:到|至|直到|~|～|-|—|–|和|与|跟|及)+\s*")
_LEAD: Final = re.compile(
    r"(?:(?P<range>从|由)|(?P<since>自从|打从|自|打)|(?P<until>截至|截止到?|直到|到)|(?P<within>在|于|的|我|今年|我们|你|，|,|^))\s*$"
)
_TRAIL: Final = re.compile(
    r"\s*(?:(?:那天|当天|那会儿|份|号|的时候|期间)?(?:(?P<since>以来|开始|起(?!床|来|飞)|至今|到现在|到今)|(?P<until>为止|之?内完成)|"
    r"(?P<before>之前|以前|前(?!后|面|台|端|任|女友|男友|几|两|三))|(?P<after>之后|以后|后(?!来|面|天|台|端))|(?P<around>前后|左右|那阵子|那几天|附近))|"
    r"(?P<within>那|当|份|我|你|的|[，,。？?！!]|$))"
)
_FUTURE: Final = re.compile(
    "(?<![纪摘重主概简提首需必])要(?!点|求|是|不)|将|(?<![聚约开晚宴社机大协学年集])会(?!议|员|计|上|后|前)|打算|计划|安排|几点|预约|航班|提醒|日程|待办|有空|集合|出发|能不能|可以"
)
_PAST: Final = re.compile("了|过(?!年|期|敏)|来着|说|聊|提到|提过|讲|买的|吃的|去的|发的|定的|那次|上次|记得")

CHINESE: Final = Language(RULES, _MASKED, _FILLER, _JOINT, _LEAD, _TRAIL, _FUTURE, _PAST)
