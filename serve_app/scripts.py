"""Which scripts a text is written in, as far as the choice of an encoder asks: Latin, and any other.

Letters alone count. Digits, signs, pictures and what all scripts share (the micro sign, modifier letters, letterlike
and mathematical signs) are of no script. Pure; a text of plain ASCII is not looked through.
"""

from __future__ import annotations

import re
from typing import Final

_LATIN: Final = (
    "A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02b8\u02e0-\u02e4"
    "\u1d00-\u1d25\u1d2c-\u1d5c\u1d62-\u1d65\u1d6b-\u1d77\u1d79-\u1dbe\u1e00-\u1eff"
    "\u2071\u207f\u2090-\u209c\u212a\u212b\u2132\u214e\u2160-\u2188\u2c60-\u2c7f"
    "\ua722-\ua787\ua78b-\ua7ff\uab30-\uab5a\uab5c-\uab64\uab66-\uab69\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a"
    "\U00010780-\U000107ba\U0001df00-\U0001df2a"
)
_SHARED: Final = "\u00b5\u02b9-\u02df\u02e5-\u02ff\u2102-\u2125\u2128-\u2131\u2133-\u214d\ua788\U0001d400-\U0001d7ff"

_LATIN_LETTER: Final = re.compile(f"[{_LATIN}]")
_OTHER_SIGN: Final = re.compile(rf"[^\W\d_{_LATIN}{_SHARED}]")
"""A letter of another script, or a number that is no digit (a half, a circled one)."""

AS_ASCII: Final = {0x130: "I", 0x131: "i", 0x17F: "s", 0x212A: "K"}
"""The letters beyond ASCII that a pattern without regard to case takes for i, s and k. In lower case they are others:
who looks up what such a pattern found translates the text by this first. No place in the text moves."""


def has_latin(text: str) -> bool:
    """Whether a letter of it is Latin."""
    return _LATIN_LETTER.search(text) is not None


def has_other(text: str) -> bool:
    """Whether a letter of it is of another script than Latin."""
    return not text.isascii() and any(found[0].isalpha() for found in _OTHER_SIGN.finditer(text))
