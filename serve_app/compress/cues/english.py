"""English."""

from __future__ import annotations

import re

from serve_app.compress.cues.table import Cues

ENGLISH = Cues(
    language="english",
    clause_end=re.compile(r"; |, (?=(?:but|and|so|because|I|we|my)\b)"),
    binds=re.compile(
        r"\b(?:must|never|cannot|can't|won't|don't|only|no more than|at most|at least|allergic|no longer|has to|have to)\b"
    ),
)
