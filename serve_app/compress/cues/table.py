"""What the ledger knows of a language: a table of cues. The engine knows none by itself.

Patterns are searched in *folded* text (see `fold`): NFKC, lower case, straight apostrophes. Each must be linear in its
text: no nested repetition, every gap bounded (`.{0,20}`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping

import msgspec

NOTHING = re.compile(r"(?!)")
"""Matches nowhere: a cue that a language does without."""

_STRAIGHT = str.maketrans({"’": "'", "‘": "'", "´": "'", "“": '"', "”": '"'})


def fold(text: str) -> str:
    """The form that cues and values are matched in. May differ from the text in length."""
    return unicodedata.normalize("NFKC", text).translate(_STRAIGHT).lower()


class Cues(msgspec.Struct, frozen=True, kw_only=True):
    """One language. Every pattern says what a *clause* that holds it is."""

    language: str

    clause_end: re.Pattern[str]
    """Where one clause of a sentence ends and another begins, in verbatim text: the match's end is the border."""

    binds: re.Pattern[str]
    """Says what must, may not or cannot be: must, never, no X, only, at most, as long as."""
    implicit: re.Pattern[str] = NOTHING
    """A fact that binds without saying so: allergies, diagnoses, faith, "puts me in hospital", deadlines of life."""
    refusal: re.Pattern[str] = NOTHING
    """Declines an offer or rules something out for good."""
    directive: re.Pattern[str] = NOTHING
    """Tells the assistant what to do or to take down: book, use, put, make it, write it with a K."""
    literal: re.Pattern[str] = NOTHING
    """Announces what cannot be guessed again: is called, spelled, the number is, booked as."""
    lasting: re.Pattern[str] = NOTHING
    """Binds beyond this conversation: allergy, illness, faith, "in general", "I never"."""

    soft: re.Pattern[str] = NOTHING
    """A wish that may be dropped: would be nice, ideally, I like, bonus points."""
    hypothetical: re.Pattern[str] = NOTHING
    """What is not so: if I were, suppose, in a dream, just kidding."""
    continues: re.Pattern[str] = NOTHING
    """Goes on with what the sentence before supposed: then I would, in that case. Matched at the beginning."""
    actual: re.Pattern[str] = NOTHING
    """Comes back from it to what is so: but for now, seriously though."""
    instructs: re.Pattern[str] = NOTHING
    """Says what to do should it come to that: call me, cancel, ask me first. The condition is a rule then, no dream."""
    unreal: re.Pattern[str] = NOTHING
    """Said after something: it was not meant ("but I'm not", "not happening", "kidding")."""
    third_person: re.Pattern[str] = NOTHING
    """Its subject is somebody else: my brother-in-law hates, the neighbours are allergic."""
    outsider: re.Pattern[str] = NOTHING
    """Its subject is somebody known by their trade: another person's matter, unless the assistant takes it down."""
    absent: re.Pattern[str] = NOTHING
    """Whoever was spoken of takes no part: isn't coming, stays home, long story."""
    participant: re.Pattern[str] = NOTHING
    """Somebody else takes part: comes along, is for my daughter, the two of us."""
    person: re.Pattern[str] = NOTHING
    """Names somebody: group `who` for kin and acquaintances, `pronoun` for the last one named."""
    subjectless: re.Pattern[str] = NOTHING
    """Goes on about whoever was last named: he, hers, or no subject at all. Matched at the beginning."""
    reports: re.Pattern[str] = NOTHING
    """Somebody's word that may bind the speaker: my wife says, finance wrote."""
    therefore: re.Pattern[str] = NOTHING
    """What somebody is or has becomes a reason: so, because of that, which is why."""
    own: re.Pattern[str] = NOTHING
    """Its subject is the speaker: I, my, we."""
    question: re.Pattern[str] = NOTHING
    """Asks, mark or no mark."""
    small_talk: re.Pattern[str] = NOTHING
    """Pleasantries and asides: thanks, haha, by the way it rained. Weighs little beside what binds."""
    past: re.Pattern[str] = NOTHING
    """Tells what happened and is over: yesterday we went, I once had."""

    change: re.Pattern[str] = NOTHING
    """A value takes the place of another: now, instead, moved to, make it, actually, after all."""
    replacement: re.Pattern[str] = NOTHING
    """The same, and hardly anything else: instead, make it, scratch that, changed my mind."""
    chooses: re.Pattern[str] = NOTHING
    """Takes one of several: let's do, go with, I'll take, X it is. Ends what was chosen before."""
    reminder: re.Pattern[str] = NOTHING
    """Quotes what was said before, mostly to end it: you had me down as, I told you, we'd said."""
    adds: re.Pattern[str] = NOTHING
    """Comes beside what was said and replaces nothing: and also, the other one, too."""
    frame: re.Pattern[str] = NOTHING
    """What a clause tells to do: group `verb`, and `where` for the word that its object follows."""
    subject: re.Pattern[str] = NOTHING
    """What a clause says something of, or wants done something with: group `about` or `object`."""
    negative: re.Pattern[str] = NOTHING
    """Denies, excludes or ends: against an earlier word on the same matter it takes that back, and the other way."""
    withdrawal: re.Pattern[str] = NOTHING
    """What was said no longer binds: forget that, never mind, is fine after all, no longer needed."""
    acknowledged: re.Pattern[str] = NOTHING
    """The assistant takes a statement down: noted, got it, I'll keep that in mind."""
    changed: re.Pattern[str] = NOTHING
    """The assistant changes what it had taken down: updated, switched to, raised to, dropped."""
    removed: re.Pattern[str] = NOTHING
    """The assistant takes something out and names nothing new: removed, struck, I'll leave it out, off the list."""
    concludes: re.Pattern[str] = NOTHING
    """The assistant draws the consequence: X then, X it is."""
    confirm_request: re.Pattern[str] = NOTHING
    """The assistant asks whether something holds: so no X, right?"""
    confirmation: re.Pattern[str] = NOTHING
    """The user says that it does: yes, correct, exactly. Matched at the beginning of a turn."""
    dismissed: re.Pattern[str] = NOTHING
    """The assistant sets a statement aside: each to their own, good for him."""
    denial: re.Pattern[str] = NOTHING
    """The user says that it does not: no, wrong. Matched at the beginning of a turn."""

    values: tuple[tuple[str, re.Pattern[str]], ...] = ()
    """Kind (money, date, time, duration, size, count, percent, code, name ...) and pattern, the first to match a place
    wins. Group `n` is the amount (else the whole), group `unit` its unit. No kind: the name of the group is the kind."""
    figures: re.Pattern[str] = re.compile("")
    """What a text has that names a sum, a size, a share, a number or a code: without it those are not looked for."""
    units: Mapping[str, str] = {}
    """Units that mean the same: euros -> eur."""
    number: Callable[[str], str] = str
    """The canonical form of an amount: "twelve" -> "12", "1,800" -> "1800"."""
    words: Callable[[str], frozenset[str]] = lambda folded: frozenset()
    """The content words of folded text, as stems (or bigrams): what a later statement shares with an earlier one."""
