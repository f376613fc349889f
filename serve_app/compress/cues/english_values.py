"""English: amounts in words and figures, units, and the words that say what a clause is about."""

from __future__ import annotations

import re

from serve_app.compress.cues.latin import NUMBER, either, stems, values

_ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_AMOUNTS = {word: str(number) for number, word in enumerate(_ONES.split(), 1)}
_AMOUNTS |= {"once": "1", "twice": "2", "thrice": "3", "daily": "1", "zero": "0"}
_AMOUNTS |= {word: str(10 * number) for number, word in enumerate(_TENS.split(), 2)}
_SCALES = {"k": 1000, "hundred": 100, "thousand": 1000, "million": 1_000_000, "grand": 1000, "dozen": 12}
_WORD_NUMBER = (
    rf"(?:\b(?:a|an|half a) (?=hundred|thousand|dozen))?\b(?:{either(_ONES)}|{either(_TENS)}|hundred|thousand|dozen)"
    rf"(?:[ -](?:and )?(?:{either(_ONES)}|{either(_TENS)}|hundred|thousand|grand|million|dozen|a half)){{0,6}}\b"
)
_N = rf"(?:(?:{NUMBER})(?: ?(?:k|grand|thousand|million)\b)?|(?!one\b(?! (?:hundred|thousand))){_WORD_NUMBER})"
_COUNTED = rf"(?:{NUMBER}|{_WORD_NUMBER})"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_ORDINAL = (
    r"(?:\d{1,2}(?:st|nd|rd|th)\b|\b(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth)(?= of\b))"
)


_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def number(text: str) -> str:
    """Digits for an amount in words or figures; a day and its month for a date."""
    text = text.strip().replace(",", "")
    iso = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text)
    if iso and 1 <= int(iso[2]) <= 12:
        return f"{int(iso[3])} {_MONTHS[int(iso[2]) - 1]} {iso[1]}"
    if re.fullmatch(rf"(?:{_WEEKDAY})", text):
        return text.removesuffix("s")
    if not re.search(r"[a-z]", text):
        return text.removesuffix(".00").removesuffix(".0")
    month = next((word[:3] for word in re.findall(r"[a-z]{3,}", text) if word[:3] in _MONTHS), "")
    total = part = half = 0
    known = False
    for word in re.findall(r"[a-z]+|\d+(?:\.\d+)?", text):
        if word in _SCALES:
            known, scale = True, _SCALES[word]
            part = max(part, 1) * scale
            if scale >= 1000:
                total, part, half = total + part + half * scale // 2, 0, 0
        elif word in _AMOUNTS or word.isdigit():
            known, part = True, part + int(_AMOUNTS.get(word, word))
        elif word == "half":
            half = 1
    amount = f"{total + part}.5" if half else str(total + part)
    return " ".join(filter(None, (amount, month))) if known else text


_STOP = """
a an the and or but nor so yet if then than that this these those there here it its it's he she him her his
hers they them their theirs we us our ours you your yours i me my mine myself i'm i've i'd i'll we're we've
we'd we'll you're you've you'd you'll he's she's they're they've that's there's what's who's let's let is are
am was were be been being isn't aren't wasn't weren't do does did done doing don't doesn't didn't have has had
having haven't hasn't hadn't can could can't cannot couldn't will would won't wouldn't shall should shouldn't
may might must mustn't need needs to of in on at by for with from into onto about as up down out off over
under again further once too very just also even still only not no never ever always all any both each few
more most other some such own same what which who whom whose when where why how now actually instead really
please ok okay yes yeah yep sure thanks thank well oh hey hi like want make made get got go going gone come
comes came take takes took put keep say said says tell told know think one thing way lot bit much many little
because since while until till before after during between through against without within update updated noted
understood got'it it'll it'd that'll right fine good great nice new old last per etc
""".split()

_NO_SUBJECTS = "euro euros eur dollar dollars usd pound pounds gbp quid buck bucks pence cent cents forget drop scrap scratch mind bother"

