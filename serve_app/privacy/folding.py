"""Text with its full-width forms made plain, one code point for one, so that offsets stay what they are."""

from __future__ import annotations

import re

# Full-width digits, letters and the marks that stand inside numbers and addresses. Full-width comma, colon and
# stops stay: they end what they follow.
_PLAIN = {code: code - 0xFEE0 for code in range(0xFF10, 0xFF1A)}
_PLAIN |= {code: code - 0xFEE0 for code in (*range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))}
_PLAIN |= {ord(wide): ord(plain) for wide, plain in zip("＠．－＿＋（）／", "@.-_+()/", strict=True)}
_PLAIN |= dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), ord("-"))
_PLAIN |= dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), ord(" "))

_WIDE = re.compile("[" + "".join(map(re.escape, map(chr, _PLAIN))) + "]")


def folded(text: str) -> str:
    """As long as the text given; most texts come back as they are."""
    return text if text.isascii() or _WIDE.search(text) is None else text.translate(_PLAIN)
