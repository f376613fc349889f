"""How Spanish names times."""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from serve_app.retrieve.when import expressions as ex
from serve_app.retrieve.when import holidays, numeric
from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.holiday_names import SPANISH as SPANISH_HOLIDAYS
from serve_app.retrieve.when.language import Language, rule
from serve_app.retrieve.when.numerals import VAGUE, spanish
from serve_app.retrieve.when.periods import Grain, Span

Match = re.Match[str]

_MONTHS: Final = [
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
]
_WEEKDAYS: Final = ["lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"]
_SEASONS: Final = {"primavera": 3, "verano": 6, "otoño": 9, "invierno": 12}
_ORDINALS: Final = {
    "primer": 1,
    "primero": 1,
    "primera": 1,
    "segundo": 2,
    "segunda": 2,
    "tercer": 3,
    "tercero": 3,
    "cuarto": 4,
}
_MONTH: Final = rf"(?P<month>{'|'.join(_MONTHS)}|setiembre)\b"
_WEEKDAY: Final = r"(?P<weekday>lunes|martes|mi[ée]rcoles|jueves|viernes|s[áa]bado|domingo)\b"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)(?![\w-]|[.,]\d)"
_DAY: Final = r"(?P<day>\d{1,2}|primero|uno)"
_N: Final = (
    r"(?P<count>\d{1,4}|un par de|un(?:[oa]s?)?|varios|varias|pocos|pocas|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|"
    r"once|doce|trece|catorce|quince|dieciséis|diecisiete|dieciocho|diecinueve|veinte|treinta|medio|media)"
)
_UNIT: Final = r"(?P<unit>segundos?|minutos?|horas?|d[íi]as?|semanas?|mes(?:es)?|años?|trimestres?)\b"
_UNITS: Final = {"seg": "minute", "min": "minute", "hor": "hour", "día": "day", "dia": "day", "sem": "week", "mes": "month",
                 "año": "year", "tri": "quarter"}  # fmt: skip
_LONG: Final = r"(?P<unit>semana|mes|año|trimestre|fin de semana)"
_PLACES: Final = {
    "semana": ex.week,
    "mes": ex.month,
    "año": ex.year,
    "trimestre": ex.quarter,
    "fin de semana": ex.weekend,
}
_PART: Final = r"(?:por |de |en |a )?la (?P<part>madrugada|mañana|tarde|noche)\b|(?:al |a )?(?P<noon>mediod[íi]a)\b"
_PARTS: Final = {"madrugada": "dawn", "mañana": "morning", "tarde": "afternoon", "noche": "evening"}


def _month_number(name: str) -> int:
    return 9 if name.lower() == "setiembre" else _MONTHS.index(name.lower()) + 1


def _weekday_number(name: str) -> int:
    return next(at for at, weekday in enumerate(_WEEKDAYS) if weekday.startswith(name[:2].lower().replace("sa", "sá")))


def _unit(name: str) -> str:
    return _UNITS[name[:3].lower()]


def _count(match: Match) -> tuple[float, bool]:
    words = match["count"].lower()
    count = spanish(words)
    if match["unit"].lower().startswith("seg"):
        count /= 60
    return count, any(word in VAGUE for word in words.split())


