"""How English names times."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from serve_app.retrieve.when import expressions as ex
from serve_app.retrieve.when import holidays, numeric
from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.holiday_names import ENGLISH as ENGLISH_HOLIDAYS
from serve_app.retrieve.when.language import Language, rule
from serve_app.retrieve.when.numerals import ENGLISH_ORDINALS, VAGUE, english
from serve_app.retrieve.when.periods import Grain, Span

Match = re.Match[str]

_MONTHS: Final = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_WEEKDAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_WEAK_MONTHS: Final = frozenset(
    {"march", "may", "april", "june", "august", "mar", "apr", "jun", "aug", "jan", "dec", "sep"}
)
"""Also verbs, modals and names: by themselves they are no months."""

_MONTH: Final = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_WEEKDAY: Final = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
_WEEKDAYS_WORD: Final = r"(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)s?"
_SHORT_WEEKDAY: Final = r"(?P<weekday>Mon|Tues?|Wed|Thur?s?|Fri|Sat|Sun)\b\.?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)(?![\w-]|[.,]\d)"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_NUMBER: Final = (
    r"(?P<count>\d{1,4}|an?|(?:a |the )?(?:couple(?: of)?|few)|several|(?:twenty|thirty|forty|fifty|sixty|ninety)"
    r"(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|"
    r"twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|half an?)"
)
_UNIT: Final = r"(?P<unit>minutes?|mins?|hours?|hrs?|days?|weeks?|fortnights?|months?|years?|quarters?|seconds?)\b"
_WHICH: Final = r"(?P<which>last|past|previous|this past|this coming|this|current|next|coming|following|upcoming)"
_AHEAD: Final = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0}
_ORDINAL: Final = "|".join(sorted(ENGLISH_ORDINALS, key=len, reverse=True))
_LATE_ORDINAL: Final = "|".join(word for word in _ORDINAL.split("|") if ENGLISH_ORDINALS[word] > 3)
_PART: Final = r"(?P<part>early morning|morning|noon|midday|lunchtime|afternoon|evening|night)\b"
_PARTS: Final = {"noon": "noon", "midday": "noon", "lunchtime": "noon", "afternoon": "afternoon"} | dict.fromkeys(
    ("evening", "night"), "evening"
)


def _month_number(name: str) -> int:
    return next(at for at, month in enumerate(_MONTHS, 1) if month.startswith(name[:3].lower()))


def _weekday_number(name: str) -> int:
    return next(at for at, weekday in enumerate(_WEEKDAYS) if weekday.startswith(name[:3].lower()))


def _ahead(which: str) -> int:
    return _AHEAD.get(which.lower().split()[-1], 1)


def _unit(name: str) -> str:
    short = name.lower()[:3]
    return {"min": "minute", "hou": "hour", "hrs": "hour", "hr": "hour", "for": "week", "sec": "minute"}.get(
        short, name.lower().rstrip("s")
    )


def _count(match: Match) -> tuple[float, bool]:
    words, unit = match["count"], match["unit"].lower()
    count = 0.5 if words.lower().startswith("half") else english(words)
    if unit.startswith("fortnight"):
        count *= 2
    elif unit.startswith("second"):
        count /= 60
    return count, any(word in VAGUE for word in words.lower().split())


def _months(match: Match, clock: Clock) -> Meaning:
    name, year = match["month"], match.groupdict().get("year")
    if year:
        return ex.month_of_year(int(year), _month_number(name))
    weak = name.lower().rstrip(".") in _WEAK_MONTHS or name.islower()
    return ex.named_month(clock, _month_number(name), weak=weak)


def _date(match: Match, clock: Clock) -> Meaning:
    parts = match.groupdict()
    last = parts.get("last_day")
    year = int(parts["year"]) if parts["year"] else None
    return ex.of_month(clock, _month_number(match["month"]), int(match["day"]), int(last) if last else None, year)


def _which_unit(match: Match, clock: Clock) -> Meaning:
    ahead, unit = _ahead(match["which"]), match["unit"].lower()
    if match["which"].lower() in ("past", "this past") and unit != "weekend":
        return ex.rolling(clock, 1, unit)
    return {"week": ex.week, "month": ex.month, "year": ex.year, "quarter": ex.quarter, "weekend": ex.weekend}[unit](
        clock, ahead
    )


def _before_last(match: Match, clock: Clock) -> Meaning:
    unit = match["unit"].lower()
    return {"week": ex.week, "month": ex.month, "year": ex.year, "quarter": ex.quarter, "weekend": ex.weekend}[unit](
        clock, -2
    )


def _after_next(match: Match, clock: Clock) -> Meaning:
    return {"week": ex.week, "month": ex.month, "year": ex.year, "quarter": ex.quarter, "weekend": ex.weekend}[
        match["unit"].lower()
    ](clock, 2)


def _which_month(match: Match, clock: Clock) -> Meaning:
    return ex.nth_of_these(ex.named_month(clock, _month_number(match["month"])), clock, _ahead(match["which"]))


def _which_season(match: Match, clock: Clock) -> Meaning:
    return ex.nth_of_these(ex.season(clock, _SEASONS[match["season"].lower()]), clock, _ahead(match["which"]))


def _season(match: Match, clock: Clock) -> Meaning:
    meaning = ex.season(clock, _SEASONS[match["season"].lower()])
    if not match["year"]:
        return meaning._replace(span=None, again=None)  # by itself it is any summer
    assert meaning.within is not None
    return Meaning(meaning.within(ex.calendar_year(int(match["year"])).span), Grain.SEASON)  # type: ignore[arg-type]


def _weekday(match: Match, clock: Clock) -> Meaning:
    return ex.weekday(clock, _weekday_number(match["weekday"]))


def _which_weekday(match: Match, clock: Clock) -> Meaning:
    number, which = _weekday_number(match["weekday"]), match["which"].lower()
    if which in ("last", "past", "this past", "previous"):
        return ex.weekday(clock._replace(future=False), number)._replace(again=None)
    if which in ("coming", "this coming", "upcoming"):
        return ex.weekday(clock._replace(future=True), number)._replace(again=None)
    return ex.weekday(clock, number, ahead=_ahead(which))


def _weekdays_ago(match: Match, clock: Clock) -> Meaning:
    recent = ex.weekday(clock._replace(future=False), _weekday_number(match["weekday"]))
    assert recent.again is not None
    return Meaning(recent.again(1 - int(english(match["count"]))), Grain.DAY)


def _weekday_before_last(match: Match, clock: Clock) -> Meaning:
    recent = ex.weekday(clock._replace(future=False), _weekday_number(match["weekday"]))
    assert recent.again is not None
    return Meaning(recent.again(-1), Grain.DAY)


def _weekday_just_gone(match: Match, clock: Clock) -> Meaning:
    return ex.weekday(clock._replace(future=False), _weekday_number(match["weekday"]))


def _ago(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    unit = _unit(match["unit"])
    if unit == "minute" and (vague or match["count"].lower() in ("a", "an") or count < 1):
        return ex.just_now(clock)
    exact = bool(match["exact"] or match["today"])
    return ex.ago(clock, count, unit, exact=exact, vague=vague)


def _half_more_ago(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, english(match["count"]) + 0.5, _unit(match["unit"]))


def _two_or_three_ago(match: Match, clock: Clock) -> Meaning:
    return ex.between_ago(clock, english(match["most"]), english(match["count"]), _unit(match["unit"]))


def _from_now(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    return ex.ago(clock, -count, _unit(match["unit"]), vague=vague)


def _in_units(match: Match, clock: Clock) -> Meaning | None:
    return _from_now(match, clock) if clock.future else None


def _rolling(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match) if match["count"] else (1.0, False)
    backwards = match["which"].lower() in ("past", "last", "previous", "preceding")
    return ex.rolling(clock, count if backwards else -count, _unit(match["unit"]), vague=vague)


def _last_unit(match: Match, clock: Clock) -> Meaning:
    return ex.rolling(clock, 1, _unit(match["unit"]))


def _named_day(match: Match, clock: Clock) -> Meaning:
    words = match[0].lower()
    if "before" in words:
        return ex.day(clock, -2)
    if "after" in words:
        return ex.day(clock, 2)
    return ex.day(clock, {"yesterday": -1, "tomorrow": 1}.get(words, 0))


def _this_part(match: Match, clock: Clock) -> Meaning:
    words = match[0].lower()
    if "tonight" in words:
        return ex.part_of(clock, 0, "evening")
    ahead = -1 if words.startswith("last") else 0
    return ex.part_of(clock, ahead, _PARTS.get(match["part"].lower(), "morning"))


def _part(match: Match, clock: Clock) -> Meaning:
    return ex.part(_PARTS.get(match["part"].lower(), "morning"))


_STRETCHES: Final = {"beginning": "begin", "start": "begin", "end": "end", "early": "early", "late": "late"}


def _stretch(match: Match, clock: Clock) -> Meaning:
    return ex.stretch(_STRETCHES.get(match["stretch"].lower(), "middle"))


def _so_far(match: Match, clock: Clock) -> Meaning:
    host = {"week": ex.week, "month": ex.month, "year": ex.year, "quarter": ex.quarter}[match["unit"].lower()](clock, 0)
    return ex.yet_to_come(clock, host) if match[0].lower().startswith("later") else ex.so_far(clock, host)


def _quarter(match: Match, clock: Clock) -> Meaning:
    return ex.named_quarter(clock, int(match["number"]))


def _quarter_in_words(match: Match, clock: Clock) -> Meaning:
    """Weak: games and moons have quarters, too."""
    number = match["number"].lower()
    return ex.named_quarter(clock, ENGLISH_ORDINALS.get(number) or int(number[0]), weak=True)


def _half_year(match: Match, clock: Clock) -> Meaning:
    number = int(match["number"]) if match["number"].isdigit() else ENGLISH_ORDINALS[match["number"].lower()]
    return ex.named_half(clock, number)


def _half_of(match: Match, clock: Clock) -> Meaning:
    """The first half of a year that is named beside it."""
    return _half_year(match, clock)._replace(span=None, again=None)


def _holiday(of_year: holidays.OfYear, match: Match, clock: Clock) -> Meaning:
    return ex.holiday(clock, of_year, ahead=_ahead(match["which"]) if match["which"] else None)


def _ordinal_day(match: Match, clock: Clock) -> Meaning:
    words = match["day"].lower()
    number = ENGLISH_ORDINALS.get(words) or int(re.sub(r"\D", "", words))
    last = match.groupdict().get("last_day")
    return ex.day_of_month(clock, number, int(last) if last else None, weak=True)


_BEFORE_YEAR: Final = re.compile(
    r"(?:\b(?:in|during|of|since|before|after|from|until|till|through|throughout|year|summari[sz]e|recap|review|by|late|"
    r"early|mid|for|between|christmas|xmas|easter|halloween|thanksgiving|eve|day|festival|weekend|quarter|half|Q[1-4]|H[12])"
    r"|(?:19|20)\d\d (?:and|to|until|through)|(?:19|20)\d\d ?[-–])[ ,]*(?:the year )?$",
    re.I,
)

_THE_UNIT: Final = {"week": ex.week, "month": ex.month, "quarter": ex.quarter, "year": ex.year}


def _the_unit(match: Match, clock: Clock) -> Meaning:
    """`the end of the month`: only a part of it that is named beside it makes it a time."""
    found = _THE_UNIT[match["unit"].lower()](clock, 0)
    return found._replace(bare=True)


def _now(match: Match, clock: Clock) -> Meaning:
    """The end of a range; by itself it says nothing."""
    return Meaning(Span(clock.now, clock.now), Grain.MOMENT, weak=True)


def _nth_week(match: Match, clock: Clock) -> Meaning:
    nth = -1 if match["nth"].lower() == "last" else ENGLISH_ORDINALS[match["nth"].lower()]
    return ex.nth_week(nth, weekend=match["unit"].lower() == "weekend")


def _nth_weekday(match: Match, clock: Clock) -> Meaning:
    nth = -1 if match["nth"].lower() == "last" else ENGLISH_ORDINALS[match["nth"].lower()]
    return ex.nth_weekday(nth, _weekday_number(match["weekday"]))


def _to_date(match: Match, clock: Clock) -> Meaning:
    unit = match["unit"] or {"y": "year", "q": "quarter", "m": "month"}[match["short"].lower()]
    return ex.so_far(clock, _THE_UNIT[unit.lower()](clock, 0))


def _bare_year(match: Match, clock: Clock) -> Meaning | None:
    """Most numbers of four digits are no years: only a few words may stand before one that is."""
    number = int(match["year"])
    if not 1950 <= number <= clock.now.year + 10 or not _BEFORE_YEAR.search(match.string[: match.start()]):
        return None
    return ex.calendar_year(number)


def _mothers_day(match: Match, clock: Clock) -> Meaning:
    """The fourth Sunday of Lent in Britain, the second in May elsewhere."""
    british = match["mothering"] is not None
    return _holiday(holidays.from_easter(-21) if british else holidays.the(2, 6, 5), match, clock)


def _clock_time(match: Match, clock: Clock) -> Meaning:
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    half = match.groupdict().get("half", "").lower()[:1]
    if minute > 59 or hour > (12 if half else 23):
        raise ValueError("no time of day")
    return ex.clock_time(hour % 12 + (12 if half == "p" else 0) if half else hour, minute)


_NO_NOUN: Final = (
    r"(?=\s*$|\s*[?.,!;)]|\s(?:and|to|of|about|did|was|were|i|we|you|he|she|at|in|with|until|through|when)\b)"
)
"""Of `the 15th day` nothing is to be read: what may follow `the 15th` is few words."""

_LONG_UNIT: Final = r"(?P<unit>week|month|year|quarter|weekend)\b"
_TO: Final = r" ?(?:and|to|until|till|through|thru|-|–|&) ?(?:the )?(?P<last_day>\d{1,2})(?:st|nd|rd|th)?\b"
_OTHER_MEASURE: Final = (
    r"(?! ?(?:%|[ap]m\b|dollars|euros|pounds|bucks|usd|eur|people|steps|calories|kcal|kg|km|miles|words|pages|rows|tokens|"
    r"items|met(?:re|er)s|units|users|lines|hours|minutes|days|times|votes|points|room|edition|version))"
)
_SEASON: Final = r"(?P<season>spring|summer|autumn|fall|winter)\b"

RULES: Final = (
    *numeric.RULES,
    rule(rf"\b(?P<most>one|two|three|four|five|six|\d) (?:or|to) {_NUMBER} {_UNIT} ago\b", _two_or_three_ago),
    rule(rf"\b{_NUMBER} and a half {_UNIT} ago\b", _half_more_ago),
    rule(rf"\b{_NUMBER} {_UNIT} and a half ago\b", _half_more_ago),
    rule(rf"\b(?P<exact>exactly |precisely )?{_NUMBER} {_UNIT} ago(?P<today> today)?\b", _ago),
    rule(r"\b(?:the )?day (?:before yesterday|after tomorrow)\b", _named_day),
    rule(r"\b(?:earlier )?today\b|\byesterday\b|\btomorrow\b", _named_day),
    rule(rf"\b(?:earlier |later )?(?:this|last) {_PART}|\btonight\b", _this_part),
    rule(r"\bthe night before last\b", lambda match, clock: ex.part_of(clock, -2, "evening")),
    rule(rf"\b{_DAY}{_TO}(?: of)? {_MONTH}(?:,? {_YEAR})?", _date),
    rule(rf"\b{_MONTH} (?:the )?{_DAY}{_TO}(?!:)(?:,? {_YEAR})?", _date),
    rule(rf"(?<![\w.$])(?:the )?{_DAY}(?: of)?[ -]{_MONTH}(?:,?[ -](?:in )?{_YEAR})?", _date),
    rule(rf"\b{_MONTH} (?:the )?{_DAY}\b(?!:| ?%|\.\d)(?:,? {_YEAR})?", _date),
    rule(rf"\b{_WHICH} {_MONTH}(?! \d)", _which_month),
    rule(rf"\b{_MONTH}(?:,| of)? {_YEAR}", _months),
    rule(rf"\b{_MONTH}", _months),
    *(
        rule(rf"\b(?:{_WHICH} )?(?:{words})\b", partial(_holiday, of_year))
        for words, of_year in ENGLISH_HOLIDAYS.items()
    ),
    rule(rf"\b{_WHICH} {_SEASON}", _which_season),
    rule(rf"\b{_SEASON}(?: (?:of )?{_YEAR})?", _season),
    rule(rf"\b(?:{_WHICH} )?(?:mother'?s'? day|(?P<mothering>mothering sunday))\b", _mothers_day),
    rule(r"\bthis time last year\b", lambda match, clock: ex.ago(clock, 12, "month")),
    rule(r"\bthis day last year\b", lambda match, clock: ex.ago(clock, 12, "month", exact=True)),
    rule(
        r"\b(?:just now|a moment ago|moments ago|a (?:little |short )?while ago|a sec ago)\b",
        lambda match, clock: ex.just_now(clock),
    ),
    rule(rf"\b{_NUMBER} {_UNIT} from (?:now|today|tomorrow)\b", _from_now),
    rule(rf"\bin {_NUMBER} {_UNIT}(?! or| and)", _in_units),
    rule(rf"\b(?P<which>last|past|previous|preceding|next|coming|following) {_NUMBER} {_UNIT}", _rolling),
    rule(
        r"\b(?:over|in|during|within) the (?:last|past) (?P<unit>minute|hour|day|week|month|quarter|year)\b", _last_unit
    ),
    rule(r"\b(?:the|this) (?:last|past) (?P<unit>hour|minute|day)\b", _last_unit),
    rule(rf"\b(?:the )?{_LONG_UNIT} before last\b", _before_last),
    rule(rf"\bthe {_LONG_UNIT} after next\b", _after_next),
    rule(r"\b(?:the )?(?P<nth>first|second|third|fourth|fifth|last) (?P<unit>week|weekend)(?= (?:of|in)\b)", _nth_week),
    rule(
        rf"\b(?:the )?(?P<nth>first|second|third|fourth|fifth|last) {_WEEKDAY}"
        rf"(?= (?:of|in) (?:the |last |this |next |previous |following )?(?:month\b|{_MONTH.replace('?P<month>', '?:')}))",
        _nth_weekday,
    ),
    rule(r"\b(?:(?P<unit>year|quarter|month|week)[- ]to[- ]date|(?P<short>[YQM])TD)\b", _to_date),
    rule(r"\b(?:earlier|later) this (?P<unit>week|month|year|quarter)\b", _so_far),
    rule(rf"\b{_WHICH} {_LONG_UNIT}(?! (?:ending|number))", _which_unit),
    rule(rf"\b(?:the )?{_WEEKDAY} before last\b", _weekday_before_last),
    rule(rf"\b{_NUMBER} {_WEEKDAYS_WORD} ago\b", _weekdays_ago),
    rule(rf"\b{_WHICH} {_WEEKDAY}(?!s\b)", _which_weekday),
    rule(rf"\b{_WEEKDAY} (?:just gone|just past)\b", _weekday_just_gone),
    rule(rf"(?<!\ba )(?<!\bany )(?<!\bsome )(?<!\banother )\b{_WEEKDAY}", _weekday),
    rule(rf"\b(?P<which>[Ll]ast|[Tt]his|[Nn]ext) {_SHORT_WEEKDAY}", _which_weekday, 0),
    rule(rf"(?:(?<=[Oo]n )|(?<=[Ss]ince )){_SHORT_WEEKDAY}", _weekday, 0),
    rule(rf"\b{_SHORT_WEEKDAY}(?= (?:early morning|morning|noon|lunchtime|afternoon|evening|night)\b)", _weekday, 0),
    rule(r"\bthe weekend\b(?! of\b)", lambda match, clock: ex.weekend(clock)),
    rule(r"\bweekend\b", lambda match, clock: ex.weekend(clock, weak=True)),
    rule(r"\b(?P<stretch>early|late|mid)(?=[ -](?:in )?\w)", _stretch),
    rule(r"\b(?:the )?(?P<stretch>beginning|start|end|middle)(?= of\b)", _stretch),
    rule(r"\bQ(?P<number>[1-4])\b", _quarter, 0),
    rule(r"\b(?P<number>first|second|third|fourth|1st|2nd|3rd|4th) quarter\b(?! of the (?!year))", _quarter_in_words),
    rule(r"\bH(?P<number>[12])\b", _half_year, 0),
    rule(r"\bthe (?P<number>first|second) half of the year\b", _half_year),
    rule(r"\b(?:the )?(?P<number>first|second) half(?= of)", _half_of),
    rule(r"\bthe (?P<unit>week|month|quarter|year)\b", _the_unit),
    rule(
        rf"\bthe (?P<day>\d{{1,2}}(?:st|nd|rd|th)|{_LATE_ORDINAL})\b"
        rf"(?: ?(?:to|-|–|and|through|until) ?(?:the )?(?P<last_day>\d{{1,2}})(?:st|nd|rd|th))?{_NO_NOUN}",
        _ordinal_day,
    ),
    rule(rf"\bthe (?P<day>{_ORDINAL})(?= of (?:last|this|next|the) month\b)", _ordinal_day),
    rule(rf"(?<![\w$€£#./-]){_YEAR}{_OTHER_MEASURE}", _bare_year),
    numeric.WITHOUT_YEAR,
    rule(r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap])\.?m\b\.?", _clock_time),
    rule(r"\bat (?P<hour>\d{1,2}):(?P<minute>\d\d)\b", _clock_time),
    rule(rf"\b(?:(?:in|on) the )?{_PART}", _part),
    rule(r"\bnow\b", _now),
)

_MASKED: Final = re.compile(
    r"""(?xi)
    "[^"\n]{1,80}" | “[^”\n]{1,80}” | 《[^》\n]{1,80}》 | 「[^」\n]{1,80}」
    | https?://\S+ | \S+@\S+
    | \b(?:version|release|ver|v|python|java|node|ios|android|ubuntu|windows|office|php|go|rust|build|model|room|flight|
        gate|route|highway|bus|line|area|port|bed|apartment|apt|suite|unit|order|invoice|ticket|error|code|pin|no\.?|
        number|page|chapter|peugeot|level|channel|issue|pr)[ #-]*v?\d[\w./:-]*(?:\ of\ \d+)?
    | \b\d+(?:\.\d+){2,3}(?=[^\w.]|$)(?<!\b\d\.\d\.\d{4})(?<!\b\d\d\.\d\.\d{4})(?<!\b\d\.\d\d\.\d{4})
        (?<!\b\d\d\.\d\d\.\d{4})(?<!\b\d{4}\.\d\.\d)(?<!\b\d{4}\.\d\.\d\d)(?<!\b\d{4}\.\d\d\.\d)(?<!\b\d{4}\.\d\d\.\d\d)
        (?<!\b\d\d\.\d\d\.\d\d)
    | [$€£¥]\s?\d[\d.,]*
    | \b(?:spell|pronounce|the\ word|translate)\ \w+
    | \b24/7\b | \b\d+\ in\ \d+\b
    | ^(?:mon|tues|wednes|thurs|fri|satur|sun)day\ is\ (?:a|an|my|the)\b
    | (?<!\bin\ )(?<!\bearly\ )(?<!\blate\ )(?<!\bmid\ )(?<!\bmid-)(?<!\bof\ )(?<!\bsince\ )(?<!\bduring\ )
        (?<!\bbefore\ )(?<!\bafter\ )\bmay\ (?:i|we|you|he|she|they|it)\b
    | \bmay\ (?:be|have|not|the|this|that|or|also|well|need|want|cause|contain)\b
    | \b(?:april|may|june|august)['’]s(?=\W*$)
    | \bmarch(?:ed|es|ing)?\ (?:to(?!\ (?:may|april|june|july|august|september|october|november|december|\d)\b)|on\b
        |forward|toward|towards|along|through\ the|into|off|past|band|madness|in\ step|for\b)
    | \b(?:song|film|movie|album|band|book|novel|track|show|game|playlist|character|called|named|titled)
        \ (?-i:(?:[A-Z]['\w]*)(?:\ [A-Z]['\w]*)*)
    | \b(?:every|each|most|all)\ (?:mon|tues|wednes|thurs|fri|satur|sun)day\b
    | \b(?:casual|freaky|ruby|bloody|super|throwback|taco|girl|man|his\ girl|blue|manic|stormy)
        \ (?:mon|tues|wednes|thurs|fri|satur|sun)day\b
    | \b(?-i:Sunday\ Bloody\ Sunday|Friday\ Night\ Lights|October\ Revolution|Wednesday\ Addams|Friday\ the|Sunday\ Times|Sunday\ School|Tuesday\ Weld|Spring\ Boot|Summer\ Olympics)\b
    | \b(?:at\ last|last\ but|last\ name|last\ but\ not\ least|next\ door|in\ a\ second|a\ second\ (?!ago))
    | \b(?:saved|save)\ the\ day\b | \bday\ in,?\ day\ out\b
    | \bend\ of\ the\ day, | \bright\ now\b | \bfor\ now\b
    | \b(?:christmas|xmas)\ (?:tree|carols?|island|crackers?|pudding|jumper|sweater|cards?)\b
    | \beaster\ (?:eggs?|bunny|island)\b | \bnew\ year'?s?\ resolutions?\b
    """
)
_FILLER: Final = re.compile(r"(?:\s*,)?\s*(?:[-'’]s?)?\s*(?:of|in|on|at|during|for|from)?\s*(?:the)?\s*", re.I)
_JOINT: Final = re.compile(r",?\s*(?:and|to|until|till|through|thru|up to|-|–|—|~)\s*(?:the\s+)?", re.I)
_LEAD: Final = re.compile(
    r"""(?xi)(?:^|(?<=[^\w]))(?:
    (?P<week>week\ of)
    | (?P<range>between|from)
    | (?P<since>since|starting|from|ever\ since)
    | (?P<before>before|prior\ to|earlier\ than|preceding)
    | (?P<until>until|till|as\ of|up\ to|through|by|no\ later\ than)
    | (?P<after>after|later\ than)
    | (?P<around>around|circa|near)
    | (?P<within>in|during|on|of|for|over|throughout|this|last|at|dated|the|my|our|your|early|late|mid)
    )\s*(?:the\s+)?$"""
)
_TRAIL: Final = re.compile(
    r"""(?xi)\s*(?:(?P<since>onwards?|and\ onwards|to\ now|until\ now|till\ now|so\ far|and\ after)\b
    |(?P<before>or\ (?:earlier|before)\b)|(?P<around>or\ so|-ish|ish)\b)"""
)
_FUTURE: Final = re.compile(
    r"\b(?:will|won't|going to|gonna|i'll|we'll|'ll|upcoming|scheduled|plan(?:s|ned)? for|planned|due|deadline|agenda|"
    r"coming up|appointments?|reminders?|do i have|am i|are we|is there|have i got|what's on|is my|are my|when's)\b",
    re.I,
)
_PAST: Final = re.compile(
    r"\b(?:did|was|were|had|said|told|went|mentioned|asked|wrote|talked|discussed|gave|bought|spent|ate|met|made|been|"
    r"happened|used|logged|sent|decided|promised)\b",
    re.I,
)

_APART: Final = re.compile(
    r"\s+(?:right |just |immediately )?(?:(?P<before>before|preceding)|(?P<after>after|following))\s+(?:the\s+)?", re.I
)

ENGLISH: Final = Language(RULES, _MASKED, _FILLER, _JOINT, _LEAD, _TRAIL, _FUTURE, _PAST, _APART)
