"""What a language model wrote, made plain text: no control characters, no code fence, nothing that hides or reorders.

Pure, and linear in the text.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["Said", "one_line", "unfenced"]

_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffd\ud800-\udfff]+"
)
"""What no plain text has, and what would only show another text than is there."""


class Said(NamedTuple):
    """An answer as it came; `whole` is False where a bound on its length cut it off."""

    content: str
    whole: bool = True


def one_line(text: str) -> str:
    """White space and control characters become single spaces, none at the ends."""
    return " ".join(_CONTROL.sub(" ", text).split())


def unfenced(content: str) -> str:
    """Without the fence of Markdown around it, if there is one."""
    return content.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