def _ago(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    unit = _unit(match["unit"])
    if unit == "minute" and (vague or count < 1):
        return ex.just_now(clock)
    if unit == "year" and count == 0.5:
        count, unit = 6, "month"
    return ex.ago(clock, count, unit, exact=bool(match["exact"]), vague=vague)


def _half_more_ago(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, spanish(match["count"].lower()) + 0.5, _unit(match["unit"]))


def _nth_weekday(match: Match, clock: Clock) -> Meaning:
    return ex.nth_weekday(_ORDINALS.get(match["nth"].lower(), -1), _weekday_number(match["weekday"]))


def _from_now(match: Match, clock: Clock) -> Meaning | None:
    count, vague = _count(match)
    return ex.ago(clock, -count, _unit(match["unit"]), vague=vague) if clock.future else None


def _rolling(match: Match, clock: Clock) -> Meaning:
    count, vague = _count(match)
    sign = -1 if match["which"].lower().startswith("pr") else 1
    return ex.rolling(clock, sign * count, _unit(match["unit"]), vague=vague)


def _last_unit(match: Match, clock: Clock) -> Meaning:
    return ex.rolling(clock, 1, _unit(match["unit"]))


_NAMED_DAYS: Final = {
    "hoy": 0,
    "ayer": -1,
    "anteayer": -2,
    "antier": -2,
    "antes de ayer": -2,
    "pasado mañana": 2,
    "mañana": 1,
}


def _named_day(match: Match, clock: Clock) -> Meaning:
    return ex.day(clock, _NAMED_DAYS[match[0].lower()])


def _short_part(match: Match, clock: Clock) -> Meaning:
    words = match[0].lower()
    if words in ("anoche", "anteanoche"):
        return ex.part_of(clock, -1 if words == "anoche" else -2, "evening")
    return ex.part_of(clock, 0, _PARTS[match["part"].lower()])


def _part(match: Match, clock: Clock) -> Meaning:
    return ex.part("noon" if match["noon"] else _PARTS[match["part"].lower()])


def _past_unit(match: Match, clock: Clock) -> Meaning:
    return _PLACES[match["unit"].lower()](clock, -1)


def _unit_before(match: Match, clock: Clock) -> Meaning:
    return _PLACES[match["unit"].lower()](clock, -2)


def _this_unit(match: Match, clock: Clock) -> Meaning:
    return _PLACES[match["unit"].lower()](clock, 0)


def _next_unit(match: Match, clock: Clock) -> Meaning:
    return _PLACES[match["unit"].lower()](clock, 1)


def _past_weekday(match: Match, clock: Clock) -> Meaning:
    return ex.weekday(clock._replace(future=False), _weekday_number(match["weekday"]))._replace(again=None)


def _this_weekday(match: Match, clock: Clock) -> Meaning:
    return ex.weekday(clock, _weekday_number(match["weekday"]), ahead=0)


def _next_weekday(match: Match, clock: Clock) -> Meaning:
    return ex.weekday(clock, _weekday_number(match["weekday"]), ahead=1)


def _weekday(match: Match, clock: Clock) -> Meaning:
    return ex.weekday(clock, _weekday_number(match["weekday"]))


def _date(match: Match, clock: Clock) -> Meaning:
    words = match["day"].lower()
    first, last = 1 if words in ("primero", "uno") else int(words), match.groupdict().get("last_day")
    year = int(match["year"]) if match["year"] else None
    return ex.of_month(clock, _month_number(match["month"]), first, int(last) if last else None, year)


def _month(match: Match, clock: Clock) -> Meaning:
    number = _month_number(match["month"])
    return ex.month_of_year(int(match["year"]), number) if match["year"] else ex.named_month(clock, number, weak=True)


def _past_month(match: Match, clock: Clock) -> Meaning:
    return ex.nth_of_these(ex.named_month(clock, _month_number(match["month"])), clock, -1)


def _this_month(match: Match, clock: Clock) -> Meaning:
    return ex.nth_of_these(ex.named_month(clock, _month_number(match["month"])), clock, 0)


def _season(match: Match, clock: Clock) -> Meaning:
    meaning = ex.season(clock, _SEASONS[match["season"].lower()])
    if not match["year"]:
        return meaning._replace(span=None, again=None)
    assert meaning.within is not None
    year = ex.calendar_year(int(match["year"])).span
    assert year is not None
    return Meaning(meaning.within(year), Grain.SEASON)


def _past_season(match: Match, clock: Clock) -> Meaning:
    return ex.nth_of_these(ex.season(clock, _SEASONS[match["season"].lower()]), clock, -1)


def _this_season(match: Match, clock: Clock) -> Meaning:
    ahead = 1 if match["which"].lower().startswith("pr") else 0
    return ex.nth_of_these(ex.season(clock, _SEASONS[match["season"].lower()]), clock, ahead)


_STRETCHES: Final = {"pri": "begin", "com": "begin", "ini": "begin", "med": "middle", "fin": "end"}


def _stretch(match: Match, clock: Clock) -> Meaning:
    return ex.stretch(_STRETCHES[match["stretch"][:3].lower()])


def _quarter(match: Match, clock: Clock) -> Meaning:
    return ex.named_quarter(clock, _ORDINALS[match["number"].lower()])


def _half_year(match: Match, clock: Clock) -> Meaning:
    return ex.named_half(clock, _ORDINALS[match["number"].lower()])


def _holiday(of_year: holidays.OfYear, match: Match, clock: Clock) -> Meaning:
    return ex.holiday(clock, of_year, ahead=-1 if match["past"] else None)


def _day_of_month(match: Match, clock: Clock) -> Meaning:
    last = match["last_day"]
    return ex.day_of_month(clock, int(match["day"]), int(last) if last else None)


def _bare_year(match: Match, clock: Clock) -> Meaning | None:
    number = int(match["year"])
    return ex.calendar_year(number) if 1950 <= number <= clock.now.year + 10 else None


def _last_year_today(match: Match, clock: Clock) -> Meaning:
    return ex.ago(clock, 12, "month", exact=True)


def _now(match: Match, clock: Clock) -> Meaning:
    return Meaning(Span(clock.now, clock.now), Grain.MOMENT, weak=True)


RULES: Final = (
    *numeric.RULES,
    rule(r"\banteanoche\b|\banoche\b|\besta (?P<part>madrugada|mañana|tarde|noche)\b", _short_part),
    rule(
        r"\bpasado mañana\b|\bantes de ayer\b|\banteayer\b|\bantier\b|\bayer\b|\bhoy\b|(?<!la )(?<!esta )\bmañana\b",
        _named_day,
    ),
    rule(r"\bhace (?:un (?:momento|rato|ratito|instante|minuto)|nada)\b", lambda match, clock: ex.just_now(clock)),
    rule(rf"\bhace {_N} {_UNIT} y medi[oa]\b", _half_more_ago),
    rule(rf"\bhace (?P<exact>exactamente |justo )?{_N} {_UNIT}", _ago),
    rule(rf"\b(?P<which>últim[oa]s|pasad[oa]s|próxim[oa]s|proxim[oa]s|ultim[oa]s) {_N} {_UNIT}", _rolling),
    rule(rf"\b{_N} (?P<which>últim[oa]s|pasad[oa]s|próxim[oa]s) {_UNIT}", _rolling),
    rule(r"\b(?:en|durante) (?:la|el) últim[oa] (?P<unit>hora|semana|mes|año|d[íi]a)\b", _last_unit),
    rule(rf"\b(?:dentro de|en) {_N} {_UNIT}", _from_now),
    rule(r"\bhoy hace un año\b", _last_year_today),
    rule(rf"\b{_DAY} ?(?:al?|y|-|–|hasta el) ?(?P<last_day>\d{{1,2}}) de {_MONTH}(?:(?: de| del|,)? {_YEAR})?", _date),
    rule(rf"\b{_DAY} de {_MONTH}(?:(?: de| del|,)? {_YEAR})?", _date),
    rule(rf"\b{_MONTH} (?:pasado|anterior)\b", _past_month),
    rule(rf"\beste {_MONTH}", _this_month),
    rule(rf"\b{_MONTH}(?: (?:de |del )?{_YEAR})?", _month),
    rule(rf"\b{_LONG} (?:antepasad[oa]|anterior al pasado)\b", _unit_before),
    rule(rf"\b{_LONG} (?:pasad[oa]|anterior)\b", _past_unit),
    rule(rf"\b(?:el|la) pasad[oa] {_LONG}", _past_unit),
    rule(rf"\best[ea] {_LONG}", _this_unit),
    rule(rf"\bpr[óo]xim[oa] {_LONG}", _next_unit),
    rule(rf"\b{_LONG} (?:que viene|pr[óo]xim[oa]|siguiente)\b", _next_unit),
    rule(rf"\b{_WEEKDAY} pasado\b", _past_weekday),
    rule(rf"\bpasado {_WEEKDAY}", _past_weekday),
    rule(rf"\beste {_WEEKDAY}", _this_weekday),
    rule(rf"\bpr[óo]ximo {_WEEKDAY}", _next_weekday),
    rule(rf"\b{_WEEKDAY} (?:que viene|pr[óo]ximo)\b", _next_weekday),
    rule(
        rf"\b(?P<nth>primer|segundo|tercer|cuarto|[úu]ltimo) {_WEEKDAY}"
        rf"(?= (?:de|del) (?:mes\b|{_MONTH.replace('?P<month>', '?:')}))",
        _nth_weekday,
    ),
    rule(rf"(?:(?<=\bel )|(?<=\bdel )|(?<=\bdesde )|(?<=\bhasta ))(?-i:{_WEEKDAY})", _weekday),
    rule(r"(?<=\bel )fin de semana\b", lambda match, clock: ex.weekend(clock)),
    rule(r"\b(?P<season>primavera|verano|otoño|invierno) pasad[oa]\b", _past_season),
    rule(r"\b(?P<which>est[ea]|pr[óo]xim[oa]) (?P<season>primavera|verano|otoño|invierno)\b", _this_season),
    rule(rf"\b(?P<season>primavera|verano|otoño|invierno)(?: (?:de |del )?{_YEAR})?", _season),
    *(
        rule(rf"\b(?:{words})\b(?P<past> pasad[oa]s?\b)?", partial(_holiday, of_year))
        for words, of_year in SPANISH_HOLIDAYS.items()
    ),
    rule(r"\ba (?P<stretch>principios|comienzos|inicios|mediados|finales|fines)\b", _stretch),
    rule(r"\bal (?P<stretch>principio|inicio|final)(?= del?\b)", _stretch),
    rule(r"\b(?P<number>primer|segundo|tercer|cuarto) trimestre\b", _quarter),
    rule(r"\b(?P<number>primer|segundo) semestre\b", _half_year),
    rule(
        r"\b(?:el|día) (?P<day>[12]\d|3[01]|0?[1-9])(?: al (?P<last_day>\d{1,2}))?\b(?= ?(?:[?.,;]|$|del? (?:mes|este|próximo|pasado)|por la|y\b|dije|hab))(?!%)",
        _day_of_month,
    ),
    rule(
        rf"(?:(?<=\ben )|(?<=\bdesde )|(?<=\bdurante )|(?<=\bhasta )|(?<=\baño )|(?<=\bde )|(?<=\bdel )|(?<=\bentre ))(?:el )?{_YEAR}",
        _bare_year,
    ),
    rule(rf"{_PART}", _part),
    rule(r"\b(?:hoy|ahora)\b", _now),
)

_MASKED: Final = re.compile(
    r"(?i)\"[^\"\n]{1,80}\"|«[^»\n]{1,80}»|“[^”\n]{1,80}”|\bun segundo\b(?! trimestre)|\btodos los (?:lunes|martes|miércoles|"
    r"jueves|viernes|sábados|domingos|días)\b|\bcada (?:lunes|martes|miércoles|jueves|viernes|sábado|domingo|día|mañana)\b|"
    r"\bversión \d[\d.]*|\bmañanas\b|\b(?:plaza|avenida|calle|teatro) (?:de |del )?(?:mayo|\d+ de \w+)\b|\bcincuenta y\b|"
    r"\bgracias por el día\b|\bbuenos días\b|\bbuenas (?:tardes|noches)\b|\bhoy en día\b"
)
_FILLER: Final = re.compile(r"\s*,?\s*(?:de|del|en|por|durante)?\s*(?:el|la|los|las)?\s*", re.I)
_JOINT: Final = re.compile(r"\s*(?:a|al|y|hasta|-|–)\s*(?:el|la)?\s*", re.I)
_LEAD: Final = re.compile(
    r"(?i)(?:^|(?<=\W))(?:(?P<range>entre|del)|(?P<since>desde|a partir de)|(?P<before>antes de)|(?P<until>hasta)|"
    r"(?P<after>después de|tras)|(?P<around>alrededor de|cerca de|sobre)|"
    r"(?P<within>en|durante|de|por|este|para|mes de|a principios de|a finales de))\s*(?:el|la|los|del?)?\s*$"
)
_TRAIL: Final = re.compile(r"(?i)\s*(?P<since>en adelante|hasta (?:ahora|hoy))\b")
_FUTURE: Final = re.compile(
    r"(?i)\b(?:voy a|vamos a|va a|tengo que|tengo|hay que|próxim|planes|plazo|vence|cita|reunión)\b|\w+(?:ré|rás|rá|remos|rán)\b"
)
_PAST: Final = re.compile(
    r"(?i)\b(?:dije|dijo|dijiste|gasté|compré|fui|fue|hice|hizo|hablamos|hablé|mencioné|pedí|comí|vi|era|estaba|había|he|hemos|tuve|pasó|quedamos)\b"
)

SPANISH: Final = Language(RULES, _MASKED, _FILLER, _JOINT, _LEAD, _TRAIL, _FUTURE, _PAST)