_SAME = {
    "kid": "child",
    "children": "child",
    "child": "child",
    "son": "child",
    "daughter": "child",
    "box": "box",
    "crate": "box",
    "carton": "box",
    "car": "car",
    "vehicle": "car",
    "flat": "flat",
    "apartment": "flat",
    "doctor": "doctor",
    "gp": "doctor",
    "price": "budget",
    "bring": "delivery",
    "send": "delivery",
    "post": "delivery",
    "drop-off": "delivery",
    "start": "start",
    "begin": "start",
    "kick": "start",
    "commence": "start",
    "launch": "start",
    "pickup": "pickup",
    "collect": "pickup",
    "pick": "pickup",
    "fetch": "pickup",
    "call": "call",
    "phone": "call",
    "ring": "call",
    "room": "room",
    "bedroom": "room",
    "colour": "colour",
    "color": "colour",
    "separator": "separator",
    "separate": "separator",
    "delimiter": "separator",
    "region": "region",
    "zone": "region",
    "branch": "branch",
    "password": "password",
    "run": "run",
    "runs": "run",
    "outing": "run",
    "jog": "run",
    "table": "table",
    "seat": "seat",
    "desk": "seat",
    "hour": "hour",
    "lesson": "lesson",
    "class": "lesson",
    "session": "session",
    "train": "train",
    "exam": "exam",
    "test": "exam",
    "mock": "exam",
    "ceiling": "budget",
    "cap": "budget",
    "limit": "budget",
    "spend": "budget",
    "altogether": "budget",
    "total": "budget",
    "budget": "budget",
    "cost": "budget",
    "guest": "person",
    "people": "person",
    "person": "person",
    "attendee": "person",
    "folk": "person",
    "deliver": "delivery",
    "delivery": "delivery",
    "courier": "delivery",
    "parcel": "delivery",
    "arriv": "delivery",
    "ship": "delivery",
    "motorway": "highway",
    "freeway": "highway",
    "flight": "fly",
    "fly": "fly",
    "retri": "retry",
    "attempt": "retry",
    "try": "retry",
    "meal": "food",
    "workout": "session",
    "appointment": "meeting",
    "meet": "meeting",
    "paid": "pay",
    "money": "refund",
    "refund": "refund",
    "lead": "leash",
    "picture": "photo",
    "image": "photo",
    "kids": "child",
    "heads": "person",
    "folks": "person",
    "attendees": "person",
}

FIGURES = re.compile(rf"\d|\b(?:{_WORD_NUMBER})")

