"""What a language has to say to be read: its words for expressions, and the small words around them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from serve_app.retrieve.when.expressions import Clock, Meaning
from serve_app.retrieve.when.needed import needed, needs_digit

Build = Callable[[re.Match[str], Clock], Meaning | None]


class Rule(NamedTuple):
    """Words, and what they mean. `build` gives None, or raises ValueError, where they turn out to mean nothing."""

    words: re.Pattern[str]
    build: Build
    needed: tuple[str, ...] = ()
    digit: bool = False
    """What a text has to hold, see `needed.py`."""

    def may_match(self, lowered: str, digits: bool) -> bool:
        """Whether a text, in lower case, has what the words need; `digits`: whether it has any."""
        return (digits or not self.digit) and (not self.needed or any(piece in lowered for piece in self.needed))


class Language(NamedTuple):
    """One language. Of two rules that fit the same words the first one counts."""

    rules: tuple[Rule, ...]
    masked: re.Pattern[str]
    """What looks like a time and is none: names, versions, idioms. It is blanked before anything is read."""
    filler: re.Pattern[str]
    """All that may stand between an expression and the longer one that it lies in."""
    joint: re.Pattern[str]
    """All that may stand between the two ends of a range."""
    lead: re.Pattern[str]
    """At the end of what stands before an expression: the group that matches names its relation, see `joining.py`."""
    trail: re.Pattern[str]
    """The same at the start of what follows."""
    future: re.Pattern[str]
    past: re.Pattern[str]
    """A query that looks ahead has words of the first and none of the second."""
    apart: re.Pattern[str] | None = None
    """All that stands between a weekday and the day that it comes before or after, in groups of these names."""


def rule(words: str, build: Build, flags: int = re.I) -> Rule:
    return Rule(re.compile(words, flags), build, needed(words, flags), needs_digit(words, flags))
