"""What tools answer: members of objects, lines of logs. Keys tell what binds, in whatever language the values are."""

from __future__ import annotations

import re

from serve_app.compress.cues.table import Cues

_KEYS = (
    "max|min|maximum|minimum|limit|limits|allowed|capacity|quota|cap|ceiling|floor|threshold|deadline|due|until|before|after|expire[sd]?|expiry|expiration|valid"
    "|validity|required?|requires|must|mandatory|only|not|no|never|forbid(?:den)?|prohibited|block(?:ed)?|rejected?|denied|declined|banned|policy|rule|rules"
    "|warranty|confirm(?:ation|ed)?|booking|reservation|locator|pnr|ticket|reference|refund(?:able)?|nonrefundable|penalty|fee|surcharge|engines?|cutoff|closes?"
    "|latest|earliest|window|retention|coverage|unsupported|deprecated|frozen|freeze|locked|readonly|allerg(?:y|ies|en|ens)|restriction|restrictions|vence|plazo|limite"
)

DATA = Cues(
    language="data",
    clause_end=re.compile(r";\s|\t|[ ]{2,}|,\s(?=[\w-]{1,40}\s?[:=])"),
    binds=re.compile(
        rf"(?<![a-z])(?:{_KEYS})(?![a-z])|[<>]=?\s?\d|必须|不得|不可|禁止|上限|下限|截止|有效期|限|仅|必ず|禁止|期限|以内|まで"
    ),
    values=(
        ("size", re.compile(r"(?P<n>\d[\d,.]{0,12})\s?(?P<unit>kb|mb|gb|tb|kg|km|cm|mm|g|m)\b")),
        ("duration", re.compile(r"(?P<n>\d[\d,.]{0,12})\s?(?P<unit>ms|s|sec|min|mins|h|hrs?|hours?|days?|d)\b")),
    ),
)