VALUES = values(
    _N,
    counted=_COUNTED,
    month=_MONTH,
    weekday=_WEEKDAY,
    ordinal=_ORDINAL,
    money=r"quid|pounds?|euros?|dollars?|bucks?|cents?|pence|usd|eur|gbp|chf|aud|cad|francs?|yen|rupees?|pesos?",
    clock=r"a\.?m\b\.?|p\.?m\b\.?|o'clock",
    clock_words=(
        r"noon|midnight|half past \w+|quarter (?:past|to) \w+|half (?:one|two|three|four|five|six|seven|eight"
        r"|nine|ten|eleven|twelve)"
    ),
    before_clock=r"at|before|after|until|till|by|from|past|around",
    duration=(
        r"seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|years?|yrs?|nights?|sprints?"
        r"|fortnights?"
    ),
    often=(
        r"once|twice|thrice|two times|three times|daily|weekly|monthly|fortnightly|every other day|hourly"
        r"|yearly"
    ),
    relative_day=(
        r"this (?:week|month|year)|tomorrow|tonight|today|next (?:week|month|year)|end of (?:the )?(?:month"
        r"|week|year)|easter|christmas(?: eve)?|new year's(?: eve)?|thanksgiving"
    ),
    goal=r"(?:send|bring|deliver|ship|take|post|mail|drop|move|forward)(?:s|ed|ing)? (?:it|them|this|that|everything|all of it|the [a-z]+)(?: off| over| round)? to(?: the| my| our| her| his)?",
    address=(
        r"\d{1,5}[a-z]? (?:[a-z'-]{2,20} ){1,3}?(?:street|st|lane|road|rd|avenue|ave|close|drive|way|court"
        r"|place|square|crescent|terrace|yard|gardens|hill|row|mews|park)\b|(?:flat|apartment|unit|room|door"
        r"|gate|locker|platform|seat) \d{1,5}[a-z]?\b"
    ),
    called=r"address (?:me|him|her) as(?: mrs?| ms| dr)?|(?:sur)?names? (?:is|are|on .{1,20} is)|name's|called|named|spel(?:t|led)(?: as)?|call me",
    not_counted=either(_ONES)
    + "|"
    + either(_TENS)
    + (
        r"|then|grand|million|dozen|altogether|total|together|off|single|every|too|else|only|here|there|hundred"
        r"|thousand|thing|things|of|more|day|bit|lot|way|by|time|to|in|on|at|and|or|the|for|is|it|from|per"
        r"|last|other|side|each|after|before|a|an|with|as|but|if|so|that|this|who|hand|sec|moment|person|point"
        r"|until|then|now"
    ),
    choices={
        "colour": "red blue green yellow black white grey gray brown pink purple orange beige navy teal turquoise cream "
        "silver gold burgundy khaki ivory charcoal maroon lilac",
        "channel": "email e-mail mail post letter text sms phone whatsapp telegram slack courier fax voicemail",
        "format": "csv json xml yaml toml parquet pdf docx word excel xlsx markdown html jpeg png svg mp4 epub latex",
        "remedy": "refund money_back replacement exchange repair voucher store_credit new_one",
        "seat": "aisle window",
        "separator": "comma semicolon tab pipe colon dash underscore slash",
        "sound": "acoustic electric amplified unplugged",
        "diet": "vegan vegetarian omnivore pescatarian",
        "size_word": "small medium large extra-large single double twin king queen",
        "daypart": "morning afternoon evening lunchtime midday noon midnight night",
        "transport": "train plane bus coach car bike taxi ferry flight tram subway tube drive",
        "payment": "cash card paypal invoice transfer cheque debit",
        "language": "english spanish french german italian portuguese chinese japanese dutch welsh polish russian",
        "software": "postgres postgresql mysql sqlite mongodb redis python javascript typescript java rust golang kotlin "
        "react vue angular svelte django flask fastapi docker kubernetes kafka rabbitmq aws gcp azure",
        "board": "hotel hostel apartment airbnb campsite cottage guesthouse villa",
    },
)

UNITS = {
    "£": "gbp",
    "quid": "gbp",
    "pound": "gbp",
    "pounds": "gbp",
    "€": "eur",
    "euro": "eur",
    "euros": "eur",
    "$": "usd",
    "dollar": "usd",
    "dollars": "usd",
    "bucks": "usd",
    "buck": "usd",
    "second": "s",
    "seconds": "s",
    "sec": "s",
    "secs": "s",
    "minute": "min",
    "minutes": "min",
    "mins": "min",
    "hour": "h",
    "hours": "h",
    "hr": "h",
    "hrs": "h",
    "days": "day",
    "weeks": "week",
    "months": "month",
    "years": "year",
    "yrs": "year",
    "nights": "night",
    "people": "person",
    "persons": "person",
    "guests": "person",
    "kilo": "kg",
    "kilos": "kg",
    "kgs": "kg",
    "%": "percent",
    "per cent": "percent",
    "inches": "in",
    "inch": "in",
    "heads": "person",
    "head": "person",
    "us": "person",
    "you": "person",
    "folks": "person",
    "attendees": "person",
    "pax": "person",
    "mouths": "person",
    "kids": "child",
    "children": "child",
    "kid": "child",
    "photos": "photo",
    "pictures": "photo",
    "images": "photo",
}

WORDS = stems(
    [*_STOP, *_AMOUNTS, *_SCALES, *_NO_SUBJECTS.split()],
    _SAME,
    (
        "ingly",
        "edly",
        "ations",
        "ation",
        "ments",
        "ment",
        "ings",
        "ing",
        "ies",
        "ied",
        "ed",
        "es",
        "s",
        "ly",
        "e",
        "y",
    ),
)
