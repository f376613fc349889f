"""Japanese."""

from __future__ import annotations

import re

from serve_app.compress.cues.table import Cues

_I = re.IGNORECASE

JAPANESE = Cues(
    language="japanese",
    clause_end=re.compile(r"[，；;]|, "),
    binds=re.compile(r"必须|不能|不要|最多|至少|过敏|できない|アレルギー|\bno\b|\bnunca\b|\bdebe\b", _I),
)
