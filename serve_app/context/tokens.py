"""Counts tokens as named model families do. Owns the names that a request may use.

No name that a caller sends is ever taken for a path: a name is one of `ENCODINGS`, or a key of the
mapping that the operator configured. All are opened when the service starts, none by a request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import bpe_openai
import tokenizers

from serve_app.context.counting import (
    COUNT_CACHE_ENTRIES_MAX,
    ENCODE_CHARS_MAX,
    BytePairTokenizer,
    CountingTokenizer,
)
from serve_app.context.public_encodings import PREFIX, PublicTokenizer
from serve_app.errors import InvalidRequest
from serve_app.ports import Tokenizer

MESSAGE_OVERHEAD_TOKENS = 4
"""What a chat message costs beside its text: role and separators."""

ENCODINGS = ("o200k_base", "cl100k_base")
"""Vocabularies that ship inside the `bpe-openai` package."""

DEFAULT_TOKENIZER = ENCODINGS[0]

TOKENIZER_FILE, SNAPSHOTS = "tokenizer.json", "snapshots"

CONFIGURED_TOKENIZERS_MAX = 14
"""Tokenizers that a service has beside `ENCODINGS`; `costs.TOKENIZERS_MAX` has room for all of them."""


class BpeTokenizer(BytePairTokenizer):
    """One of `ENCODINGS`, as OpenAI's models count.

    Their patterns end a piece, and so a token, after a line break that neither white space nor a slash
    follows, and between a letter or digit and a space.
    """

    lines_add_up_to = ENCODE_CHARS_MAX

    def __init__(self, name: str = DEFAULT_TOKENIZER, cache_entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        if name not in ENCODINGS:
            raise InvalidRequest(f"no such encoding: {name!r}")
        super().__init__(name, bpe_openai.get_encoding(name), cache_entries_max)


class HubTokenizer(CountingTokenizer):
    """Any file in the format of the `tokenizers` library, or a folder that holds it as `tokenizer.json`: that of a
    model, or the one in which the hub's client keeps a model's revisions.
    """

    def __init__(self, name: str, path: Path, cache_entries_max: int = COUNT_CACHE_ENTRIES_MAX) -> None:
        """Raises InvalidRequest for a file that is not there or no such file."""
        super().__init__(name, cache_entries_max)
        file = _file_of(path)
        if not file.is_file():
            raise InvalidRequest(f"tokenizer {name!r} is configured, but there is no {file}")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:
            raise InvalidRequest(f"tokenizer {name!r}: {file} is no file of the tokenizers library") from error
        # Files made for an encoder cut at its length and pad up to it; either would make counts lies.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def _encoded_length(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def _end_of_token(self, text: str, tokens: int) -> int:
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return len(text) if len(offsets) <= tokens else int(offsets[tokens][0])


def _file_of(path: Path) -> Path:
    if (path / SNAPSHOTS).is_dir():
        main = path / "refs" / "main"
        revisions = sorted(folder.name for folder in (path / SNAPSHOTS).iterdir())
        revision = main.read_text("utf-8").strip() if main.is_file() else next(iter(revisions), "main")
        path = path / SNAPSHOTS / revision
    return path / TOKENIZER_FILE if path.is_dir() else path


def open_tokenizer(name: str = DEFAULT_TOKENIZER) -> Tokenizer:
    """One of `ENCODINGS`; the same name gives the same object again. Raises InvalidRequest for any other name."""
    if name not in ENCODINGS:
        raise InvalidRequest(f"there is no encoding {name!r}; there are: {', '.join(ENCODINGS)}")
    return _open_encoding(name)


def open_tokenizers(configured: Mapping[str, str]) -> dict[str, Tokenizer]:
    """By name: all of `ENCODINGS`, and those of the operator, each a path or `tiktoken:` with an encoding.

    Raises InvalidRequest, which names the one that cannot be opened.
    """
    opened: dict[str, Tokenizer] = {name: open_tokenizer(name) for name in ENCODINGS}
    for name, where in configured.items():
        if name in ENCODINGS:
            raise InvalidRequest(f"tokenizers: {name!r} is built in; give the other one another name")
        if where.startswith(PREFIX):
            opened[name] = PublicTokenizer(name, where.removeprefix(PREFIX))
        else:
            opened[name] = HubTokenizer(name, Path(where).expanduser())
    return opened


def tokenizer_of(opened: Mapping[str, Tokenizer], name: str) -> Tokenizer:
    """The one of that name. Raises InvalidRequest, which names all that there are."""
    found = opened.get(name)
    if found is None:
        raise InvalidRequest(f"there is no tokenizer {name!r}; there are: {', '.join(opened)}")
    return found


def message_tokens(message: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """Tokens of one chat message, in OpenAI's or Anthropic's form: all that it says, and the overhead."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    tokens = MESSAGE_OVERHEAD_TOKENS + sum(block_tokens(block, tokenizer) for block in blocks)
    if message.get("tool_calls"):
        tokens += tokenizer.count(compact_json(message["tool_calls"]))
    if message.get("tool_call_id"):
        tokens += tokenizer.count(message["tool_call_id"])
    return tokens


def block_tokens(block: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """Tokens of one block of a message's content: its text, or its compact JSON where it is a call."""
    if block["type"] == "text":
        return tokenizer.count(block["text"])
    if block["type"] == "tool_result":
        return tokenizer.count(block["tool_use_id"]) + tokenizer.count(block["content"])
    return tokenizer.count(compact_json(block))


def compact_json(value: object) -> str:
    """JSON without white space, in the order given, non-ASCII as it is: the form in which calls are counted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=len(ENCODINGS))
def _open_encoding(name: str) -> BpeTokenizer:
    return BpeTokenizer(name)
