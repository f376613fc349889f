"""Spanish: amounts in words and figures, units, and the words that say what a clause is about."""

from __future__ import annotations

import re

from serve_app.compress.cues.latin import NUMBER, either, stems, values

_ONES = (
    "uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho "
    "diecinueve"
)
_TENS = "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa"
_HUNDREDS = "cien doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos novecientos"
_TWENTIES = "veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve"
_AMOUNTS = {word: number for number, word in enumerate(_ONES.split(), 1)}
_AMOUNTS |= {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
_AMOUNTS |= {word: 100 * number for number, word in enumerate(_HUNDREDS.split(), 1)}
_AMOUNTS |= {word: number for number, word in enumerate(_TWENTIES.split(), 21)}
_AMOUNTS |= {"ciento": 100, "una": 1, "un": 1, "media": 0, "cero": 0}
_SCALES = {"mil": 1000, "millón": 1_000_000, "millones": 1_000_000, "docena": 12}
_NUMBER_WORD = rf"(?:{either(' '.join([_ONES, _TENS, _HUNDREDS, _TWENTIES]))}|ciento|mil|docena)"
_WORD_NUMBER = rf"\b(?:{_NUMBER_WORD})(?: (?:y )?(?:{_NUMBER_WORD}|millones)){{0,6}}\b"
_COUNTED = rf"(?:{NUMBER}|{_WORD_NUMBER})"
_N = rf"(?:(?:{NUMBER})(?: ?mil\b)?|(?!uno\b){_WORD_NUMBER})"

_MONTHS = "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre".split()
_ENGLISH_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    rf"(?:{either(' '.join(_MONTHS))}|setiembre|ene\.?|feb\.?|abr\.?|jun\.?|jul\.?|ago\.?|sept?\.?|oct\.?|nov\.?"
    rf"|dic\.?)"
)


def number(text: str) -> str:
    """Digits for an amount in words or figures; a day and its month for a date."""
    text = text.strip()
    iso = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text)
    if iso and 1 <= int(iso[2]) <= 12:
        return f"{int(iso[3])} {_ENGLISH_MONTHS[int(iso[2]) - 1]} {iso[1]}"
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?", text):
        text = text.replace(".", "")
    text = text.replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+", text) else text.replace(",", ".")
    if not re.search(r"[a-zñáéíóú]", text):
        return text.removesuffix(".00").removesuffix(".0")
    words = re.findall(r"[a-zñáéíóú]+|\d+(?:\.\d+)?", text)
    month = next(
        (place for word in words for place, name in enumerate(_MONTHS) if len(word) > 2 and name.startswith(word)), -1
    )
    total = part = 0
    known = False
    for word in words:
        if word in _SCALES:
            known, total, part = True, total + max(part, 1) * _SCALES[word], 0
        elif word in _AMOUNTS or word.isdigit():
            known, part = True, part + int(_AMOUNTS.get(word, word))
    amount = str(total + part) if known else text
    return f"{amount} {_ENGLISH_MONTHS[month]}" if month >= 0 and known else amount


_STOP = """
el la los las un una unos unas lo al del de en a con sin por para y e o u ni que como cuando donde quien cual si no sí ya
más menos muy mucho mucha muchos muchas poco poca algo nada todo toda todos todas cada otro otra otros otras este esta
estos estas ese esa esos esas aquel aquella esto eso aquello mi mis tu tus su sus nuestro nuestra nuestros nuestras me te
se nos os le les yo tú él ella nosotros ellos ellas usted ustedes es son era eran fue fueron ser sea sean soy somos eres
está están estaba estaban estoy estamos estar esté ha han he hemos has había haber hay haya hubo tiene tienen tengo
tenemos tener tenga hace hacer hago haz va van voy vamos ir vaya pero porque pues entonces así también tampoco sólo solo
aún todavía ahora luego después antes hasta desde sobre entre contra según durante mediante bien mejor peor vale gracias
favor bueno claro perfecto anotado entendido hecho actualizado puede pueden puedo podemos poder debe deben debo quiero
quiere quieren queremos cosa cosas vez veces día días mío ah oye hola mañana tarde noche hoy ayer euro euros eur dólar dólares peso pesos semana semanas mes meses año años hora horas minuto minutos
""".split()

_SAME = {
    "tope": "presupuesto",
    "límite": "presupuesto",
    "gastar": "presupuesto",
    "gasto": "presupuesto",
    "total": "presupuesto",
    "presupuesto": "presupuesto",
    "invitado": "persona",
    "gente": "persona",
    "comensal": "persona",
    "asistente": "persona",
    "persona": "persona",
    "entrega": "envío",
    "entregar": "envío",
    "paquete": "envío",
    "enviar": "envío",
    "envío": "envío",
    "vuelo": "volar",
    "volar": "volar",
    "reunión": "cita",
    "cita": "cita",
    "reembolso": "reembolso",
    "devolución": "reembolso",
    "dinero": "reembolso",
    "alquiler": "renta",
    "renta": "renta",
}

FIGURES = re.compile(rf"\d|{_WORD_NUMBER}")

