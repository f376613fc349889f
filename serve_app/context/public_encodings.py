"""Encodings of the `tiktoken` package, where it is installed and their files are at hand. Nothing is ever downloaded.

tiktoken keeps the files of OpenAI's encodings in a folder of its own and fetches those that lack; so it is looked
there first. Encodings that other packages add to tiktoken bring their own files.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any

from serve_app.context.counting import BytePairTokenizer
from serve_app.errors import InvalidRequest

PREFIX = "tiktoken:"
"""Before the name of an encoding, in place of a path."""

CACHE_VARIABLES = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
DEFAULT_CACHE = "data-gym-cache"

_PUBLIC = "https://openaipublic.blob.core.windows.net"
FILES = {
    "gpt2": ("gpt-2/encodings/main/vocab.bpe", "gpt-2/encodings/main/encoder.json"),
    "r50k_base": ("encodings/r50k_base.tiktoken",),
    "p50k_base": ("encodings/p50k_base.tiktoken",),
    "p50k_edit": ("encodings/p50k_base.tiktoken",),
    "cl100k_base": ("encodings/cl100k_base.tiktoken",),
    "o200k_base": ("encodings/o200k_base.tiktoken",),
    "o200k_harmony": ("encodings/o200k_base.tiktoken",),
}
"""What each of OpenAI's encodings is made of, below `_PUBLIC`; tiktoken names a file by the digest of its address."""


class PublicTokenizer(BytePairTokenizer):
    """An encoding of tiktoken under a name of the operator's."""

    def __init__(self, name: str, encoding: str) -> None:
        """Raises InvalidRequest, which says what lacks."""
        super().__init__(name, _opened(name, encoding))


def _opened(name: str, encoding: str) -> Any:
    try:
        tiktoken = importlib.import_module("tiktoken")
    except ImportError as error:
        raise InvalidRequest(f"tokenizer {name!r}: `pip install tiktoken` for {PREFIX}{encoding}") from error
    folder = _cache()
    lacking = [address for address in FILES.get(encoding, ()) if not (folder / _cached_name(address)).is_file()]
    if lacking:
        raise InvalidRequest(
            f"tokenizer {name!r}: {lacking[0].rpartition('/')[2]} is not in {folder}; fetch it once with "
            f"`python -c 'import tiktoken; tiktoken.get_encoding(\"{encoding}\")'` where there is a network"
        )
    if encoding not in tiktoken.list_encoding_names():
        known = ", ".join(sorted(tiktoken.list_encoding_names()))
        raise InvalidRequest(f"tokenizer {name!r}: tiktoken has no encoding {encoding!r}; it has {known}")
    return tiktoken.get_encoding(encoding)


def _cache() -> Path:
    """Where tiktoken keeps its files."""
    for variable in CACHE_VARIABLES:
        if variable in os.environ:
            return Path(os.environ[variable])
    return Path(tempfile.gettempdir(), DEFAULT_CACHE)


def _cached_name(address: str) -> str:
    return hashlib.sha1(f"{_PUBLIC}/{address}".encode(), usedforsecurity=False).hexdigest()