VALUES = values(
    _N,
    counted=_COUNTED,
    month=_MONTH,
    weekday=r"lunes|martes|miércoles|jueves|viernes|sábados?|domingos?",
    ordinal=(
        r"(?:el|del|día|al) (?:día )?\d{1,2}\b(?! ?(?:personas|euros|años|horas|minutos|%|€|por|grados|km|cm"
        r"|de (?!enero|febrero|marzo|abril|mayo|junio|julio|agosto|sept|oct|nov|dic)))"
    ),
    money=r"euros?|eur|pavos|dólares|dólar|usd|pesos?|mxn|libras?|soles|céntimos?|gbp",
    clock=r"horas|hrs|h\b|de la (?:mañana|tarde|noche|madrugada)|a\.?m\b\.?|p\.?m\b\.?",
    clock_words=r"mediodía|medianoche|las \w+ (?:y media|y cuarto|menos cuarto)",
    before_clock=r"a las?|antes de las?|después de las?|hasta las?|desde las?|sobre las?",
    duration=r"segundos?|minutos?|min|horas?|días?|semanas?|mes(?:es)?|años?|noches?|quincenas?",
    often=(
        r"una vez|dos veces|tres veces|cuatro veces|a diario|diariamente|cada día|cada semana|cada mes"
        r"|semanalmente|mensualmente"
    ),
    relative_day=(
        r"mañana|hoy|pasado mañana|esta (?:semana|tarde|noche)|este (?:mes|año|fin de semana)"
        r"|la semana que viene|el (?:mes|año) que viene|próxim[oa] (?:semana|mes|año)|fin de mes|nochebuena"
        r"|navidad|nochevieja|semana santa"
    ),
    goal=r"(?:envíalo|mándalo|llévalo|entrégalo|tráelo|envíala|mándala|llévala|entrégala|envía|manda|lleva|entrega)(?: el [^\W\d_]+| la [^\W\d_]+)? (?:a|al|a la|a casa de)",
    address=(
        r"(?:calle|avenida|avda\.?|plaza|paseo|camino|ronda|travesía|carrer) (?:de la |de los |de las |del "
        r"|de |la )?(?:[^\W\d_]{2,20} ){1,3}?,? ?(?:n[uú]mero |nº ?)?\d{1,4}\b|(?:piso|puerta|habitación"
        r"|asiento|andén|taquilla) \d{1,5}[a-z]?\b"
    ),
    called=r"nombre (?:es|del? .{1,20} es)|apellido (?:es)|se llama|me llamo|llamad[oa]|se escribe|llámame",
    not_counted=either(_ONES)
    + "|"
    + either(_TENS)
    + (
        r"|mil|millones|entonces|después|antes|de|del|que|por|para|con|sin|más|menos|veces|vez|cosas?|y|e|o|a"
        r"|al|en|el|la|los|las|un|una|es|son|se|me|no|si|como|cada|todo|total|euros?"
    ),
    choices={
        "color": "rojo azul verde amarillo negro blanco gris marrón rosa morado naranja beige celeste plata dorado "
        "roja amarilla negra blanca morada dorada",
        "canal": "correo email e-mail carta sms teléfono whatsapp telegram mensajero mensajería",
        "formato": "csv json xml yaml parquet pdf word excel markdown html",
        "remedio": "reembolso devolución cambio reparación vale sustitución reemplazo dinero",
        "asiento": "pasillo ventanilla",
        "transporte": "tren avión autobús coche bici taxi ferry vuelo tranvía metro barco",
        "pago": "efectivo tarjeta paypal transferencia bizum factura",
        "alojamiento": "hotel hostal albergue apartamento piso camping casa",
    },
)

UNITS = {
    "€": "eur",
    "euro": "eur",
    "euros": "eur",
    "pavos": "eur",
    "$": "usd",
    "dólar": "usd",
    "dólares": "usd",
    "pesos": "peso",
    "libras": "gbp",
    "£": "gbp",
    "minutos": "min",
    "minuto": "min",
    "hora": "h",
    "horas": "h",
    "días": "day",
    "día": "day",
    "semanas": "week",
    "semana": "week",
    "meses": "month",
    "mes": "month",
    "años": "year",
    "año": "year",
    "noches": "night",
    "noche": "night",
    "kilos": "kg",
    "kilo": "kg",
    "%": "percent",
    "por ciento": "percent",
    "metros": "m",
    "personas": "person",
    "invitados": "person",
    "nosotros": "person",
    "vosotros": "person",
    "comensales": "person",
    "asistentes": "person",
    "raciones": "person",
    "persona": "person",
}

WORDS = stems(
    [*_STOP, *_AMOUNTS, *_SCALES, "euro", "euros", "eur", "dólares", "pesos"],
    _SAME,
    (
        "amientos",
        "amiento",
        "aciones",
        "ación",
        "adores",
        "ador",
        "mente",
        "idades",
        "idad",
        "ados",
        "adas",
        "idos",
        "idas",
        "ado",
        "ada",
        "ido",
        "ida",
        "ando",
        "iendo",
        "aron",
        "ieron",
        "emos",
        "amos",
        "imos",
        "ar",
        "er",
        "ir",
        "es",
        "os",
        "as",
        "an",
        "en",
        "s",
        "o",
        "a",
        "e",
    ),
)
